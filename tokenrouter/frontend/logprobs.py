"""Log probabilities of one answer, in the shape of SGLang's ``meta_info``.

The tokenizer manager adds what the detokenizer passes on; `exchange.Live.take` reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenrouter.ipc.messages import Logprob

Entry = tuple[float, int, str | None]
"""Natural log, token id, and the token's text if the client asked for it."""


class Logprobs:
    """Of all output tokens so far.

    Args:
        top: alternatives to report for each token.
        tokenizer: for the texts.
        with_text: whether entries carry them.
    """

    def __init__(self, top: int, tokenizer: Any, with_text: bool) -> None:
        self._tokenizer = tokenizer if with_text else None
        self._top = top
        self._tokens: list[Entry] = []
        self._alternatives: list[list[Entry]] = []

    def add(self, tokens: Sequence[int], logprobs: Sequence[Logprob]) -> None:
        """One of ``logprobs`` for each of the new ``tokens``."""
        alternatives = [pair for each in logprobs for pair in each.top[: self._top]]
        ids = [*tokens, *(token for token, _ in alternatives)]
        texts: list[str | None] = [None] * len(ids)
        if self._tokenizer is not None and ids:
            texts = self._tokenizer.batch_decode(ids)
        values = [each.logprob for each in logprobs]
        self._tokens += zip(values, tokens, texts[: len(tokens)], strict=True)
        if not self._top:
            return
        rest = iter(texts[len(tokens) :])
        for each in logprobs:
            top = each.top[: self._top]
            self._alternatives.append([(value, token, next(rest)) for token, value in top])

    def meta_info(self) -> dict[str, Any]:
        """SGLang's fields; those of the prompt are empty, because nobody computes them.

        ``output_top_logprobs`` is there even where no alternatives were asked for: SGLang's
        handler of completions reads it then too.
        """
        return {
            "input_token_logprobs": [],
            "output_token_logprobs": list(self._tokens),
            "input_top_logprobs": [],
            "output_top_logprobs": list(self._alternatives),
        }
