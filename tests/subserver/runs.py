"""Random runs of a deployment whose thresholds change, and whose processes die."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from tests.subserver.algorithms import HERE
from tests.subserver.harness import ALPHABET, Stall
from tests.subserver.planning import Planned, Table
from tokenrouter.ipc.messages import Route, Sampling
from tokenrouter.planner.problem import Terms
from tokenrouter.planner.solving import fitted
from tokenrouter.subserver.batching import Limits
from tokenrouter.subserver.tables import fixed_table

UNTIL = (60, 300)
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


@dataclass(frozen=True)
class Run:
    """One random run.

    ``tables``: what makes them, of (random numbers, members, rows); ``clamped``: whether they
    are then fitted to the number of live requests, and to what members start with.
    """

    seed: int
    clamped: bool = True
    tables: Callable[[random.Random, int, int], Table] = random_table

    def build(self) -> Planned:
        """The deployment, with all that is to happen to it scheduled."""
        rng = random.Random(self.seed)
        count = rng.choice((2, 2, 3, 4))
        requests = rng.randint(2, 10)
        pools = 32 if rng.random() < 0.2 else 10_000
        until = rng.choice(UNTIL)
        fixed = {m: rng.randint(1, 4) for m in range(count) if rng.random() < 0.1}
        terms = Terms([], [], fixed, fixed_table([fixed.get(m, 1) for m in range(count)]))
        tables = [self._table(rng, terms, requests) for _ in range(rng.randint(2, 8))]
        deployment = Planned(
            terms.base[-1] if self.clamped else tables[0][-1],
            pools=pools, limits=Limits(rng.choice((2, 16)), rng.choice((3, 64))),
            eager=rng.random() < 0.2, seed=self.seed,
        )  # fmt: skip
        for uid in range(1, requests + 1):
            self._schedule(deployment, rng, uid, rng.uniform(0, until), 16 if pools == 32 else 48)
        for table in tables:
            deployment.at(rng.uniform(0, until), partial(deployment.pending.append, table))
        for _ in range(rng.choice((0, 0, 0, 1, 2))):
            deployment.at(rng.uniform(0, until), partial(deployment.kill, rng.randrange(count)))
        deployment.fragile = rng.choice((0.0, 0.5, 1.0))
        return deployment

    def turns(self) -> Iterator[Planned]:
        """It, after each turn, until nothing can happen.

        Raises:
            AssertionError: it goes on for ever.
        """
        deployment = self.build()
        for _ in range(MOST_TURNS):
            deployment.look()
            if not deployment.turn():
                return
            yield deployment
        raise AssertionError(f"{self} does not end")

    def stalls(self) -> bool:
        """Whether it does; anything else that is wrong is raised."""
        try:
            for deployment in self.turns():
                last = deployment
        except Stall:
            return True
        last.assert_clean()
        return last.unfinished > 0

    def _table(self, rng: random.Random, terms: Terms, requests: int) -> Table:
        members, longest = len(terms.base[0]), rng.randint(requests // 2, requests + 2)
        table = self.tables(rng, members, longest)
        if not self.clamped:
            return table[-1:]
        return fitted(table, terms) if self.tables is random_table else table

    def _schedule(
        self, deployment: Planned, rng: random.Random, uid: int, arrival: float, longest: int
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
        sampling = Sampling(rng.randint(1, longest), ignore_eos=True)
        submit = partial(deployment.submit, uid, prompt, path, sampling)
        deployment.at(arrival, submit)
        if rng.random() < 0.2:
            leaves = arrival + rng.expovariate(1 / 60)
            deployment.at(leaves, partial(deployment.abort, uid, home))
