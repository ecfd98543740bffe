"""What members measured, as it travels in /get_server_info."""

from __future__ import annotations

import orjson
import pytest

from tokenrouter.ipc.measured import from_json, to_json
from tokenrouter.ipc.member_state import Measurements, StepSums

pytestmark = pytest.mark.timeout(20)

MEASURED = Measurements(
    at=12.5,
    steps={1: StepSums(3, 0.02, 0.0002, 3, 3, 0.02), 4: StepSums(1, 0.01, 0.0001, 9, 81, 0.09)},
    prefill=StepSums(1, 0.2, 0.04, 60, 3600, 12.0),
    profile={2: StepSums(5, 0.03, 0.0003, 10, 20, 0.06)},
    hops={0: (7, 7), 1: (3, 0)},
    runs={1: 2, 5: 1},
    live_seconds=8.25,
)


def test_there_and_back() -> None:
    sent = orjson.dumps(to_json(MEASURED), option=orjson.OPT_NON_STR_KEYS)
    told = orjson.loads(sent)
    assert told["steps"]["4"]["tokens"] == 9
    assert from_json(told) == MEASURED


def test_something_else_is_refused() -> None:
    with pytest.raises(KeyError):
        from_json({"at": 1.0})
    with pytest.raises(TypeError):
        from_json({**to_json(MEASURED), "prefill": {"count": 1}})
