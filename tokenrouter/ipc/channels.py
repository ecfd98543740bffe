"""How frames travel: bounded, non-blocking PUSH/PULL over ZeroMQ IPC, checked on arrival.

An `Outbox` collects what one iteration of a loop has to tell one receiver and sends it as
one frame. An `Inbox` hands out what arrived, in order. A frame that is malformed, oversized,
foreign, stale or a duplicate is counted, logged and dropped (`drops`). A gap in a link's
sequence means that a frame was lost, and raises `ChannelError`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import zmq

from tokenrouter.errors import ChannelError, LinkFullError
from tokenrouter.histogram import Histogram
from tokenrouter.ipc.drops import Drops
from tokenrouter.ipc.messages import PROTOCOL_VERSION, Frame, Head, Message

MAX_FRAME_BYTES = 64 * 1024 * 1024
HANG_UP_BYTES = 2 * MAX_FRAME_BYTES
"""ZeroMQ hangs up on whoever announces a larger frame, without reading it."""
HIGH_WATER_MARK = 4096
"""Frames a link holds: a few for every request that can be live."""
RECONNECT_MS = 10
"""A receiver that is not listening yet is tried again after this."""
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises on bytes that somebody made up."""
DELAY_S = (5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1.0, 5.0)
"""Bounds of the time from a frame's departure to its receipt."""
LONGEST_DELAY_S = 3600.0
"""A frame that claims to have travelled longer has no true time of departure."""


