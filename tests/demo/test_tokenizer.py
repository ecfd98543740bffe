"""The tokenizer: bytes in, the same bytes out; the chat template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from tokenrouter.demo.tokenizer import SPECIAL_TOKENS, build_tokenizer, save_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerFast:
    """The tokenizer as others load it: from its files, by AutoTokenizer."""
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(folder)
    tokenizer: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(folder)
    return tokenizer


@pytest.mark.parametrize(
    "text",
    [
        "Ann has 12 coins.",
        " two  spaces , and don 't tidy up . ",
        "\n\ttabs\r\n\x00\x7f",
        "na\u00efve \u4f60\u597d \U0001f600\U0001f468\u200d\U0001f469",
        "",
    ],
)
def test_any_text_survives(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    ids = tokenizer.encode(text)
    assert ids == list(text.encode())
    assert tokenizer.decode(ids) == text


def test_every_byte_is_a_token(tokenizer: PreTrainedTokenizerFast) -> None:
    assert len(tokenizer) == 256 + len(SPECIAL_TOKENS)
    assert [tokenizer.decode([byte]) for byte in range(128)] == [chr(byte) for byte in range(128)]


def test_half_a_character_decodes_to_a_mark_and_the_rest_completes_it(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    ids = tokenizer.encode("ok \U0001f600")
    assert tokenizer.decode(ids[:-1]) == "ok \ufffd"
    assert tokenizer.decode(ids) == "ok \U0001f600"


def test_special_tokens(tokenizer: PreTrainedTokenizerFast) -> None:
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == [256, 257, 258, 259, 260]
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (256, 260)
    assert tokenizer.bos_token_id is None
    ids = tokenizer.encode("a<|end|>b")
    assert ids == [ord("a"), 260, ord("b")]
    assert tokenizer.decode(ids) == "a<|end|>b"
    assert tokenizer.decode(ids, skip_special_tokens=True) == "ab"


@pytest.mark.parametrize(
    ("messages", "generate", "expected"),
    [
        ([("user", "Hi?")], True, "<|user|>Hi?<|end|><|assistant|>"),
        ([("user", "Hi?")], False, "<|user|>Hi?<|end|>"),
        (
            [("system", "Be kind."), ("user", " a\n")],
            True,
            "<|system|>Be kind.<|end|><|user|> a\n<|end|><|assistant|>",
        ),
        (
            [("user", "a"), ("assistant", "b"), ("user", "c")],
            True,
            "<|user|>a<|end|><|assistant|>b<|end|><|user|>c<|end|><|assistant|>",
        ),
        (
            [("user", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])],
            False,
            "<|user|>ab<|end|>",
        ),
        ([("assistant", None), ("user", "c")], False, "<|assistant|><|end|><|user|>c<|end|>"),
    ],
)
def test_chat_template(
    tokenizer: PreTrainedTokenizerFast,
    messages: list[tuple[str, Any]],
    generate: bool,
    expected: str,
) -> None:
    chat = [{"role": role, "content": content} for role, content in messages]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=generate)
    assert text == expected


@pytest.mark.parametrize(
    "message",
    [
        {"role": "robot", "content": "Hi"},
        {"role": "user", "content": [{"type": "image_url", "image_url": "picture"}]},
    ],
)
def test_chat_template_refuses_what_it_cannot_render(
    tokenizer: PreTrainedTokenizerFast, message: dict[str, Any]
) -> None:
    with pytest.raises(jinja2.TemplateError):
        tokenizer.apply_chat_template([message], tokenize=False)


def test_loading_changes_nothing(tokenizer: PreTrainedTokenizerFast) -> None:
    built = build_tokenizer()
    assert built.get_vocab() == tokenizer.get_vocab()
    assert built.chat_template == tokenizer.chat_template
