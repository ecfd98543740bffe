"""The problem generator: right arithmetic, fair splits, reproducible streams."""

from __future__ import annotations

import operator
import re
from itertools import islice

import pytest

from tokenrouter.demo.task import (
    OPERATIONS,
    Problem,
    add_steps,
    is_held_out,
    multiply_steps,
    problems,
    subtract_steps,
)

SAMPLE = list(islice(problems("train", 1), 500))
SIGNS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
STEP = re.compile(r"(\d)([-+*])(\d)([-+])(\d)=(\d+)")
SENTENCE = re.compile(r"(?:Add|Subtract|Multiply) [^.]+: ([^:.]+), so (\d+)\.")


def result_from_question(question: str) -> int:
    """Work a question out by reading its words, without the generator's own arithmetic."""
    boxes = re.search(r"has (\d) boxes of (\d+)", question)
    start = re.search(r"has (\d+)", question)
    assert start is not None
    total = int(boxes[1]) * int(boxes[2]) if boxes else int(start[1])
    found = re.search(r"finds (\d+) more", question)
    lost = re.search(r"loses (\d+)", question)
    return total + int(found[1] if found else 0) - int(lost[1] if lost else 0)


@pytest.mark.parametrize("problem", SAMPLE[:100], ids=lambda problem: problem.question)
def test_the_result_is_what_the_question_asks(problem: Problem) -> None:
    assert problem.result == result_from_question(problem.question)
    assert problem.answer.split()[-2] == str(problem.result)
    assert problem.result >= 0


def test_every_step_of_every_answer_is_true_and_gives_a_digit_of_the_result() -> None:
    checked = 0
    for problem in SAMPLE:
        sentences = SENTENCE.findall(problem.answer)
        assert len(sentences) in (1, 2)
        for steps, result in sentences:
            digits = ""
            for a, first, b, second, c, right in STEP.findall(steps):
                value = SIGNS[second](SIGNS[first](int(a), int(b)), int(c))
                assert value % 10 == int(right) % 10
                assert second == "-" or value == int(right)
                digits = right[-1] + digits
                checked += 1
            assert int(digits) == int(result)
            assert len(STEP.findall(steps)) == len(steps.split(", "))
    assert checked > len(SAMPLE)


def test_steps_written_out() -> None:
    assert add_steps(95, 7) == "5+7+0=12, 9+0+1=10, 0+0+1=1"
    assert subtract_steps(103, 5) == "3-5-0=8, 0-0-1=9, 1-0-1=0"
    assert multiply_steps(48, 7) == "8*7+0=56, 4*7+5=33, 0*7+3=3"


def test_every_kind_of_problem_occurs() -> None:
    words = {"+": "Add", "-": "Subtract", "*": "Multiply"}
    seen = {
        "".join(sign for word in problem.answer.split() for sign in words if words[sign] == word)
        for problem in SAMPLE
    }
    assert seen == set(OPERATIONS)


def test_splits_cannot_overlap() -> None:
    train = {problem.question for problem in SAMPLE}
    held_out = {problem.question for problem in islice(problems("held_out", 1), 500)}
    assert not train & held_out
    assert not any(is_held_out(question) for question in train)
    assert all(is_held_out(question) for question in held_out)


def test_the_split_of_a_question_never_changes() -> None:
    """Pinned: the published models were trained under this split."""
    held_out = [number for number in range(64) if is_held_out(f"question {number}")]
    assert held_out == [3, 21, 36, 42, 49, 53, 61]


def test_answers_have_the_promised_length_in_tokens() -> None:
    lengths = [len(problem.answer.encode()) + 1 for problem in SAMPLE]
    assert min(lengths) >= 50
    assert max(lengths) <= 200


def test_a_seed_gives_one_stream() -> None:
    assert list(islice(problems("train", 1), 500)) == SAMPLE
    assert list(islice(problems("train", 2), 500)) != SAMPLE
