"""The detokenizer process: token ids of homes in, text for the tokenizer manager out.

Receives `Output` from every home. SGLang's incremental decoding turns ids into text, never
half a character; it goes on as `Text`. Answers of members, and what the planner tells, pass through
as they are. What a home that died had begun is forgotten.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import msgspec
import zmq

from tokenrouter.config import Config
from tokenrouter.ipc.messages import DETOKENIZER, FRONT_END, PLANNER, Message, Output, Text
from tokenrouter.ipc.ports import Ports
from tokenrouter.ipc.process_links import ProcessLinks
from tokenrouter.ipc.supervision import ChildLink, Down, Drain, News, Ready, Up
from tokenrouter.processes import kernel
from tokenrouter.subserver.sglang_compat.serving import (
    BatchTokenIDOut,
    DetokenizerManager,
    front_end_args,
    load_tokenizer,
)


class Decoder(DetokenizerManager):
    """Incremental decoding of many requests; remembers each until its finish.

    The base class's constructor is not called: it would bind SGLang's links.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.decode_status: dict[str, Any] = {}
        self._homes: dict[str, int] = {}

    def hear(self, arrived: Iterable[tuple[int, Message | News]]) -> list[Message]:
        """What the front end is told of (sender, message)s: text, then what members answer."""
        outputs: list[Output] = []
        answers: list[Message] = []
        for sender, message in arrived:
            if isinstance(message, Output):
                outputs.append(message)
                if message.context is not None:
                    self._homes[message.rid] = sender
            elif isinstance(message, Down):
                self.forget(message.process)
            elif not isinstance(message, Up | Drain):
                answers.append(message)
        return [*self.decode(outputs), *answers]

    def forget(self, home: int) -> None:
        """A home died: nothing more will come of its requests."""
        for rid in [rid for rid, member in self._homes.items() if member == home]:
            self._homes.pop(rid)
            self.decode_status.pop(rid, None)

    def decode(self, outputs: Iterable[Output]) -> list[Text]:
        """The new text of every request in ``outputs`` (in order of arrival).

        Decoded in one batch per combination of decoding options: SGLang applies those of the first
        request to all.
        """
        known = (each for each in _coalesce(outputs) if self._expects(each))
        batches = groupby(sorted(known, key=_options), key=_options)
        return [text for _, batch in batches for text in self._decode_batch(list(batch))]

    def trim_matched_stop(self, output: Any, finished_reason: Any, no_stop_trim: bool) -> Any:
        """As the base class, which takes a matched token of id 0 for none."""
        if finished_reason and finished_reason.get("matched") == 0 and isinstance(output, list):
            return output if no_stop_trim else output[:-1]
        return super().trim_matched_stop(output, finished_reason, no_stop_trim)

    def _expects(self, output: Output) -> bool:
        return output.context is not None or output.rid in self.decode_status

    def _decode_batch(self, outputs: list[Output]) -> list[Text]:
        contexts = [self._context(each) for each in outputs]
        decoded = self.handle_batch_token_id_out(_for_sglang(outputs, contexts))
        pairs = zip(outputs, decoded.output_strs, strict=True)
        texts = [_text(each, new, self.decode_status[each.rid].sent_offset) for each, new in pairs]
        for each in outputs:
            if each.finish is not None:
                del self.decode_status[each.rid]
                self._homes.pop(each.rid, None)
        return texts

    def _context(self, output: Output) -> list[int]:
        return [] if output.rid in self.decode_status else output.context or []


def run_detokenizer(config: Config, ports: Ports, link: ChildLink) -> None:
    """The process: load the tokenizer, report, decode until SIGTERM."""
    kernel.yield_to_members()
    decoder = Decoder(load_tokenizer(front_end_args(config)))
    link.send(Ready())
    roster = link.roster()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    senders = {ports.detokenizer: [*range(len(ports.members)), PLANNER]}
    receivers = {FRONT_END: ports.tokenizer}
    links = ProcessLinks(context, DETOKENIZER, roster, link, senders, receivers)
    gc.freeze()
    try:
        while True:
            for message in decoder.hear(links.poll(None)):
                links.post(FRONT_END, message)
            links.flush()
    finally:
        links.close()
        context.term()


def _options(output: Output) -> tuple[bool, bool]:
    return output.skip_special_tokens, output.spaces_between_special_tokens


def _coalesce(outputs: Iterable[Output]) -> list[Output]:
    """One output per request: SGLang decodes a request once in a batch."""
    merged: dict[str, Output] = {}
    for new in outputs:
        old = merged.get(new.rid)
        merged[new.rid] = new if old is None else _join(old, new)
    return list(merged.values())


def _join(old: Output, new: Output) -> Output:
    models = None
    if old.token_models is not None and new.token_models is not None:
        models = old.token_models + new.token_models
    logprobs = None
    if old.logprobs is not None and new.logprobs is not None:
        logprobs = old.logprobs + new.logprobs
    return msgspec.structs.replace(
        new,
        tokens=old.tokens + new.tokens,
        context=old.context,
        token_models=models,
        logprobs=logprobs,
    )


def _text(output: Output, new: str, length: int) -> Text:
    return Text(
        rid=output.rid,
        text=new,
        text_length=length,
        tokens=output.tokens,
        finish=output.finish,
        prompt_tokens=output.prompt_tokens,
        cached_tokens=output.cached_tokens,
        member_tokens=output.member_tokens,
        hand_overs=output.hand_overs,
        token_models=output.token_models,
        logprobs=output.logprobs,
        started=output.started,
        first_token=output.first_token,
    )


def _for_sglang(outputs: Sequence[Output], contexts: Sequence[list[int]]) -> BatchTokenIDOut:
    unused: dict[str, None] = dict.fromkeys(BatchTokenIDOut.__dataclass_fields__)
    used = {
        "rids": [each.rid for each in outputs],
        "finished_reasons": [each.finish for each in outputs],
        "decoded_texts": [""] * len(outputs),
        "decode_ids": [
            context + each.tokens for context, each in zip(contexts, outputs, strict=True)
        ],
        "read_offsets": [len(context) for context in contexts],
        "skip_special_tokens": [each.skip_special_tokens for each in outputs],
        "spaces_between_special_tokens": [each.spaces_between_special_tokens for each in outputs],
        "no_stop_trim": [each.no_stop_trim for each in outputs],
        "prompt_tokens": [each.prompt_tokens for each in outputs],
        "completion_tokens": [each.completion_tokens for each in outputs],
        "cached_tokens": [each.cached_tokens for each in outputs],
    }
    return BatchTokenIDOut(**{**unused, **used})
