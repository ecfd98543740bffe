"""Hindsight: a larger model that is asked for one token looks back at those it skipped.

When the last member extends over skipped tokens, its logits after each of them cost no
other pass. Asked for by ``algorithm_args.verify`` of any algorithm that commits what it
decides (`registry`), and made of the paper's methods one that may take tokens back.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from tokenrouter.errors import ConfigError
from tokenrouter.schedulers.arguments import flag, whole_number
from tokenrouter.schedulers.base import Decision, Request, RoutingScheduler, Step
from tokenrouter.schedulers.signals import Checks, Declared
from tokenrouter.schedulers.wrapping import INNER, Wrapping

FIRST = 0
FIELD = "algorithm_args.verify"
OPTIONS = ("epsilon", "final", "window")
CHECK, BACK = b"\1", b"\2"
"""Payloads: control comes only for a check; it comes back after one."""


class Hindsight(Wrapping):
    """``inner``, whose tokens are drafts until the verifier, the last member, has seen them.

    Whenever control reaches the verifier, the first draft to which it gives a probability
    (softmax of its raw logits) below ``epsilon`` is cut, its own token is written there, and
    the first member goes on. If there is none, the inner algorithm decides there as ever. It
    is never told of a cut: its state stays what it was when control left, on each member.

    Args:
        epsilon: in (0, 1).
        final: drafts at the end of the output are checked before the request finishes; if
            nothing is cut, it ends there. Otherwise they are final as they are.
        window: so many drafts are handed over for a check, whatever the inner algorithm wants.
            None: they wait for it, at worst for the whole output, as in the definition: fewer
            large passes, but nothing is streamed meanwhile.
    """

    drafts = True

    def __init__(
        self,
        inner: RoutingScheduler,
        epsilon: float = 0.1,
        final: bool = True,
        window: int | None = None,
    ) -> None:
        super().__init__(inner, inner.router_threshold)
        self.verifier = len(inner.members) - 1
        self.epsilon, self.final, self.window = epsilon, final, window

    def signals(self, member: int) -> Collection[Declared]:
        """Those of the inner algorithm; the verifier checks."""
        inner = self.inner.signals(member)
        return (*inner, Checks()) if member == self.verifier else inner

    def route(self, request: Request, step: Step) -> Decision:
        """Cut, or ask the inner algorithm; what it commits elsewhere is not final."""
        state = request.state
        state.mark = BACK
        for skipped, check in enumerate(step.checks):
            if not check.probability >= self.epsilon:
                return Decision(1, FIRST, cut=len(step.checks) - skipped)
        if state.arrived == CHECK:
            # Past the end, the home drops this token; past a window, it is better than a draft.
            return Decision(1, FIRST)
        state.mark = INNER
        decision = self.within(self.inner.route, request, step)
        if request.member == self.verifier:
            return decision
        return self._unverified(request, step, decision)

    def _unverified(self, request: Request, step: Step, decision: Decision) -> Decision:
        keep, to = decision.keep, decision.to
        drafts = request.drafts + keep
        ends = step.ends and keep > 0
        if ends and not self.final:
            return decision
        full = self.window is not None and drafts >= self.window and to != self.verifier
        if ends or full:
            request.state.mark = CHECK
            to = self.verifier
        return Decision(keep, to, drafts=drafts)


def verified(inner: RoutingScheduler, name: str, options: object) -> Hindsight:
    """Algorithm ``name`` with ``algorithm_args.verify: options``.

    Raises:
        ConfigError: wrong options, or an algorithm that takes none.
    """
    if isinstance(inner, Wrapping):
        raise ConfigError(f"{FIELD}: give it to the algorithm that {name} is to go on with")
    if inner.drafts or inner.scratch_tokens:
        raise ConfigError(f"{FIELD}: {name} drafts and checks by itself; leave it out")
    if not inner.verifiable:
        raise ConfigError(f"{FIELD}: {name} decides on more than single tokens; leave it out")
    if not hasattr(inner, "members"):
        raise ConfigError(
            f"algorithm: {name}: its __init__ must call super().__init__(members, router_threshold)"
        )
    if len(inner.members) < 2:
        raise ConfigError(f"{FIELD}: needs a second model, the last one, to verify with")
    if not isinstance(options, Mapping):
        raise ConfigError(f"{FIELD}: give {{epsilon: 0.1, final: true}}, got {options!r}")
    for key in options:
        if key not in OPTIONS:
            close = difflib.get_close_matches(str(key), OPTIONS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(OPTIONS)}"
            raise ConfigError(f"{FIELD}: unknown key {key!r}; {hint}")
    return Hindsight(inner, **_checked(options))


def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
    epsilon = options.get("epsilon", 0.1)
    if isinstance(epsilon, bool) or not isinstance(epsilon, (int, float)) or not 0 < epsilon < 1:
        raise ConfigError(f"{FIELD}.epsilon: must lie between 0 and 1, got {epsilon!r}")
    final = flag("verify.final", options.get("final", True))
    window = options.get("window")
    if window is not None:
        window = whole_number("verify.window", window, 1)
    return {"epsilon": float(epsilon), "final": final, "window": window}
