"""How a forked child ends."""

from __future__ import annotations

import signal

import pytest

from tokenrouter.errors import Terminated
from tokenrouter.processes import children


def test_sigterm_differs_from_the_exit_of_an_algorithm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "alarm", lambda seconds: 0)
    with pytest.raises(Terminated) as caught:
        children._exit(signal.SIGTERM, None)
    assert caught.value.code == 0
