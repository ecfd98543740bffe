"""An engine without weights: a step takes a given time, the next token is a pure function.

It lets the whole stack run at the latencies of any pair of models on a laptop. The token
after a context is a hash of the tokens in KV, so any error in what was fed, kept, cut or
evicted shows as a wrong token. Its distribution is a point mass: temperature, penalties, bias
and seeds change nothing, and every log probability is 0. Behind the same seam as SGLang's engine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy

from tokenrouter.errors import UnsupportedError
from tokenrouter.ipc.messages import Logprob
from tokenrouter.ipc.operations import Action
from tokenrouter.schedulers.base import Check
from tokenrouter.schedulers.signals import (
    Aleatoric,
    CiterConfidence,
    DeferralProbability,
    Entropy,
    Epistemic,
    NormalisedEntropy,
    Proposals,
    RouterScore,
    Scored,
    Signal,
    TokenProbabilities,
    TopLogits,
    TopProbability,
)
from tokenrouter.subserver.certain import proposal, stays
from tokenrouter.subserver.engine import Checked, Meanwhile, StepBatch, Visit, Work, nothing

SPIN_S = 0.001
_MASK = (1 << 64) - 1


class TimedEngine:
    """See the module. One instance is one model, told apart from others by ``seed``.

    Args:
        step_s: seconds that a step of b visits takes, from the call to the result.
        alphabet: the token ids it writes.
        seed: of the function from contexts to tokens and signals.
        wait_until: returns at a time of ``clock`` (tests: at once).
    """

    def __init__(
        self,
        step_s: Callable[[int], float],
        alphabet: Sequence[int],
        pool_tokens: int,
        max_visits: int,
        seed: int = 0,
        wait_until: Callable[[float], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pool_tokens = pool_tokens
        self.max_visits = max_visits
        self._step_s, self._alphabet, self._seed = step_s, alphabet, seed
        self._wait_until, self._clock = wait_until or sleep_then_spin, clock
        self.visits = 0
        self._used = 0

    def limit_vocabulary(self, size: int) -> None:
        """Leave ids from ``size`` on out of the alphabet."""
        self._alphabet = [token for token in self._alphabet if token < size]

    def prepare(self, visit: Visit, wake: Callable[[], None]) -> bool:
        """Nothing to do: grammars are refused before they come here."""
        return True

    def abandon(self, visit: Visit) -> None:
        """Nothing to do: nothing was prepared."""

    def admit(self, visit: Visit) -> bool:
        """Take a slot; there is no prefix cache."""
        if self.visits == self.max_visits:
            return False
        self.visits += 1
        visit.handle = [_mix(self._seed)]
        visit.computed = 0
        return True

    def should_wait(self, visit: Visit, others: Sequence[Visit]) -> bool:
        """Never: there is no prefix cache."""
        return False

    def share(self, visit: Visit, length: int) -> None:
        """Nothing to do: there is no prefix cache."""

    def step(
        self, work: Sequence[Work], signals: Sequence[Signal], meanwhile: Meanwhile = nothing
    ) -> StepBatch:
        """Feed, wait until the step's time is over, and answer."""
        due = self._clock() + self._step_s(len(work))
        contexts = [self._feed(visit, n) for visit, n in work]
        checks = {
            row: self._check(visit, positions)
            for row, (visit, n) in enumerate(work)
            if (positions := visit.to_check(n))
        }
        self._used += sum(n for _, n in work)
        tokens = [next_token(context, self._alphabet) for context in contexts]
        batch = StepBatch(
            tokens=tokens,
            signals={each: [self._value(each, c) for c in contexts] for each in signals},
            logprobs=_certainties(work, tokens),
            checks=checks,
        )
        meanwhile()
        self._wait_until(due)
        return batch

    def truncate(self, visit: Visit, length: int) -> None:
        """Forget the context after ``length`` tokens."""
        self._used -= visit.computed - length
        del visit.handle[length + 1 :]

    def release(self, visit: Visit) -> None:
        """Give back the slot and the tokens."""
        self.visits -= 1
        self._used -= visit.computed
        visit.handle = None

    def free_tokens(self) -> int:
        """Capacity that no visit holds."""
        return self.pool_tokens - self._used

    def control(self, action: Action, arguments: Mapping[str, Any]) -> str:
        """There is no cache to flush, and nothing else to act on.

        Raises:
            UnsupportedError: for everything but a flush.
        """
        if action == "flush_cache":
            return "a timed member has no cache"
        raise UnsupportedError(f"{action}: a timed member has no weights and computes nothing")

    def _check(self, visit: Visit, positions: range) -> list[Checked]:
        """Of drafts whose contexts are fed."""
        checked = []
        for position in positions:
            context, draft = visit.handle[position], visit.tokens[position]
            token = next_token(context, self._alphabet)
            probability = token_probability(context, draft)
            accepted = draft == token
            if visit.check and visit.check.rule:
                law = visit.request.proposals[position - visit.first_draft]
                top = top_probability(context)
                accepted = stays(visit.check.rule, law, accepted, probability, top)
            check = Check(token, probability, accepted)
            certain = (Logprob(0.0, []), Logprob(0.0, []))
            checked.append(Checked(check, certain if visit.sampling.logprobs is not None else None))
        return checked

    def _value(self, signal: Signal, context: int) -> Any:
        if isinstance(signal, Proposals):
            return proposal(next_token(context, self._alphabet), top_probability(context))
        return signal_value(signal, context)

    def _feed(self, visit: Visit, n: int) -> int:
        """The KV of a visit is the hash of every prefix; returns that of the longest."""
        prefixes: list[int] = visit.handle
        start = visit.computed
        for token in visit.tokens[start : start + n]:
            prefixes.append(extend_context(prefixes[-1], token))
        return prefixes[-1]


