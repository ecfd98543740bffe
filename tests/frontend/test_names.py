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
    config = make_config(Path("model"), algorithm="cascade", algorithm_args={"thresholds": [0.5]})
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


@pytest.mark.parametrize("name", ["demo@", "demo@high", "demo@nan", "demo@-0.1", "demo@0.5@1"])
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
