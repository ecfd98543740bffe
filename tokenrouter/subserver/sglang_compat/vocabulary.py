"""What other processes must know of a member's tokens: which they are, and which end a request."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any


class TokenizerVocabulary:
    """The `base.Vocabulary` of a Hugging Face tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        """The ids of ``text``, without marks of beginning or end."""
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ``ids``, special tokens included, as SGLang reads it for stop strings."""
        text: str = self._tokenizer.decode(list(ids))
        return text


def eos_ids(model_config: Any, tokenizer: Any) -> tuple[int, ...]:
    """Every token id at which SGLang ends a request of this model, ascending.

    Those of the model's configuration, the tokenizer's own, and its additional stop tokens.
    """
    ids = set(model_config.hf_eos_token_id or ())
    ids.update(getattr(tokenizer, "additional_stop_token_ids", None) or ())
    if tokenizer.eos_token_id is not None:
        ids.add(tokenizer.eos_token_id)
    return tuple(sorted(ids))


def think_end_ids(tokenizer: Any, reasoning_parser: str | None) -> tuple[int, ...]:
    """The ids that end a model's reasoning; none where it is not told from the answer."""
    if reasoning_parser is None:
        return ()
    from sglang.srt.reasoning_parser import ReasoningParser

    end = ReasoningParser(reasoning_parser, stream_reasoning=False).detector.think_end_token
    return tuple(tokenizer.encode(end, add_special_tokens=False))


def fingerprint(tokenizer: Any, end: float = math.inf) -> str:
    """A hash of all (token, id) pairs: members that route tokens to each other must agree.

    ``end``: ids from here on are no tokens.
    """
    pairs = json.dumps(sorted(pair for pair in tokenizer.get_vocab().items() if pair[1] < end))
    return hashlib.sha256(pairs.encode()).hexdigest()


def printable_ids(tokenizer: Any) -> tuple[int, ...]:
    """Ids of single printable ASCII characters, ascending: what made-up text is made of.

    Falls back to every id for a vocabulary that has none.
    """
    ids = range(len(tokenizer))
    special = set(tokenizer.all_special_ids)
    texts = tokenizer.batch_decode([[each] for each in ids])
    printable = [
        each
        for each, text in zip(ids, texts, strict=True)
        if each not in special and len(text) == 1 and text.isascii() and text.isprintable()
    ]
    return tuple(printable or ids)
