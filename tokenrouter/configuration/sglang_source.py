"""The source of the installed SGLang, read without importing it.

Importing it would load torch into processes that must start at once.
"""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path


def parse(name: str) -> tuple[Path, list[ast.stmt]]:
    """A file of SGLang's ``srt`` folder: where it is, and its statements.

    Raises:
        ValueError: SGLang is not installed.
    """
    package = importlib.util.find_spec("sglang")
    if package is None or not package.submodule_search_locations:
        raise ValueError("SGLang is not installed; install tokenrouter-serve with its requirements")
    path = Path(package.submodule_search_locations[0], "srt", name)
    return path, ast.parse(path.read_text(encoding="utf-8")).body
