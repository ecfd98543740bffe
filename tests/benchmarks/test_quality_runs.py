"""What was measured is kept, what does not fit the time is not begun; and a real run."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from quality_methods import RANDOM, SMALL
from quality_runs import Lab, OutOfTime, judged, streamed

from tokenrouter.demo.splits import for_judging


def answer(text: str, large: int, tokens: int = 100) -> dict[str, Any]:
    routing = {"tokens": {"small": tokens - large, "large": large}}
    return {"text": text, "meta_info": {"completion_tokens": tokens, "routing": routing}}


def test_answers_are_judged_word_for_word() -> None:
    right, other, wrong = for_judging(3)
    changed = other.answer.replace(":", ";", 1)
    given = [answer(right.answer, 4), answer(changed, 6), answer(wrong.answer[:-1], 2)]
    point = judged("entropy", 0.1, [right, other, wrong], given)
    assert point.exact.tolist() == [1, 0, 0] and point.result.tolist() == [1, 1, 0]
    assert point.share == pytest.approx(0.04)


def test_results_are_kept(tmp_path: Path) -> None:
    lab = Lab(tmp_path, math.inf)
    assert lab.kept(["a", 1], 10, lambda: {"x": 1}) == {"x": 1}
    again = Lab(tmp_path, time.monotonic())
    assert again.kept(["a", 1], 10, pytest.fail) == {"x": 1}
    with pytest.raises(OutOfTime):
        again.kept(["a", 2], 10, pytest.fail)


class Streaming:
    async def async_generate(self, sizes: list[int], stream: bool) -> AsyncIterator[Any]:
        async def chunks() -> AsyncIterator[Any]:
            written = 0
            for size in sizes:
                await asyncio.sleep(0)
                written += size
                yield {"meta_info": {"completion_tokens": written}}

        return chunks()


def test_chunks_are_counted() -> None:
    bodies = [{"sizes": [1, 1, 0, 4]}, {"sizes": [2]}]
    found = asyncio.run(streamed(Streaming(), bodies))  # type: ignore[arg-type]
    assert found["chunk_tokens"] == 2.0 and found["longest_chunk"] == 3.0


@pytest.mark.slow
def test_problems_are_routed_by_the_engine(tmp_path: Path) -> None:
    with Lab(tmp_path, math.inf) as lab:
        alone = lab.measure(SMALL, None, "judging", 8)
        routed = lab.measure(RANDOM, 0.25, "judging", 8)
        delay = lab.streaming(RANDOM, 0.25)
    assert alone.share == 0.0 and alone.passes["large"] == 0
    assert 0.15 < routed.share < 0.35
    assert routed.passes["large"] == routed.large.sum()
    assert routed.passes["small"] >= routed.tokens.sum()
    assert 1.0 <= delay["chunk_tokens"] <= delay["longest_chunk"]
