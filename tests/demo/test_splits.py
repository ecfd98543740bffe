"""Problems for routers: what is tuned or judged on was never trained on."""

from __future__ import annotations

from tokenrouter.demo.splits import for_judging, for_thresholds, for_training
from tokenrouter.demo.task import is_held_out


def test_no_question_is_in_two_splits() -> None:
    splits = [
        {problem.question for problem in drawn(500)}
        for drawn in (for_training, for_thresholds, for_judging)
    ]
    assert all(len(questions) == 500 for questions in splits)
    assert len(set.union(*splits)) == 1500
    assert not any(map(is_held_out, splits[0]))
    assert all(map(is_held_out, splits[1] | splits[2]))


def test_more_problems_begin_as_fewer_do() -> None:
    for drawn in (for_training, for_thresholds, for_judging):
        assert drawn(20)[:10] == drawn(10)
