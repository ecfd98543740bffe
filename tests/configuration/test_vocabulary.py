"""Members must mean the same text by the same token."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.configuration.folders import VOCABULARY, model_folder
from tokenrouter.config import Config
from tokenrouter.configuration.vocabulary import check, read
from tokenrouter.errors import ConfigError


def models(tmp_path: Path, *vocabularies: Mapping[str, int]) -> Config:
    """A deployment of members m0, m1, ... with these vocabularies."""
    entries = [
        {"name": f"m{i}", "model_path": model_folder(tmp_path / f"m{i}", vocabulary)}
        for i, vocabulary in enumerate(vocabularies)
    ]
    return Config.model_validate({"models": entries})


def test_equal_vocabularies_in_any_order(tmp_path: Path) -> None:
    check(models(tmp_path, VOCABULARY, dict(reversed(VOCABULARY.items()))).models)


def test_a_timed_member_takes_any_vocabulary(tmp_path: Path) -> None:
    entries = [
        {"name": "m0", "model_path": model_folder(tmp_path / "m0")},
        {"name": "m1", "engine": "timed", "step_ms": 1},
    ]
    check(Config.model_validate({"models": entries}).models)


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (
            {"a": 0, "b": 2, "c": 1},
            "token 'b' is id 1 in m0 and 2 in m2 (2 tokens have different ids)",
        ),
        ({"a": 0, "b": 1}, "token 'c' (id 2) is only in m0 (1 such tokens)"),
        ({**VOCABULARY, "d": 3, "e": 4}, "token 'd' (id 3) is only in m2 (2 such tokens)"),
    ],
)
def test_which_two_differ_and_how(
    tmp_path: Path, other: Mapping[str, int], difference: str
) -> None:
    with pytest.raises(ConfigError) as error:
        check(models(tmp_path, VOCABULARY, VOCABULARY, other).models)
    assert f"m0 and m2 have different tokenizers: {difference}" in str(error.value)
    assert "share one vocabulary" in str(error.value)


@pytest.mark.parametrize(
    "files",
    [
        {"tokenizer.json": {"model": {"vocab": VOCABULARY}}},
        {"tokenizer.json": {"model": {"vocab": [["a", 0.0], ["b", -1.0], ["c", -2.0]]}}},
        {
            "tokenizer.json": {
                "model": {"vocab": {"a": 0, "b": 1}},
                "added_tokens": [{"id": 2, "content": "c", "special": True}],
            }
        },
        {"vocab.json": {"a": 0, "b": 1}, "added_tokens.json": {"c": 2}},
        {
            "vocab.json": {"a": 0, "b": 1},
            "tokenizer_config.json": {"added_tokens_decoder": {"2": {"content": "c"}}},
        },
        {"vocab.txt": "a\nb\nc\n"},
    ],
)
def test_every_way_to_store_a_vocabulary(tmp_path: Path, files: dict[str, Any]) -> None:
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / name).write_text(text)
    assert read("m", tmp_path) == VOCABULARY


def test_a_token_may_hold_what_unicode_calls_the_end_of_a_line(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("a\u2028\n\x85\nc\n", encoding="utf-8")
    assert read("m", tmp_path) == {"a\u2028": 0, "\x85": 1, "c": 2}


def test_a_sentencepiece_model(tmp_path: Path) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    text = tmp_path / "text"
    text.write_text("one two three four five six seven\n" * 20)
    sentencepiece.SentencePieceTrainer.train(
        input=str(text),
        model_prefix=str(tmp_path / "tokenizer"),
        vocab_size=30,
        hard_vocab_limit=False,
        minloglevel=5,
    )
    vocabulary = read("m", tmp_path)
    assert {"<unk>", "<s>", "</s>"} < vocabulary.keys()
    assert sorted(vocabulary.values()) == list(range(len(vocabulary)))


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"models.m.model_path: .* holds no tokenizer"):
        read("m", tmp_path)


@pytest.mark.parametrize("text", ["{", '{"model": {}}', "[1]", '{"model": {"vocab": {"a": "x"}}}'])
def test_a_broken_tokenizer(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(ConfigError, match=r"tokenizer.json: not a tokenizer"):
        read("m", tmp_path)
