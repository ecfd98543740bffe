"""Modules that answer an import with a fixed set of names, and nothing else.

`cpu_imports` uses them for packages that do not exist on this machine (GPU kernels), and, for the
length of one import, for modules that exist but that text serving never calls.
"""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NoReturn

Names = Mapping[str, object]


class Unavailable:
    """A function that may be imported, never called.

    SGLang imports kernels unconditionally that its CPU code path does not reach. Reaching one is
    an error of ours, so it says which kernel it was.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        """Say which kernel was reached."""
        raise RuntimeError(f"{self._name} is not available without CUDA")

    def __repr__(self) -> str:
        return f"<unavailable {self._name}>"


def unavailable(module: str, *names: str) -> Names:
    """The names of `module` that must import, each an `Unavailable`."""
    return {name: Unavailable(f"{module}.{name}") for name in names}


class Placeholder:
    """Base of the empty classes that stand in for names which are imported and never used."""


def placeholders(*names: str) -> Names:
    """An empty class for each name."""
    return {name: type(name, (Placeholder,), {}) for name in names}


class StandInFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of a table and fills them from it; everything else stays not found.

    Kept last on `sys.meta_path`, it is asked only for what nothing else provides. A parent of a
    listed module is a package. A name that the table does not hold raises ImportError, as from
    any module, which is what SGLang's `try: ... except ImportError` probes rely on.
    """

    def __init__(self, table: Mapping[str, Callable[[], Names]]) -> None:
        self._table = table
        self._packages = {name.rpartition(".")[0] for name in table} - {""}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of a listed module; None for any other."""
        if fullname not in self._table:
            return None
        is_package = fullname in self._packages
        return importlib.machinery.ModuleSpec(fullname, self, is_package=is_package)

    def exec_module(self, module: ModuleType) -> None:
        """Fill the module at the moment it is imported, so that a supplier sees that moment."""
        vars(module).update(self._table[module.__name__]())


@contextmanager
def replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    """Give `owner` another attribute for the length of the block."""
    stock = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, stock)


@contextmanager
def standing_in(table: Mapping[str, Names]) -> Iterator[None]:
    """Let the modules of `table` be imported as stand-ins inside the block.

    Afterwards they are forgotten, and so are the copies that parent packages keep of them, so a
    later import finds the real module. Modules already imported are left alone.
    """
    placed = {name: ModuleType(name) for name in table if name not in sys.modules}
    for name, module in placed.items():
        vars(module).update(table[name])
        sys.modules[name] = module
    try:
        yield
    finally:
        for name, module in placed.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
            _forget_copies(sys.modules.get(name.rpartition(".")[0]))


def _forget_copies(package: ModuleType | None) -> None:
    """Packages that import lazily keep what they once found."""
    namespace = vars(package) if package is not None else {}
    for name, value in list(namespace.items()):
        if isinstance(value, type) and issubclass(value, Placeholder):
            del namespace[name]
