"""Deployments whose thresholds change while they serve, at another moment for each member."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from tests.subserver.algorithms import HERE
from tests.subserver.harness import ALPHABET, Deployment
from tokenrouter.ipc.messages import PLANNER, Plan, Route, Sampling
from tokenrouter.subserver.batching import Limits
from tokenrouter.subserver.thresholds import fixed_table

Table = list[tuple[int, ...]]
UNTIL = (60, 600)
"""Turns in which requests arrive and plans are made, in one run or another."""
MOST_TURNS = 20_000
"""None is so long, unless its members go round in circles."""


def random_table(rng: random.Random, members: int, longest: int) -> Table:
    """A legal one: requests wait for nearly all that they may, and mostly on one member."""
    favourites = rng.choices(range(members), [8, *[1] * (members - 1)], k=longest)
    turn = rng.randrange(members)
    row = [1] * members
    table = [tuple(row)]
    for favourite in favourites[1:]:
        if rng.random() < 0.9:
            row[(turn + favourite) % members] += 1
        table.append(tuple(row))
    return table


def at_most(one: Sequence[tuple[int, ...]], other: Sequence[tuple[int, ...]]) -> Table:
    """The elementwise minimum of two tables, as long as the longer one."""
    longest = max(len(one), len(other))
    rows = [[table[min(i, len(table) - 1)] for i in range(longest)] for table in (one, other)]
    return [tuple(map(min, *pair)) for pair in zip(*rows, strict=True)]


@dataclass
class Planner:
    """Publishes tables as the planner does: what both allow first, once all know that, the new.

    ``phases``: 2; with 1, the new table alone. ``pending``: tables to come, in order.
    ``lives``: so many plans are published, and the last reaches only some of the members.
    """

    deployment: Deployment
    table: Table
    phases: int = 2
    lives: int = 1_000_000
    pending: list[Table] = field(default_factory=list)
    version: int = 0

    def look(self) -> None:
        """Publish what is next, if every member holds what was last."""
        known = min(member.thresholds.version for member in self.deployment.members)
        if known < self.version or not self.pending or self.version == self.lives:
            return
        new = self.pending.pop(0)
        if self.phases == 2 and (both := at_most(self.table, new)) not in (self.table, new):
            self.pending.insert(0, new)
            new = both
        self.version += 1
        self.table = new
        self.deployment.plan(Plan(self.version, new, "at random"))
        if self.version == self.lives:
            self.deployment.wires[PLANNER, self.version % len(new[0])].clear()


@dataclass(frozen=True)
class Run:
    """One random run.

    ``clamped``: whether thresholds depend on live requests; ``phases``: as `Planner`.
    """

    seed: int
    clamped: bool = True
    phases: int = 2
    tables: Callable[[random.Random, int, int], Table] = random_table

    def build(self) -> tuple[Deployment, Planner]:
        """The deployment, its requests scheduled, and what plans for it."""
        rng = random.Random(self.seed)
        count = rng.choice((2, 2, 3, 4))
        requests = rng.randint(2, 10)
        pools = 32 if rng.random() < 0.2 else 10_000
        until = rng.choice(UNTIL)
        tables = [self._table(rng, count, requests) for _ in range(rng.randint(1, 4))]
        deployment = Deployment(
            tables[0][-1], pools=pools, limits=Limits(rng.choice((2, 16)), rng.choice((3, 64))),
            eager=rng.random() < 0.2, seed=self.seed,
        )  # fmt: skip
        for uid in range(1, requests + 1):
            self._schedule(deployment, rng, uid, rng.uniform(0, until))
        lives = rng.choice((1, 2, 3, 4, 1_000_000))
        planner = Planner(deployment, fixed_table(tables[0][-1]), self.phases, lives)
        for table in tables:
            deployment.at(rng.uniform(0, until), partial(planner.pending.append, table))
        return deployment, planner

    def stalls(self) -> bool:
        """Whether it does; anything else that is wrong is raised."""
        deployment, planner = self.build()
        for _ in range(MOST_TURNS):
            if not deployment.turn():
                break
            planner.look()
        else:
            raise AssertionError(f"{self} does not end")
        if deployment.unfinished:
            return True
        deployment.assert_clean()
        return False

    def _table(self, rng: random.Random, members: int, requests: int) -> Table:
        table = self.tables(rng, members, rng.randint(requests // 2, requests + 2))
        return table if self.clamped else table[-1:]

    def _schedule(
        self, deployment: Deployment, rng: random.Random, uid: int, arrival: float
    ) -> None:
        """A request of one of two classes: that goes everywhere, rarely or often; or does not."""
        everyone = range(len(deployment.members))
        route = tuple(everyone)
        if rng.random() < 0.25:
            route = tuple(sorted(rng.sample(everyone, rng.randint(1, len(everyone) - 1))))
        visits = [*route, *[route[0]] * rng.choice((0, 6))]
        home = rng.choice(route)
        path = Route(f"{HERE}:Wander", route, home, args={"visits": visits}, seed=rng.randrange(99))
        prompt = [rng.choice(ALPHABET) for _ in range(rng.choice((1, 2, 12)))]
        sampling = Sampling(rng.randint(1, 16), ignore_eos=True)
        submit = partial(deployment.submit, uid, prompt, path, sampling)
        deployment.at(arrival, submit)
        if rng.random() < 0.2:
            leaves = arrival + rng.expovariate(1 / 60)
            deployment.at(leaves, partial(deployment.abort, uid, home))
