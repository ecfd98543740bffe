"""The small model drafts a step of reasoning, the large one marks it: SpecReason."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

from tokenrouter.schedulers.arguments import choice, text, whole_number
from tokenrouter.schedulers.base import Decision, Request, RoutingScheduler, Step
from tokenrouter.schedulers.signals import Declared, TokenProbabilities
from tokenrouter.schedulers.steps import BLANK_LINE, Delimiter

SMALL, LARGE = 0, 1
DIGITS = "0123456789"
SCORING_PROMPT = "\n\nHow good is the last step, from 0 (wrong) to 9 (right)? Score: "
SCORES = ("greedy", "mean")


class SpecReason(RoutingScheduler):
    """Steps are drafts of the small model; the large model keeps one or rewrites it.

    A step ends with ``delimiter`` (a blank line) or after ``longest`` tokens (512). The large
    model then reads ``scoring_prompt`` after it, which is never output, and gives a score
    from 0 to 9. Below ``router_threshold`` (default 7) the step is taken back, and the large
    model writes one in its place, whose tokens are final.

    A token that would end the output ends its step as well: the end is scored with it, and
    stands or is taken back.

    ``request.state`` is where the current step begins.

    Args:
        score: ``greedy``: the token that the large model would write, 0 if it is no digit;
            or ``mean``: of the digits, by their renormalised probabilities.
    """

    members_needed = 2
    threshold_range = (0.0, 9.0)
    drafts = True

    def __init__(
        self,
        members: Sequence[str],
        router_threshold: float | None = None,
        score: str = "greedy",
        longest: int = 512,
        delimiter: str = BLANK_LINE,
        scoring_prompt: str = SCORING_PROMPT,
    ) -> None:
        super().__init__(members, router_threshold)
        self.least = 7.0 if router_threshold is None else router_threshold
        self.mean = choice("score", score, SCORES) == "mean"
        self.longest = whole_number("longest", longest, 1)
        self.delimiter = Delimiter(delimiter)
        self.scoring_prompt = text("scoring_prompt", scoring_prompt)
        # A token has at least one byte; some tokenizers put a space before the text.
        self.scratch_tokens = len(self.scoring_prompt.encode()) + 1

    @cached_property
    def _scoring_ids(self) -> list[int]:
        return self.vocabulary.encode(self.scoring_prompt)

    @cached_property
    def _digit_probabilities(self) -> TokenProbabilities:
        return TokenProbabilities(tuple(self.vocabulary.encode(digit)[-1] for digit in DIGITS))

    def signals(self, member: int) -> Collection[Declared]:
        """The digits' probabilities on the large model, if the score is their mean.

        Nothing where a configuration is looked at that no member serves yet.
        """
        if not (self.mean and member == LARGE and hasattr(self, "vocabulary")):
            return ()
        return (self._digit_probabilities,)

    def receive(self, request: Request, payload: bytes) -> None:
        """A step begins; drafts are one for the large model to score."""
        request.state = len(request.tokens) - request.drafts
        if request.drafts:
            request.scratch = self._scoring_ids

    def route(self, request: Request, step: Step) -> Decision:
        """Draft, score or rewrite."""
        if step.scratch:
            if self._score(step) >= self.least:
                return Decision(0, SMALL)
            return Decision(0, LARGE, cut=request.drafts)
        over = step.ends or self._ends_step(request, step.tokens[0])
        if request.member == LARGE:
            return Decision(1, SMALL if over else LARGE)
        return Decision(1, LARGE if over else SMALL, drafts=request.drafts + 1)

    def _ends_step(self, request: Request, token: int) -> bool:
        tokens, start = request.tokens, request.state
        if len(tokens) + 1 - start >= self.longest:
            return True
        return self.delimiter.completed(self.vocabulary.decode, tokens, start, token)

    def _score(self, step: Step) -> float:
        if self.mean:
            weights = step.signals[self._digit_probabilities.name]
            total = sum(weights)
            return sum(d * w for d, w in enumerate(weights)) / total if total else 0.0
        written = self.vocabulary.decode(step.tokens[:1]).strip()
        return float(written) if len(written) == 1 and written in DIGITS else 0.0
