"""Machine code for the inner loops of the throughput model, kept between processes.

Numba writes what it compiled beside the module; where that is read-only (an installed package)
under ``NUMBA_CACHE_DIR`` or the user's cache folder; and where nothing can be written, each
process compiles for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

from numba import njit

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """The function as machine code, made when it is first called; it releases the GIL."""
    try:
        return cast(Callable[P, R], njit(cache=True, nogil=True)(function))
    except (RuntimeError, OSError):  # no folder for the cache can be written
        return cast(Callable[P, R], njit(nogil=True)(function))
