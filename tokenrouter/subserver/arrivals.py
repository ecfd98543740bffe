"""Whether an algorithm can have what it set when its request arrived. Used by `routing.py`.

An engine looks at scratch tokens and proposals for a whole batch at once: what is wrong with
those of one request must be found before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from tokenrouter.schedulers.base import Proposal, Request
from tokenrouter.subserver.engine import Visit


def problem_of_arrival(visit: Visit, vocabulary_size: int) -> str | None:
    """What is wrong with what `RoutingScheduler.receive` set, if anything is.

    ``vocabulary_size``: of the smallest member.

    Raises:
        Exception: of any kind, where it is not even numbers.
    """
    request, longest = visit.request, visit.scheduler.scratch_tokens
    request.scratch, request.proposals = list(request.scratch), list(request.proposals)
    scratch = request.scratch
    if len(scratch) > longest:
        return f"{len(scratch)} scratch tokens, and its algorithm has room for {longest}"
    if not all(type(token) is int and 0 <= token < vocabulary_size for token in scratch):
        return f"scratch tokens that are none of the ids from 0 to {vocabulary_size - 1}"
    if visit.check and visit.check.rule:
        return _problem_of_proposals(request)
    return None


def _problem_of_proposals(request: Request) -> str | None:
    proposals = request.proposals
    if len(proposals) != request.drafts:
        return f"{len(proposals)} proposals for {request.drafts} drafts"
    return None if not proposals or _are_laws(proposals) else "proposals that are no laws of tokens"


def _are_laws(proposals: Sequence[Proposal]) -> bool:
    """All at once: this runs in the loop, at every round of drafts."""
    sizes = {(len(e.ids), len(e.probabilities), len(e.raw)) for e in proposals}
    if any(not 0 < ids == law == raw for ids, law, raw in sizes):
        return False
    ids = numpy.concatenate([each.ids for each in proposals])
    numbers = numpy.concatenate([c for e in proposals for c in (e.probabilities, e.raw, (e.top,))])
    if ids.dtype.kind not in "iu" or not 0 <= ids.min() <= ids.max() < 1 << 32:
        return False
    return bool(numbers.min() >= 0 and numbers.sum() < numpy.inf)
