"""Whether what an algorithm decided can be carried out. Used by `routing.py` after every step."""

from __future__ import annotations

from tokenrouter.ipc.messages import Logprob
from tokenrouter.schedulers.base import Decision, Step
from tokenrouter.subserver.engine import Visit

MAX_PAYLOAD_BYTES = 64 * 1024


def problem_of(visit: Visit, step: Step, decision: object, payload: object) -> str | None:
    """What is wrong with ``decision`` after ``step``, if anything is."""
    if type(payload) is not bytes:
        return f"a payload of type {type(payload).__name__}, which must be bytes"
    if len(payload) > MAX_PAYLOAD_BYTES:
        return f"a payload of {len(payload)} bytes (limit {MAX_PAYLOAD_BYTES})"
    if not isinstance(decision, Decision):
        return f"a {type(decision).__name__}, which is no Decision"
    keep, to, cut, drafts = decision.keep, decision.to, decision.cut, decision.drafts
    if not type(keep) is type(to) is type(cut) is type(drafts) is int:
        return f"{keep=}, {to=}, {cut=}, {drafts=}, which must be ints"
    if not 0 <= keep <= len(step.tokens):
        return f"keep={keep} of a step of {len(step.tokens)} tokens"
    if keep and step.scratch:
        return f"keep={keep} of a step that read scratch tokens"
    if (cut or drafts) and (problem := _impossible_drafts(visit, step, decision)):
        return problem
    if to not in visit.route.members:
        return f"to={to}, which is not one of its members {visit.route.members}"
    if not (keep or cut or step.scratch) and to == visit.request.member:
        return "keep=0 and the same member goes on: the step would repeat for ever"
    return None


def kept_tokens(step: Step, decision: Decision) -> list[int]:
    """What ``decision`` commits."""
    if decision.cut and decision.keep:
        return [step.checks[-decision.cut].token]
    return list(step.tokens[: decision.keep])


def kept_logprobs(visit: Visit, decision: Decision, logprob: Logprob) -> list[Logprob]:
    """Of the drafts that stay, if they were checked, and of what is committed.

    ``logprob``: of the step's token.
    """
    checked, cut = visit.checked, decision.cut
    stay = checked[: len(checked) - cut] if visit.check and visit.check.as_own else []
    told = [each.logprobs[0] for each in stay if each.logprobs]
    if decision.keep:
        of_check = checked[-cut].logprobs if cut else None
        told.append(of_check[1] if of_check else logprob)
    return told


def _impossible_drafts(visit: Visit, step: Step, decision: Decision) -> str | None:
    keep, cut, drafts = decision.keep, decision.cut, decision.drafts
    held = visit.request.drafts
    if cut and keep and len(step.checks) != held:
        return f"keep={keep} in the place of a draft that it has not checked"
    if cut and keep > 1:
        return f"keep={keep} in the place of a draft, for which there is one token"
    if not 0 <= cut <= held:
        return f"cut={cut} of {held} drafts"
    open_tokens = held - cut + keep
    if not 0 <= drafts <= open_tokens:
        return f"drafts={drafts} of {open_tokens} tokens that are not final"
    if drafts and not visit.scheduler.drafts:
        return f"drafts={drafts}, and its class does not say that it drafts"
    # Where no token is wanted at all, one is drafted before the home ends the request.
    limit = max(visit.sampling.max_new_tokens, 1)
    written = visit.written - cut + keep
    if drafts and written + (decision.to == visit.request.member) > limit:
        return f"drafts={drafts} at the end of the output, and nobody is to check them"
    return None
