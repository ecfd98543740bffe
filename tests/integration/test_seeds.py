"""A seed gives the same answers whatever else is served, and in another deployment."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.integration.deployments import TAU, demo
from tests.integration.server import Server

SAMPLING = {"temperature": 3.0, "max_new_tokens": 24, "ignore_eos": True, "top_p": 0.98, "n": 3}


def answers(server: Server, prompts: list[list[int]], **body: Any) -> list[list[list[int]]]:
    """By prompt and choice, all asked at once."""

    def ask(prompt: list[int]) -> list[list[int]]:
        choices = server.generate(input_ids=prompt, sampling_params=SAMPLING, **body)
        return [choice["output_ids"] for choice in choices]

    with ThreadPoolExecutor(len(prompts)) as pool:
        return list(pool.map(ask, prompts))


@pytest.mark.slow
def test_the_same_answers_again_alone_and_elsewhere(problems: list[list[int]]) -> None:
    prompts = problems[:6]
    with Server(demo("entropy", TAU, (1, 3))) as server:
        first = answers(server, prompts, seed=7)
        with ThreadPoolExecutor(2) as pool:
            noise = pool.submit(answers, server, problems[6:14])
            again = answers(server, prompts, seed=7)
            noise.result()
        alone = [answers(server, [prompt], seed=7)[0] for prompt in prompts]
        other = answers(server, prompts, seed=8)
        server.assert_clean()
    model = {"max_total_tokens": 800, "chunked_prefill_size": 16, "disable_radix_cache": True}
    with Server(demo("entropy", TAU, (3, 2), seed=5, model=model)) as server:
        elsewhere = answers(server, prompts, seed=7)
        server.assert_clean()
    assert first == again == alone == elsewhere
    for choices, others in zip(first, other, strict=True):
        assert len({tuple(choice) for choice in [*choices, *others]}) == 6, "all differ"
