"""Log lines of every process: when, who, how serious, what.

As text, or as one JSON object a line. They go to stderr through `log_writer`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import orjson

from tokenrouter.processes.log_writer import DirectHandler, LineHandler, QueueHandler
from tokenrouter.processes.noise import NoiseFilter


def set_up(
    process: str,
    level: str,
    form: Literal["text", "json"] = "text",
    single_threaded: bool = False,
) -> None:
    """Send the root logger's records of ``level`` and above to stderr, one a line.

    Replaces any handlers that a parent process or a library had installed. Warnings of
    Python code become records too.

    Args:
        single_threaded: write in the caller's thread, and only what needs no waiting.
    """
    handler = DirectHandler() if single_threaded else QueueHandler()
    handler.setFormatter(JsonFormatter(process) if form == "json" else _text(process))
    handler.addFilter(NoiseFilter())
    root = logging.getLogger()
    for old in root.handlers:
        if isinstance(old, LineHandler):
            old.flush()
            old.close()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.captureWarnings(True)


def dropped_lines() -> int:
    """Log lines of this process that stderr did not take."""
    handlers = logging.getLogger().handlers
    return sum(each.dropped for each in handlers if isinstance(each, LineHandler))


def with_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The ``extra`` of a log call whose JSON object has these keys too."""
    return {"fields": fields}


def _text(process: str) -> logging.Formatter:
    return logging.Formatter(
        f"%(asctime)s.%(msecs)03d {process} %(levelname)s %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
    )


class JsonFormatter(logging.Formatter):
    """A record as a JSON object: time (ISO 8601, UTC), process, level, logger, message.

    Then ``exception`` where there is one, and the keys of `with_fields`.
    """

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        content = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "process": self._process,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            content["exception"] = self.formatException(record.exc_info)
        elif record.exc_text:
            content["exception"] = record.exc_text
        return _dumps({**content, **getattr(record, "fields", {}), **content})


def _dumps(content: dict[str, Any]) -> str:
    options = orjson.OPT_NON_STR_KEYS
    try:
        return orjson.dumps(content, default=str, option=options).decode()
    except orjson.JSONEncodeError:  # unpaired surrogates, integers beyond 64 bits
        safe = {str(key): _encodable(value) for key, value in content.items()}
        return orjson.dumps(safe).decode()


def _encodable(value: object) -> str:
    return str(value).encode("utf-8", "backslashreplace").decode()


def printable(text: str) -> str:
    """``text`` where it is one plain word; else quoted, on one line."""
    plain = text.isprintable() and not set(text) & {" ", '"', "=", "\\"}
    return text if plain and text else json.dumps(text)


def pairs(fields: Mapping[str, Any]) -> str:
    """Fields as `` key=value`` each; of a dict, ``key=a:1,b:2``, of a list, ``key=a,b``."""
    return "".join(f" {key}={_value(value)}" for key, value in fields.items())


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{key}:{each}" for key, each in value.items())
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return printable(value) if isinstance(value, str) else str(value)
