"""Log probabilities of drawn tokens and of the likeliest ones, as SGLang computes them.

After penalties, masks, bias and temperature; before top-k, top-p and min-p. Used by
`engine.py` for the rows of a batch that ask.
"""

from __future__ import annotations

import torch

from tokenrouter.ipc.messages import Logprob
from tokenrouter.subserver.sglang_compat.rules import Asking


class Report:
    """Made before tokens are drawn, which overwrites the logits; asked afterwards.

    ``logits``: adjusted, ``[rows, vocabulary]``.
    """

    def __init__(self, logits: torch.Tensor, asking: Asking) -> None:
        wanted = [place for place in asking if place.visit.sampling.logprobs is not None]
        self._rows = [place.row for place in wanted]
        self._tops = [place.visit.sampling.logprobs or 0 for place in wanted]
        if not wanted:
            return
        self._index = torch.tensor(self._rows, device=logits.device)
        temperatures = torch.tensor(
            [[place.visit.handle.draw.temperature] for place in wanted], device=logits.device
        )
        values = torch.log_softmax(logits[self._index] / temperatures, dim=-1)
        # JSON has no infinity for what masks have made impossible.
        self._values = values.clamp(min=torch.finfo(values.dtype).min)
        self._best = self._values.topk(min(max(self._tops), values.shape[-1]), dim=-1)

    def of(self, tokens: torch.Tensor) -> dict[int, Logprob]:
        """By row, of ``tokens`` (one a row of the batch) and of the likeliest."""
        if not self._rows:
            return {}
        own = self._values.gather(1, tokens[self._index].unsqueeze(1))
        # One transfer; float64 holds ids and float32 values exactly.
        packed = torch.cat(
            [part.double() for part in (own, self._best.values, self._best.indices)], dim=1
        )
        count = self._best.values.shape[1]
        return {
            row: Logprob(
                values[0],
                [(int(values[1 + count + k]), values[1 + k]) for k in range(min(top, count))],
            )
            for row, top, values in zip(self._rows, self._tops, packed.tolist(), strict=True)
        }