class Outbox:
    """The sending end of one link. ``address`` is the receiver's inbox."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        address: str,
        sender: int,
        generation: int = 0,
        to_generation: int = 0,
    ) -> None:
        self.address = address
        self.to_generation = to_generation
        self._sender, self._generation = sender, generation
        self._sequence = 0
        self.posted: list[msgspec.Raw] = []
        """What the next `flush` sends."""
        self._encoder = msgspec.msgpack.Encoder()
        self._socket = context.socket(zmq.PUSH)
        self._socket.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK)
        self._socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(address)

    @property
    def full(self) -> bool:
        """Whether the receiver has stopped reading for so long that `flush` would fail."""
        return not self._socket.poll(0, zmq.POLLOUT)

    def post(self, message: Message) -> None:
        """Add to the frame that the next `flush` sends.

        Raises:
            ChannelError: it cannot be encoded (an integer beyond 64 bits, an unpaired
                surrogate); what was posted before is not affected.
        """
        try:
            self.posted.append(msgspec.Raw(self._encoder.encode(message)))
        except (OverflowError, UnicodeEncodeError, TypeError) as error:
            raise ChannelError(f"{type(message).__name__} for {self.address}: {error}") from error

    def flush(self) -> None:
        """Send what was posted as one frame.

        Raises:
            LinkFullError: the receiver has stopped reading; what was posted waits for the next
                flush.
            ChannelError: the frame is larger than a receiver takes; it is dropped.
        """
        if not self.posted:
            return
        head = (PROTOCOL_VERSION, self._sender, self._generation, self.to_generation)
        data = self._encoder.encode(
            (*head, self._sequence, time.monotonic(), self.posted)
        )  # a `Frame`
        if len(data) > MAX_FRAME_BYTES:
            self.posted = []
            raise ChannelError(
                f"a frame of {len(data)} bytes for {self.address}: the limit is {MAX_FRAME_BYTES}"
            )
        try:
            self._socket.send(data, zmq.NOBLOCK)
        except zmq.Again:
            raise LinkFullError(
                f"link to {self.address} is full ({HIGH_WATER_MARK} frames): receiver stopped"
            ) from None
        self._sequence += 1
        self.posted = []

    def close(self) -> None:
        """Close the socket; what was not flushed is gone."""
        self._socket.close()


class Inbox:
    """The receiving end of every link to one process.

    Args:
        address: where to bind.
        generation: of the receiver; frames addressed to another are stale.
        senders: generation of each sender that may write here.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        address: str,
        senders: Mapping[int, int],
        generation: int = 0,
    ) -> None:
        self.address = address
        self._drops = Drops(address)
        self.dropped = self._drops.counts
        self.delays = Histogram(DELAY_S)
        """Seconds from the departure of each frame that was taken to its receipt."""
        self._generation = generation
        self._senders: dict[int, int | None] = dict(senders)
        self._expected = dict.fromkeys(self._senders, 0)
        self._heads = msgspec.msgpack.Decoder(Head)
        self._decoder = msgspec.msgpack.Decoder(Frame)
        self.socket = context.socket(zmq.PULL)
        self.socket.setsockopt(zmq.RCVHWM, HIGH_WATER_MARK)
        self.socket.setsockopt(zmq.MAXMSGSIZE, HANG_UP_BYTES)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind(address)

    def expect(self, sender: int, generation: int) -> None:
        """From now on ``sender`` is another process: of this generation, counting from 0."""
        self._senders[sender] = generation
        self._expected[sender] = 0

    def forget(self, sender: int) -> None:
        """``sender`` died: what still arrives from it is stale."""
        self._senders[sender] = None

    def drain(self) -> Iterator[tuple[int, Message]]:
        """(sender, message) for what has arrived, without waiting: a link's worth of frames
        at most, so that a flood does not keep the caller from its other work.

        Raises:
            ChannelError: a frame of some link was lost.
        """
        return self.accept(self.take())

    def take(self) -> list[bytes]:
        """The frames of `drain`, as they came, for `accept`."""
        taken: list[bytes] = []
        # Asking first is cheaper than being told by an exception.
        while len(taken) < HIGH_WATER_MARK and self.socket.poll(0):
            taken.append(self.socket.recv(zmq.NOBLOCK))
        return taken

    def accept(self, taken: Sequence[bytes]) -> Iterator[tuple[int, Message]]:
        """(sender, message) for every frame that is in order.

        Raises:
            ChannelError: a frame of some link was lost.
        """
        for data in taken:
            frame = self._accept(data)
            if frame is not None:
                for message in frame.messages:
                    yield frame.sender, message

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()

    def _accept(self, data: bytes) -> Frame | None:
        if len(data) > MAX_FRAME_BYTES:
            return self._dropped("oversized", f"{len(data)} bytes")
        try:
            frame = self._decoder.decode(data)
        except UNREADABLE as error:
            # Another version's frame may look different from here on.
            version = self._version(data)
            if version in (None, PROTOCOL_VERSION):
                return self._dropped("malformed", str(error))
        else:
            version = frame.version
        if version != PROTOCOL_VERSION:
            return self._dropped("version", f"protocol {version}, not {PROTOCOL_VERSION}")
        if frame.sender not in self._senders:
            return self._dropped("foreign", f"sender {frame.sender} is not known here")
        current = (self._senders[frame.sender], self._generation)
        if (frame.generation, frame.to_generation) != current:
            return self._dropped("stale", f"generations {frame.generation}, {frame.to_generation}")
        expected = self._expected[frame.sender]
        if frame.sequence < expected:
            return self._dropped("duplicate", f"frame {frame.sequence} of sender {frame.sender}")
        if frame.sequence > expected:
            raise ChannelError(
                f"{self.address}: frames {expected}..{frame.sequence - 1} of sender "
                f"{frame.sender} were lost"
            )
        self._expected[frame.sender] = expected + 1
        delay = time.monotonic() - frame.sent
        if 0.0 <= delay <= LONGEST_DELAY_S:
            self.delays.observe(delay)
        return frame

    def _version(self, data: bytes) -> int | None:
        try:
            return self._heads.decode(data).version
        except UNREADABLE:
            return None

    def _dropped(self, kind: str, detail: str) -> Frame | None:
        self._drops.add(kind, detail)
        return None
