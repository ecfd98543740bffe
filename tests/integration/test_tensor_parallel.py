"""Members of two tensor-parallel ranks (gloo, on a CPU): exact, equal on all ranks, and clean."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.deployments import GREEDY, TAU, cascade, demo, serve_all
from tests.integration.models import build_llama
from tests.integration.reference import Model, routed_loop
from tests.integration.server import MEMBER_PROGRAM, Server
from tests.integration.test_exactness import COUNT, assert_equal
from tests.integration.test_restart import FAIL_S, wait_healthy, wait_until

MUTANTS = "tests.integration.mutants"
NAMES = ("small", "large")


def ranked(member: int = 1, **options: Any) -> dict[str, Any]:
    """The demo pair under `entropy`, one model (the large one) in two ranks.

    One threshold is automatic, so that ranks measure their steps before they serve.
    """
    config = demo("entropy", TAU, (1, 3), **options)
    config["models"][0]["threshold"] = "auto"
    config["models"][member]["tp_size"] = 2
    return config


def test_demo_pair(demo_models: list[Model], problems: list[list[int]]) -> None:
    """Two ranks each, with eviction and prompts in chunks."""
    model = {"chunked_prefill_size": 32, "max_total_tokens": 300, "tp_size": 2}
    config = demo("entropy", TAU, (2, 24), model=model)
    expected = [routed_loop(demo_models, prompt, COUNT, "entropy", TAU) for prompt in problems]
    with Server(config) as server:
        for _ in range(2):  # the second time from the prefix cache
            assert_equal(serve_all(server, problems, COUNT), expected, NAMES, least=20)
            server.assert_clean()
        assert sum(state["evictions"] for state in server.states()) > 0


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [(2, 1, 2), (1, 2, 2)])
def test_llama_trio(
    ranks: tuple[int, ...], trio: dict[str, Path], trio_models: list[Model], texts: list[list[int]]
) -> None:
    config = cascade(trio, (1, 2, 3), prefill="eager", model={"chunked_prefill_size": 16})
    for model, tp_size in zip(config["models"], ranks, strict=True):
        model["tp_size"] = tp_size
    expected = [routed_loop(trio_models, prompt, COUNT, "cascade", 0.3) for prompt in texts]
    with Server(config) as server:
        for _ in range(2):
            assert_equal(serve_all(server, texts, COUNT), expected, tuple(trio), least=50)
            server.assert_clean()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(ranked(max_restarts=50, hang_timeout_s=3)) as server:
        yield server


def test_aborts(server: Server, demo_models: list[Model], problems: list[list[int]]) -> None:
    """Clients that hang up, at any time, leave the others' answers and all pools as they were."""
    expected = [routed_loop(demo_models, prompt, COUNT, "entropy", TAU) for prompt in problems]

    def hang_up(i: int) -> None:
        body = {
            "input_ids": problems[i],
            "sampling_params": {"ignore_eos": True, **GREEDY, "max_new_tokens": 1000},
            "stream": True,
        }
        with httpx.stream("POST", f"{server.url}/generate", json=body, timeout=60) as stream:
            for _ in zip(stream.iter_lines(), range(3 * i), strict=False):
                pass

    large = server.client.get("/get_server_info").json()["models"][1]
    assert len(large["state"]["measurements"]["profile"]) == 6
    with ThreadPoolExecutor(16) as pool:
        gone = [pool.submit(hang_up, i) for i in range(16)]
        assert_equal(serve_all(server, problems, COUNT), expected, NAMES, least=20)
        for each in gone:
            each.result()
        server.assert_clean()
        assert_equal(serve_all(server, problems, COUNT), expected, NAMES, least=20)


