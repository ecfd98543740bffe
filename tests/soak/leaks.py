"""Programs of a deployment that keeps 200 bytes of each request: the memory test must notice."""

from __future__ import annotations

import sys
from typing import Any

from tokenrouter.frontend.detokenizer import Decoder, run_detokenizer
from tokenrouter.frontend.live_requests import LiveRequests
from tokenrouter.frontend.process import run_front_end
from tokenrouter.ipc.messages import Text
from tokenrouter.subserver.home import Home
from tokenrouter.subserver.process import run_member

LEAK_BYTES = 200
PROGRAMS = {
    "member_program": f"{__name__}:member",
    "detokenizer": f"{__name__}:detokenizer",
    "front_end": f"{__name__}:front_end",
}
_kept: list[bytes] = []


def keep() -> None:
    _kept.append(bytes(LEAK_BYTES - sys.getsizeof(b"")))


def member(*arguments: Any) -> None:
    """Of each request it owned."""
    finish = Home._finish

    def leaking(home: Home, *more: Any) -> None:
        keep()
        finish(home, *more)

    Home._finish = leaking  # type: ignore[method-assign]
    run_member(*arguments)


def detokenizer(*arguments: Any) -> None:
    """Of each request it decoded."""
    decode = Decoder._decode_batch

    def leaking(decoder: Decoder, outputs: Any) -> Any:
        for output in outputs:
            if output.finish is not None:
                keep()
        return decode(decoder, outputs)

    Decoder._decode_batch = leaking  # type: ignore[method-assign]
    run_detokenizer(*arguments)


def front_end(*arguments: Any) -> None:
    """Of each request it answered."""
    receive = LiveRequests.receive

    def leaking(requests: LiveRequests, new: Text) -> None:
        if new.finish:
            keep()
        receive(requests, new)

    LiveRequests.receive = leaking  # type: ignore[method-assign]
    run_front_end(*arguments)
