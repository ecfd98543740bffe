"""The parameter file: every form it takes, what is refused and how, and that it round-trips."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
import yaml

from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model.parameters import Latency, Model
from tokenrouter.throughput_model.planning.parameter_file import Parameters, parse, read
from tokenrouter.throughput_model.planning.parameter_writing import write

EXAMPLE = """
models:
  - {name: small, latency_ms: 6.0}
  - {name: large, latency_ms: {base: 27.9, per_request: 0.3}, max_batch: 8}
routing: [[0.65, 0.35], [1.0, 0.0]]
committed: [[1, 0], [1, 1]]
concurrency: [2, 3, 4]
tick_ms: 0.1
thresholds: [[1, 1], [1, 2]]
"""


def example(**changes: Any) -> dict[str, Any]:
    """The example's content with other values; None leaves a key out."""
    content = {**yaml.safe_load(EXAMPLE), **changes}
    return {key: value for key, value in content.items() if value is not None}


def with_large(**changes: Any) -> dict[str, Any]:
    """The example's content with another large model."""
    small, large = example()["models"]
    return example(models=[small, {**large, **changes}])


def problems(content: dict[str, Any]) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as found:
        parse(content)
    return found.value.problems


def test_the_example_says_what_it_seems_to() -> None:
    found = parse(example())
    assert found.system.models == (
        Model("small", Latency(6.0)),
        Model("large", Latency(27.9, 0.3), max_batch=8),
    )
    assert found.system.routing.tolist() == [[0.65, 0.35], [1.0, 0.0]]
    assert found.system.committed.tolist() == [[1, 0], [1, 1]]
    assert found.system.tick_ms == 0.1
    assert found.concurrency == (2, 3, 4)
    assert found.thresholds == ((1, 1), (1, 2))
    assert (found.objective, found.max_wait_ms, found.classes) == ("throughput", None, ())


def test_what_may_be_left_out() -> None:
    left_out = ("committed", "concurrency", "tick_ms", "thresholds")
    found = parse(example(**dict.fromkeys(left_out)))
    assert found.system.committed.tolist() == [[1, 1], [1, 1]]
    assert found.concurrency == (1, 2, 4, 8, 16)
    assert (found.system.tick_ms, found.thresholds) == (None, ())


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (6, Latency(6.0)),
        ({"base": 27.9, "per_request": 0.3}, Latency(27.9, 0.3)),
        ({"base": 5, "per_token": 2.5}, Latency(5.0, per_token=2.5)),
        ({1: 6.0, 8: 7.5}, Latency(table={1: 6.0, 8: 7.5})),
        ({"table": {1: 6, 8: 7.5}}, Latency(table={1: 6.0, 8: 7.5})),
        (
            {"table": {1: 6.0, 8: 7.5}, "per_token": 0.2},
            Latency(table={1: 6.0, 8: 7.5}, per_token=0.2),
        ),
    ],
)
def test_every_form_of_a_latency_goes_in_and_comes_out(written: Any, meant: Latency) -> None:
    found = parse(with_large(latency_ms=written))
    assert found.system.models[1].latency == meant
    assert parse(yaml.safe_load(write(found))).system.models[1].latency == meant


def same(one: Parameters, other: Parameters) -> bool:
    """Whether two mean the same; matrices compare by their numbers."""

    def systems(each: Parameters) -> list[Any]:
        return [each.system, *(kind.system for kind in each.classes)]

    return (
        all(
            mine.models == yours.models
            and mine.tick_ms == yours.tick_ms
            and numpy.array_equal(mine.routing, yours.routing)
            and numpy.array_equal(mine.committed, yours.committed)
            for mine, yours in zip(systems(one), systems(other), strict=True)
        )
        and [kind.share for kind in one.classes] == [kind.share for kind in other.classes]
        and all(
            getattr(one, name) == getattr(other, name)
            for name in ("concurrency", "thresholds", "runs", "objective", "max_wait_ms")
        )
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"concurrency": 7, "tick_ms": None, "thresholds": None},
        {"objective": "itl_p99_ms: 70", "max_wait_ms": 120},
        {"max_wait_ms": float("inf")},
        {"committed": [[1, 0.25], [1, 1]], "routing": [[1 / 3, 2 / 3], [1.0, 0.0]]},
        {
            "classes": [
                {"share": 0.25, "routing": [[0.5, 0.5], [1, 0]]},
                {"share": 0.75, "routing": [[0.9, 0.1], [1, 0]], "committed": [[1, 1], [1, 1]]},
            ]
        },
        {
            "models": [
                {"name": "a", "latency_ms": 1, "runs": {4: 2, 1: 6}},
                *example()["models"][1:],
            ]
        },
    ],
)
def test_what_is_written_is_read_again(changes: dict[str, Any], tmp_path: Path) -> None:
    meant = parse(example(**changes))
    path = tmp_path / "params.yaml"
    path.write_text(write(meant, comment="measured\n\nby nobody"))
    assert path.read_text().startswith("# measured\n#\n# by nobody\nmodels:\n  - {name: ")
    assert same(read(path), meant)


