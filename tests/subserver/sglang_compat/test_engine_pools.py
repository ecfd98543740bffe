"""Rows, KV slots and the prefix cache: who holds what, and that nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.subserver.sglang_compat.conftest import Build, Served
from tests.subserver.sglang_compat.driver import Driver, output
from tests.subserver.sglang_compat.tiny_models import TinyModel
from tokenrouter.errors import TokenRouterError

POOL = 120


@pytest.fixture(scope="module")
def small(qwen3: TinyModel, build: Build) -> Served:
    """A pool of 120 tokens and three rows."""
    return Served(qwen3, build(qwen3.path, max_total_tokens=POOL, max_running_requests=3))


@pytest.fixture
def small_driver(small: Served) -> Iterator[Driver]:
    driver = Driver(small.engine)
    yield driver
    driver.release_all()
    small.engine.check_pools()


def test_capacity(small: Served) -> None:
    assert small.engine.pool_tokens == POOL
    assert small.engine.max_visits == 3
    assert small.engine.free_tokens() == POOL


def test_no_row_left(small: Served, small_driver: Driver) -> None:
    visits = [small_driver.visit(prompt) for prompt in small.model.prompts(4, seed=0, longest=9)]
    small_driver.write(visits[:3], 2)
    last = visits[3]
    assert not small.engine.admit(last)
    assert last.computed == 0 and last.handle is None
    small_driver.release(visits[1])
    small_driver.write([last, visits[0]], 3)
    assert output(last) == small.model.reference(last.tokens[: last.prompt_length]).tokens[:3]


def test_a_step_without_room_changes_nothing(small: Served, small_driver: Driver) -> None:
    [prompt] = small.model.prompts(1, seed=1)
    visit, large = small_driver.visit(prompt), small_driver.visit(list(range(5, 125)))
    small_driver.write([visit], 4)
    small_driver.admit(large)
    free = small.engine.free_tokens()
    with pytest.raises(TokenRouterError, match=f"120 KV tokens and only {free} are free"):
        small.engine.step([(large, 120)], ())
    assert small.engine.free_tokens() == free
    small_driver.write([visit], 4)
    assert output(visit) == small.model.reference(prompt).tokens[:8]


def test_cached_tokens_make_room_for_a_step(small: Served, small_driver: Driver) -> None:
    for prompt in small.model.prompts(8, seed=2):
        # The pool holds two or three of these: the cache of the others has to go.
        visit = small_driver.visit(prompt)
        small_driver.write([visit], 24)
        assert output(visit) == small.model.reference(prompt).tokens
        assert small.engine.free_tokens() == POOL - visit.computed
        small_driver.release(visit)
        assert small.engine.free_tokens() == POOL


def test_released_tokens_stay_cached(radix: Served, radix_driver: Driver) -> None:
    [prompt] = radix.model.prompts(1, seed=3)
    visit = radix_driver.visit(prompt)
    radix_driver.write([visit], 6)
    radix_driver.release(visit)
    radix_driver.admit(visit)
    assert visit.computed == visit.length - 1
    radix_driver.write([visit], 6)
    assert output(visit) == radix.model.reference(prompt).tokens[:12]


def test_at_least_one_token_is_fed(radix: Served, radix_driver: Driver) -> None:
    [prompt] = radix.model.prompts(1, seed=4)
    first, second = radix_driver.visit(prompt), radix_driver.visit(prompt)
    radix_driver.write([first], 3)
    radix_driver.release(first)
    radix_driver.admit(second)
    assert second.computed == len(prompt) - 1
    radix_driver.write([second], 3)
    assert output(second) == output(first)


def test_a_shared_prefix_is_held_once(radix: Served, radix_driver: Driver) -> None:
    [prompt] = radix.model.prompts(1, seed=5, longest=30)
    first = radix_driver.visit([*prompt, 50])
    radix_driver.write([first], 1)
    radix_driver.release(first)
    total = radix.engine.free_tokens()
    one, two = radix_driver.visit([*prompt, 50, 60, 61]), radix_driver.visit([*prompt, 70])
    radix_driver.write([one, two], 6)
    shared = len(prompt) + 2  # all of a prompt but its last token
    assert (one.handle.shared, two.handle.shared) == (shared, shared - 2)
    own = one.computed - one.handle.shared + two.computed - two.handle.shared
    assert radix.engine.free_tokens() == total - own - shared
    for visit in (one, two):
        assert output(visit) == radix.model.reference(visit.tokens[: visit.prompt_length], 6).tokens


def test_the_same_prompt_computed_twice_at_once(served: Served, driver: Driver) -> None:
    [prompt] = served.model.prompts(1, seed=6)
    visits = [driver.visit(prompt) for _ in range(3)]
    driver.write(visits, 5)
    driver.release(visits[0])
    driver.write(visits[1:], 5)
    driver.release(visits[1])
    driver.write(visits[2:], 5)
    assert output(visits[2]) == served.model.reference(prompt).tokens[:15]


@pytest.mark.parametrize("keep", [0, 1, 7, 12])
def test_cut_into_a_shared_prefix(radix: Served, radix_driver: Driver, keep: int) -> None:
    prompt = list(range(100 + keep, 113 + keep))
    donor = radix_driver.visit(prompt)
    radix_driver.write([donor], 8)
    radix_driver.release(donor)
    free = radix.engine.free_tokens()
    cut, other = radix_driver.visit(donor.tokens), radix_driver.visit(donor.tokens)
    radix_driver.write([cut, other], 2)
    assert cut.handle.shared == len(donor.tokens) - 1
    radix_driver.truncate(cut, keep)
    # What was cut off is still held by the other visit, and by it alone.
    assert radix.engine.free_tokens() == free - other.computed
    del cut.tokens[keep:]
    cut.tokens += [5, 6, 7]
    expected = radix.model.reference(cut.tokens, 6)
    assert expected.margin > 1e-4
    radix_driver.write([cut, other], 6)
    assert cut.tokens[-6:] == expected.tokens
    assert other.tokens == donor.tokens[: len(prompt)] + radix.model.reference(prompt, 16).tokens
    radix_driver.release(other)
    radix_driver.write([cut], 1)
    radix_driver.release(cut)


def test_truncate_frees_exactly_what_it_cuts(served: Served, driver: Driver) -> None:
    [prompt] = served.model.prompts(1, seed=7)
    visit = driver.visit(prompt)
    driver.write([visit], 10)
    free = driver.engine.free_tokens()
    driver.truncate(visit, visit.computed - 6)
    assert driver.engine.free_tokens() == free + 6
    driver.truncate(visit, visit.computed - 1)
    assert driver.engine.free_tokens() == free + 7


def test_a_visit_released_before_it_was_fed(served: Served, driver: Driver) -> None:
    free = driver.engine.free_tokens()
    visit = driver.visit([9, 8, 7])
    driver.admit(visit)
    driver.release(visit)
    assert driver.engine.free_tokens() == free
    assert visit.handle is None


class TestCheckPools:
    """It must see what sums hide."""

    def test_a_resident_visit(self, radix: Served, radix_driver: Driver) -> None:
        radix_driver.write([radix_driver.visit([5, 6, 7])], 2)
        with pytest.raises(TokenRouterError, match="rows leaked"):
            radix.engine.check_pools()

    def test_a_lost_slot(self, radix: Served, radix_driver: Driver) -> None:
        allocator = radix.engine.scheduler.token_to_kv_pool_allocator
        slot = allocator.alloc(1)
        with pytest.raises(TokenRouterError, match="KV leaked"):
            radix.engine.check_pools()
        allocator.free(slot)

    def test_a_slot_freed_twice(self, radix: Served, radix_driver: Driver) -> None:
        allocator = radix.engine.scheduler.token_to_kv_pool_allocator
        before = allocator.free_pages
        allocator.free_pages = before.clone()
        allocator.free_pages[0] = before[1]
        with pytest.raises(TokenRouterError, match="freed twice"):
            radix.engine.check_pools()
        allocator.free_pages = before

    def test_a_lock_left(self, radix: Served, radix_driver: Driver) -> None:
        visit = radix_driver.visit([15, 16, 17, 18])
        radix_driver.write([visit], 2)
        radix_driver.release(visit)
        cache = radix.engine.scheduler.tree_cache
        node = cache.match_prefix(key=[15, 16, 17]).last_device_node
        cache.inc_lock_ref(node)
        with pytest.raises(TokenRouterError, match="3 locked"):
            radix.engine.check_pools()
        cache.dec_lock_ref(node)


def test_feeding_more_than_there_is(small: Served, small_driver: Driver) -> None:
    visit = small_driver.visit([5, 6, 7])
    small_driver.admit(visit)
    allocator = small.engine.scheduler.token_to_kv_pool_allocator
    state = allocator.backup_state()
    with pytest.raises(TokenRouterError, match="4 tokens to feed, and visits have 3"):
        small.engine.step([(visit, 4)], ())
    allocator.restore_state(state)


def test_a_token_beyond_its_row(small: Served, small_driver: Driver) -> None:
    """It would be entered in the row of another visit."""
    visit = small_driver.visit([5, 6, 7])
    small_driver.admit(visit)
    scheduler = small.engine.scheduler
    state = scheduler.token_to_kv_pool_allocator.backup_state()
    table = scheduler.req_to_token_pool.req_to_token
    before, width = table.clone(), table.shape[1]
    visit.tokens += [8] * (width - 2)
    visit.computed = width
    problem = f"a visit has {width + 1} tokens, and rows have {width} entries"
    with pytest.raises(TokenRouterError, match=problem):
        small.engine.step([(visit, 1)], ())
    assert table.equal(before)
    scheduler.token_to_kv_pool_allocator.restore_state(state)
    visit.computed = 0


def test_a_prompt_is_shared_once_it_is_computed(radix: Served, radix_driver: Driver) -> None:
    [prompt] = radix.model.prompts(1, seed=11, longest=40)
    prompt += list(range(60, 100))
    first, second = radix_driver.visit(prompt), radix_driver.visit([*prompt, 70, 71])
    radix_driver.step([(first, 20)])  # a chunk: the prompt is not complete
    assert first.handle.shared == 0
    radix_driver.write([first], 3)
    free = radix.engine.free_tokens()
    radix_driver.admit(second)
    assert second.computed == len(prompt) - 1
    assert radix.engine.free_tokens() == free, "the first one holds it for both"
    radix_driver.write([first, second], 5)
    assert output(first) == radix.model.reference(prompt).tokens[:8]
    assert output(second) == radix.model.reference([*prompt, 70, 71]).tokens[:5]
    radix_driver.release(first)
    radix_driver.write([second], 3)
    assert output(second) == radix.model.reference([*prompt, 70, 71]).tokens[:8]


def test_copies_of_a_prompt_computed_at_once_are_freed(radix: Served, radix_driver: Driver) -> None:
    [prompt] = radix.model.prompts(1, seed=12, longest=30)
    free = radix.engine.free_tokens()
    visits = [radix_driver.visit(prompt) for _ in range(3)]
    radix_driver.write(visits, 4)
    own = sum(visit.computed - visit.handle.shared for visit in visits)
    assert {visit.handle.shared for visit in visits} == {len(prompt) - 1}
    assert radix.engine.free_tokens() == free - own - (len(prompt) - 1)
    expected = radix.model.reference(prompt).tokens
    for visit in visits:
        assert output(visit) == expected[:4]
    radix_driver.release(visits[1])
    radix_driver.truncate(visits[0], len(prompt) - 5)
    del visits[0].tokens[len(prompt) :]
    radix_driver.write([visits[0], visits[2]], 4)
    assert (output(visits[0]), output(visits[2])) == (expected[:4], expected[:8])


def test_who_should_wait_for_a_prompt(radix: Served, radix_driver: Driver) -> None:
    [prompt] = radix.model.prompts(1, seed=13, longest=20)
    prompt = [*prompt, *range(100, 140)]
    engine = radix.engine
    leader, same = radix_driver.visit(prompt), radix_driver.visit(prompt)
    longer = radix_driver.visit([*prompt, 7, 8])
    early = radix_driver.visit([*prompt[:30], *range(200, 240)])
    other = radix_driver.visit([1, *prompt])
    assert [engine.should_wait(each, [other, leader]) for each in (same, longer)] == [True, True]
    assert not engine.should_wait(early, [leader]), "30 tokens are not worth it"
    assert not engine.should_wait(other, [leader])
    assert not engine.should_wait(same, [])
    radix_driver.write([leader], 1)
    assert not engine.should_wait(same, [leader]), "it is in the cache"
    radix_driver.admit(same)
    assert same.computed == len(prompt) - 1


def test_without_a_cache_nobody_waits(qwen3: TinyModel, build: Build) -> None:
    engine = build(qwen3.path, max_total_tokens=500, disable_radix_cache=True)
    driver = Driver(engine)
    first, second = driver.visit(list(range(60))), driver.visit(list(range(60)))
    assert not engine.should_wait(second, [first])
    driver.write([first, second], 3)
    assert first.handle.shared == second.handle.shared == 0
    driver.release_all()
    engine.check_pools()
