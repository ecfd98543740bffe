"""What is compared on the demo pair, by which settings, the claims' first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from quality_tuning import Scale

from tokenrouter.demo.train_router import ROUTER

SHARES = (0.01, 0.02, 0.03, 0.05, 0.10, 0.15)
"""Of large tokens, at which what is computed is shown."""
COMPARED = (0.02, 0.05)
"""Shares at which claims compare."""


@dataclass(frozen=True)
class Method:
    """An algorithm with arguments, as a request for ``model`` is served.

    ``scale``: of its router threshold, which shares are chosen by; None: it is measured as it
    is, with ``threshold`` or, if that is None too, with the algorithm's own.
    """

    name: str
    algorithm: str
    args: dict[str, Any] = field(default_factory=dict)
    scale: Scale | None = None
    threshold: float | None = None
    model: str = "demo"


@dataclass(frozen=True)
class Job:
    """Some target shares of a method (none: as it is); ``claimed``: a claim is about them."""

    method: Method
    targets: Sequence[float] = ()
    claimed: bool = False


def verified(**options: int) -> dict[str, Any]:
    """Arguments of an algorithm whose tokens are checked afterwards."""
    return {"verify": {"epsilon": 0.1, "final": True, **options}}


TRAINED = {"router": str(ROUTER)}
SMALL = Method("small", "single", model="demo/small")
LARGE = Method("large", "single", model="demo/large")
NATS = Scale("root", 0.0, 2.0)
PROBABILITY = Scale("logit", 1e-3, 0.999)
ENTROPY = Method("entropy", "entropy", scale=NATS)
R2R = Method("r2r", "r2r", TRAINED, PROBABILITY)
RANDOM = Method("random", "random", scale=Scale("log", 1e-4, 1.0, rises=True))
HINDSIGHT = Method("entropy + verify", "entropy", verified(), NATS)
WINDOW = Method("entropy + verify, window 16", "entropy", verified(window=16), NATS)
R2R_HINDSIGHT = Method("r2r + verify", "r2r", TRAINED | verified(), PROBABILITY)
AU = Scale("linear", 1.5, 2.25)
EU = Scale("linear", 0.1, 0.29)
SENTENCE = {"delimiter": ". "}
"""A step of the demo's answers."""

CLAIMS = (
    Job(SMALL, claimed=True),
    Job(LARGE, claimed=True),
    Job(ENTROPY, (0.02, 0.05, 0.075, 0.10), claimed=True),
    Job(R2R, (0.02, 0.05, 0.075, 0.10), claimed=True),
    Job(HINDSIGHT, (0.02, 0.03), claimed=True),
    Job(RANDOM, COMPARED, claimed=True),
)
CURVES = (
    Job(R2R, (0.01, 0.03, 0.15), claimed=True),
    Job(ENTROPY, (0.01, 0.03, 0.15), claimed=True),
    Job(HINDSIGHT, (0.01, 0.05, 0.10), claimed=True),
    Job(RANDOM, (0.01, 0.03, 0.10, 0.15), claimed=True),
)
OTHERS = (
    Job(R2R_HINDSIGHT, (0.01, 0.02, 0.03)),
    Job(Method("cascade", "cascade", scale=Scale("logit", 0.3, 0.9999, rises=True)), COMPARED),
    Job(WINDOW, (0.07,)),
    Job(Method("speculative", "speculative")),
    Job(Method("speculative, adaptive", "speculative", {"adaptive": True})),
    Job(Method("chow, alpha 0.1", "speculative", {"rule": "chow"}, threshold=0.1)),
    Job(Method("opt, alpha 0.1", "speculative", {"rule": "opt"}, threshold=0.1)),
    Job(Method("token_v3, alpha 0.5", "speculative", {"rule": "token_v3"}, threshold=0.5)),
    Job(Method("bild", "bild")),
    Job(Method("r_stitch", "r_stitch", {"metric": "entropy"}, NATS), (0.05, 0.10)),
    Job(Method("AU", "immediate", {"metric": "au"}, AU), (0.05, 0.10)),
    Job(Method("EU", "immediate", {"metric": "eu"}, EU), (0.05, 0.10)),
    Job(Method("momentum", "momentum", scale=AU), (0.10,)),
    Job(Method("rolling", "rolling", scale=AU), (0.05, 0.10)),
    Job(Method("duo_rolling", "duo_rolling", scale=AU), (0.05, 0.10)),
    Job(Method("neural_rolling", "neural_rolling", TRAINED, PROBABILITY), (0.05, 0.10)),
    Job(Method("query, random", "query", scale=Scale("log", 1e-4, 1.0, rises=True)), (0.05,)),
    Job(Method("glimp_router", "glimp_router", SENTENCE, NATS), (0.15,)),
    Job(Method("spec_reason", "spec_reason", SENTENCE | {"score": "mean"})),
)
