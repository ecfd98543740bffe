"""Log lines of every process: when, who, how serious, what."""

from __future__ import annotations

import logging
import sys


def set_up(process: str, level: str) -> None:
    """Send the root logger's records of ``level`` and above to stderr, one a line.

    Replaces any handlers that a parent process or a library had installed. Warnings of
    Python code become records too.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        logging.Formatter(
            f"%(asctime)s.%(msecs)03d {process} %(levelname)s %(message)s",
            datefmt="%Y-%m-%d %H:%M:%S",
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.captureWarnings(True)
