"""Proposals and their acceptance where every law is certain: of models without weights.

Used by `timed.py`. What `sglang_compat/acceptance.py` computes for laws in general comes to this.
"""

from __future__ import annotations

from tokenrouter.schedulers.base import Proposal
from tokenrouter.schedulers.signals import Acceptance


def proposal(token: int, top: float) -> Proposal:
    """The law that always gives ``token``, to which the raw logits give ``top``, their most."""
    return Proposal((token,), (1.0,), (top,), top)


def stays(rule: Acceptance, draft: Proposal, own: bool, probability: float, top: float) -> bool:
    """Whether a draft stays.

    ``own``: it is also what the checking member would write, whose raw logits give it
    ``probability``, and at most ``top`` to any.
    """
    least = {
        "chow": 1 - rule.alpha,
        "diff": top - rule.alpha,
        "opt": top - rule.alpha,  # two certain laws are as far apart as laws can be, or the same
        "token_v1": top - rule.alpha,
        "token_v2": top - rule.alpha,
        "token_v3": (1 - rule.alpha) * top,
    }
    if own or rule.kind == "exact":
        return own
    tested = probability if rule.kind in ("token_v2", "token_v3") else draft.raw[0]
    return tested >= least[rule.kind]
