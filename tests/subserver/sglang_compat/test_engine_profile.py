"""The start-up profile over the real engine: its steps are real, and nothing stays."""

from __future__ import annotations

from tests.subserver.sglang_compat.conftest import Served
from tokenrouter.subserver.profile import CONTEXT, FED, profile


def test_a_profile_of_real_steps_leaves_nothing(served: Served) -> None:
    engine = served.engine
    fed: list[int] = []

    def step(work) -> None:
        batch = engine.step(work, ())
        assert len(batch.tokens) == len(work)
        fed.append(sum(n for _, n in work))

    found = profile(engine, 8, step, budget_s=60.0)
    assert list(found) == [1, 2, 4, 8]
    assert all(sums.seconds > 0 for sums in found.values())
    # Whoever comes to a size computes the context, and then everybody steps.
    joined = {1: 1, 2: 1, 4: 2, 8: 4}
    assert sum(fed) == sum(new * CONTEXT + size * sum(FED) for size, new in joined.items())
    engine.check_pools()
    assert engine.free_tokens() == engine.pool_tokens
    assert engine._pools._cache.evictable_size() == 0, "the prefix cache is empty"
