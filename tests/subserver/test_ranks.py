"""The ranks of a member do as its first rank does, call by call, or say that they do not."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from tests.subserver.harness import WIDE
from tests.subserver.ranked import Rank, Ranked, resident
from tests.subserver.test_deployment import Scenario
from tests.subserver.workload import differences
from tokenrouter.errors import RankError, UnsupportedError
from tokenrouter.ipc.messages import Close, Message
from tokenrouter.ipc.operations import Control
from tokenrouter.ipc.rank_calls import Admit, Feed, Release, Truncate
from tokenrouter.subserver.batching import Limits
from tokenrouter.subserver.ranks import UNSENT_CALLS, Mirror

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def ranked() -> Ranked:
    """Three ranks with a small pool."""
    return Ranked(lambda b: 0.0, range(100, 200), 1000, 8, wait_until=lambda due: None)


def advance(engine: Ranked, visit: object, n: int) -> int:
    """One step of one visit, as the loop does it; the token drawn."""
    batch = engine.step([(visit, n)], ())
    visit.computed += n
    return batch.tokens[0]


@pytest.mark.parametrize("seed", range(6))
def test_whole_deployments(seed: int) -> None:
    """Routing, chunks, eviction, aborts and a prefix cache: all ranks end up the same."""
    scarce = seed % 2
    scenario = Scenario(
        seed=seed,
        thresholds=[1, 3],
        pools=[90, 120] if scarce else [4000, 4000],
        slots=5 if scarce else 64,
        limits=Limits(16, 5) if scarce else WIDE,
        eager=seed % 3 == 0,
        requests=40,
        spread=600,
        aborts=0.3,
    )
    deployment, jobs = scenario.build(engine=Ranked)
    deployment.run()
    deployment.assert_clean()
    assert not differences(deployment, jobs)
    for member in deployment.members:
        engine = member.engine
        assert isinstance(engine, Ranked)
        engine.assert_equal()
        assert engine.leader.mark
    evictions = sum(member.memory.evictions for member in deployment.members)
    assert (evictions > 0) == bool(scarce)


def test_every_token_travels_once_and_only_with_a_step(ranked: Ranked) -> None:
    outbox = ranked.outboxes[0]
    visit = resident(5, 6, 7, 8)
    assert ranked.admit(visit)
    assert outbox.frames == []
    written = advance(ranked, visit, 3)
    visit.tokens.append(written)
    advance(ranked, visit, 2)
    ranked.truncate(visit, 2)
    visit.computed = 2
    visit.tokens[2:] = [90, 91]
    advance(ranked, visit, 2)
    ranked.release(visit)
    again = resident(5, 6, 90, 55)
    ranked.admit(again)
    advance(ranked, again, 1)
    assert [
        [tuple(getattr(call, name) for name in call.__struct_fields__[:2]) for call in frame]
        for frame in outbox.frames
    ] == [
        [(1, [5]), ([(1, [5, 6, 7])], 0)],
        [([(1, [8, written])], outbox.frames[1][0].digest)],
        [(1, 2), ([(1, [90, 91])], outbox.frames[2][1].digest)],
        [(1,), (1, [5, 6, 90, 55]), ([(1, [55])], outbox.frames[3][2].digest)],
    ]
    ranked.assert_equal()


def test_a_visit_without_a_slot_is_not_mentioned(ranked: Ranked) -> None:
    visits = [resident(1, 2, uid=uid) for uid in range(9)]
    assert [ranked.admit(visit) for visit in visits] == [True] * 8 + [False]
    advance(ranked, visits[0], 2)
    [frame] = ranked.outboxes[0].frames
    assert [type(call) for call in frame] == [Admit] * 8 + [Feed]


def test_calls_do_not_pile_up_without_steps(ranked: Ranked) -> None:
    visit = resident(1, 2)
    for _ in range(UNSENT_CALLS // 2):
        assert not ranked.outboxes[1].frames
        ranked.admit(visit)
        ranked.release(visit)
    assert len(ranked.outboxes[1].frames) == 1
    assert not ranked.outboxes[1].posted


CORRUPTIONS: dict[str, Callable[[Rank], None]] = {
    "kv": lambda rank: rank._seen.clear(),
    "slots": lambda rank: setattr(rank, "visits", rank.max_visits),
    "batch": lambda rank: setattr(rank, "mark", rank.mark ^ 1),
}


@pytest.mark.parametrize(
    ("corruption", "message"),
    [
        ("kv", "request 2 found 3 cached tokens on rank 0, and 0 here"),
        ("slots", "request 2 has a slot on rank 0, and there is none here"),
        ("batch", r"the batches here differ from those of rank 0 \(digest .*, not "),
    ],
)
def test_a_corrupted_follower_notices(ranked: Ranked, corruption: str, message: str) -> None:
    first = resident(1, 2, 3, uid=1)
    ranked.admit(first)
    first.tokens.append(advance(ranked, first, 3))
    ranked.release(first)
    ranked.assert_equal()
    CORRUPTIONS[corruption](ranked.followers[1])
    second = resident(*first.tokens, uid=2)
    ranked.admit(second)
    with pytest.raises(RankError, match=message):
        advance(ranked, second, 1)


@pytest.mark.parametrize("seed", range(3))
def test_a_corrupted_batch_is_noticed_with_the_next_one(seed: int) -> None:
    """One wrong token in one row of one follower, somewhere in a whole deployment."""
    rng = random.Random(seed)

    class Corrupted(Ranked):
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)
            self.steps = 0
            real = self.followers[0].replay

            def replay(work: list, checked: list) -> None:
                self.steps += 1
                if self.steps == 20:
                    visit = rng.choice(work)[0]
                    visit.tokens[visit.computed] += 1
                real(work, checked)

            self.followers[0].replay = replay  # type: ignore[method-assign]

    deployment, _ = Scenario(seed=seed, thresholds=[1], pools=[4000]).build(engine=Corrupted)
    with pytest.raises(RankError, match="the batches here differ"):
        deployment.run()
    engine = deployment.members[0].engine
    assert isinstance(engine, Corrupted)
    assert engine.steps == 20


@pytest.fixture
def told(ranked: Ranked, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """(rank, action) of what engines are told, in order; those in ``fails`` cannot do it."""
    log: list[tuple[int, str]] = []

    def control(rank: int, action: str, arguments: Mapping[str, Any]) -> str:
        log.append((rank, action))
        if rank in arguments.get("fails", ()):
            raise UnsupportedError("cannot")
        return "done"

    for rank, engine in enumerate((ranked.leader, *ranked.followers)):
        monkeypatch.setattr(engine, "control", partial(control, rank))
    return log


def test_an_action_reaches_every_rank_after_what_came_before(
    ranked: Ranked, told: list[tuple[int, str]]
) -> None:
    visit = resident(1, 2)
    ranked.admit(visit)
    ranked.release(visit)
    assert ranked.control("flush_cache", {}) == "done"
    assert told == [(0, "flush_cache"), (1, "flush_cache"), (2, "flush_cache")]
    (frame,) = ranked.outboxes[0].frames
    assert frame == [Admit(1, [1]), Release(1), Control(0, "flush_cache", {})]


def test_what_fails_on_the_first_rank_is_not_repeated(
    ranked: Ranked, told: list[tuple[int, str]]
) -> None:
    with pytest.raises(UnsupportedError):
        ranked.control("update_weights_from_disk", {"fails": [0]})
    assert [rank for rank, _ in told] == [0]


def test_what_fails_on_another_rank_alone_is_a_divergence(
    ranked: Ranked, told: list[tuple[int, str]]
) -> None:
    with pytest.raises(RankError, match="update_weights_from_disk succeeded on rank 0, and"):
        ranked.control("update_weights_from_disk", {"fails": [2]})


def test_all_ranks_stop_a_profile_together(ranked: Ranked, told: list[tuple[int, str]]) -> None:
    ranked.control("start_profile", {})
    ranked.control("stop_profile", {})
    assert [rank for rank, _ in told] == [0, 1, 2, 1, 2, 0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (Release(9), "request 9 is resident on rank 0, and not here"),
        (Truncate(9, 1), "request 9 is resident"),
        (Feed([(9, [1])], 0), "request 9 is resident"),
        (Close(9), "rank 0 sent Close, which is not for its ranks"),
    ],
)
def test_calls_that_make_no_sense(ranked: Ranked, call: Message, message: str) -> None:
    with pytest.raises(RankError, match=message):
        Mirror(ranked.followers[0]).apply(call)
