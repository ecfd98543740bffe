"""The home of a request: the one authority over its output.

Receives `Submit` and `Abort` from the front end, `Commit` and `HandOver` from members
(this one included). Appends tokens, decides the finish, forwards control, streams to the
detokenizer, and closes the request everywhere. Control moves in a star: only the home
opens, forwards and closes, so the order on each link is the order of events.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable

from tokenrouter.configuration.waits import UNKNOWN_WAIT_S, longest_wait
from tokenrouter.ipc.messages import (
    FRONT_END,
    Abort,
    Admitted,
    Blocked,
    Close,
    Commit,
    Failed,
    HandOver,
    Live,
    Open,
    Output,
    Submit,
)
from tokenrouter.ipc.supervision import Roster, Up
from tokenrouter.subserver.finish import Decode, Finish, FinishRule, aborted
from tokenrouter.subserver.owned import Owned
from tokenrouter.subserver.recording import Recorder

POOL_SHARE = 0.9
"""Part of the smallest pool that live tokens may fill before new requests wait."""

BY_CLIENT = "Aborted by the client"
PROBE_TOKENS = 2
"""Prompt and output of a health probe."""
MAX_IDLE_MOVES = 100
"""Of a request (`Owned.idle_moves`): one more, and its algorithm goes round in circles."""

Post = Callable[[int, "Open | HandOver | Close"], None]
HomeMessage = Submit | Abort | Commit | HandOver | Blocked | Admitted | Failed


class Home:
    """Requests that member ``me`` owns.

    Args:
        post: sends a message to a member (itself included).
        cached: prompt tokens of a request that the local engine found in its prefix cache.
        decode: token ids to text, for stop strings.
        eager: open visits on every member of the route at once, so that they can compute
            the prompt early.
        clock: seconds, monotonic on this host.
        recorder: keeps a log of every decision that is carried out.
    """

    def __init__(
        self,
        me: int,
        roster: Roster,
        post: Post,
        cached: Callable[[int], int],
        decode: Decode,
        eager: bool = False,
        clock: Callable[[], float] = time.monotonic,
        recorder: Recorder | None = None,
    ) -> None:
        self._me, self._roster, self._post = me, roster, post
        self._clock, self._recorder = clock, recorder
        self._cached, self._decode, self._eager = cached, decode, eager
        self._everyone = frozenset(range(len(roster.members)))
        self._owned: dict[int, Owned] = {}
        self._waiting: deque[Submit] = deque()
        self._changed: dict[int, Owned] = {}
        self._done: list[Output] = []
        self._others: dict[int, Live] = {}
        self._down: set[int] = set()
        self._tokens = 0
        self._counted = 0
        self.longest_step = 0.0
        """Seconds, of this member; 0: not known."""
        self.stale = 0
        """Messages of members that came too late: after an abort, or of an old epoch."""
        self.hand_overs: defaultdict[int, Counter[int]] = defaultdict(Counter)
        """Those that were carried out, by the member that had control and the one that got it."""

    def __len__(self) -> int:
        """Requests owned, waiting ones included."""
        return len(self._owned) + len(self._waiting)

    def __contains__(self, uid: int) -> bool:
        return uid in self._owned

    @property
    def waiting(self) -> int:
        """Requests that have not started: live ones fill the pools."""
        return len(self._waiting)

    @property
    def live(self) -> Live:
        """What this home tells the others."""
        return Live(self._counted, len(self._owned), self._tokens, self.longest_step)

    @property
    def live_requests(self) -> int:
        """A of the clamp rule: live requests of every home, as far as known here."""
        return self._counted + sum(live.requests for live in self._others.values())

    @property
    def longest_wait(self) -> float:
        """Seconds that a request waits for a threshold, where the configuration does not say."""
        steps = [self.longest_step, *(live.step_s for live in self._others.values())]
        known = len(steps) == len(self._everyone) and all(steps)
        return longest_wait(steps) if known else UNKNOWN_WAIT_S

    def hear(self, sender: int, live: Live) -> None:
        """Another home's `Live`: its tokens share the same pools."""
        self._others[sender] = live
        self._start_waiting()

    def receive(self, sender: int, message: HomeMessage) -> None:
        """Apply one message of the front end or of a member."""
        owned = self._owned.get(message.uid)
        if owned is not None and isinstance(message, (Commit, HandOver)):
            if message.epoch == owned.epoch and sender == owned.control:
                self._commit(owned, sender, message)
            else:
                self.stale += 1
        elif isinstance(message, Submit):
            self._accept(message)
        elif owned is None:
            self._receive_unowned(message)
        elif isinstance(message, (Blocked, Admitted)):
            self._count(owned, blocked=isinstance(message, Blocked))
        elif isinstance(message, Failed):
            self._finish(owned, aborted(message.message, message.status, message.field))
        else:
            self._finish(owned, aborted(BY_CLIENT))

    def lost(self, process: int) -> None:
        """A process died: what could have to do with it ends, and may be asked for again.

        All that is owned, if it was the front end; else what may visit that member.
        """
        if process >= 0:
            self._down.add(process)
            self._others.pop(process, None)
        waiting, self._waiting = self._waiting, deque()
        for submit in waiting:
            if _concerns(process, submit):
                self._refuse(submit, process)
            else:
                self._waiting.append(submit)
        for owned in list(self._owned.values()):
            if _concerns(process, owned.submit):
                self._finish(owned, _death(process))
        self._start_waiting()

    def returned(self, up: Up) -> None:
        """A process is back."""
        self._down.discard(up.process)
        self._roster = self._roster.after(up)

    def take_outputs(self) -> list[Output]:
        """What the detokenizer has to be told since the last call, oldest first."""
        outputs = [owned.output(None, self._cached(owned.uid)) for owned in self._changed.values()]
        outputs += self._done
        self._changed, self._done = {}, []
        return outputs

    def _accept(self, submit: Submit) -> None:
        # The front end may have sent it before it heard of a death.
        missing = self._down.intersection(submit.route.members)
        if missing:
            self._refuse(submit, min(missing))
        elif _is_probe(submit):
            self._start(self._own(submit))
        else:
            self._waiting.append(submit)
            self._start_waiting()

    def _refuse(self, submit: Submit, process: int) -> None:
        self._done.append(self._output(self._own(submit), _death(process)))

    def _receive_unowned(self, message: HomeMessage) -> None:
        for submit in self._waiting:
            if submit.uid == message.uid and isinstance(message, Abort):
                self._waiting.remove(submit)
                self._done.append(self._output(self._own(submit), aborted(BY_CLIENT)))
                self._start_waiting()
                return
        self.stale += 1

    def _output(self, owned: Owned, finish: Finish) -> Output:
        return owned.output(finish, self._cached(owned.uid))

    def _start_waiting(self) -> None:
        while self._waiting and self._has_room(len(self._waiting[0].prompt)):
            self._start(self._own(self._waiting.popleft()))

    def _has_room(self, tokens: int) -> bool:
        """Whether one more request of ``tokens`` fits beside all live ones; alone, always."""
        others = self._others.values()
        total = self._tokens + sum(live.tokens for live in others)
        requests = len(self._owned) + sum(live.owned for live in others)
        if not requests:
            return True
        fits = total + tokens <= POOL_SHARE * self._roster.pool_tokens
        return fits and requests < self._roster.max_visits

    def _own(self, submit: Submit) -> Owned:
        members = [self._roster.members[m] for m in submit.route.members]
        eos_ids = {eos for member in members for eos in member.eos_ids}
        rule = FinishRule(submit.sampling, eos_ids, self._decode)
        return Owned(submit, rule, len(self._roster.members))

    def _start(self, owned: Owned) -> None:
        self._owned[owned.uid] = owned
        owned.started = self._clock()
        self._tokens += len(owned.tokens)
        self._count(owned, blocked=False)
        # A grammar is compiled by every member, and by all at the same time.
        everywhere = self._eager or owned.submit.sampling.grammar is not None
        for member in owned.route.members if everywhere else (self._me,):
            self._open(owned, member)
        self._give_control(owned, self._me, b"")

    def _count(self, owned: Owned, blocked: bool) -> None:
        counts = not blocked and self._everyone.issubset(owned.route.members)
        self._counted += counts - owned.counted
        owned.counted = counts

    def _open(self, owned: Owned, member: int) -> None:
        submit = owned.submit
        eager = self._eager and member != self._me
        self._post(member, Open(owned.uid, submit.prompt, submit.sampling, submit.route, eager))
        owned.known[member] = len(submit.prompt)

    def _commit(self, owned: Owned, sender: int, message: Commit | HandOver) -> None:
        if problem := _problem(owned, message):
            self._finish(owned, aborted(f"member {sender} {problem}", 500))
            return
        tokens, final = owned.tokens, owned.final
        before = len(tokens)
        if message.start < before:
            owned.cut(message.start)
        owned.append(sender, message.tokens, message.logprobs)
        finish = owned.settle(message.drafts)
        grown = owned.final - final
        if self._recorder is not None:
            self._recorder.decided(owned, sender, message, before, grown, self._clock())
        if grown and not owned.first_token:
            owned.first_token = self._clock()
        length = owned.known[sender] = len(tokens)
        self._tokens += length - before
        if finish:
            self._finish(owned, finish)
            return
        hand_over = message if isinstance(message, HandOver) else None
        if not grown:
            owned.moved(idle=hand_over is not None or not message.tokens)
            if owned.idle_moves > MAX_IDLE_MOVES:
                circles = f"{owned.idle_moves} hand-overs in a row without a token"
                self._finish(owned, aborted(f"algorithm {owned.route.algorithm!r}: {circles}", 500))
                return
        if hand_over is not None:
            owned.hand_overs += 1
            self.hand_overs[sender][hand_over.to] += 1
            self._give_control(owned, hand_over.to, hand_over.payload)
        if grown and owned.submit.stream:
            self._changed[owned.uid] = owned

    def _give_control(self, owned: Owned, member: int, payload: bytes) -> None:
        if member not in owned.known:
            self._open(owned, member)
        start = owned.known[member]
        owned.epoch += 1
        owned.control = member
        missing = owned.tokens[start:]
        self._post(
            member,
            HandOver(owned.uid, owned.epoch, start, missing, member, payload, drafts=owned.drafts),
        )
        owned.known[member] = len(owned.tokens)

    def _finish(self, owned: Owned, finish: Finish) -> None:
        for member in owned.known:
            self._post(member, Close(owned.uid))
        self._count(owned, blocked=True)
        self._tokens -= len(owned.tokens)
        del self._owned[owned.uid]
        if self._recorder is not None:
            self._recorder.ended(owned.uid)
        self._changed.pop(owned.uid, None)
        self._done.append(self._output(owned, finish))
        self._start_waiting()


def _is_probe(submit: Submit) -> bool:
    """Whether it asks for no more than a sign of life, which must not wait behind long ones."""
    size = len(submit.prompt) + submit.sampling.max_new_tokens
    return size <= PROBE_TOKENS and len(submit.route.members) == 1


def _problem(owned: Owned, message: Commit | HandOver) -> str | None:
    """What cannot be in a member's message about a request, if anything is."""
    start, final = message.start, owned.final
    end = start + len(message.tokens)
    if not final <= start <= len(owned.tokens):
        where = f"{final} tokens are final of {len(owned.tokens)}"
        return f"committed at position {start}, and {where}"
    if not final <= end - message.drafts <= end:
        return f"called {message.drafts} tokens drafts, and {end - final} are not final"
    if owned.submit.sampling.logprobs is not None:
        count = len(message.logprobs or ())
        if not len(message.tokens) <= count <= end - owned.final:
            return f"sent {count} log probabilities of {len(message.tokens)} tokens"
    return None


def _concerns(process: int, submit: Submit) -> bool:
    return process == FRONT_END or process in submit.route.members


def _death(process: int) -> Finish:
    who = "the front end" if process == FRONT_END else f"member {process}"
    return aborted(f"{who} died; the request may be retried", 503)