@pytest.mark.slow
def test_a_follower_with_wrong_kv_is_noticed(
    demo_models: list[Model], problems: list[list[int]]
) -> None:
    """Its part counts: what the first rank holds does not give the right answers alone."""
    expected = [routed_loop(demo_models, prompt, COUNT, "entropy", TAU) for prompt in problems]
    with Server(ranked(0), MEMBER_PROGRAM, f"{MUTANTS}:follower_zeroed_kv") as server:
        served = serve_all(server, problems, COUNT)
    with pytest.raises(AssertionError):
        assert_equal(served, expected, NAMES)


def test_a_follower_with_other_batches_ends_the_member(problems: list[list[int]]) -> None:
    config = ranked(on_failure="stop")
    with Server(config, MEMBER_PROGRAM, f"{MUTANTS}:follower_wrong_token") as server:
        with pytest.raises(httpx.HTTPError):
            serve_all(server, problems, COUNT)
        assert server.exit_status(timeout=20) == 1
        assert "large#1: the batches here differ from those of rank 0" in server.log.read_text()


def ask_long(server: Server, prompt: list[int]) -> tuple[int, float]:
    """(status, when it came) of an answer that takes long."""
    sampling = {"ignore_eos": True, **GREEDY, "max_new_tokens": 1900}
    body = {"input_ids": prompt, "sampling_params": sampling}
    answer = httpx.post(f"{server.url}/generate", json=body, timeout=60)
    return answer.status_code, time.monotonic()


def fail_all(server: Server, prompts: list[list[int]], victim: str, number: int) -> list[float]:
    """Send a signal to a rank under load; seconds until each request failed with a 503."""

    processes = server.processes()
    with ThreadPoolExecutor(len(prompts)) as pool:
        answers = [pool.submit(ask_long, server, prompt) for prompt in prompts]
        while server.states()[0]["requests"] < len(prompts):
            time.sleep(0.05)
        os.kill(processes[victim], number)
        since = time.monotonic()
        ends = [answer.result() for answer in answers]
    assert {status for status, _ in ends} == {503}
    return [at - since for _, at in ends]


def test_the_ranks_of_a_member_die_and_return_together(
    server: Server, demo_models: list[Model], problems: list[list[int]]
) -> None:
    expected = [routed_loop(demo_models, prompt, COUNT, "entropy", TAU) for prompt in problems]
    for victim, number, limit_s in [
        ("large", signal.SIGKILL, FAIL_S),
        ("large#1", signal.SIGKILL, FAIL_S),
        ("large#1", signal.SIGSTOP, 3 + FAIL_S),
    ]:
        before = server.processes()
        assert max(fail_all(server, problems, victim, number)) < limit_s
        wait_healthy(server)
        now = server.processes()
        replaced = {name for name in before if now[name] != before[name]}
        assert replaced == {"large", "large#1"}
        assert_equal(serve_all(server, problems, COUNT), expected, NAMES, least=20)
        server.assert_clean()
    info = server.client.get("/get_server_info").json()["processes"]
    assert info["large"]["restarts"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2])
def test_ranks_die_at_any_time(
    seed: int, demo_models: list[Model], problems: list[list[int]]
) -> None:
    """Also while others hang or load: in the end all is as it was.

    One that hangs while it loads is as one that loads slowly: nobody kills it for long.
    """
    rng = random.Random(seed)
    expected = [routed_loop(demo_models, prompt, COUNT, "entropy", TAU) for prompt in problems]
    with Server(ranked(max_restarts=500, hang_timeout_s=3)) as server:
        for _ in range(6):
            with ThreadPoolExecutor(8) as pool:
                for prompt in problems[:8]:
                    pool.submit(ask_long, server, prompt)
                faults = [rng.choice([signal.SIGKILL, signal.SIGSTOP]), *[signal.SIGKILL] * 3]
                for fault in faults:
                    time.sleep(rng.random())
                    if pid := server.processes().get(rng.choice(["large", "large#1"])):
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, fault)
            time.sleep(1.0)  # before that, the last death may not have been noticed
            wait_healthy(server)
        assert_equal(serve_all(server, problems, COUNT), expected, NAMES, least=20)
        server.assert_clean()
        assert {"large", "large#1"} < set(server.processes())


