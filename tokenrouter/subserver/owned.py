"""One request as its home knows it: output, who wrote it, who knows how much of it."""

from __future__ import annotations

from collections.abc import Sequence

from tokenrouter.ipc.messages import Logprob, Output, Route, Submit
from tokenrouter.subserver.finish import Finish, FinishRule

CONTEXT_TOKENS = 5
"""Prompt ids sent ahead of the output, so that its first token is decoded in context."""


class Owned:
    """The authoritative state of one request.

    ``tokens``: prompt and output, of which the first ``final`` stand: the rest are drafts,
    which may be taken back and are told to nobody. ``writers[i]``: the member that wrote output
    token i; ``logprobs[i]``: its probability, if the request asked (else the list stays empty).
    ``known[m]``: how many of ``tokens`` member m has been told or wrote itself; members
    in it have an open visit. ``control``: the member that writes next, since ``epoch``
    hand-overs. ``longest``: the most tokens, drafts included, since the last one became final.
    ``idle_moves``: hand-overs, and steps that took tokens back, since either grew.
    ``counted``: it is in the home's `Live`. ``started``, ``first_token``: as in `Output`.
    """

    def __init__(self, submit: Submit, rule: FinishRule, members: int) -> None:
        self.submit = submit
        self.route: Route = submit.route
        self.uid = submit.uid
        self.tokens = list(submit.prompt)
        self.final = self.prompt_length = len(submit.prompt)
        self.writers: list[int] = []
        self.logprobs: list[Logprob] = []
        self.known: dict[int, int] = {}
        self.control = submit.route.home
        self.epoch = 0
        self.hand_overs = 0
        self.longest = self.prompt_length
        self.idle_moves = 0
        self.counted = False
        self.started = 0.0
        self.first_token = 0.0
        self._rule = rule
        self._written = [0] * members
        self._sent = 0

    @property
    def drafts(self) -> int:
        """Tokens that may yet be taken back."""
        return len(self.tokens) - self.final

    def moved(self, idle: bool) -> None:
        """Count a move that made no token final; ``idle``: one that may go in circles."""
        length = len(self.tokens)
        if length > self.longest:
            self.longest, self.idle_moves = length, 0
        else:
            self.idle_moves += idle

    def append(
        self, writer: int, tokens: Sequence[int], logprobs: Sequence[Logprob] | None = None
    ) -> None:
        """Add drafts. ``logprobs``: of the last so many tokens then, if the request asked."""
        self.tokens += tokens
        self.writers += (writer,) * len(tokens)
        if logprobs:
            del self.logprobs[len(self.writers) - len(logprobs) :]
            self.logprobs += logprobs

    def settle(self, drafts: int) -> Finish | None:
        """Make all but the last ``drafts`` tokens final, up to one that ends the request.

        What follows that one is forgotten, for every member alike.
        """
        rule, tokens, prompt, final = self._rule, self.tokens, self.prompt_length, self.final
        # Later on, the token that fills it has ended the request.
        finish = rule.full(0) if final == prompt else None
        length = len(tokens) - drafts
        while finish is None and final < length:
            self._written[self.writers[final - prompt]] += 1
            final += 1
            finish = rule.after(tokens, prompt, final)
        if finish:
            self.cut(final)
        if final > self.final:
            self.final = final
            self.longest, self.idle_moves = len(tokens), 0
        return finish

    def cut(self, length: int) -> None:
        """Forget drafts from position ``length`` on, for every member alike."""
        if length < len(self.tokens):
            del self.tokens[length:]
            del self.writers[length - self.prompt_length :]
            del self.logprobs[length - self.prompt_length :]
            for member, known in self.known.items():
                self.known[member] = min(known, length)

    def output(self, finish: Finish | None, cached_tokens: int) -> Output:
        """What the detokenizer has not been told yet."""
        prompt_tokens, sampling = self.prompt_length, self.submit.sampling
        completion_tokens = self.final - prompt_tokens
        sent, self._sent = self._sent, completion_tokens
        # By position: by name, it would take five times as long.
        return Output(
            self.submit.rid,
            self.tokens[prompt_tokens + sent : self.final],
            None if sent else self.submit.prompt[-CONTEXT_TOKENS:],
            finish,
            prompt_tokens,
            completion_tokens,
            cached_tokens,
            self._written.copy(),
            self.hand_overs,
            self.writers[sent:completion_tokens] if self.route.token_models else None,
            sampling.skip_special_tokens,
            sampling.spaces_between_special_tokens,
            sampling.no_stop_trim,
            None if sampling.logprobs is None else self.logprobs[sent:completion_tokens],
            self.started,
            self.first_token,
        )
