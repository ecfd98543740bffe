"""SGLang's tokenizer manager, with homes where it has one scheduler.

Receives requests of the HTTP endpoints, each with its `Exchange`; tokenises, checks
lengths, and hands them to homes through `LiveRequests`. The detokenizer answers.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from tokenrouter.errors import ChannelError, RequestError
from tokenrouter.frontend.admission import Admission
from tokenrouter.frontend.exchange import CURRENT, Exchange, Live
from tokenrouter.frontend.fan_out import FanOut
from tokenrouter.frontend.inspection import Inspector
from tokenrouter.frontend.limits import UNASKED_TOKENS, Limits, check_minimum
from tokenrouter.frontend.live_requests import ABORTED, LiveRequests
from tokenrouter.frontend.logprobs import Logprobs
from tokenrouter.frontend.placement import Placement
from tokenrouter.frontend.presence import Presence
from tokenrouter.frontend.traffic import Traffic
from tokenrouter.frontend.translation import failure_of, sampling_of
from tokenrouter.ipc.arrivals import arrivals
from tokenrouter.ipc.channels import Inbox
from tokenrouter.ipc.member_state import MemberState
from tokenrouter.ipc.messages import DETOKENIZER, PLANNER, Message, Text
from tokenrouter.ipc.operations import Controlled, Planned
from tokenrouter.ipc.supervision import Up
from tokenrouter.subserver.sglang_compat.serving import (
    GenerateReqInput,
    PortArgs,
    ServerArgs,
    TokenizedGenerateReqInput,
    TokenizerManager,
)

STOPPING = {"type": "abort", "message": "the server is stopping", "status_code": 503}

NO_UNICODE = "cannot be encoded; is there an unpaired surrogate?"

logger = logging.getLogger(__name__)


class RoutedTokenizerManager(TokenizerManager):
    """One for the whole deployment. Call `connect` before the first request.

    ``rid_to_state`` holds a `Live` for each request that a home is serving.
    """

    def __init__(
        self, args: ServerArgs, ports: PortArgs, names: Sequence[str], max_requests: int
    ) -> None:
        super().__init__(args, ports)
        # SGLang's own links; nobody is at their other ends.
        self.send_to_scheduler.close(0)
        self.recv_from_detokenizer.close(0)
        self.admission = Admission(max_requests)
        self._names = names
        self._placement = Placement(names)
        self._handle_loop: asyncio.Task[None] | None = None
        self._answering = 0
        self._all_answered = asyncio.Event()

    def connect(self, fan_out: FanOut, presence: Presence, inbox: Inbox, traffic: Traffic) -> None:
        """Requests may come: homes are there, and what they can hold is known.

        ``inbox``: of the detokenizer's answers; closed with the manager.
        """
        self._fan_out = fan_out
        self.presence = presence
        self._limits = Limits(presence.roster, self._names)
        self._inbox = inbox
        self.hear_news: Callable[[], None] = _no_news
        """Called before answers are taken: a new detokenizer must be known before it speaks."""
        self.traffic = traffic
        self._live = LiveRequests(fan_out, traffic)
        self.rid_to_state: dict[str, Live] = self._live.by_rid
        self.inspector = Inspector(fan_out, len(self._names))

    def close(self) -> None:
        """Close every link."""
        if self._handle_loop is not None:
            self._handle_loop.cancel()
        self._fan_out.close()
        self._inbox.close()
        self.recv_from_detokenizer.context.destroy(0)

    async def generate_request(
        self, obj: GenerateReqInput, request: Any = None
    ) -> AsyncIterator[Any]:
        """Answers to ``obj``, whose ``exchange`` says how it is routed.

        ``request`` is ignored: endpoints watch their clients, and call `finish`.

        Raises:
            RequestError: it cannot be served.
            MemberDeadError, RoutingError: it failed on the way.
            DrainingError: the server is stopping.
        """
        exchange: Exchange = obj.exchange
        self.presence.check(exchange.route.members)
        CURRENT.set(exchange)
        await self.admission.begin(exchange)
        self.presence.check(exchange.route.members)  # it may have waited
        self._answering += 1
        try:
            async for output in super().generate_request(obj):
                yield exchange.label(output)
        except (ValueError, TypeError) as error:
            if exchange.rids:
                raise
            if isinstance(error, TypeError | UnicodeError):
                field = exchange.prompt_field
                raise RequestError(f"{field}: {NO_UNICODE}", field) from error
            # One of SGLang's own checks, which come before anything is sent.
            raise RequestError(str(error), exchange.prompt_field) from error
        finally:
            self._answering -= 1
            if not self._answering:
                self._all_answered.set()

    def lost(self, process: int) -> None:
        """A process died: every request that may need it fails now, and can be retried."""
        self.presence.lost(process)
        if process == DETOKENIZER:
            self._inbox.forget(process)
        else:
            self._fan_out.lost(process)
        self.inspector.lost(process)
        self._live.lost(process, self.presence.name(process))

    def returned(self, up: Up) -> None:
        """A process is back."""
        self.presence.returned(up)
        if up.process == DETOKENIZER:
            self._inbox.expect(up.process, up.generation)
        elif up.process != PLANNER:
            self._fan_out.returned(up)
            self._limits = Limits(self.presence.roster, self._names)
        self.inspector.returned(up.process)

    async def drain(self) -> None:
        """Take no more requests; returns when the last one is answered."""
        self.presence.draining = True
        self.admission.resume()  # those that wait are told
        while self._answering:
            self._all_answered.clear()
            await self._all_answered.wait()

    def begin(self, exchange: Exchange) -> None:
        """Count ``exchange`` in, until `finish`.

        Raises:
            OverloadedError, RequestError: there is no room for it.
        """
        self.admission.enter(exchange)

    def dropped(self) -> dict[str, int]:
        """Frames that were not taken, by kind."""
        return dict(self._inbox.dropped)

    def finish(self, exchange: Exchange) -> None:
        """Nobody waits for ``exchange`` any more: abort what is left of it."""
        exchange.aborted.update(range(exchange.choices))
        for rid in exchange.rids:
            self._live.end(rid, ABORTED)
        self.admission.leave(exchange)

    def abort(self, rid: str) -> int:
        """Stop the requests that their client, or their answer, calls ``rid``; how many.

        Each is answered with what it has written.
        """
        return sum(self._live.abort(exchange, rid) for exchange in self.admission.exchanges)

    def abort_all(self) -> int:
        """Stop every request that is here, as `abort` does; how many."""
        exchanges = self.admission.exchanges
        for exchange in exchanges:
            exchange.aborted.update(range(exchange.choices))
        self._live.abort_all()
        return sum(exchange.choices for exchange in exchanges)

    def abort_request(self, rid: str = "", abort_all: bool = False) -> None:
        """End one request (by its exact id), or all, here at once and at its home."""
        if abort_all:
            self._live.end_all(ABORTED)
        else:
            self._live.end(rid, ABORTED)

    def stop(self) -> None:
        """The server ends: answer every request that is still here."""
        self._live.end_all(STOPPING)

    def auto_create_handle_loop(self) -> None:
        """Receive from the detokenizer; the base class would also take over signals."""
        if self._handle_loop is None:
            self._handle_loop = asyncio.create_task(self.handle_loop())
            self._handle_loop.add_done_callback(_end_process)

    async def handle_loop(self) -> None:
        """Take what the detokenizer sends, for ever.

        Raises:
            ChannelError: some of it was lost.
        """
        async for messages in arrivals(self._inbox, lambda: self.hear_news()):
            for message in messages:
                self._take(message)

    def _take(self, message: Message) -> None:
        if isinstance(message, Text):
            self._live.receive(message)
        elif isinstance(message, MemberState | Controlled | Planned):
            self.inspector.receive(message)
        else:
            raise ChannelError(f"the detokenizer sent {type(message).__name__}")

    def check_text(self, exchange: Exchange, characters: int) -> None:
        """Refuse a prompt of so many characters if it cannot fit.

        Raises:
            RequestError: naming the prompt's field.
        """
        self._limits.check_text(exchange.route, characters, exchange.prompt_field)

    def check_ids(self, exchange: Exchange, ids: Sequence[int]) -> None:
        """Refuse a prompt of ids that some member does not know.

        Raises:
            RequestError: naming the prompt's field.
        """
        self._limits.check_prompt(exchange.route, ids, exchange.prompt_field)

    async def _tokenize_one_request(self, obj: GenerateReqInput) -> TokenizedGenerateReqInput:
        if obj.text is not None:
            self.check_text(CURRENT.get(), len(obj.text))
        return await super()._tokenize_one_request(obj)

    def _validate_one_request(self, obj: GenerateReqInput, input_ids: list[int]) -> None:
        exchange = CURRENT.get()
        route, params = exchange.route, obj.sampling_params
        self._limits.check_prompt(route, input_ids, exchange.prompt_field)
        room = self._limits.room(route, len(input_ids), exchange.prompt_field)
        asked = params.get("max_new_tokens", min(room, UNASKED_TOKENS))
        if asked is None:
            asked = room
        self._limits.check_length(route, len(input_ids), asked, exchange.length_field)
        check_minimum(params.get("min_new_tokens") or 0, asked, exchange.minimum_field)
        self._limits.check_bias(params.get("logit_bias") or {}, exchange.bias_field)
        # Not in place: the requests of a batch share their parameters.
        obj.sampling_params = {**params, "max_new_tokens": asked}

    def _send_one_request(
        self,
        obj: GenerateReqInput,
        tokenized_obj: TokenizedGenerateReqInput,
        created_time: float | None = None,
    ) -> Live:
        exchange = CURRENT.get()
        logprobs = tokenized_obj.top_logprobs_num if tokenized_obj.return_logprob else None
        params = tokenized_obj.sampling_params
        sampling = sampling_of(params, exchange.seed, logprobs, exchange.calls)
        prefix = exchange.bias_field.removesuffix("logit_bias")
        self._limits.check_sampling(exchange.route, sampling, prefix)
        n = obj.sampling_params.get("n", 1)
        route, choice = exchange.next_route(sampling.max_new_tokens, n)
        prompt, stream = tokenized_obj.input_ids, bool(tokenized_obj.stream)
        internal = n > 1 and sampling.max_new_tokens == 0
        live = Live(exchange, tokenized_obj.rid, prompt, sampling, route, stream, choice, internal)
        live.asked = exchange.last_message or obj.text
        if logprobs is not None:
            live.logprobs = Logprobs(logprobs, self.tokenizer, obj.return_text_in_logprobs)
        return live

    async def _wait_one_response(
        self, obj: GenerateReqInput, state: Live, request: Any = None
    ) -> AsyncIterator[dict[str, Any]]:
        # Sent only now that all prompts of a batch have turned out to be legal.
        state.route = await self._placement.place(
            state.route, state.prompt, lambda: state.asked or self.tokenizer.decode(state.prompt)
        )
        if state.choice in state.exchange.aborted:
            state.end(ABORTED)
        else:
            # What was begun before a drain goes on, but nothing goes where somebody has died
            # meanwhile.
            self.presence.check_members(state.route.members)
            self._live.submit(state)
        finish = None
        while not finish:
            await state.event.wait()
            state.event.clear()
            finish = state.finish  # more may come while the consumer has this chunk
            if error := failure_of(finish, state.exchange):
                _forgive_task()
                raise error
            if state.stream or finish:
                yield state.take(self._names, self.server_args.weight_version)
        _forgive_task()


def _no_news() -> None:
    """Nobody else is heard."""


def _forgive_task() -> None:
    """Let the current task raise with nobody there to see it.

    SGLang takes each answer of several requests in a task of its own, and forgets these
    tasks when the client leaves.
    """
    if task := asyncio.current_task():
        task.add_done_callback(lambda done: done.cancelled() or done.exception())


def _end_process(task: asyncio.Task[None]) -> None:
    """Without its receiving loop the front end answers nobody: end it, visibly."""
    if not task.cancelled() and task.exception() is not None:
        logger.critical("the front end cannot receive text", exc_info=task.exception())
        signal.raise_signal(signal.SIGTERM)
