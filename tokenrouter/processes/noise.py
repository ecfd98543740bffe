"""What libraries say at start that no user has to know: log lines at debug, not louder.

A filter of `logs.set_up`'s handler. Warnings and errors of libraries still show, except those
that only tell what this project has chosen, or does on every start.
"""

from __future__ import annotations

import logging
import re

LIBRARIES = re.compile(r"(sglang|torch|transformers|uvicorn|xgrammar|httpx|asyncio)(\.|$)")
"""Loggers whose information is for their developers. (Those of algorithms are not among them.)"""
EXPECTED = re.compile(
    # SGLang, of arguments that we set
    r"Cuda graph is disabled because of using torch native"
    r"|init_cpu_threads_env and shared memory based AllReduce is disabled"
    # SGLang's tensors from bytes that nobody writes to
    r"|.*The given NumPy array is not writable"
    # transformers, of a prompt that is then refused because of its length
    r"|Token indices sequence length is longer than",
    re.DOTALL,
)


class NoiseFilter(logging.Filter):
    """Makes expected records debug records, and drops them unless those are wanted."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is written."""
        if record.levelno in (logging.INFO, logging.WARNING) and _expected(record):
            record.levelno, record.levelname = logging.DEBUG, "DEBUG"
            return logging.getLogger().isEnabledFor(logging.DEBUG)
        return True


def _expected(record: logging.LogRecord) -> bool:
    if record.levelno == logging.INFO:
        return LIBRARIES.match(record.name) is not None
    return EXPECTED.match(record.getMessage()) is not None
