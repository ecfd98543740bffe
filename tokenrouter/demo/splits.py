"""Which problems routers of the demo pair are trained, tuned and judged on: three disjoint sets.

Training problems are of the models' own training split. Thresholds are chosen on one half of the
held-out problems and judged on the other; a question's own hash decides, so that what is judged can
never have been seen, whatever the counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tokenrouter.demo.task import Problem, is_held_out_for_judging, problems


def for_training(count: int) -> list[Problem]:
    """The first ``count`` problems to train a router on."""
    return list(islice(_distinct(problems("train", "router")), count))


def for_thresholds(count: int) -> list[Problem]:
    """The first ``count`` problems to choose thresholds on, once a router is trained."""
    return list(islice(_distinct(_held_out(judging=False)), count))


def for_judging(count: int) -> list[Problem]:
    """The first ``count`` problems on which nothing was chosen: report results on these."""
    return list(islice(_distinct(_held_out(judging=True)), count))


def _held_out(judging: bool) -> Iterator[Problem]:
    for problem in problems("held_out", "router"):
        if is_held_out_for_judging(problem.question) == judging:
            yield problem


def _distinct(drawn: Iterator[Problem]) -> Iterator[Problem]:
    seen = set()
    for problem in drawn:
        if problem.question not in seen:
            seen.add(problem.question)
            yield problem
