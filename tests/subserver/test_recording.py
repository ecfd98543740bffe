"""The log of decisions: what it holds, who can read it, what a full disk costs."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

from tests.subserver.builders import decide, make_submit, route
from tests.subserver.harness import Deployment
from tokenrouter.config import Config
from tokenrouter.configuration.presets import Preset
from tokenrouter.ipc.messages import Commit, HandOver, Route, Sampling
from tokenrouter.subserver import recording
from tokenrouter.subserver.finish import FinishRule
from tokenrouter.subserver.owned import Owned
from tokenrouter.subserver.recording import ROW, UNNAMED, Recorder


@pytest.fixture
def config(tmp_path: Path) -> Config:
    models = [{"name": name, "engine": "timed", "step_ms": 1} for name in ("small", "large")]
    return Config.model_validate(
        {"models": [models[0] | {"model_path": tmp_path}, models[1]], "algorithm": "random",
         "algorithm_args": {}, "router_threshold": 0.4, "api_key": "sesame"}
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "log" / "decisions"


@pytest.fixture
def recorder(config: Config, folder: Path) -> Iterator[Recorder]:
    recorder = Recorder(config, folder, 0)
    yield recorder
    recorder.close()


def read(folder: Path) -> tuple[dict[str, Any], numpy.ndarray]:
    """As the module's docstring says."""
    (path,) = folder.glob("*.json")
    header = json.loads(path.read_text())
    dtype = numpy.dtype([tuple(field) for field in header["fields"]])
    return header, numpy.fromfile(folder / header["rows"], dtype)


def owned(uid: int = 1, *members: int) -> Owned:
    submit = make_submit(uid, to=route(*members))
    return Owned(submit, FinishRule(submit.sampling, set(), str), 2)


def test_rows_are_what_was_decided(recorder: Recorder, folder: Path) -> None:
    one, pinned = owned(2**64 - 1), owned(7, 0)
    decide(recorder, one, 0, Commit(one.uid, 1, 3, [110]), 5.25)
    decide(recorder, pinned, 0, Commit(7, 1, 3, [110]), 5.5)
    decide(recorder, one, 0, HandOver(one.uid, 1, 4, [], 1), 6.0)
    decide(recorder, one, 1, HandOver(one.uid, 2, 4, [111, 112], 0), 7.0)
    decide(recorder, one, 0, Commit(one.uid, 3, 6, [113]), 8.0)
    decide(recorder, one, 0, Commit(one.uid, 3, 6, [113]), 9.0)
    recorder.close()
    _, rows = read(folder)
    assert rows.dtype.itemsize == ROW.size
    assert rows.tolist() == [
        (2**64 - 1, 5.25, 0, 0, 1, 2, 3, 1),
        (7, 5.5, 0, 0, 1, 1, 3, 1),
        (2**64 - 1, 6.0, 0, 1, 0, 2, 1, 1),
        (2**64 - 1, 7.0, 1, 0, 2, 2, 4, 1),
        (2**64 - 1, 8.0, 0, 0, 1, 2, 2, 1),
        (2**64 - 1, 9.0, 0, 0, 1, 2, 1, 1),
    ]


def test_rows_name_the_algorithm(config: Config, folder: Path) -> None:
    preset = Preset(algorithm="random", router_threshold=0.1)
    config = config.model_copy(update={"algorithms": {"random": preset, "mine": preset}})
    recorder = Recorder(config, folder, 0)
    routes = [
        Route("random", (0, 1), 0, 0.4),
        Route("random", (0, 1), 0, 0.1, preset="random"),
        Route("random", (0, 1), 0, 0.1, preset="mine"),
        Route("entropy", (0, 1), 0, preset="entropy"),
        Route("single", (0,), 0),
        Route("no:Such", (0, 1), 0),
    ]
    for uid, to in enumerate(routes):
        submit = make_submit(uid, to=to)
        one = Owned(submit, FinishRule(submit.sampling, set(), str), 2)
        decide(recorder, one, 0, Commit(uid, 1, 3, [110]), 5.0)
    recorder.close()
    header, rows = read(folder)
    *named, unnamed = rows["algorithm"].tolist()
    assert named[:3] == [0, 1, 2]
    told = [header["algorithms"][each] for each in named]
    assert told == ["random", "random", "mine", "entropy", "single"]
    assert unnamed == UNNAMED


