"""What a member records is what an event simulation replays."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.subserver.builders import decide, make_submit, route
from tokenrouter.config import Config
from tokenrouter.errors import ConfigError
from tokenrouter.ipc.messages import Commit, HandOver
from tokenrouter.subserver.finish import FinishRule
from tokenrouter.subserver.owned import Owned
from tokenrouter.subserver.recording import FIELDS, FORMAT, ROW, Recorder
from tokenrouter.throughput_model.event_simulation import decisions, events
from tokenrouter.throughput_model.parameters import Latency, Model, System

Row = tuple[int, float, int, int, int, int, int, int]
ONE_LOOP = [(0, 0, 1), (0, 1, 0), (1, 0, 1)]
"""(member, to, kept) of a request that the large member wrote a token of."""


def rows(uid: int, start: float, steps: list[tuple[int, int, int]], visits: int = 2) -> list[Row]:
    return [
        (uid, start + 0.1 * index, member, to, kept, visits, 1, 0)
        for index, (member, to, kept) in enumerate(steps)
    ]


def write(folder: Path, stem: str, wanted: list[Row], **changes: Any) -> None:
    header = {"format": FORMAT, "fields": FIELDS, "rows": f"{stem}.rows", "members": ["s", "l"]}
    (folder / f"{stem}.json").write_text(json.dumps(header | changes))
    (folder / f"{stem}.rows").write_bytes(b"".join(ROW.pack(*row) for row in wanted))


def test_a_tape_holds_what_a_recorder_wrote(tmp_path: Path) -> None:
    models = [{"name": name, "engine": "timed", "step_ms": 1} for name in ("small", "large")]
    config = Config.model_validate(
        {"models": [models[0] | {"model_path": tmp_path}, models[1]], "algorithm": "random"}
    )
    submit = make_submit(7, to=route(0, 1))
    owned = Owned(submit, FinishRule(submit.sampling, set(), str), 2)
    recorder = Recorder(config, tmp_path / "log", 0)
    for at in range(3):
        decide(recorder, owned, 0, Commit(7, at, 5 + at, [3], []), 1.0 + at)
        decide(recorder, owned, 0, HandOver(7, at, 6 + at, [], 1, []), 1.1 + at)
        decide(recorder, owned, 1, HandOver(7, at, 6 + at, [9, 9], 0, []), 1.2 + at)
    recorder.close()
    tapes = decisions.load(tmp_path / "log")
    assert tapes.first.tolist() == [0]
    assert tapes.following.tolist() == [[0, 1, 0] * 3]
    assert tapes.committed.tolist() == [[1.0, 0.0, 2.0] * 3]
    system = System(
        (Model("small", Latency(1.0)), Model("large", Latency(3.0))),
        [[0.5, 0.5], [1.0, 0.0]],
        [[1.0, 0.0], [2.0, 0.0]],
    )
    assert events.simulate(system, (1, 1), tapes, 5000.0).tokens.tolist() == [3000.0]


def test_requests_of_every_home_are_read_and_those_of_fewer_members_left_out(
    tmp_path: Path,
) -> None:
    one, other = rows(1, 0.0, ONE_LOOP), rows(3, 0.05, ONE_LOOP[:2])
    between = [row for pair in zip(one, [*other, None], strict=True) for row in pair if row]
    write(tmp_path, "a", between + rows(4, 0.0, [(0, 0, 1)], visits=1))
    write(tmp_path, "b", rows(2, 0.2, ONE_LOOP * 2))
    tapes = decisions.load(tmp_path)
    assert tapes.lengths.tolist() == [3, 2, 6]
    assert tapes.following[1, :2].tolist() == [0, 0]
    assert tapes.committed[2].tolist() == [1.0, 0.0, 1.0] * 2


def test_requests_follow_one_another_on_fewer_tapes(tmp_path: Path) -> None:
    """The second tape: two steps that end in the large member, then a request that begins there."""
    write(tmp_path, "a", [
        *rows(1, 0.0, ONE_LOOP), *rows(2, 0.1, ONE_LOOP[:2]), *rows(5, 0.9, ONE_LOOP[2:] + ONE_LOOP)
    ])  # fmt: skip
    tapes = decisions.load(tmp_path, requests=2)
    assert tapes.first.tolist() == [0, 0]
    assert tapes.lengths.tolist() == [3, 6]
    assert tapes.following.tolist() == [[0, 1, 0, 0, 0, 0], [0, 1, 0, 0, 1, 0]]


def test_only_a_stretch_of_time(tmp_path: Path) -> None:
    write(tmp_path, "a", rows(1, 0.0, ONE_LOOP * 3) + rows(2, 5.0, ONE_LOOP))
    tapes = decisions.load(tmp_path, since=0.15, until=0.55)
    assert tapes.first.tolist() == [1]
    assert tapes.following.tolist() == [[0, 0, 1, 1]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 99}, "this version reads"),
        ({"members": ["s"]}, "but others have"),
        ({"fields": 7}, "no recording"),
        ({"rows": "nowhere.rows"}, "no recording"),
    ],
)
def test_what_is_no_recording_of_one_deployment_is_refused(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    write(tmp_path, "a", rows(1, 0.0, ONE_LOOP))
    write(tmp_path, "b", rows(2, 0.0, ONE_LOOP), **changes)
    with pytest.raises(ConfigError, match=message):
        decisions.load(tmp_path)


def test_lost_rows_are_noticed(tmp_path: Path) -> None:
    write(tmp_path, "a", rows(1, 0.0, [ONE_LOOP[0], ONE_LOOP[1], ONE_LOOP[1], ONE_LOOP[2]]))
    with pytest.raises(ConfigError, match=r"rows of request 1 are missing near 0\.200 s"):
        decisions.load(tmp_path)


def test_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="serve with record_decisions"):
        decisions.load(tmp_path)
    write(tmp_path, "a", rows(1, 0.0, ONE_LOOP))
    with pytest.raises(ConfigError, match="1 requests cannot fill 2 tapes"):
        decisions.load(tmp_path, requests=2)
    with pytest.raises(ConfigError, match="no decisions of requests"):
        decisions.load(tmp_path, since=9.0)


def test_recordings_with_other_fields_are_read_together(tmp_path: Path) -> None:
    write(tmp_path, "a", rows(1, 0.0, ONE_LOOP))
    write(tmp_path, "b", rows(2, 0.0, ONE_LOOP), fields=FIELDS[:-1])
    older = struct.Struct(ROW.format.removesuffix("H"))
    (tmp_path / "b.rows").write_bytes(
        b"".join(older.pack(*row[:-1]) for row in rows(2, 0.2, ONE_LOOP))
    )
    assert decisions.load(tmp_path).following.tolist() == [[0, 1, 0]] * 2
