"""What an algorithm may ask of a step besides its token.

A signal is computed once per batch, on the device, from the RAW logits (before
temperature, penalties and masks), in float32. A row's value reaches `Step.signals`
under the signal's ``name``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args


@dataclass(frozen=True, slots=True)
class Entropy:
    """Entropy of the full softmax, in nats: ``-sum p ln p`` (a float)."""

    @property
    def name(self) -> str:
        """Key in `Step.signals`."""
        return "entropy"


@dataclass(frozen=True, slots=True)
class NormalisedEntropy:
    """`Entropy` by the largest there can be, ln of the number of tokens (a float in [0, 1])."""

    @property
    def name(self) -> str:
        """Key in `Step.signals`."""
        return "normalised_entropy"


@dataclass(frozen=True, slots=True)
class Aleatoric:
    """R2R's aleatoric uncertainty of the 10 largest logits x, with S their sum (a float).

    ``-sum (x / S) (psi(x + 1) - psi(S + 1))``, psi being the digamma function. Logits below 0
    may give any value, or none (NaN).
    """

    @property
    def name(self) -> str:
        """Key in `Step.signals`."""
        return "aleatoric"


@dataclass(frozen=True, slots=True)
class Epistemic:
    """R2R's epistemic uncertainty of the 10 largest logits: ``10 / (10 + their sum)`` (a float)."""

    @property
    def name(self) -> str:
        """Key in `Step.signals`."""
        return "epistemic"


@dataclass(frozen=True, slots=True)
class TopProbability:
    """The largest softmax probability (a float in (0, 1])."""

    @property
    def name(self) -> str:
        """Key in `Step.signals`."""
        return "top_probability"


@dataclass(frozen=True, slots=True)
class TopLogits:
    """The ``k`` largest logits, descending (k floats, or as many as there are tokens)."""

    k: int

    def __post_init__(self) -> None:
        _check_count(self.k)

    @property
    def name(self) -> str:
        """Key in `Step.signals`."""
        return f"top_logits_{self.k}"


@dataclass(frozen=True, slots=True)
class TokenProbabilities:
    """Softmax probabilities of ``ids``, in that order (floats); 0 of those that are no tokens."""

    ids: tuple[int, ...]

    def __post_init__(self) -> None:
        ids: object = self.ids
        if not (isinstance(ids, tuple) and all(type(i) is int and i >= 0 for i in ids)):
            raise ValueError(f"ids must be a tuple of token ids, got {self.ids!r}")

    @property
    def name(self) -> str:
        """Key in `Step.signals`."""
        return "token_probabilities"


@dataclass(frozen=True, slots=True)
class Proposals:
    """The law from which the step's token is drawn: a `base.Proposal`.

    Of the law that the request's sampling, penalties and grammar leave, the token is drawn from
    the ``k`` likeliest ids, whose probabilities are scaled to sum to one. A greedy request's is
    certain.
    """

    k: int

    def __post_init__(self) -> None:
        _check_count(self.k)

    @property
    def name(self) -> str:
        """Key in `Step.signals`."""
        return "proposals"


Rule = Literal["exact", "chow", "diff", "opt", "token_v1", "token_v2", "token_v3"]


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Which law drafts and what replaces them follow, given the laws they were drawn from.

    Write q for the law of the drafts (`base.Request.proposals`), p for this member's. ``exact``:
    p (speculative sampling, arXiv 2211.17192). The others are speculative cascades (2405.19261),
    whose tests compare q and p at temperature 1 (TV: total variation, as sampled). By position,
    q unless max q < 1 - alpha (``chow``), max p - alpha (``diff``), or max p - alpha TV(p, q)
    (``opt``), else p. By token, q(v) where q(v) >= max p - alpha (``token_v1``), p(v) >= max p -
    alpha (``token_v2``), or p(v) >= (1 - alpha) max p (``token_v3``); and what q has elsewhere
    is dealt out as p.
    """

    kind: Rule
    alpha: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in get_args(Rule):
            raise ValueError(f"kind must be one of {', '.join(get_args(Rule))}, got {self.kind!r}")
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha must lie between 0 and 1, got {self.alpha!r}")


@dataclass(frozen=True, slots=True)
class Checks:
    """Of every draft that this member is handed: `base.Check`, in `Step.checks`.

    The step computes the logits after each of the drafts, which costs no other pass. Its token,
    and that of every check, follows the request's sampling, penalties and grammar.
    ``as_own``: log probabilities of drafts that stay are reported as this member's.
    ``rule``: accepts drafts at random, so that what stays or replaces them follows its law; it
    wants one of `base.Request.proposals` for each draft. The step's own token, after all
    drafts, follows this member's law whatever the rule.
    """

    as_own: bool = False
    rule: Acceptance | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.rule, Acceptance | None):
            raise TypeError(f"rule must be an Acceptance, or None, got {self.rule!r}")

    @property
    def name(self) -> str:
        """Of the signal; it has no value in `Step.signals`."""
        return "checks"


class Scored(NamedTuple):
    """A trained router's probability, and the threshold that was saved with the router."""

    score: float
    threshold: float


@dataclass(frozen=True, slots=True)
class RouterScore:
    """How probably the position is critical, by the R2R router in file ``path``: a `Scored`.

    Of the last hidden state, the token drawn and the largest raw logits, at the end of a step.
    """

    path: str

    @property
    def name(self) -> str:
        """Key in `Step.signals`."""
        return "router_score"


@dataclass(frozen=True, slots=True)
class CiterConfidence:
    """How sure CITER's head in file ``path`` is of this model's token (a float in (0, 1))."""

    path: str

    @property
    def name(self) -> str:
        """Key in `Step.signals`."""
        return "citer_confidence"


@dataclass(frozen=True, slots=True)
class DeferralProbability:
    """Co-LLM's: the sigmoid of the logit of the model's last row (a float in (0, 1)).

    A member of which it is asked never writes the id of that row, which is no token.
    """

    @property
    def name(self) -> str:
        """Key in `Step.signals`."""
        return "deferral_probability"


OfLogits = (
    Entropy
    | NormalisedEntropy
    | Aleatoric
    | Epistemic
    | TopProbability
    | TopLogits
    | TokenProbabilities
)
"""Signals of the raw logits alone."""
OfNetworks = RouterScore | CiterConfidence
"""Signals of networks, which members load at their start: of those that a configuration names."""
Trained = OfNetworks | DeferralProbability
"""Signals that not every member can give: `subserver.engine.Engine.prepare` refuses the others."""
Signal = OfLogits | Trained | Proposals
"""What has a value in `Step.signals`."""
Declared = Signal | Checks


def _check_count(k: object) -> None:
    if type(k) is not int or k < 1:
        raise ValueError(f"k must be a whole number of at least 1, got {k!r}")