def test_a_request_that_ended_is_forgotten(recorder: Recorder) -> None:
    decide(recorder, owned(), 0, Commit(1, 1, 3, [110]), 5.0)
    recorder.ended(1)
    recorder.ended(2)
    assert not recorder._seen


def test_the_header_says_whose_decisions_they_are_and_no_secret(
    recorder: Recorder, folder: Path
) -> None:
    header, rows = read(folder)
    assert (header["format"], header["members"], header["home"]) == (1, ["small", "large"], 0)
    assert (header["algorithm"], header["router_threshold"]) == ("random", 0.4)
    assert header["thresholds"] == ["auto", "auto"]
    assert len(rows) == 0
    assert "sesame" not in json.dumps(header)


def test_every_decision_of_a_deployment_is_recorded(config: Config, folder: Path) -> None:
    """Against the answers: who wrote each token."""
    deployment = Deployment((1, 3), seed=3)
    recorders = []
    for member in deployment.members:
        recorders.append(Recorder(config, folder / str(member.member), member.member))
        member.home._recorder = recorders[-1]
    for uid in range(12):
        path = Route("random", (0, 1), uid % 2, 0.4, {}, seed=7, token_models=True)
        deployment.submit(uid, [101, 104 + uid], path, Sampling(30, top_k=1, ignore_eos=True))
    deployment.run()
    for recorder in recorders:
        recorder.close()
        assert not recorder._seen
    for uid in range(12):
        _, rows = read(folder / str(uid % 2))
        mine = rows[rows["uid"] == uid]
        answer = deployment.answers[str(uid)]
        assert [int(row["member"]) for row in mine for _ in range(row["kept"])] == answer.models
        assert (mine["to"][:-1] == mine["member"][1:]).all()
        assert sum(mine["member"] != mine["to"]) - (mine["member"][-1] != mine["to"][-1]) == (
            answer.hand_overs
        )
        assert (numpy.diff(mine["time"]) >= 0).all()
        for member in (0, 1):
            # Each member was fed the prompt and every token once, up to its last step.
            fed = mine["fed"][mine["member"] == member].sum()
            position = 2 + mine["kept"].cumsum() - mine["kept"]
            assert fed >= position[mine["member"] == member].max()


class FullDisk:
    """`os.pwrite` that has room for so many bytes."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._plain = os.pwrite

    def __call__(self, file: int, data: memoryview, offset: int) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = self._plain(file, data[: self.room], offset)
        self.room -= written
        return written


def test_a_full_disk_costs_rows_and_nothing_else(
    config: Config,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = FullDisk(2 * ROW.size + 5)
    monkeypatch.setattr(recording.os, "pwrite", disk)
    monkeypatch.setattr(recording, "WRITE_EVERY_S", 1000.0)
    recorder = Recorder(config, folder, 0)
    for start in (3, 4, 5, 6):
        decide(recorder, owned(), 0, Commit(1, 1, start, [110]), float(start))
    recorder._write(recorder._file)
    assert recorder.lost == 2
    disk.room = 1000
    decide(recorder, owned(), 0, Commit(1, 1, 7, [110]), 7.0)
    recorder.close()
    _, rows = read(folder)
    assert rows["time"].tolist() == [3.0, 4.0, 7.0], "the half row is written over"
    assert caplog.text.count("No space left on device") == 1
    assert "2 routing decisions are missing" in caplog.text


def test_a_disk_that_is_too_slow_costs_rows(
    config: Config, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recording, "MAX_QUEUED", 3)
    monkeypatch.setattr(recording, "WRITE_EVERY_S", 1000.0)
    recorder = Recorder(config, folder, 0)
    for start in range(3, 8):
        decide(recorder, owned(), 0, Commit(1, 1, start, [110]), float(start))
    with caplog.at_level(logging.WARNING):
        recorder.close()
    assert recorder.lost == 2
    assert read(folder)[1]["time"].tolist() == [3.0, 4.0, 5.0]


def test_a_member_that_starts_again_on_a_full_disk_serves_on(
    config: Config, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    recorder = Recorder(config, folder, 0)
    decide(recorder, owned(), 0, Commit(1, 1, 3, [110]), 3.0)
    recorder.ended(1)
    recorder.close()
    assert recorder.lost == 1
    assert "all are lost: [Errno 28] No space left on device" in caplog.text
    assert "1 routing decisions are missing" in caplog.text
    assert not list(folder.iterdir())
