"""From names to algorithms."""

from __future__ import annotations

import inspect
import re
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from tokenrouter.errors import ConfigError, Terminated
from tokenrouter.schedulers import registry
from tokenrouter.schedulers.base import Decision, RoutingScheduler
from tokenrouter.schedulers.cascade import Cascade
from tokenrouter.schedulers.citer import Citer
from tokenrouter.schedulers.co_llm import CoLLM
from tokenrouter.schedulers.entropy import EntropyRouting
from tokenrouter.schedulers.neural_rolling import NeuralRolling
from tokenrouter.schedulers.r2r import R2R
from tokenrouter.schedulers.random import Random
from tokenrouter.schedulers.single import Single

BUILT_IN = {
    "single": Single,
    "random": Random,
    "entropy": EntropyRouting,
    "cascade": Cascade,
    "r2r": R2R,
    "neural_rolling": NeuralRolling,
    "citer": Citer,
    "co_llm": CoLLM,
}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Entry points of third parties, by name; change it to install some."""
    values: dict[str, str] = {}

    def entry_points(group: str) -> EntryPoints:
        assert group == "tokenrouter.algorithms"
        return EntryPoints(EntryPoint(name, value, group) for name, value in values.items())

    monkeypatch.setattr(registry, "entry_points", entry_points)
    return values


def test_the_built_in_ones(tmp_path: Path):
    (tmp_path / "file").touch()
    for name, kind in BUILT_IN.items():
        assert registry.find(name) is kind
        trained = inspect.signature(kind).parameters.keys() & {"router", "head"}
        args = dict.fromkeys(trained, str(tmp_path / "file"))
        assert isinstance(registry.create(name, ["a", "b"], None, args), kind)
    assert set(BUILT_IN) <= set(registry.names())


def test_an_unknown_name_suggests_the_nearest_and_lists_all(installed: dict[str, str]):
    installed["patience"] = "nowhere:Nothing"
    with pytest.raises(ConfigError) as error:
        registry.find("entrpy")
    assert "unknown algorithm 'entrpy'; did you mean 'entropy'?" in str(error.value)
    assert ", ".join(sorted({*registry.BUILT_IN, "patience"})) in str(error.value)
    assert "module:Class" in str(error.value)
    with pytest.raises(ConfigError) as error:
        registry.find("patiense")
    assert "did you mean 'patience'?" in str(error.value)


def test_a_name_like_no_other_suggests_nothing():
    with pytest.raises(ConfigError) as error:
        registry.find("zzz")
    assert "did you mean" not in str(error.value)


def test_an_installed_algorithm_is_found_by_its_name(installed: dict[str, str]):
    installed["mine"] = "tokenrouter.schedulers.cascade:Cascade"
    assert registry.find("mine") is Cascade
    assert registry.create("mine", ["a", "b"], 0.4).router_threshold == 0.4
    assert "mine" in registry.names()


def test_a_built_in_name_cannot_be_taken(installed: dict[str, str]):
    installed["single"] = "tokenrouter.schedulers.cascade:Cascade"
    assert registry.find("single") is Single


def test_a_module_that_fails_on_import_is_told_as_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "breaks_on_import.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="ZeroDivisionError: division by zero"):
        registry.find("breaks_on_import:Mine")


def test_a_module_that_exits_does_not_end_who_imports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "exits_on_import.py").write_text("import sys; sys.exit(4)")
    (tmp_path / "ends_on_import.py").write_text(
        "from tokenrouter.errors import Terminated\nraise Terminated(0)"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="cannot load 'exits_on_import:Mine': SystemExit: 4"):
        registry.find("exits_on_import:Mine")
    with pytest.raises(Terminated):  # SIGTERM came meanwhile
        registry.find("ends_on_import:Mine")


def test_an_installed_algorithm_that_does_not_load_names_its_place(installed: dict[str, str]):
    installed["mine"] = "nowhere_at_all:Mine"
    with pytest.raises(
        ConfigError,
        match="nowhere_at_all:Mine': ModuleNotFoundError",
    ):
        registry.find("mine")


def test_module_and_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "my_routing.py").write_text(
        "from tokenrouter.schedulers.single import Single\nclass Mine(Single): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = registry.find("my_routing:Mine")
    assert issubclass(found, RoutingScheduler) and found.__name__ == "Mine"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("nowhere_at_all:Mine", "No module named"),
        ("tokenrouter.schedulers.single:Sngle", "has no attribute 'Sngle'"),
        (":Single", "cannot load"),
        ("tokenrouter.schedulers.single:", "cannot load"),
        ("tokenrouter.schedulers.base:Request", "is not a RoutingScheduler subclass"),
        ("tokenrouter.schedulers.random:SMALL", "is not a RoutingScheduler subclass"),
    ],
)
def test_what_is_not_an_algorithm_is_refused(name: str, problem: str):
    with pytest.raises(ConfigError, match=f"algorithm: .*{problem}"):
        registry.find(name)


def test_arguments_are_passed_on_and_wrong_ones_are_refused():
    made = registry.create("cascade", ["a", "b", "c"], None, {"thresholds": [0.1, 0.2]})
    assert isinstance(made, Cascade) and made.thresholds == (0.1, 0.2)
    with pytest.raises(ConfigError, match=r"algorithm_args: cascade .*unexpected.*'threshold'"):
        registry.create("cascade", ["a", "b"], None, {"threshold": 0.1})
    with pytest.raises(ConfigError, match="algorithm_args: single"):
        registry.create("single", ["a"], None, {"members": ["b"]})


def test_hindsight_is_among_the_arguments_where_it_can_be_had():
    with pytest.raises(ConfigError, match="did you mean 'verify'"):
        registry.create("entropy", ["s", "l"], None, {"verfy": {}})
    with pytest.raises(ConfigError, match=r"official$"):
        registry.create("bild", ["s", "l"], None, {"checks": {}})


def test_what_an_algorithm_itself_refuses_is_its_own_error():
    with pytest.raises(ConfigError, match="needs a list of 1"):
        registry.create("cascade", ["a", "b"], None, {"thresholds": []})


@pytest.mark.parametrize("name", ["rolling", "tokenrouter.schedulers.rolling:RollingRouting"])
def test_what_does_not_suit_an_algorithm_names_it_as_its_user_does(name: str):
    with pytest.raises(ConfigError, match=f"^algorithm: {name} routes between 2 models, and 1 "):
        registry.create(name, ["a"])
    with pytest.raises(ConfigError, match=f"^router_threshold: {name} takes router thresholds"):
        registry.create(name, ["a", "b"], float("nan"))


class Unmade(RoutingScheduler):
    def __init__(self, members, router_threshold=None):
        raise ZeroDivisionError("no luck")

    def route(self, request, step):
        return Decision(1, 0)


class Exits(Unmade):
    def __init__(self, members, router_threshold=None):
        raise SystemExit(4)


class Untold(Unmade):
    def __init__(self, members):
        super().__init__(members)


class Unbased(Unmade):
    def __init__(self, members, router_threshold=None):
        pass


class Unbounded(Unmade):
    threshold_range = 5


class Unrouted(RoutingScheduler):
    pass


def test_an_algorithm_that_cannot_be_made_or_does_not_route_is_refused():
    with pytest.raises(ConfigError, match="cannot be made: ZeroDivisionError: no luck"):
        registry.create(f"{__name__}:Unmade", ["a"])
    with pytest.raises(ConfigError, match="Exits cannot be made: SystemExit: 4"):
        registry.create(f"{__name__}:Exits", ["a"])
    with pytest.raises(ConfigError, match=r"^algorithm: .*Untold .*\(self, members, router_thresh"):
        registry.create(f"{__name__}:Untold", ["a"], None, {})
    with pytest.raises(ConfigError, match=r"Unbounded: threshold_range must be .*, got 5$"):
        registry.create(f"{__name__}:Unbounded", ["a"])
    with pytest.raises(ConfigError, match=r"Unbased: its __init__ must call super\(\)"):
        registry.create(f"{__name__}:Unbased", ["a", "b"], None, {"verify": {}})
    with pytest.raises(ConfigError, match="does not define route"):
        registry.create(f"{__name__}:Unrouted", ["a"])


def test_the_manual_lists_every_algorithm_with_its_arguments() -> None:
    """In the third column each argument follows a semicolon, or nothing."""
    manual = (Path(__file__).parents[2] / "README.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|", _section(manual), re.MULTILINE)
    listed = {name: re.findall(r"(?:^|; )`(\w+)`", cell) for name, cell in rows}
    assert sorted(listed) == sorted(registry.BUILT_IN)
    for name, arguments in listed.items():
        _self, _members, _threshold, *own = inspect.signature(
            registry.find(name).__init__
        ).parameters
        assert arguments == own, name


def _section(manual: str) -> str:
    """What the manual says of choosing an algorithm."""
    return manual.split("\n## Choose an algorithm\n")[1].split("\n## ")[0]
