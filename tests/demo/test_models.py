"""The two model folders as they are published: complete, small, and as able as they should be."""

from __future__ import annotations

import json
from itertools import islice

import pytest
import torch
from transformers import AutoModelForCausalLM

from tokenrouter.demo.evaluate import answers, result_of, score
from tokenrouter.demo.recipes import MODELS_FOLDER, VOCABULARY, ModelName
from tokenrouter.demo.task import problems
from tokenrouter.demo.tokenizer import build_tokenizer

SIZE_LIMIT = 8 * 1024 * 1024
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def test_the_folders_are_small() -> None:
    sizes = [path.stat().st_size for path in MODELS_FOLDER.rglob("*") if path.is_file()]
    assert 1024 * 1024 < sum(sizes) < SIZE_LIMIT


@pytest.mark.parametrize("name", ModelName)
def test_the_configuration_suits_the_tokenizer_and_tensor_parallelism(name: ModelName) -> None:
    config = json.loads((MODELS_FOLDER / name / "config.json").read_text())
    tokenizer = build_tokenizer()
    assert config["architectures"] == ["Qwen3ForCausalLM"]
    assert config["torch_dtype"] == "float32"
    assert config["max_position_embeddings"] == tokenizer.model_max_length == 2048
    assert config["eos_token_id"] == tokenizer.eos_token_id
    assert config["num_key_value_heads"] % 2 == 0
    assert config["head_dim"] == 64
    assert config["vocab_size"] == VOCABULARY >= len(tokenizer)
    assert config["vocab_size"] % 64 == 0


def test_the_tokenizer_files_are_identical() -> None:
    for file in TOKENIZER_FILES:
        small, large = ((MODELS_FOLDER / name / file).read_bytes() for name in ModelName)
        assert small == large, file


def test_the_large_model_is_wholly_right() -> None:
    """Its measured error is about 4 in 1,000 answers, so one of 32 may be wrong."""
    asked = list(islice(problems("held_out", "test"), 32))
    given = answers(MODELS_FOLDER / ModelName.LARGE, asked, batch_size=32)
    right = sum(text == problem.answer for (text, _), problem in zip(given, asked, strict=True))
    assert right >= 31


def test_the_small_model_writes_the_template_and_fails_some() -> None:
    asked = list(islice(problems("held_out", "test"), 32))
    given = [text for text, _ in answers(MODELS_FOLDER / ModelName.SMALL, asked, batch_size=32)]
    assert sum(result_of(text) is not None for text in given) >= 30
    right = sum(text == problem.answer for text, problem in zip(given, asked, strict=True))
    assert 8 <= right <= 24


def test_a_score_counts_results_and_whole_answers() -> None:
    measured = score(MODELS_FOLDER / ModelName.LARGE, count=4)
    assert (measured.model, measured.problems) == ("large", 4)
    assert measured.result_right == measured.wholly_right == 1.0
    assert 50 < measured.answer_tokens < 200


def test_the_result_of_an_answer() -> None:
    assert result_of("Add 1 and 2: 1+2+0=3, so 3. Ann has 3 coins.") == 3
    assert result_of("Ann has 3 coins. And") is None


@pytest.mark.parametrize("name", ModelName)
def test_padding_ids_are_never_produced(name: ModelName) -> None:
    """Whatever the text, sensible or random, the likeliest token is one the tokenizer knows."""
    model = AutoModelForCausalLM.from_pretrained(MODELS_FOLDER / name)
    random_ids = torch.randint(261, (8, 200), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        produced = model(input_ids=random_ids).logits.argmax(-1)
    assert int(produced.max()) < len(build_tokenizer())
