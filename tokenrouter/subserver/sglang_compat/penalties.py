"""What penalties must remember of one visit: which tokens it holds, and how often it wrote each.

Used by `rules.py`. Kept as columns, so that a step concatenates them and never loops over tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy
import numpy.typing

from tokenrouter.ipc.messages import Sampling
from tokenrouter.subserver.engine import Seen, Visit

FIRST_ROOM = 64
LEAST_REPETITION = 1e-6
"""A smaller penalty changes nothing more, and what it divides might not be a number any more."""

Ids = numpy.typing.NDArray[numpy.int64]
Floats = numpy.typing.NDArray[numpy.float32]
Flags = numpy.typing.NDArray[numpy.bool_]


class Penalty(NamedTuple):
    """How the logits x of distinct tokens change: ``x > 0 ? x / divide : x * divide``,
    then ``- subtract``. All columns are equally long.
    """

    ids: Ids
    divide: Floats
    subtract: Floats


class Held(NamedTuple):
    """The tokens of one visit: distinct ``ids``, how often each was written (perhaps taken
    back since), and whether prompt or output hold it; and how the visit penalises them.
    """

    ids: Ids
    counts: Floats
    held: Flags
    frequency: float
    presence: float
    repetition: float


def penalty_of(rows: Sequence[Held]) -> Penalty:
    """What to do with the tokens of all ``rows``, one after the other."""
    ids, counts, held, *asked = zip(*rows, strict=True)
    lengths = [len(each) for each in ids]
    frequency, presence, repetition = numpy.repeat(
        numpy.array(asked, numpy.float32), lengths, axis=1
    )
    count = numpy.concatenate(counts)
    divide = numpy.where(numpy.concatenate(held), repetition, numpy.float32(1))
    return Penalty(numpy.concatenate(ids), divide, frequency * count + presence * (count > 0))


class Penalties:
    """Of one visit, as SGLang's (frequency, presence; over output) and Hugging Face's
    (repetition; over prompt and output).

    SGLang 0.5.1 takes a repetition penalty and ignores it. All three together: repetition
    first, as vLLM does. Ids from ``vocabulary`` on have no logits and are left out.
    """

    def __init__(self, visit: Visit, vocabulary: int) -> None:
        self._asked = visit.sampling
        self._vocabulary = vocabulary
        self._seen = Seen(visit.prompt_length, len(visit.cuts))
        self._output: list[int] = []
        prompt: Ids = numpy.zeros(0, numpy.int64)
        if self._asked.repetition_penalty != 1:
            prompt = numpy.unique(numpy.array(visit.tokens[: visit.prompt_length], numpy.int64))
            prompt = prompt[prompt < vocabulary]
        self._of_prompt = len(prompt)
        self._place: dict[int, int] = dict(zip(prompt.tolist(), range(len(prompt)), strict=True))
        self._ids: Ids = numpy.concatenate((prompt, numpy.zeros(FIRST_ROOM, numpy.int64)))
        self._counts: Floats = numpy.zeros(len(self._ids), numpy.float32)
        self._held: Flags = numpy.arange(len(self._ids)) < len(prompt)

    @staticmethod
    def asked(sampling: Sampling) -> bool:
        """Whether ``sampling`` has any."""
        return (
            sampling.frequency_penalty != 0
            or sampling.presence_penalty != 0
            or sampling.repetition_penalty != 1
        )

    def of(self, visit: Visit, length: int) -> Held:
        """For the logits after the first ``length`` tokens; looks at what is new since the last
        call.
        """
        self._follow(visit, length)
        used, asked = len(self._place), self._asked
        return Held(
            self._ids[:used], self._counts[:used].copy(), self._held[:used].copy(),
            asked.frequency_penalty, asked.presence_penalty,
            max(asked.repetition_penalty, LEAST_REPETITION),
        )  # fmt: skip

    def _follow(self, visit: Visit, length: int) -> None:
        stands, fresh = self._seen.news(visit, length)
        kept = stands - visit.prompt_length
        self._count(self._output[kept:], -1)
        self._output[kept:] = fresh
        self._count(fresh, 1)

    def _count(self, tokens: Sequence[int], change: int) -> None:
        for token in tokens:
            if token < self._vocabulary:
                place = self._place_of(token)
                self._counts[place] += change
                self._held[place] = place < self._of_prompt or self._counts[place] > 0

    def _place_of(self, token: int) -> int:
        place = self._place.setdefault(token, len(self._place))
        if place == len(self._ids):
            self._ids = numpy.concatenate((self._ids, numpy.zeros_like(self._ids)))
            self._counts = numpy.concatenate((self._counts, numpy.zeros_like(self._counts)))
            self._held = numpy.concatenate((self._held, numpy.zeros_like(self._held)))
        self._ids[place] = token
        return place
