"""A flood of bad frames is counted to the last one, and does not flood the log."""

from __future__ import annotations

import pytest

from tokenrouter.ipc.drops import LOG_EVERY_S, Drops


def test_the_first_of_a_kind_is_logged_then_one_line_in_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 100.0
    drops = Drops("ipc:///here", clock=lambda: now)
    drops.add("malformed", "x" * 10_000)
    drops.add("stale", "old")
    for _ in range(5000):
        drops.add("malformed", "more")
    assert drops.counts == {"malformed": 5001, "stale": 1}
    assert [record.getMessage()[:50] for record in caplog.records] == [
        "ipc:///here: dropped a malformed frame (xxxxxxxxxx",
        "ipc:///here: dropped a stale frame (old)",
    ]
    assert len(caplog.records[0].getMessage()) < 300
    now += LOG_EVERY_S
    drops.add("malformed", "last")
    drops.add("malformed", "not told")
    assert [record.getMessage() for record in caplog.records[2:]] == [
        "ipc:///here: dropped 5001 malformed frames, the last (last)"
    ]
