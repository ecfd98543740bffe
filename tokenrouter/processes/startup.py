"""The first start of a deployment: who has reported, and what stands in the way."""

from __future__ import annotations

from collections.abc import Sequence

from tokenrouter.ipc.supervision import MemberReady, Ready, Serving, StartupFailed
from tokenrouter.processes.family import Event, Gone, Imported, Said
from tokenrouter.processes.protocol import ChildSpec
from tokenrouter.processes.summary import Phases


class Startup:
    """Account of a start, event by event.

    Attributes:
        waiting: children that have not reported that they are ready.
        members: what the ready members reported, by index.
        phases: how long what took.
        url: where the front end answers, once it does.
        failure: the first thing that went wrong, in words.
    """

    def __init__(self, children: Sequence[ChildSpec]) -> None:
        self._later = [child for child in children if child.wave > 0]
        self.waiting = {child.name for child in children}
        self.members: dict[int, MemberReady] = {}
        self.phases = Phases()
        self.url: str | None = None
        self.failure: str | None = None

    def take(self, event: Event) -> None:
        """Count one event."""
        match event:
            case Imported(seconds):
                self.phases.imported(seconds)
            case Said(name, MemberReady(member=index) as ready):
                self.members[index] = ready
                self._ready(name)
            case Said(name, Ready()):
                self._ready(name)
            case Said(_, Serving(url)):
                self.url = url
            case Said(name, StartupFailed(reason)):
                self._fail(f"{name}: {reason}")
            case Gone(name, how):
                self._fail(f"{name} died ({how}); its log says more")

    def due(self) -> tuple[ChildSpec, ...]:
        """The next wave of children, to be started now, if all earlier ones are ready."""
        later = {child.name for child in self._later}
        if not later or self.waiting - later:
            return ()
        wave = min(child.wave for child in self._later)
        due = tuple(child for child in self._later if child.wave == wave)
        self._later = [child for child in self._later if child.wave != wave]
        return due

    def _ready(self, name: str) -> None:
        self.waiting.discard(name)
        self.phases.ready(name)

    def _fail(self, what: str) -> None:
        if self.failure is None:
            self.failure = what
