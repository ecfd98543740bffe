"""Stand-ins answer exactly what they list, and leave nothing behind."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tokenrouter.subserver.sglang_compat.stand_ins import (
    StandInFinder,
    placeholders,
    replaced,
    standing_in,
    unavailable,
)


@pytest.fixture
def absent() -> Iterator[None]:
    finder = StandInFinder(
        {
            "absent_kernels": lambda: unavailable("absent_kernels", "reduce"),
            "absent_kernels.inner": lambda: {"answer": 42},
        }
    )
    sys.meta_path.append(finder)
    yield
    sys.meta_path.remove(finder)
    for name in ("absent_kernels", "absent_kernels.inner"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("absent")
class TestFinder:
    def test_listed_names_import(self) -> None:
        assert importlib.import_module("absent_kernels.inner").answer == 42

    def test_calling_an_unavailable_kernel_names_it(self) -> None:
        kernel = importlib.import_module("absent_kernels").reduce
        with pytest.raises(RuntimeError, match=r"absent_kernels\.reduce is not available"):
            kernel(1)

    @pytest.mark.parametrize(
        "module",
        ["absent_kernels.other", "absent_kernels.inner.deeper", "absent_kernels_of_others"],
    )
    def test_every_other_module_is_an_import_error(self, module: str) -> None:
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(module)

    def test_every_other_name_is_an_import_error(self) -> None:
        with pytest.raises(ImportError, match="cannot import name 'other'"):
            from absent_kernels import other  # type: ignore[import-not-found]  # noqa: F401


@pytest.fixture
def lazy_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package that, as Transformers does, keeps what it has once found in a submodule."""
    package = tmp_path / "lazy_package"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import importlib\n"
        "def __getattr__(name):\n"
        "    if name != 'Heavy': raise AttributeError(name)\n"
        "    globals()[name] = importlib.import_module('lazy_package.heavy').Heavy\n"
        "    return globals()[name]\n"
    )
    (package / "heavy.py").write_text("class Heavy:\n    real = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in ("lazy_package", "lazy_package.heavy"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("lazy_package")
class TestStandingIn:
    def test_the_real_module_is_found_afterwards(self) -> None:
        package = importlib.import_module("lazy_package")
        with standing_in({"lazy_package.heavy": placeholders("Heavy")}):
            assert not hasattr(package.Heavy, "real")
        assert "lazy_package.heavy" not in sys.modules
        assert package.Heavy.real

    def test_a_module_already_imported_stays_real(self) -> None:
        heavy = importlib.import_module("lazy_package.heavy")
        with standing_in({"lazy_package.heavy": placeholders("Heavy")}):
            assert importlib.import_module("lazy_package").Heavy.real
        assert sys.modules["lazy_package.heavy"] is heavy

    def test_an_error_inside_restores_too(self) -> None:
        with (
            pytest.raises(KeyError),
            standing_in({"lazy_package.heavy": placeholders("Heavy")}),
        ):
            raise KeyError
        assert importlib.import_module("lazy_package").Heavy.real


def test_replaced_restores_after_an_error() -> None:
    owner = SimpleNamespace(name="stock")

    def fail() -> None:
        with replaced(owner, "name", "other"):
            seen.append(owner.name)
            raise KeyError

    seen: list[str] = []
    with pytest.raises(KeyError):
        fail()
    assert (seen, owner.name) == (["other"], "stock")
