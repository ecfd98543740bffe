"""What the fields of request bodies may hold: types with bounds, for `protocol`."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema

from tokenrouter.frontend.bodies import Many, Short

MOST_CHOICES = 128
"""Largest ``n``, as OpenAI's."""
MOST_LOGPROBS = 20
"""Most alternatives to a token, as OpenAI's."""
MOST_IDS = 4096
"""Longest list of stop ids or biases: they travel to every member with the request."""
LARGEST_BIAS = 10_000
"""Decides against any logit, and leaves room in 32 bits."""
LONGEST_GRAMMAR = 64 * 1024
"""Characters of a schema or an expression."""


def _top_k(value: int) -> int:
    if value < 1 and value != -1:
        raise ValueError("Input should be at least 1, or -1 for the whole vocabulary")
    return value


Temperature = Annotated[float, Field(ge=0, allow_inf_nan=False)]
TopP = Annotated[float, Field(gt=0, le=1)]
TopK = Annotated[
    int,
    AfterValidator(_top_k),
    WithJsonSchema({"type": "integer", "anyOf": [{"minimum": 1}, {"const": -1}]}),
]
MinP = Annotated[float, Field(ge=0, le=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
# (Logits are divided by it, in 32 bits.)
RepetitionPenalty = Annotated[float, Field(ge=0.01, le=2)]
BiasedId = Annotated[str, Field(pattern=r"^[0-9]{1,10}$")]
Bias = Annotated[float, Field(ge=-LARGEST_BIAS, le=LARGEST_BIAS)]
Biases = Annotated[dict[BiasedId, Bias], Field(max_length=MOST_IDS), Short]
Choices = Annotated[int, Field(ge=1, le=MOST_CHOICES)]
Length = Annotated[int, Field(ge=1)]
Minimum = Annotated[int, Field(ge=0)]
Alternatives = Annotated[int, Field(ge=0, le=MOST_LOGPROBS)]
Stop = Annotated[str, Field(min_length=1, max_length=1024)]
Stops = Stop | Annotated[Many[Stop], Field(max_length=64)]
TokenId = Annotated[int, Field(ge=0)]
StopIds = Annotated[Many[TokenId], Field(max_length=MOST_IDS)]
GrammarText = Annotated[str, Field(min_length=1, max_length=LONGEST_GRAMMAR)]
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Id = Annotated[str, Field(min_length=1, max_length=256)]
