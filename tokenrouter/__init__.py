"""TokenRouter: serve token-level routing between language models.

The package root stays free of heavy imports, so that the supervisor, the planner and the
command line start without loading torch or SGLang.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenrouter.offline.engine import Engine

__all__ = ["Engine", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "Engine":
        from tokenrouter.offline.engine import Engine

        return Engine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
