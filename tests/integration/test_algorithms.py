"""The built-in algorithms on the demo pair, all in one deployment: equal to the plain loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.integration.deployments import demo
from tests.integration.reference import Answer, Model, routed_loop
from tests.integration.server import Server
from tests.plain_loop import Ending
from tokenrouter.schedulers.base import Request, RoutingScheduler, Step
from tokenrouter.schedulers.bild import BiLD
from tokenrouter.schedulers.duo_rolling import DuoRolling
from tokenrouter.schedulers.glimp_router import GlimpRouter, entropy_of
from tokenrouter.schedulers.immediate import Immediate
from tokenrouter.schedulers.momentum import MomentumRouting
from tokenrouter.schedulers.r_stitch import RStitch
from tokenrouter.schedulers.rolling import LEAST_ENTROPY, RollingRouting
from tokenrouter.schedulers.spec_reason import SpecReason

COUNT = 48
EOS = 260
NAMES = ("small", "large")
STEPS = {"delimiter": ", "}
PRESETS: dict[str, dict[str, Any]] = {
    "uncertain": {"algorithm": "immediate", "router_threshold": 1.95},
    "both": {
        "algorithm": "immediate",
        "algorithm_args": {"thresholds": {"au": 1.8, "eu": 0.19, "h": 0.002}},
    },
    "momentum": {"algorithm": "momentum", "router_threshold": 1.95},
    "rolling": {"algorithm": "rolling", "router_threshold": 1.9},
    "duo_rolling": {"algorithm": "duo_rolling", "router_threshold": 1.9},
    "bild": {
        "algorithm": "bild", "router_threshold": 0.4, "algorithm_args": {"rollback": 0.02},
    },
    "bild_official": {
        "algorithm": "bild", "router_threshold": 0.4,
        "algorithm_args": {"rollback": 0.02, "longest": 6, "official": True},
    },
    "maxp": {
        "algorithm": "r_stitch", "router_threshold": 0.98, "algorithm_args": {"metric": "maxp"},
    },
    "relative": {
        "algorithm": "r_stitch", "router_threshold": 0.01,
        "algorithm_args": {"metric": "normalised_entropy"},
    },
    "marks": {
        "algorithm": "spec_reason", "router_threshold": 4.5,
        "algorithm_args": {**STEPS, "score": "mean", "scoring_prompt": " Mark: "},
    },
    "digits": {"algorithm": "spec_reason", "router_threshold": 7, "algorithm_args": STEPS},
    "glimpse": {"algorithm": "glimp_router", "router_threshold": 0.01, "algorithm_args": STEPS},
    "answers": {
        "algorithm": "glimp_router", "router_threshold": 0.01,
        "algorithm_args": {**STEPS, "think_end": "="},
    },
}  # fmt: skip
DRAFTING = {"bild", "bild_official", "marks", "digits"}


def distances(scheduler: RoutingScheduler, request: Request, step: Step) -> list[float]:
    """Of the score of one step from the threshold that it meets."""
    return [_distance(scheduler, request, step)]


def _distance(scheduler: RoutingScheduler, request: Request, step: Step) -> float:
    signals, state, small = step.signals, request.state, request.member == 0
    match scheduler:
        case Immediate() if small:
            return abs(max(low - signals[each.name] for each, low in scheduler.thresholds))
        case MomentumRouting() if small:
            return abs(signals["aleatoric"] - scheduler.tau)
        case RollingRouting() | DuoRolling() if small:
            values = [*state._values, signals["aleatoric"]][-scheduler.window :]
            value = sum(values) / len(values) if state._after_large else values[-1]
            sure = abs(signals.get("entropy", 1.0) - LEAST_ENTROPY)
            return min(abs(value - scheduler.tau), sure)
        case BiLD() if small:
            return abs(signals["top_probability"] - scheduler.fallback)
        case BiLD():
            limit = math.log(scheduler.likely)
            return min((abs(math.log(c.probability) - limit) for c in step.checks), default=1.0)
        case RStitch():
            return abs(signals[scheduler.metric.name] - scheduler.tau)
        case SpecReason() if step.scratch and scheduler.mean:
            return abs(scheduler._score(step) - scheduler.least)
        case GlimpRouter() if small and len(request.tokens) == state.start:
            return abs(entropy_of(signals["top_logits_20"]) - scheduler.tau)
    return 1.0


def up_to(count: int, stop: str, decode: Callable[[Sequence[int]], str]) -> Ending:
    """The finish of an answer of at most ``count`` tokens, at ``stop``, or at an end."""

    def ending(output: Sequence[int]) -> dict[str, Any] | None:
        if len(output) >= count:
            return {"type": "length", "length": count}
        if output and output[-1] == EOS:
            return {"type": "stop", "matched": EOS}
        if stop in decode(output):
            return {"type": "stop", "matched": stop}
        return None

    return ending


def expect(
    models: Sequence[Model],
    prompt: list[int],
    preset: str,
    ending: Ending | None = None,
) -> Answer:
    """What the loop writes."""
    chosen = PRESETS[preset]
    return routed_loop(
        models, prompt, COUNT, chosen["algorithm"], chosen.get("router_threshold"),
        args=chosen.get("algorithm_args"), distances=distances, ending=ending,
    )  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Scarce memory, chunks, and a threshold for the large model."""
    model = {"chunked_prefill_size": 32, "max_total_tokens": 1500}
    with Server(demo("entropy", 0.2, (2, 3), model=model, algorithms=PRESETS)) as server:
        yield server


