"""Arithmetic word problems whose answers are worked out digit by digit.

Most of an answer is easy template and a few digits decide it, which is what token-level routing is
about. An answer is a function of its question alone, so exact match is a fair measure. Questions
are split by their hash: whatever seed draws them, no held-out question is ever trained on.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

NAMES = ("Ann", "Bob", "Cleo", "Dan", "Eva", "Finn", "Gil", "Hana")
THINGS = ("coins", "shells", "stamps", "beads", "cards", "pens", "nuts", "marbles")
OPERATIONS = ("+", "-", "*", "+-", "-+", "*+", "*-")
HELD_OUT_ONE_IN = 16

Split = Literal["train", "held_out"]


@dataclass(frozen=True)
class Problem:
    """A question, its worked answer, and the number the answer ends in."""

    question: str
    answer: str
    result: int


def add_steps(a: int, b: int) -> str:
    """Column addition from the right: digit + digit + carry = sum."""
    steps, carry = [], 0
    while a or b or carry:
        total = a % 10 + b % 10 + carry
        steps.append(f"{a % 10}+{b % 10}+{carry}={total}")
        carry, a, b = total // 10, a // 10, b // 10
    return ", ".join(steps)


def subtract_steps(a: int, b: int) -> str:
    """Column subtraction from the right with borrows: digit - digit - borrow = digit; a >= b."""
    steps, borrow = [], 0
    while a or b:
        difference = a % 10 - b % 10 - borrow
        steps.append(f"{a % 10}-{b % 10}-{borrow}={difference % 10}")
        borrow, a, b = int(difference < 0), a // 10, b // 10
    return ", ".join(steps)


def multiply_steps(a: int, factor: int) -> str:
    """Multiplication by one digit from the right: digit * factor + carry = product."""
    steps, carry = [], 0
    while a or carry:
        product = a % 10 * factor + carry
        steps.append(f"{a % 10}*{factor}+{carry}={product}")
        carry, a = product // 10, a // 10
    return ", ".join(steps)


def work(operation: str, a: int, b: int) -> tuple[str, int]:
    """The sentence that works out `a operation b`, and its result."""
    if operation == "+":
        return f"Add {a} and {b}: {add_steps(a, b)}, so {a + b}.", a + b
    if operation == "-":
        return f"Subtract {b} from {a}: {subtract_steps(a, b)}, so {a - b}.", a - b
    return f"Multiply {a} by {b}: {multiply_steps(a, b)}, so {a * b}.", a * b


def draw_problem(rng: random.Random) -> Problem:
    """One problem of one or two operations on a number of two to four digits."""
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    operations = rng.choice(OPERATIONS)
    digits = rng.randint(2, 4)
    value = rng.randint(10 ** (digits - 1), 10**digits - 1)
    story, clauses, sentences = f"{name} has {value} {thing}", [], []
    for operation in operations:
        if operation == "*":
            operand = rng.randint(2, 9)
            story = f"{name} has {operand} boxes of {value} {thing}"
        elif operation == "+":
            operand = rng.randint(10, 10**digits - 1)
            clauses.append(f"finds {operand} more")
        else:
            operand = rng.randint(1, min(value, 10**digits) - 1)
            clauses.append(f"loses {operand}")
        sentence, value = work(operation, value, operand)
        sentences.append(sentence)
    if clauses:
        *first, last = [story, *clauses]
        story = f"{', '.join(first)} and {last}"
    question = f"{story}. How many {thing}?"
    answer = f"{' '.join(sentences)} {name} has {value} {thing}."
    return Problem(question, answer, value)


def is_held_out(question: str) -> bool:
    """Whether a question belongs to the held-out split; fixed by the question's own hash."""
    return _hash(question) % HELD_OUT_ONE_IN == 0


def is_held_out_for_judging(question: str) -> bool:
    """Of a held-out question, whether it is of the half on which nothing may be chosen."""
    return _hash(question) // HELD_OUT_ONE_IN % 2 == 0


def _hash(question: str) -> int:
    return int.from_bytes(hashlib.blake2b(question.encode(), digest_size=8).digest(), "big")


def problems(split: Split, seed: int | str) -> Iterator[Problem]:
    """An endless stream of problems of one split; the same seed gives the same stream."""
    rng = random.Random(f"{split}/{seed}")
    while True:
        problem = draw_problem(rng)
        if is_held_out(problem.question) == (split == "held_out"):
            yield problem
