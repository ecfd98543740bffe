"""What is collected, against plain forward passes over each whole text."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.router_training.builders import PROMPTS, SHARD
from tokenrouter.calibration.prompts import COMPLETIONS, Prompt, question
from tokenrouter.cli_progress import progress_bars
from tokenrouter.demo.recipes import MODELS_FOLDER
from tokenrouter.demo.splits import for_training
from tokenrouter.demo.tokenizer import END_ID, PAD_ID, build_tokenizer
from tokenrouter.errors import ConfigError
from tokenrouter.router_training.collecting import Shards, collect_answers, file_of, generate
from tokenrouter.router_training.pair import Placement, identity, prompt_ids, tokenizer_of
from tokenrouter.router_training.store import Store

LARGE = MODELS_FOLDER / "small"


@pytest.fixture
def shards(finished: tuple[Path, object]) -> Shards:
    """Of the finished run, to read from."""
    prompts = [question(problem.question) for problem in for_training(PROMPTS)]
    ids = prompt_ids(build_tokenizer(), prompts, {})
    store = Store(finished[0], {})
    with progress_bars(shown=False) as bars:
        return Shards(store, ids, SHARD, bars)


def test_answers_are_greedy_whatever_the_padding(shards: Shards) -> None:
    model = AutoModelForCausalLM.from_pretrained(LARGE)
    read = shards.answers(1)
    for prompt, answer in list(zip(read.prompts, read.answers, strict=True))[:3]:
        with torch.no_grad():
            logits = model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
        assert logits.argmax(-1).tolist() == answer and len(answer) == 32


def test_an_answer_ends_with_its_end_token() -> None:
    model = AutoModelForCausalLM.from_pretrained(LARGE)
    problems = for_training(2)
    prompts = prompt_ids(build_tokenizer(), [question(each.question) for each in problems], {})
    answers = generate(model, prompts, PAD_ID, max_tokens=250)
    for answer in answers:
        assert answer[-1] == END_ID and END_ID not in answer[:-1]


def test_features_and_probabilities_are_of_each_position(shards: Shards, noisy: Path) -> None:
    small = AutoModelForCausalLM.from_pretrained(noisy)
    large = AutoModelForCausalLM.from_pretrained(LARGE)
    read = shards.answers(2)
    arrays = shards.store.arrays(file_of("features", 2))
    probability = shards.store.arrays(file_of("probabilities", 2))["probability"]
    assert arrays["logits"].shape[1] == 100
    at = 0
    for prompt, answer in zip(read.prompts, read.answers, strict=True):
        ids = torch.tensor([prompt + answer])
        places = slice(len(prompt) - 1, len(prompt) + len(answer) - 1)
        rows = slice(at, at := at + len(answer))
        with torch.no_grad():
            hidden = small.model(ids).last_hidden_state[0, places]
            logits = small.lm_head(hidden)
            every = large(ids).logits[0, places].softmax(-1)
        tokens = arrays["token"][rows].long()
        assert tokens.tolist() == logits.argmax(-1).tolist()
        torch.testing.assert_close(arrays["hidden"][rows], hidden, rtol=0, atol=1e-5)
        expected = logits.sort(descending=True).values[:, :100]
        torch.testing.assert_close(arrays["logits"][rows], expected, rtol=0, atol=1e-4)
        differ = tokens != torch.tensor(answer)
        of_large = every.gather(1, tokens[:, None])[:, 0]
        assert (probability[rows][~differ] == 1).all()
        torch.testing.assert_close(probability[rows][differ], of_large[differ])
    assert int((probability < 1).sum()) > 0 and at == len(probability)


def test_prompts_with_and_without_a_template() -> None:
    tokenizer = build_tokenizer()
    chat, plain = prompt_ids(tokenizer, [question("Hi"), Prompt(COMPLETIONS, {"prompt": "Hi"})], {})
    assert tokenizer.decode(chat) == "<|user|>Hi<|end|><|assistant|>"
    assert plain == list(b"Hi")
    chats = [Prompt("/v1/chat/completions", {"messages": [{"role": "robot", "content": "x"}]})]
    with pytest.raises(ConfigError, match=r"chat template cannot write one of them: .*robot"):
        prompt_ids(tokenizer, chats, {})


def test_a_prompt_that_is_too_long(tmp_path: Path) -> None:
    with progress_bars(shown=False) as bars:
        shards = Shards(Store(tmp_path, {}), [[65], [65] * 2040], 2, bars)
        with pytest.raises(ConfigError, match="prompt 2 has 2040 tokens, and with 9 more exceeds"):
            collect_answers(shards, LARGE, Placement(), PAD_ID, max_tokens=9)


def test_models_are_told_apart_by_their_weights(noisy: Path, tmp_path: Path) -> None:
    assert identity(noisy) == identity(noisy) != identity(LARGE)
    with pytest.raises(ConfigError, match="is no model's folder"):
        identity(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="it has no weights"):
        identity(tmp_path)


def test_a_pair_needs_one_vocabulary(noisy: Path, tmp_path: Path) -> None:
    tokenizer_of(noisy, LARGE)
    other = build_tokenizer()
    other.add_tokens(["more"])
    other.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="different vocabularies"):
        tokenizer_of(noisy, tmp_path)