def test_a_killed_rank_ends_a_server_that_is_to_stop(problems: list[list[int]]) -> None:
    with Server(ranked(on_failure="stop")) as server:
        processes = server.processes()
        assert {"small", "large", "large#1"} < set(processes)
        assert max(fail_all(server, problems, "large#1", signal.SIGKILL)) < FAIL_S
        assert server.exit_status(timeout=20) == 1
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in processes.values()))


@pytest.mark.slow
def test_operators_actions_reach_every_rank(tmp_path: Path, texts: list[list[int]]) -> None:
    """New weights on both ranks, a failed update on neither, a trace of each, an empty cache."""
    old, new = (build_llama(tmp_path / name, 96, 2, seed) for seed, name in enumerate("ab"))
    prompts = texts[:8]
    answers = {
        path: [routed_loop([Model(path)], prompt, COUNT, "single") for prompt in prompts]
        for path in (old, new)
    }
    config = {
        "algorithm": "single",
        "models": [
            {
                "name": "big", "model_path": str(old), "dtype": "float32", "tp_size": 2,
                "max_total_tokens": 8000,
            }
        ],
    }  # fmt: skip
    with Server(config) as server:

        def post(path: str, **body: Any) -> Any:
            return server.client.post(path, json=body)

        assert_equal(serve_all(server, prompts, COUNT), answers[old], ("big",))
        assert post("/update_weights_from_disk", model_path=str(tmp_path / "no")).status_code == 400
        assert post("/flush_cache").status_code == 200
        trace = post("/start_profile", output_dir=str(tmp_path / "trace"))
        assert trace.status_code == 200, trace.text
        assert_equal(serve_all(server, prompts, COUNT), answers[old], ("big",))
        assert post("/stop_profile").status_code == 200
        assert len(list((tmp_path / "trace").glob("*TP-[01]*"))) == 2
        assert post("/update_weights_from_disk", model_path=str(new)).status_code == 200
        assert_equal(serve_all(server, prompts, COUNT), answers[new], ("big",))
        server.assert_clean()


@pytest.mark.slow
def test_every_rule_of_sampling_gives_what_one_rank_gives(problems: list[list[int]]) -> None:
    """Penalties, bias, seeds, grammars and logprobs are applied by the first rank alone."""
    rules: list[dict[str, Any]] = [
        {"frequency_penalty": 0.7, "repetition_penalty": 1.2, "logit_bias": {"32": -4.0}},
        {"temperature": 1.0, "top_p": 0.9},
        {"regex": "([0-9]{3} )+", "temperature": 0},
        {"min_new_tokens": 20, "temperature": 0, "ignore_eos": False},
    ]

    def answers(config: dict[str, Any]) -> list[Any]:
        def ask(i: int) -> Any:
            sampling = {**GREEDY, "ignore_eos": True, "max_new_tokens": COUNT, **rules[i % 4]}
            body = {"input_ids": problems[i], "return_logprob": True, "seed": i}
            return server.generate(**body, sampling_params=sampling, routing={"token_models": True})

        with Server(config) as server, ThreadPoolExecutor(16) as pool:
            found = list(pool.map(ask, range(len(problems))))
            server.assert_clean()
        return found

    one, two = answers(demo("entropy", TAU, (1, 3))), answers(ranked())
    same = [a["output_ids"] == b["output_ids"] for a, b in zip(one, two, strict=True)]
    assert sum(same) >= 0.8 * len(same), same  # float noise may decide a draw
    for a, b, equal in zip(one, two, same, strict=True):
        logprobs = [
            [logprob for logprob, _, _ in answer["meta_info"]["output_token_logprobs"]]
            for answer in (a, b)
        ]
        assert not equal or logprobs[0] == pytest.approx(logprobs[1], abs=1e-3)
    for answer in two[2::4]:
        assert re.fullmatch("([0-9]{3} )+[0-9]{0,3}", answer["text"]), answer["text"]
