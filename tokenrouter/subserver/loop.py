"""The event loop of a subserver: receive, launch, complete.

Receives from the front end and from other members (through `Links`), launches batches on
the `Engine`, and completes each step by asking every sampled request's algorithm where
it goes on. What a step decides about visits is applied at the next `receive`, in one
order with everything that arrived.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from tokenrouter.errors import ChannelError, ModelError, RequestError, RoutingError, field_of
from tokenrouter.ipc.member_state import MemberState, StepSums
from tokenrouter.ipc.messages import (
    FRONT_END,
    PLANNER,
    Admitted,
    Blocked,
    Close,
    Commit,
    Failed,
    HandOver,
    Live,
    Logprob,
    Message,
    Open,
    Output,
    Text,
)
from tokenrouter.ipc.operations import Control, Controlled, Inspect, Plan, Planned
from tokenrouter.ipc.rank_calls import ToRank
from tokenrouter.ipc.supervision import Down, Drain, News, Roster, Up
from tokenrouter.schedulers.base import Step, Vocabulary
from tokenrouter.subserver.batching import Rules, choose
from tokenrouter.subserver.blocking import Blocking
from tokenrouter.subserver.controls import LONGEST_S, carry_out
from tokenrouter.subserver.decisions import kept_logprobs, kept_tokens
from tokenrouter.subserver.engine import Engine, StepBatch, Visit, Work
from tokenrouter.subserver.home import Home
from tokenrouter.subserver.links import Links
from tokenrouter.subserver.measurements import Meter
from tokenrouter.subserver.memory import Memory
from tokenrouter.subserver.recording import Recorder
from tokenrouter.subserver.routing import Router
from tokenrouter.subserver.state import Parts, state
from tokenrouter.subserver.stats import Stats
from tokenrouter.subserver.thresholds import Thresholds
from tokenrouter.subserver.visits import Event, Stepped, Visits

logger = logging.getLogger(__name__)
NOBODY = Live(0, 0, 0)
"""What a member that was just started knows of another home."""
ToHome = Commit | HandOver | Blocked | Admitted | Failed


class Subserver:
    """One member's loop; all members run the same code.

    Args:
        member: index of this member.
        names: of all members.
        rules: how it batches; ``eager``: whether its home opens every visit at once.
        vocabulary: of this member, for stop strings and algorithms.
        clock: seconds, monotonic.
        profile: steps that were measured before it serves, by batch size.
        recorder: of its home's decisions.
    """

    def __init__(
        self,
        member: int,
        names: Sequence[str],
        roster: Roster,
        engine: Engine,
        links: Links,
        rules: Rules,
        vocabulary: Vocabulary,
        eager: bool = False,
        clock: Callable[[], float] = time.monotonic,
        profile: Mapping[int, StepSums] = {},
        recorder: Recorder | None = None,
    ) -> None:
        self.member = member
        self.engine = engine
        self.rules = rules
        eos_ids = [each.eos_ids for each in roster.members]
        vocabulary_size = min(each.vocab_size for each in roster.members)
        router = Router(names, member, vocabulary, vocabulary_size)
        self.visits = Visits(engine, router, eos_ids)
        self.memory = Memory(engine, self.visits)
        self.home = Home(
            member, roster, self._post, self._cached, vocabulary.decode, eager, clock, recorder
        )
        self.stats = Stats(clock())
        self.meter = Meter(member, len(names), clock(), profile)
        self.thresholds = Thresholds(member, rules.thresholds)
        self.blocking = Blocking(
            engine, self.visits, self.memory, self._tell_home, links.wake, self._close, clock
        )
        self._links = links
        self._clock, self._recorder = clock, recorder
        self._events: deque[tuple[int, Event]] = deque()
        self._told = {m: self.home.live for m in range(len(names)) if m != member}
        self._posted: set[int] = set()
        self._idle = False
        self._overdue = False
        self._forced = False

    def run(self) -> None:
        """Serve for ever."""
        while True:
            self.receive()
            if work := self.launch():
                self.complete(work, self.step(work))

    def receive(self) -> None:
        """Apply what the last step decided and what arrived; wait if there is nothing to do."""
        self._apply_events()
        if self._idle:
            self._stream()
        for sender, message in self._links.poll(self._timeout()):
            self._dispatch(sender, message)
            self._apply_events()
        self._overdue = self._idle and self._wait_left() <= 0.0

    def launch(self) -> list[Work]:
        """The work of the next step, with memory secured; empty if it is better to wait.

        What `receive` and this have for peers leaves before the step begins.
        """
        now = self._clock()
        self.meter.launching(now)
        self.home.longest_step = self.meter.longest_step
        self.blocking.look()
        granted: list[Work] = []
        while not granted and (work := self._choose()):
            granted, starved = self.memory.secure(work)
            self.blocking.starved(starved)
        if granted:
            self.meter.launched(granted)
            self.stats.launched(granted, now)
            self.stats.expired_waits += self._forced
        self._idle = not granted
        self._flush()
        return granted

    def step(self, work: Sequence[Work]) -> StepBatch:
        """Run the engine on ``work``; afterwards its tokens are in KV."""
        signals = dict.fromkeys(signal for visit, _ in work for signal in visit.signals)
        started = self._clock()
        batch = self.engine.step(work, tuple(signals), self._stream)
        ended = self._clock()
        self.stats.stepped(len(work), ended - started, ended)
        for row, (visit, n) in enumerate(work):
            visit.computed += n
            if visit.unshared and row not in batch.failed:
                self.memory.share_prompt(visit)
        for row, checked in batch.checks.items():
            work[row][0].checked += checked
        return batch

    def complete(self, work: Sequence[Work], batch: StepBatch) -> None:
        """Ask each sampled request's algorithm where it goes on, and tell its home."""
        columns, logprobs, failed = batch.signals, batch.logprobs, batch.failed
        for row, ((visit, _), token) in enumerate(zip(work, batch.tokens, strict=True)):
            if row in failed:
                self._fail_row(visit, failed[row])
                continue
            if not visit.control or len(visit.tokens) > visit.computed:
                continue
            signals = {each.name: columns[each][row] for each in visit.signals}
            step = self.visits.finish_step(visit, token, signals)
            self._route(visit, step, logprobs.get(row))
        self._flush()

    def _route(self, visit: Visit, step: Step, logprob: Logprob | None) -> None:
        try:
            decision, payload = self.visits.router.decide(visit, step)
        except RoutingError as error:
            self._fail(visit.uid, visit.home, error)
            return
        uid, home, to, drafts = visit.uid, visit.home, decision.to, decision.drafts
        kept = kept_tokens(step, decision)
        start = len(visit.tokens) - decision.cut
        self.stats.written_tokens += len(kept)
        final = visit.request.drafts - decision.cut + len(kept) - drafts
        self.meter.decided(visit, final, to)
        # Its home ends a full request; meanwhile it must not run ahead past its memory.
        full = start + len(kept) - visit.prompt_length >= visit.sampling.max_new_tokens
        stays = to == self.member
        self._events.append((home, Stepped(uid, kept, stays and not full, decision.cut, drafts)))
        message: Commit | HandOver
        written = None if logprob is None else kept_logprobs(visit, decision, logprob)
        if stays:
            message = Commit(uid, visit.epoch, start, kept, written, drafts)
        else:
            message = HandOver(uid, visit.epoch, start, kept, to, payload, written, drafts)
        self._tell_home(home, message)

    def _dispatch(self, sender: int, message: Message | News) -> None:
        # What comes at every step is asked for first.
        if isinstance(message, HandOver) and message.uid not in self.home:
            self._events.append((sender, message))
        elif isinstance(message, (HandOver, Commit)):
            self.home.receive(sender, message)
        elif isinstance(message, Down):
            self._lost(message.process)
            if message.process == PLANNER and message.for_good:
                self.thresholds.fall_back()
        elif isinstance(message, Up):
            self._returned(message)
        elif isinstance(message, Drain):
            raise ChannelError("a member was told to drain, which is for the front end")
        elif isinstance(message, Live):
            self.home.hear(sender, message)
        elif isinstance(message, Inspect):
            self._answer(sender, message.ticket)
        elif isinstance(message, Plan) and sender == PLANNER:
            self.thresholds.apply(message)
        elif isinstance(message, Control) and sender == FRONT_END:
            held = len(self.visits) + len(self.home)
            self.meter.interrupted()
            self._links.busy(LONGEST_S)
            self._links.emit([carry_out(self.engine, self.member, held, message)])
        elif isinstance(message, (Open, Close)):
            self._events.append((sender, message))
        elif isinstance(
            message, Output | Text | MemberState | Plan | Planned | Control | Controlled | ToRank
        ):
            raise ChannelError(f"member {sender} sent {type(message).__name__} to a member")
        else:
            self.home.receive(sender, message)

    def _lost(self, process: int) -> None:
        """A process died: end what it owned here, and what this home owns that may visit it."""
        self._told.pop(process, None)
        for visit in self.visits:
            if visit.home == process:
                self._events.append((process, Close(visit.uid)))
        self.home.lost(process)

    def _returned(self, up: Up) -> None:
        """A process is back, and knows nothing: tell a member who is live here."""
        self.home.returned(up)
        if up.process >= 0:
            self._told[up.process] = self.home.live
            if self.home.live != NOBODY:
                self._links.post(up.process, self.home.live)

    def _apply_events(self) -> None:
        now = self._clock()
        while self._events:
            home, event = self._events.popleft()
            try:
                opened = self.visits.apply(home, event, now)
            except RoutingError as error:
                self._fail(event.uid, home, error)
                continue
            if opened is not None and opened.prepares:
                self.blocking.prepare(opened.uid)

    def _fail_row(self, visit: Visit, error: RequestError | ModelError) -> None:
        if isinstance(error, ModelError):
            logger.error("request %d: %s", visit.uid, error)
            self.visits.discard(visit)
        if visit.control:
            self._fail(visit.uid, visit.home, error)

    def _fail(self, uid: int, home: int, error: RoutingError | RequestError | ModelError) -> None:
        self._events.append((home, Stepped(uid, (), False)))
        self._tell_home(home, Failed(uid, str(error), error.status, field_of(error)))

    def _close(self, visit: Visit) -> None:
        self.visits.apply(visit.home, Close(visit.uid), self._clock())

    def _tell_home(self, home: int, message: ToHome) -> None:
        if home == self.member:
            self.home.receive(self.member, message)
        else:
            self._links.post(home, message)
            self._posted.add(home)

    def _post(self, member: int, message: Open | HandOver | Close) -> None:
        if member == self.member:
            self._events.append((member, message))
        else:
            self._links.post(member, message)
            self._posted.add(member)

    def _cached(self, uid: int) -> int:
        visit = self.visits.get(uid)
        return visit.cached or 0 if visit else 0

    def _choose(self) -> list[Work]:
        threshold, limits = self._threshold(), self.rules.limits
        work = choose(self.visits, threshold, limits)
        # Overdue visits may have got company by now: then nothing is forced.
        self._forced = self._overdue and not work
        return choose(self.visits, threshold, limits, overdue=True) if self._forced else work

    def _threshold(self) -> int:
        self.meter.live = live = self.home.live_requests
        return self.thresholds.now(live)

    def _answer(self, asker: int, ticket: int) -> None:
        parts = Parts(
            self.member, self.engine, self.visits, self.memory, self.home, self.stats,
            self.meter, self.thresholds, self._recorder,
        )  # fmt: skip
        answer = state(ticket, parts, self._links, self._clock())
        if asker == PLANNER:
            self._links.post(PLANNER, answer)
        else:
            self._links.emit([answer])

    def _timeout(self) -> float | None:
        if not self._idle:
            return 0.0
        left = self._wait_left()
        return None if left == float("inf") else max(left, 0.0)

    def _wait_left(self) -> float:
        """Seconds until the visit that has waited longest for a threshold is overdue."""
        since = [visit.ready_since for visit in self.visits if visit.control and not visit.blocked]
        if not since:
            return float("inf")
        wait = self.rules.max_wait
        if wait is None:
            wait = self.home.longest_wait
        return min(since) + wait - self._clock()

    def _flush(self) -> None:
        """One frame to each peer that has to hear something.

        That fewer requests are live must be heard at once: a peer could wait for them. That
        there are more, or longer ones, travels with the next frame.
        """
        live = self.home.live
        for member, told in self._told.items():
            fewer = live.requests < told.requests or live.owned < told.owned
            if fewer or (member in self._posted and live != told):
                self._links.post(member, live)
                self._told[member] = live
        self._posted.clear()
        self._links.flush()

    def _stream(self) -> None:
        """Tell the detokenizer: nobody's next step waits for it."""
        if outputs := self.home.take_outputs():
            self._links.emit(outputs)
