"""What a log line looks like, as text and as JSON."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tokenrouter.processes import logs
from tokenrouter.processes.logs import pairs, printable, with_fields

logger = logging.getLogger("tests.logs")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    logging.captureWarnings(False)
    for handler in root.handlers:
        handler.flush()
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(capfd: pytest.CaptureFixture[str]) -> list[str]:
    logging.getLogger().handlers[0].flush()
    return capfd.readouterr().err.splitlines()


def objects(capfd: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(capfd)]


def test_text(capfd: pytest.CaptureFixture[str]) -> None:
    logs.set_up("small", "info")
    logger.info("loaded %d tokens", 3, extra=with_fields({"tokens": 3}))
    logger.debug("not shown")
    (line,) = lines(capfd)
    date, time, rest = line.split(" ", 2)
    assert rest == "small INFO loaded 3 tokens"
    datetime.strptime(f"{date} {time}", "%Y-%m-%d %H:%M:%S.%f")


def test_json_has_time_process_level_message_and_fields(
    capfd: pytest.CaptureFixture[str],
) -> None:
    logs.set_up("small", "info", "json")
    logger.warning("a %s", "b\nc", extra=with_fields({"tokens": {"small": 3}, "level": "mine"}))
    (line,) = objects(capfd)
    time = datetime.fromisoformat(line.pop("time"))
    assert abs(time - datetime.now(UTC)) < timedelta(minutes=1)
    assert line == {
        "process": "small",
        "level": "warning",
        "logger": "tests.logs",
        "message": "a b\nc",
        "tokens": {"small": 3},
    }


def test_an_exception_is_inside_its_object(capfd: pytest.CaptureFixture[str]) -> None:
    logs.set_up("small", "info", "json")
    try:
        raise ValueError("wrong\nvalue")
    except ValueError:
        logger.exception("failed")
    (line,) = objects(capfd)
    assert line["message"] == "failed"
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("ValueError: wrong\nvalue")


@pytest.mark.parametrize("value", ["lone \ud800", 2**80, object(), float("nan"), b"bytes", {1, 2}])
def test_every_value_becomes_one_json_line(
    capfd: pytest.CaptureFixture[str], value: object
) -> None:
    logs.set_up("small", "info", "json")
    logger.info("%s", value, extra=with_fields({"value": value}))
    (line,) = objects(capfd)
    assert line["process"] == "small"
    assert "value" in line


def test_warnings_and_libraries_write_the_same_lines(capfd: pytest.CaptureFixture[str]) -> None:
    logging.getLogger("uvicorn.error").addHandler(logging.NullHandler())
    logs.set_up("front-end", "info", "json")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old thing", DeprecationWarning, stacklevel=1)
    logging.getLogger("uvicorn.error").warning("Slow")
    logging.getLogger("sglang.srt.server_args").error("wrong")
    told = [(line["logger"], line["level"]) for line in objects(capfd)]
    assert told == [
        ("py.warnings", "warning"),
        ("uvicorn.error", "warning"),
        ("sglang.srt.server_args", "error"),
    ]


def test_set_up_again_replaces(capfd: pytest.CaptureFixture[str]) -> None:
    logs.set_up("one", "info")
    logger.info("first")
    logs.set_up("two", "warning", "json")
    logger.info("not shown")
    logger.error("second")
    first, second = lines(capfd)
    assert first.endswith("one INFO first")
    assert json.loads(second)["process"] == "two"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain/word-1", "plain/word-1"),
        ("", '""'),
        ("two words", '"two words"'),
        ('a"b', '"a\\"b"'),
        ("a=b", '"a=b"'),
        ("line\nbreak\x1b[0m", '"line\\nbreak\\u001b[0m"'),
        ("zero\u2028width", '"zero\\u2028width"'),
    ],
)
def test_text_of_a_client_cannot_forge_a_line(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert pairs({"error": text}) == f" error={shown}"


def test_pairs() -> None:
    fields = {"tokens": {"small": 3, "large": 1}, "ms": 1.5, "gone": True}
    assert pairs(fields) == " tokens=small:3,large:1 ms=1.5 gone=True"
