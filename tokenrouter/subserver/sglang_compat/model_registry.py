"""SGLang's table of model classes, without importing the hundred files that it lists.

Stock SGLang imports every model file to learn which architectures it knows: seconds in every
process, and a file whose own imports fail drops out with a warning, so that its architecture is
served by a slow generic class instead. Here the table is read from the text of the files, a file
is imported when its architecture is asked for, and one that cannot be imported says so.
"""

import functools
import importlib
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tokenrouter.errors import ConfigError
from tokenrouter.subserver.sglang_compat.stand_ins import replaced

_PACKAGE = "sglang.srt.models"
_ENTRY_CLASS = re.compile(r"^EntryClass\s*=\s*(\[[^\]]*\]|\w+)", re.MULTILINE)
_COMMENT = re.compile(r"#.*")


class ModelTable(Mapping[str, Any]):
    """Architecture name to model class; a class is imported when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._modules = dict(_declared_architectures(folder))

    def __getitem__(self, architecture: str) -> Any:
        module = importlib.import_module(f"{_PACKAGE}.{self._modules[architecture]}")
        return getattr(module, architecture)

    def __contains__(self, architecture: object) -> bool:
        return architecture in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


def _declared_architectures(folder: Path) -> Iterator[tuple[str, str]]:
    """Every (class name, module name) that a file declares by `EntryClass = ...`."""
    for file in sorted(folder.glob("*.py")):
        declared = _ENTRY_CLASS.search(file.read_text(encoding="utf-8"))
        if declared is not None:
            for name in re.findall(r"\w+", _COMMENT.sub("", declared.group(1))):
                yield name, file.stem


@functools.cache
def _install_table() -> ModelTable:
    # SGLang fills its registry while that module is imported; it finds no files to import.
    with replaced(pkgutil, "iter_modules", lambda *args: iter(())):
        registry = importlib.import_module(f"{_PACKAGE}.registry")
    [folder] = importlib.import_module(_PACKAGE).__path__
    registry.ModelRegistry.models = table = ModelTable(Path(folder))
    return table


def register_models(architectures: Iterable[str]) -> None:
    """Import the classes of these architectures now; any other follows when it is asked for.

    Called before a fork, the classes are shared by the members. Raises ConfigError for a name
    that SGLang has no class for.
    """
    table = _install_table()
    for architecture in architectures:
        if architecture not in table:
            raise ConfigError(f"SGLang has no model class for {architecture!r}")
        table[architecture]