def serve(
    server: Server, asked: Sequence[tuple[str, list[int]]], count: int = COUNT, **sampling: Any
) -> list[Any]:
    """All at once; the answers in order. ``sampling``: instead of ignoring an end."""
    sampling = sampling or {"ignore_eos": True}

    def ask(preset: str, prompt: list[int]) -> Any:
        return server.generate(
            input_ids=prompt,
            sampling_params={"temperature": 0, "max_new_tokens": count, **sampling},
            routing={"token_models": True, "algorithm": preset},
        )

    with ThreadPoolExecutor(len(asked)) as pool:
        return list(pool.map(ask, *zip(*asked, strict=True)))


def test_each_equals_its_plain_loop_among_all_others(
    server: Server, demo_models: list[Model], problems: list[list[int]]
) -> None:
    asked = [(preset, prompt) for prompt in problems[:4] for preset in PRESETS]
    expected = [expect(demo_models, prompt, preset) for preset, prompt in asked]
    served = serve(server, asked)
    honest = dict.fromkeys(PRESETS, 0)
    wrote = {preset: [0, 0] for preset in PRESETS}
    for (preset, _), written, answer in zip(asked, expected, served, strict=True):
        if not written.honest:
            continue
        honest[preset] += 1
        routing = answer["meta_info"]["routing"]
        assert answer["output_ids"] == written.tokens, preset
        assert routing["token_models"] == [NAMES[m] for m in written.writers], preset
        assert routing["hand_overs"] == written.hand_overs, preset
        for member in (0, 1):
            wrote[preset][member] += written.writers.count(member)
    assert min(honest.values()) >= 2, f"choose other prompts or thresholds: {honest}"
    assert all(min(counts) >= 5 for counts in wrote.values()), wrote
    assert any(written.taken_back for written in expected)
    server.assert_clean()


@pytest.mark.parametrize("stop", ["so", pytest.param("never", marks=pytest.mark.slow)])
def test_ends_among_drafts(
    server: Server, demo_models: list[Model], problems: list[list[int]], tokenizer: Any, stop: str
) -> None:
    """At a stop string of several tokens, or at the end of the sequence."""
    ending = up_to(400, stop, tokenizer.decode)
    asked = [(preset, prompt) for prompt in problems[5:7] for preset in sorted(DRAFTING)]
    served = serve(server, asked, 400, stop=[stop])
    compared = 0
    for (preset, prompt), answer in zip(asked, served, strict=True):
        written = expect(demo_models, prompt, preset, ending)
        if written.honest:
            compared += 1
            assert answer["output_ids"] == written.tokens, preset
            assert answer["meta_info"]["finish_reason"] == written.finish
            routing = answer["meta_info"]["routing"]
            assert routing["token_models"] == [NAMES[m] for m in written.writers], preset
            assert written.finish == {"type": "stop", "matched": stop if stop == "so" else EOS}
    assert compared >= len(asked) / 2, "choose other prompts"
    server.assert_clean()


def test_what_clients_leave_in_the_middle_is_cleaned_up(
    server: Server, problems: list[list[int]]
) -> None:
    """Streams broken off after some tokens, with drafts and steps under way."""

    def leave(index: int) -> None:
        preset = sorted(PRESETS)[index % len(PRESETS)]
        body = {
            "input_ids": problems[index % len(problems)],
            "sampling_params": {"temperature": 0, "max_new_tokens": 400, "ignore_eos": True},
            "routing": {"algorithm": preset},
            "stream": True,
        }
        with httpx.stream("POST", f"{server.url}/generate", json=body, timeout=60) as answer:
            assert answer.status_code == 200
            for count, _ in enumerate(answer.iter_raw()):
                if count >= index % 5:
                    break
        time.sleep(0.01 * (index % 3))

    with ThreadPoolExecutor(13) as pool:
        list(pool.map(leave, range(39)))
    server.assert_clean()