def sleep_then_spin(due: float) -> None:
    """Return when `time.monotonic` reaches ``due``.

    The last `SPIN_S` are spun away, as waiting for a GPU does: a sleep alone ends late, and
    what follows it starts with cold caches.
    """
    left = due - time.monotonic() - SPIN_S
    if left > 0:
        time.sleep(left)
    while time.monotonic() < due:
        pass


def context_of(tokens: Sequence[int], seed: int) -> int:
    """The hash that stands for a model's view of ``tokens``; for reference loops."""
    context = _mix(seed)
    for token in tokens:
        context = extend_context(context, token)
    return context


def extend_context(context: int, token: int) -> int:
    """The hash of a context one token longer; depends on the order and on every token."""
    return _mix(context ^ (token + 1) * 0x9E3779B97F4A7C15 & _MASK)


def next_token(context: int, alphabet: Sequence[int]) -> int:
    """The token after a context."""
    return alphabet[_mix(context) % len(alphabet)]


def uniform(context: int, stream: int) -> float:
    """A number in [0, 1) that belongs to a context; ``stream`` tells several apart."""
    return float(_mix(context + stream) >> 11) * 2.0**-53


def entropy(context: int) -> float:
    """The entropy this engine reports after a context, in nats: uniform in [0, 1)."""
    return uniform(context, 1)


def top_probability(context: int) -> float:
    """The top-1 probability this engine reports after a context: uniform in (0, 1]."""
    return 1.0 - uniform(context, 2)


def aleatoric(context: int) -> float:
    """The aleatoric uncertainty this engine reports after a context: uniform in [0, 2.5)."""
    return 2.5 * uniform(context, -1)


def epistemic(context: int) -> float:
    """The epistemic uncertainty this engine reports after a context: uniform in [0, 1)."""
    return uniform(context, -2)


def router_score(context: int) -> float:
    """What this engine reports as the score of any trained router: uniform in [0, 1)."""
    return uniform(context, -3)


def token_probability(context: int, token: int) -> float:
    """The probability this engine reports of one token after a context: uniform in [0, 1)."""
    return uniform(extend_context(context, token), 2)


def signal_value(signal: Signal, context: int) -> Any:
    """What this engine reports of ``signal`` after a context."""
    match signal:
        case Entropy():
            return entropy(context)
        case NormalisedEntropy():
            return entropy(context)
        case Aleatoric():
            return aleatoric(context)
        case Epistemic():
            return epistemic(context)
        case TopProbability():
            return top_probability(context)
        case TopLogits(k):
            return sorted((uniform(context, 3 + i) for i in range(k)), reverse=True)
        case TokenProbabilities(ids):
            return [token_probability(context, token) for token in ids]
        case RouterScore():
            return Scored(router_score(context), 0.5)
        case CiterConfidence() | DeferralProbability():
            return router_score(context)


def step_law(step_ms: float | Mapping[Any, float]) -> Callable[[int], float]:
    """Seconds per step of b visits, from milliseconds.

    A number; ``{base, per_request}``: base + per_request * b; or a table ``{b: ms}``,
    linear in between and constant outside.
    """
    if not isinstance(step_ms, Mapping):
        constant = float(step_ms) / 1e3
        return lambda batch: constant
    if "base" in step_ms:
        base, slope = float(step_ms["base"]), float(step_ms.get("per_request", 0.0))
        return lambda batch: (base + slope * batch) / 1e3
    sizes = sorted(step_ms)
    times = [step_ms[size] for size in sizes]
    return lambda batch: float(numpy.interp(batch, sizes, times)) / 1e3


def _certainties(work: Sequence[Work], tokens: Sequence[int]) -> dict[int, Logprob]:
    """Logprobs of rows that ask: a token that is a function of its context has probability 1."""
    return {
        row: Logprob(0.0, [(tokens[row], 0.0)] if visit.sampling.logprobs else [])
        for row, (visit, _) in enumerate(work)
        if visit.sampling.logprobs is not None
    }


def _mix(value: int) -> int:
    """SplitMix64's finaliser: every input bit reaches every output bit."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31
