"""Speculative decoding of the demo pair, served: greedy answers, samples, and what clients see."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import pytest
import torch

from tests.chi_square import p_value
from tests.integration.deployments import ALGORITHMS, GREEDY, demo, serve_all
from tests.integration.reference import Answer, Model, routed_loop
from tests.integration.server import Server
from tests.plain_sampling import limited
from tokenrouter.ipc.messages import Sampling

COUNT = 40
MODEL = "demo:speculative"
BEGINNING = 44
SEEDS, CHOICES = 15, 100
"""Samples: so many requests, of so many choices."""
LEAST = 0.001 / 4
"""Bonferroni: one wrong alarm in a thousand, over all tests of samples here."""


def speculative(**options: Any) -> dict[str, Any]:
    """A configuration; ``args`` of the algorithm."""
    args = {"draft_length": 3, **options.pop("args", {})}
    config = demo("speculative", 0.0, options.pop("thresholds", (1, 1)), **options)
    del config["router_threshold"]
    return {**config, "algorithm_args": args}


def alone(models: Sequence[Model], prompts: Sequence[Sequence[int]]) -> list[Answer]:
    """What the large model writes without the small one."""
    return [routed_loop(models[1:], prompt, COUNT, "single") for prompt in prompts]


def assert_alone(served: Sequence[Any], expected: Sequence[Answer]) -> None:
    honest = [i for i, answer in enumerate(expected) if answer.honest]
    assert len(honest) >= 0.75 * len(expected), "choose other prompts: margins are too small"
    for i in honest:
        assert served[i]["output_ids"] == expected[i].tokens, i
    models = [m for each in served for m in each["meta_info"]["routing"]["token_models"]]
    assert 0.3 < models.count("small") / len(models) < 0.9
    hand_overs = sum(each["meta_info"]["routing"]["hand_overs"] for each in served)
    assert hand_overs < len(models), "rounds of one token: no drafts stay"


@pytest.fixture
def server(demo_server: Server) -> Iterator[Server]:
    """The demo server, which every test leaves clean."""
    yield demo_server
    demo_server.assert_clean()


def test_greedy_answers_are_the_large_model_s(
    server: Server, demo_models: list[Model], problems: list[list[int]]
) -> None:
    expected = alone(demo_models, problems)
    for _ in range(2):  # the second time from the prefix cache
        assert_alone(serve_all(server, problems, COUNT, model=MODEL), expected)


@pytest.mark.slow
def test_so_they_are_with_chunks_evictions_and_adaptive_lengths(
    demo_models: list[Model], problems: list[list[int]]
) -> None:
    model = {"chunked_prefill_size": 16, "max_total_tokens": 220, "disable_radix_cache": True}
    args = {"draft_length": 6, "adaptive": True}
    with Server(speculative(args=args, thresholds=(3, 9), model=model)) as server:
        assert_alone(serve_all(server, problems, COUNT), alone(demo_models, problems))
        server.assert_clean()
        assert all(state["evictions"] > 0 for state in server.states())


def test_log_probabilities_are_the_large_model_s(
    server: Server, demo_models: list[Model], problems: list[list[int]]
) -> None:
    for prompt, expected in zip(problems[:3], alone(demo_models, problems[:3]), strict=True):
        answer = server.generate(
            model=MODEL, input_ids=prompt, return_logprob=True, top_logprobs_num=2,
            sampling_params={**GREEDY, "max_new_tokens": COUNT, "ignore_eos": True},
        )  # fmt: skip
        assert answer["output_ids"] == expected.tokens
        told = answer["meta_info"]["output_token_logprobs"]
        tops = answer["meta_info"]["output_top_logprobs"]
        assert len(told) == len(tops) == COUNT
        for token, (value, id_, _), top, law in zip(
            expected.tokens, told, tops, expected.logprobs, strict=True
        ):
            assert id_ == token
            assert value == pytest.approx(float(law[token]), abs=1e-3)
            assert [each[0] for each in top] == pytest.approx(law.topk(2).values.tolist(), abs=1e-3)


def test_a_stop_string_cuts_inside_a_round(
    server: Server, demo_models: list[Model], problems: list[list[int]]
) -> None:
    """At every place of the answer: whatever was accepted beyond it is not told."""
    [expected] = alone(demo_models, problems[:1])
    whole = server.generate(
        model=MODEL,
        input_ids=problems[0],
        sampling_params={**GREEDY, "max_new_tokens": COUNT, "ignore_eos": True},
    )["text"]

    def ask(stop: str) -> Any:
        sampling = {**GREEDY, "max_new_tokens": COUNT, "ignore_eos": True, "stop": [stop]}
        return server.generate(model=MODEL, input_ids=problems[0], sampling_params=sampling)

    stops = sorted({whole[i : i + 3] for i in range(0, min(len(whole), 30), 3)})
    lengths = set()
    for stop in stops:
        answer = ask(stop)
        assert answer["text"] == whole[: whole.index(stop)]
        assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
        ids = answer["output_ids"]
        assert ids == expected.tokens[: len(ids)]
        lengths.add(len(ids) % 4)
    assert len(lengths) > 2


def test_a_stream_tells_what_is_final_only(server: Server, problems: list[list[int]]) -> None:
    sampling = {**GREEDY, "max_new_tokens": COUNT, "ignore_eos": True}
    body = {"model": MODEL, "input_ids": problems[1], "sampling_params": sampling}
    whole = server.generate(**body)["text"]
    body["stream"] = True
    with server.client.stream("POST", "/generate", json=body) as stream:
        lines = [line.removeprefix("data: ") for line in stream.iter_lines() if line]
    texts = [json.loads(line)["text"] for line in lines if line != "[DONE]"]
    assert all(whole.startswith(text) for text in texts)
    assert texts[-1] == whole
    assert len(set(texts)) > 4


def test_choices_differ_and_come_again(server: Server, problems: list[list[int]]) -> None:
    sampling = {"temperature": 3.0, "max_new_tokens": 20, "ignore_eos": True, "n": 3}

    def ask() -> list[list[int]]:
        answers = server.generate(
            model=MODEL, input_ids=problems[2], sampling_params=sampling, seed=5
        )
        return [answer["output_ids"] for answer in answers]

    first = ask()
    with ThreadPoolExecutor(2) as pool:
        noise = pool.submit(serve_all, server, problems[3:9], COUNT, model=MODEL, temperature=2.0)
        assert ask() == first
        noise.result()
    assert len({tuple(each) for each in first}) == 3


def chance(server: Server, models: Sequence[Model], prompt: list[int], temperature: float) -> float:
    """Of a distance as great as the one found, if samples follow the large model's law."""
    sampling = {"temperature": temperature, "max_new_tokens": 3, "ignore_eos": True, "n": CHOICES}

    def ask(seed: int) -> list[Any]:
        choices: list[Any] = server.generate(
            model=MODEL, input_ids=prompt, sampling_params=sampling, seed=seed,
            routing={"token_models": True},
        )  # fmt: skip
        return choices

    with ThreadPoolExecutor(SEEDS) as pool:
        answers = [choice for choices in pool.map(ask, range(SEEDS)) for choice in choices]
    plain = Sampling(3, temperature=temperature)

    @cache
    def law(output: tuple[int, ...]) -> torch.Tensor:
        return limited(models[1].begin().logits([*prompt, *output]), plain)

    writers = [m for each in answers for m in each["meta_info"]["routing"]["token_models"]]
    assert 0.1 < writers.count("small") / len(writers) < 0.9
    return p_value(law, [answer["output_ids"] for answer in answers])


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [2.0, 3.0])
def test_samples_follow_the_large_model_s_law(
    server: Server, demo_models: list[Model], problems: list[list[int]], temperature: float
) -> None:
    """At 1 or less nearly every token of the pair is certain, and so are answers; questions, of
    which this is the beginning of one, are not.
    """
    assert chance(server, demo_models, problems[0][:BEGINNING], temperature) > LEAST


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [2.0, 3.0])
def test_and_a_mutant_that_draws_from_p_after_a_rejection_does_not(
    demo_models: list[Model], problems: list[list[int]], temperature: float
) -> None:
    config = speculative(served_name="demo", algorithms=ALGORITHMS)
    with Server(config, "tests.integration.mutants:no_residual") as server:
        assert chance(server, demo_models, problems[0][:BEGINNING], temperature) < LEAST
