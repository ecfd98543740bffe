"""What requests ask of their draws, served by several members: equal to the plain loop's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.integration.deployments import TAU, cascade
from tests.integration.models import TRIO_EOS
from tests.integration.reference import Answer, Model, routed_loop
from tests.integration.server import Server
from tests.integration.test_exactness import MUTANTS, assert_equal, evictions
from tokenrouter.ipc.messages import Sampling

COUNT = 40
DEMO_EOS = (260,)
"""Of the tokenizer, which all of these models have."""
TOLERANCE = 2e-4


def rules(**more: object) -> Sampling:
    return Sampling(COUNT, temperature=0.0, ignore_eos=True, **more)


RULES = [
    rules(frequency_penalty=1.2, presence_penalty=0.3),
    rules(presence_penalty=1.5, repetition_penalty=1.1),
    rules(repetition_penalty=1.5),
    rules(frequency_penalty=-0.3, logit_bias={48: 1.5, 49: -2.0}),
    rules(min_new_tokens=30, frequency_penalty=0.8, stop_token_ids=(10, 32)),
    rules(),
]


PLAIN = Sampling(0)


def rule_of(index: int) -> Sampling:
    return RULES[index % len(RULES)]


def expect(
    models: Sequence[Model], prompts: Sequence[list[int]], algorithm: str, tau: float, eos: Any
) -> list[Answer]:
    return [
        routed_loop(models, prompt, COUNT, algorithm, tau, sampling=rule_of(i), eos_ids=eos)
        for i, prompt in enumerate(prompts)
    ]


def serve(server: Server, prompts: Sequence[list[int]], top: int = 0) -> list[Any]:
    """Every prompt at once, each by its rules; with logprobs if there are alternatives."""
    names = [f for f in Sampling.__struct_fields__ if f not in ("seed", "grammar", "logprobs")]

    def ask(index: int) -> Any:
        sampling = rule_of(index)
        given = {name: getattr(sampling, name) for name in names}
        given = {name: value for name, value in given.items() if value != getattr(PLAIN, name)}
        if bias := given.get("logit_bias"):
            given["logit_bias"] = {str(token): value for token, value in bias.items()}
        return server.generate(
            input_ids=prompts[index],
            sampling_params=given,
            routing={"token_models": True},
            **({"return_logprob": True, "top_logprobs_num": top} if top else {}),
        )

    with ThreadPoolExecutor(len(prompts)) as pool:
        return list(pool.map(ask, range(len(prompts))))


def test_demo_pair_with_evictions(
    evicting_server: Server, demo_models: list[Model], problems: list[list[int]]
) -> None:
    expected = expect(demo_models, problems, "entropy", TAU, DEMO_EOS)
    before = evictions(evicting_server)
    served = serve(evicting_server, problems, top=3)
    evicting_server.assert_clean()
    assert evictions(evicting_server) > before
    assert_equal(served, expected, ("small", "large"), least=20)
    assert_logprobs(served, expected)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_llama_trio(
    ranks: int, trio: dict[str, Path], trio_models: list[Model], texts: list[list[int]]
) -> None:
    expected = expect(trio_models, texts, "cascade", 0.3, (*TRIO_EOS, *DEMO_EOS))
    config = cascade(trio, (1, 2, 3), model={"chunked_prefill_size": 16})
    config["models"][-1]["tp_size"] = ranks
    with Server(config) as server:
        served = serve(server, texts, top=3)
        bound = serve_bound(server, texts[:6])
        server.assert_clean()
    assert_equal(served, expected, tuple(trio), least=50)
    assert_logprobs(served, expected)
    assert all(re.fullmatch(PATTERN, answer["text"]) for answer in bound)


PATTERN = "[a-d]{6}(-[0-9]{4}){3}"


def serve_bound(server: Server, prompts: Sequence[list[int]]) -> list[Any]:
    """Every prompt at once, under a grammar."""
    sampling = {"temperature": 0.8, "max_new_tokens": 60, "regex": PATTERN}

    def ask(prompt: list[int]) -> Any:
        return server.generate(input_ids=prompt, sampling_params=sampling)

    with ThreadPoolExecutor(len(prompts)) as pool:
        return list(pool.map(ask, prompts))


def assert_logprobs(served: Sequence[Any], expected: Sequence[Answer]) -> None:
    """Of every token, by the member that wrote it."""
    for answer, wanted in zip(served, expected, strict=True):
        if not wanted.honest:
            continue
        meta = answer["meta_info"]
        assert [token for _, token, _ in meta["output_token_logprobs"]] == wanted.tokens
        for (value, token, _), top, row in zip(
            meta["output_token_logprobs"], meta["output_top_logprobs"], wanted.logprobs, strict=True
        ):
            assert value == pytest.approx(float(row[token]), abs=TOLERANCE)
            best = row.topk(3).values.tolist()
            assert [value for value, _, _ in top] == pytest.approx(best, abs=TOLERANCE)
            for value, other, _ in top:
                assert value == pytest.approx(float(row[other]), abs=TOLERANCE)


@pytest.mark.slow
def test_a_penalty_that_misses_a_token_is_noticed(
    trio: dict[str, Path], trio_models: list[Model], texts: list[list[int]]
) -> None:
    expected = expect(trio_models, texts, "cascade", 0.3, (*TRIO_EOS, *DEMO_EOS))
    with Server(cascade(trio, (1, 2, 3)), f"{MUTANTS}:forgotten_penalty") as server:
        served = serve(server, texts)
    with pytest.raises(AssertionError):
        assert_equal(served, expected, tuple(trio))


@pytest.mark.slow
def test_minimum_length_holds_off_the_ends_of_every_member(
    trio: dict[str, Path], texts: list[list[int]]
) -> None:
    """Each member's own end is made likely: none is written before its time, and one right then."""
    bias = {str(eos): 60.0 for eos in TRIO_EOS}
    sampling = {"temperature": 0, "max_new_tokens": 30, "min_new_tokens": 9, "logit_bias": bias}
    with Server(cascade(trio, (1, 1, 1))) as server:
        answers = [server.generate(input_ids=t, sampling_params=sampling) for t in texts[:6]]
        server.assert_clean()
    for answer in answers:
        *before, last = answer["output_ids"]
        assert len(before) == 9 and not set(before) & set(TRIO_EOS)
        assert last in TRIO_EOS
