"""A plan that replays what a server recorded."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy
import pytest

from tests.test_cli_plan import params, run
from tests.throughput_model.event_simulation.test_recorded import ONE_LOOP, rows, write
from tests.throughput_model.plans import pair, parameters
from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model.chain.exact import predict
from tokenrouter.throughput_model.event_simulation import decisions
from tokenrouter.throughput_model.planning.planning import notes, plan
from tokenrouter.throughput_model.planning.recording import with_decisions
from tokenrouter.throughput_model.planning.sensitivity import cases
from tokenrouter.throughput_model.planning.sensitivity import notes as not_tried

__all__ = ["params"]
NAMES = ["small", "large"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A recording of p = 0.25: twelve requests of 4,000 steps, four at once."""
    tapes = decisions.draw(pair(0.25), 12, 4_000, seed=3)
    recorded = []
    for request in range(12):
        at = [0, *tapes.following[request, :3999].tolist()]
        to, kept = tapes.following[request].tolist(), tapes.committed[request].tolist()
        steps = [(m, k, int(tokens)) for m, k, tokens in zip(at, to, kept, strict=True)]
        recorded += rows(request, 400.0 * (request // 4), steps)
    (tmp_path / "log").mkdir()
    write(tmp_path / "log", "all", recorded, members=NAMES)
    return tmp_path / "log"


def test_recorded_decisions_take_the_place_of_the_file_s_routing(folder: Path) -> None:
    given = with_decisions(parameters(concurrency=(9,), runs={"small": {3: 1.0}}), folder)
    assert (given.concurrency, given.runs) == ((4,), {})
    assert given.system.routing[0, 1] == pytest.approx(0.25, abs=0.01)
    assert given.system.committed == pytest.approx(numpy.array([[1, 0], [1, 0]]), abs=1e-3)
    [outlook] = plan(given, lambda share, what: None)
    for row in outlook.rows:
        known = predict(given.system, 4, row.thresholds).tokens_per_s
        assert row.prediction.method == "simulated"
        assert row.tokens_per_s == pytest.approx(known, abs=4 * row.prediction.stderr)
    [note] = notes(given, [outlook])
    assert note.startswith(f"decisions recorded in {folder} are replayed, request by request")
    assert [case.what[:10] for case in cases(given, outlook)] == ["latency of"] * 4
    assert not_tried(given)[0].endswith("recorded decisions say themselves where requests go")


def test_the_command_replays(
    params: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run(capsys, str(params), "--json", "--decisions", str(folder), "--concurrency", "2")
    told = json.loads(found[1])
    assert {(row["concurrency"], row["method"]) for row in told["rows"]} == {(2, "simulated")}
    status, _, err = run(capsys, str(params), "--decisions", str(folder / "none"))
    assert status == 2
    assert "none: no recorded decisions; serve with record_decisions first" in err


def test_other_models_or_too_little(tmp_path: Path) -> None:
    write(tmp_path, "all", rows(1, 0.0, ONE_LOOP))
    message = "recorded of s, l, but the parameter file has small, large; give models these names"
    with pytest.raises(ConfigError, match=re.escape(message)):
        with_decisions(parameters(), tmp_path)
    write(tmp_path, "all", rows(1, 0.0, [(0, 0, 1)] * 5), members=NAMES)
    with pytest.raises(ConfigError, match="no step of large is recorded; record more"):
        with_decisions(parameters(), tmp_path)
