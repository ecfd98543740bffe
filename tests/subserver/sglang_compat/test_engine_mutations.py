"""Twins of the exactness tests with one thing broken: each must give other tokens."""

from __future__ import annotations

from typing import Any

import pytest

from tests.subserver.sglang_compat.conftest import Served
from tests.subserver.sglang_compat.driver import Driver, output
from tokenrouter.errors import TokenRouterError
from tokenrouter.subserver.engine import Visit

WRITTEN = 6
"""Tokens before the mutation; the reference is compared over 24."""


def start(served: Served, driver: Driver, seed: int) -> tuple[Visit, list[int]]:
    [prompt] = served.model.prompts(1, seed=seed, longest=20)
    visit = driver.visit(prompt)
    driver.write([visit], WRITTEN)
    return visit, served.model.reference(prompt).tokens


def finish(driver: Driver, visit: Visit) -> list[int]:
    driver.write([visit], 24 - WRITTEN)
    # Nobody else may take this for the KV of these tokens.
    driver.truncate(visit, 0)
    return output(visit)


def test_nothing_broken(served: Served, driver: Driver) -> None:
    visit, wanted = start(served, driver, seed=20)
    assert finish(driver, visit) == wanted


@pytest.mark.parametrize("buffer", ["get_key_buffer", "get_value_buffer"])
def test_one_kv_entry_zeroed(served: Served, driver: Driver, buffer: str) -> None:
    visit, wanted = start(served, driver, seed=20)
    scheduler = served.engine.scheduler
    slot = scheduler.req_to_token_pool.req_to_token[visit.handle.row, visit.computed - 2]
    pool = scheduler.token_to_kv_pool_allocator.get_kvcache()
    for layer in range(pool.layer_num):
        getattr(pool, buffer)(layer)[int(slot)] = 0.0
    assert finish(driver, visit) != wanted


def test_two_kv_slots_swapped(served: Served, driver: Driver) -> None:
    """The control: keys carry their positions, so the order of slots must not matter."""
    visit, wanted = start(served, driver, seed=20)
    table = served.engine.scheduler.req_to_token_pool.req_to_token
    row = table[visit.handle.row]
    row[[0, 1]] = row[[1, 0]]
    assert finish(driver, visit) == wanted


def test_the_row_of_another_visit(served: Served, driver: Driver) -> None:
    visit, wanted = start(served, driver, seed=20)
    other, _ = start(served, driver, seed=21)
    table = served.engine.scheduler.req_to_token_pool.req_to_token
    mine = table[visit.handle.row].clone()
    table[visit.handle.row, 1] = table[other.handle.row, 1]
    driver.write([visit], 24 - WRITTEN)
    table[visit.handle.row, 1] = mine[1]
    driver.truncate(visit, 0)
    assert output(visit) != wanted


@pytest.mark.parametrize("shift", [-1, 1])
def test_one_position_shifted(
    served: Served, driver: Driver, monkeypatch: pytest.MonkeyPatch, shift: int
) -> None:
    from sglang.srt.model_executor.forward_batch_info import ForwardBatch

    stock = ForwardBatch.init_new

    def shifted(*arguments: Any) -> Any:
        batch = stock(*arguments)
        batch.positions = batch.positions + shift
        return batch

    visit, wanted = start(served, driver, seed=20)
    monkeypatch.setattr(ForwardBatch, "init_new", shifted)
    driver.write([visit], 1)
    monkeypatch.undo()
    driver.write([visit], 24 - WRITTEN - 1)
    driver.truncate(visit, 0)
    assert output(visit) != wanted


def test_one_token_repeated(served: Served, driver: Driver) -> None:
    visit, wanted = start(served, driver, seed=20)
    visit.tokens.append(visit.tokens[-1])
    driver.write([visit], 24 - WRITTEN)
    assert output(visit)[:WRITTEN] + output(visit)[WRITTEN + 1 :] != wanted


def test_one_wrong_token_not_cut(served: Served, driver: Driver) -> None:
    visit, wanted = start(served, driver, seed=20)
    visit.tokens.append(7)
    driver.step([(visit, visit.pending)])
    visit.tokens[-1:] = wanted[WRITTEN : WRITTEN + 2]
    assert visit.pending == 1
    driver.write([visit], 24 - WRITTEN - 2)
    driver.truncate(visit, 0)
    assert output(visit) != wanted


def test_a_cut_that_frees_nothing_leaks(served: Served, driver: Driver) -> None:
    visit, _ = start(served, driver, seed=20)
    leaked = served.engine.scheduler.req_to_token_pool.req_to_token[
        visit.handle.row, visit.computed - 1 : visit.computed
    ].clone()
    visit.computed -= 1
    driver.write([visit], 1)
    driver.release_all()
    with pytest.raises(TokenRouterError, match="KV leaked"):
        served.engine.check_pools()
    served.engine.scheduler.token_to_kv_pool_allocator.free(leaked)
