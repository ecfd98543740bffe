"""Model names: which route each asks for, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.frontend.fakes import make_config
from tokenrouter.config import Config
from tokenrouter.errors import RequestError, UnknownModelError
from tokenrouter.frontend.names import RoutingOptions, ids, resolve


@pytest.fixture(scope="module")
def config() -> Config:
    return make_config(Path("model"), seed=7)


@pytest.mark.parametrize("name", [None, "default", "demo"])
def test_the_routed_name_visits_every_member(config: Config, name: str | None) -> None:
    route = resolve(name, None, config)
    assert (route.algorithm, route.members, route.home) == ("entropy", (0, 1), 0)
    assert (route.router_threshold, route.seed, route.token_models) == (0.45, 7, False)


def test_arguments_of_the_algorithm_travel() -> None:
    config = make_config(
        Path("model"),
        algorithm="cascade",
        router_threshold=None,
        algorithm_args={"thresholds": [0.5]},
    )
    assert resolve("demo", None, config).args == {"thresholds": [0.5]}


@pytest.mark.parametrize(("text", "value"), [("1.5", 1.5), ("0", 0.0), ("1e-3", 0.001)])
def test_a_threshold_in_the_name(config: Config, text: str, value: float) -> None:
    assert resolve(f"demo@{text}", None, config).router_threshold == value


def test_a_threshold_in_the_options(config: Config) -> None:
    options = RoutingOptions(router_threshold=2.0, seed=3, token_models=True)
    route = resolve("demo", options, config)
    assert (route.router_threshold, route.seed, route.token_models) == (2.0, 3, True)


@pytest.mark.parametrize(("name", "member"), [("demo/small", 0), ("demo/large", 1)])
def test_one_member_alone(config: Config, name: str, member: int) -> None:
    route = resolve(name, RoutingOptions(token_models=True), config)
    assert (route.algorithm, route.members, route.home) == ("single", (member,), member)
    assert (route.router_threshold, route.args, route.token_models) == (None, {}, True)


@pytest.mark.parametrize("name", ["", "gpt-4", "demo/", "demo/medium", "small", "demo-0.5"])
def test_an_unknown_name_is_told_the_known_ones(config: Config, name: str) -> None:
    with pytest.raises(UnknownModelError, match="'demo', 'demo/small', 'demo/large'") as caught:
        resolve(name, None, config)
    assert (caught.value.status, caught.value.field) == (404, "model")


@pytest.mark.parametrize(
    "name",
    [
        "demo@",
        "demo@high",
        "demo@nan",
        "demo@-0.1",
        "demo@0.5@1",
        "demo@inf",
        "demo@1e400",
        "demo@1_0",
        "demo@ 0.3",
        "demo@\u0663",
        "demo@0." + "0" * 99,
    ],
)
def test_a_bad_threshold_in_the_name(config: Config, name: str) -> None:
    with pytest.raises(RequestError, match="threshold") as caught:
        resolve(name, None, config)
    assert (caught.value.status, caught.value.field) == (400, "model")


def test_a_threshold_out_of_range_in_the_options(config: Config) -> None:
    with pytest.raises(RequestError, match="from 0 to inf, got -1") as caught:
        resolve("demo", RoutingOptions(router_threshold=-1.0), config)
    assert caught.value.field == "routing.router_threshold"


def test_two_thresholds_must_agree(config: Config) -> None:
    same = RoutingOptions(router_threshold=0.5)
    assert resolve("demo@0.5", same, config).router_threshold == 0.5
    with pytest.raises(RequestError, match="disagree"):
        resolve("demo@0.6", same, config)


def test_a_single_member_takes_no_threshold(config: Config) -> None:
    with pytest.raises(RequestError, match="no router threshold"):
        resolve("demo/small", RoutingOptions(router_threshold=0.5), config)


@pytest.mark.parametrize(
    "options",
    [{"threshold": 1}, {"router_threshold": "0.5"}, {"seed": 2**63}, {"token_models": 1}],
)
def test_bad_options_name_the_field(options: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as caught:
        RoutingOptions.model_validate(options)
    assert caught.value.errors()[0]["loc"] == tuple(options)


def test_names_that_can_be_listed(config: Config) -> None:
    assert ids(config) == ["demo", "demo/small", "demo/large"]


@pytest.fixture(scope="module")
def mixed() -> Config:
    return make_config(
        Path("model"),
        algorithms={
            "careful": {"algorithm": "entropy", "router_threshold": 0.1},
            "random": {"router_threshold": 0.35},
            "levels": {"algorithm": "cascade", "algorithm_args": {"thresholds": [0.5]}},
        },
    )


@pytest.mark.parametrize(
    ("name", "preset", "algorithm", "threshold"),
    [
        ("demo:careful", "careful", "entropy", 0.1),
        ("demo:careful@0.3", "careful", "entropy", 0.3),
        ("demo:random", "random", "random", 0.35),
        ("demo:levels", "levels", "cascade", None),
        ("demo:single", "single", "single", None),
        ("demo:cascade@0.8", "cascade", "cascade", 0.8),
        ("demo:entropy", None, "entropy", 0.45),
        ("demo:entropy@2", None, "entropy", 2.0),
    ],
)
def test_an_algorithm_in_the_name(
    mixed: Config, name: str, preset: str | None, algorithm: str, threshold: float | None
) -> None:
    route = resolve(name, None, mixed)
    assert (route.preset, route.algorithm, route.router_threshold) == (preset, algorithm, threshold)
    assert (route.members, route.home, route.seed) == ((0, 1), 0, 0)
    assert route.args == ({"thresholds": [0.5]} if preset == "levels" else {})
    named, _, number = name.removeprefix("demo:").partition("@")
    options = RoutingOptions(algorithm=named, router_threshold=float(number) if number else None)
    assert resolve("demo", options, mixed) == route


def test_another_algorithm_does_not_get_the_settings_of_the_deployments() -> None:
    config = make_config(
        Path("model"),
        algorithm="cascade",
        router_threshold=None,
        algorithm_args={"thresholds": [0.5]},
    )
    assert resolve("demo:cascade", None, config).args == {"thresholds": [0.5]}
    route = resolve("demo:entropy", None, config)
    assert (route.router_threshold, route.args) == (None, {})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("demo:carefull", "no algorithm 'carefull' is served; did you mean 'careful'?"),
        ("demo:cascad@0.5", "did you mean 'cascade'?"),
        ("demo:", "no algorithm '' is served"),
        ("demo:os:system", "no algorithm 'os:system' is served"),
        ("demo:/etc/passwd", "no algorithm '/etc/passwd' is served"),
        ("demo:entropy/small", "no algorithm 'entropy/small' is served"),
        ("dem:careful", "did you mean 'demo:careful'?"),
        ("demo/smal", "did you mean 'demo/small'?"),
    ],
)
def test_an_unknown_algorithm_is_told_the_nearest(mixed: Config, name: str, said: str) -> None:
    with pytest.raises(UnknownModelError) as caught:
        resolve(name, None, mixed)
    assert said in str(caught.value) and caught.value.field == "model"


def test_no_request_runs_code_of_its_choice(mixed: Config) -> None:
    named = "tests.subserver.algorithms:Wander"
    with pytest.raises(UnknownModelError, match="key algorithms") as caught:
        resolve("demo", RoutingOptions(algorithm=named), mixed)
    assert caught.value.field == "routing.algorithm"
    own = make_config(Path("model"), algorithm=named, router_threshold=None)
    assert resolve("demo", None, own).algorithm == named
    for name in (named, "Wander"):
        with pytest.raises(UnknownModelError, match=r"by name: it is what 'demo' alone asks for\."):
            resolve(f"demo:{name}", None, own)


@pytest.mark.parametrize(
    ("name", "options", "field", "said"),
    [
        ("demo:random@5", {}, "model", "from 0 to 1, got 5"),
        ("demo:random@x", {}, "model", "must be a number"),
        ("demo:levels@0.5", {}, "model", "leave one of the two out"),
        ("demo:r2r", {}, "model", "r2r needs settings from whoever runs the server"),
        ("demo:random", {"router_threshold": 2.0}, "routing.router_threshold", "from 0 to 1"),
        ("demo", {"algorithm": "random", "router_threshold": 2.0}, "routing.router_threshold", "1"),
        ("demo:random", {"algorithm": "single"}, "routing.algorithm", "disagree"),
        ("demo/small", {"algorithm": "single"}, "routing.algorithm", "takes no algorithm"),
    ],
)
def test_what_does_not_fit_an_algorithm(
    mixed: Config, name: str, options: dict[str, object], field: str, said: str
) -> None:
    with pytest.raises(RequestError, match=said) as caught:
        resolve(name, RoutingOptions.model_validate(options), mixed)
    assert (caught.value.status, caught.value.field) == (400, field)


def test_an_algorithm_that_cannot_route_between_these_models(mixed: Config) -> None:
    three = [{"name": name, "model_path": "model"} for name in ("a", "b", "c")]
    config = make_config(Path("model"), algorithm="single", router_threshold=None, models=three)
    with pytest.raises(RequestError, match="routes between 2 models, and 3 are configured"):
        resolve("demo:entropy", None, config)


def test_further_algorithms_are_listed(mixed: Config) -> None:
    assert ids(mixed) == [
        "demo", "demo:careful", "demo:random", "demo:levels", "demo/small", "demo/large",
    ]  # fmt: skip