def test_the_example_is_written_as_people_write_it() -> None:
    assert write(parse(example())) == EXAMPLE.removeprefix("\n")


def test_classes_have_a_routing_and_maybe_commits_of_their_own() -> None:
    routings = [[[0.5, 0.5], [1, 0]], [[0.9, 0.1], [1, 0]]]
    given = [{"share": 0.25, "routing": routings[0]}, {"share": 0.75, "routing": routings[1]}]
    given[1]["committed"] = [[1, 1], [1, 1]]
    found = parse(example(classes=given)).classes
    assert [kind.share for kind in found] == [0.25, 0.75]
    assert [kind.system.routing.tolist() for kind in found] == routings
    assert [kind.system.committed.tolist() for kind in found] == [
        [[1, 0], [1, 1]],
        [[1, 1], [1, 1]],
    ]


def test_runs_become_shares() -> None:
    small, large = example()["models"]
    found = parse(example(models=[{**small, "runs": {4: 2, 1: 6, 9: 0}}, large]))
    assert found.runs == {"small": {1: 0.75, 4: 0.25}}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (example(rooting=[]), "rooting: unknown field; did you mean 'routing'?"),
        (example(models=[]), "models: list should have at least 1 item"),
        (example(models=["small"]), "models.0: must be a mapping, got 'small'"),
        (with_large(latency_mss=3), "models.large.latency_mss: unknown field; did you mean"),
        (with_large(max_batch=0), "models.large.max_batch: input should be greater than or equal"),
        (with_large(max_batch=True), "models.large.max_batch: input should be a valid integer"),
        (with_large(name="small"), "models.small: this name is given twice"),
        (with_large(name="a/b"), "models.a/b.name: 'a/b' cannot be a name"),
        (with_large(latency_ms="6"), "models.large.latency_ms: milliseconds: must be a number"),
        (with_large(latency_ms=0), "models.large.latency_ms: a step must take more than 0 ms"),
        (with_large(latency_ms=-1), "models.large.latency_ms: times must be finite and not neg"),
        (with_large(latency_ms={}), "models.large.latency_ms: is empty; give a number, {base"),
        (
            with_large(latency_ms={"bse": 1}),
            "models.large.latency_ms: unknown key 'bse'; did you mean 'base'?; give",
        ),
        (with_large(latency_ms={"table": {}}), "models.large.latency_ms: table: must be"),
        (
            with_large(latency_ms={"table": {1: 2}, "base": 3}),
            "models.large.latency_ms: unknown key 'base'",
        ),
        (with_large(latency_ms={0: 2}), "models.large.latency_ms: batch sizes start at 1"),
        (
            with_large(latency_ms={"table": {"one": 2}}),
            "models.large.latency_ms: 'one' must be a whole number",
        ),
        (with_large(runs={0: 1}), "models.large.runs: a run has at least 1 step"),
        (with_large(runs={2: 0}), "models.large.runs: no length has a weight above 0"),
        (with_large(runs=3), "models.large.runs: must be weights by number of steps"),
        (
            example(models=[{"name": "a", "latency_ms": 1, "runs": {2: 1}}], routing=[[1]]),
            "models.a.runs: there is no other model to go to; leave it out",
        ),
        (example(thresholds=[[1, 1], [1]]), "thresholds.1: [1] must be 2 numbers, one for each"),
        (example(thresholds=[[1, 0]]), "thresholds.0.1: input should be greater than or equal"),
        (example(thresholds=[1, 2]), "thresholds: give a list of vectors such as [[1, 2]], got ["),
        (example(thresholds=[[1, 1]] * 10_001), "thresholds: list should have at most 10000"),
        (example(concurrency=4097), "concurrency.0: input should be less than or equal to 4096"),
        (example(committed=[[1, 0], [1, 1e300]]), "committed.1.1: a step commits 0, or from 1e-06"),
        (
            example(routing=[[1, 1e-300], [1, 0]]),
            "routing.0.1: must be 0, or 1e-09 and more, got 1e",
        ),
        (example(tick_ms=1e-300), "tick_ms: input should be greater than or equal to 0.000001"),
        (example(max_wait_ms=1e300), "max_wait_ms: must be at most 1e+09, or .inf for any"),
        (with_large(latency_ms=1e300), "models.large.latency_ms: a step takes from 0.001 to 1e+06"),
        (with_large(latency_ms=1e-9), "models.large.latency_ms: a step takes from 0.001 to 1e+06"),
        (
            with_large(latency_ms=dict.fromkeys(range(1, 4098), 1.0)),
            "models.large.latency_ms: has 4097 entries; give at most 4096",
        ),
        (with_large(latency_ms={10**30: 1.0}), "models.large.latency_ms: batch sizes end at 10000"),
        (with_large(runs={10**9: 1.0}), "models.large.runs: a run has at most 10000 steps, got 10"),
        (example(routing=[[0.6, 0.35], [1, 0]]), "routing: the row of small adds up to 0.95"),
        (example(routing=[[0.6, 0.4], [1]]), "routing: must have a row and a column for each"),
        (example(routing=[[1.0, 0.0], [1, 0]]), "routing: no request ever reaches large"),
        (example(committed=[[0, 0], [0, 1]]), "committed: no step that happens commits a token"),
        (example(concurrency=0), "concurrency.0: input should be greater than or equal to 1"),
        (example(concurrency=[]), "concurrency: list should have at least 1 item"),
        (example(tick_ms=0), "tick_ms: input should be greater than or equal to 0.000001"),
        (example(objective="speed"), "objective: must be throughput, or itl_p99_ms: MILLISECONDS"),
        (example(max_wait_ms=-3), "max_wait_ms: input should be greater than 0"),
        (
            example(classes=[{"share": 0.5, "routing": [[0.5, 0.5], [1, 0]]}]),
            "classes: the shares add up to 0.5; they must be 1",
        ),
        (
            example(classes=[{"share": 1, "routing": [[0.5, 0.4], [1, 0]]}]),
            "classes.0.routing: the row of small adds up to 0.9",
        ),
        (
            example(classes=[{"share": 1, "rooting": 3, "routing": [[0.5, 0.5], [1, 0]]}]),
            "classes.0.rooting: unknown field; did you mean 'routing'?",
        ),
    ],
)
def test_what_is_wrong_is_named(content: dict[str, Any], said: str) -> None:
    [problem] = problems(content)
    assert problem.startswith(said)


def test_what_is_missing_does_not_show_all_else() -> None:
    assert problems(example(routing=None)) == ("routing: field required",)


def test_a_wrong_vector_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(EXAMPLE.replace("[[1, 1], [1, 2]]", "\n  - [1, 1]\n  - [1, 2, 3]\n"))
    with pytest.raises(ConfigError, match=r"^thresholds.1: \[1, 2, 3\] must .*params.yaml:9\)"):
        read(path)


def test_every_problem_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(
        "models:\n"
        "  - name: small\n"
        "    latency_ms: -1\n"
        "  - {name: large, latency: 3, latency_ms: 27.9}\n"
        "routing: [[0.5, 0.5], [1, 0]]\n"
        "tick: 3\n"
    )
    with pytest.raises(ConfigError) as found:
        read(path)
    assert [problem.rpartition("/")[2] for problem in found.value.problems] == [
        "params.yaml:6)",
        "params.yaml:3)",
        "params.yaml:4)",
    ]
    assert [problem.partition(":")[0] for problem in found.value.problems] == [
        "tick",
        "models.small.latency_ms",
        "models.large.latency",
    ]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file or directory; give"):
        read(tmp_path / "none.yaml")
