"""Query level: one choice per prompt, and whole deployments against the models alone."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.plain_loop import Written
from tests.schedulers.hindsight_loop import Loop, Rule, by_entropy
from tests.subserver.harness import ALPHABET, EOS, Deployment
from tests.subserver.reference import routed_loop
from tokenrouter.errors import ConfigError
from tokenrouter.ipc.messages import Route, Sampling
from tokenrouter.schedulers.base import Request
from tokenrouter.schedulers.query import Query
from tokenrouter.schedulers.registry import create
from tokenrouter.schedulers.signals import CiterConfidence, Entropy
from tokenrouter.subserver.timed import context_of, router_score

NAMES = ["small", "large"]
SAMPLING = Sampling(12)
THEN = {"algorithm": "entropy", "router_threshold": 0.6}


def route(threshold: float | None = 0.3, members: int = 2, seed: int = 0, **args: Any) -> Route:
    everyone = tuple(range(members))
    return Route("query", everyone, 0, threshold, args, seed=seed, token_models=True)


def prompts(count: int) -> list[list[int]]:
    rng = random.Random(5)
    return [rng.choices(ALPHABET, k=rng.randint(1, 9)) for _ in range(count)]


def request_of(prompt: list[int], route: Route) -> Request:
    return Request(prompt, len(prompt), 0, route.seed, route.sample)


def large(prompt: list[int], route: Route) -> bool:
    """Whether the large model is chosen, as the front end is told."""
    scheduler = create("query", NAMES, route.router_threshold, route.args)
    return scheduler.choose_members(request_of(prompt, route), "")[0] == 1


def alone(member: int, prompt: list[int]) -> list[int]:
    """What one model writes."""
    single = Route("single", (member,), member)
    return routed_loop(["m0", "m1", "m2"], prompt, single, SAMPLING, (EOS,)).tokens


def serve(requests: list[tuple[list[int], Route]], members: int = 2) -> list[Written]:
    deployment = Deployment([1] * members, pools=60, seed=len(requests))
    for uid, (prompt, path) in enumerate(requests, 1):
        deployment.submit(uid, prompt, path, SAMPLING)
    deployment.run()
    deployment.assert_clean()
    answers = [deployment.answers[str(uid)] for uid in range(1, len(requests) + 1)]
    return [Written(a.tokens, a.models, a.hand_overs, a.finish or {}) for a in answers]


def test_the_share_is_the_threshold_and_the_choice_depends_on_prompt_and_seed():
    many = prompts(2000)
    chosen = [large(prompt, route(0.3)) for prompt in many]
    assert abs(sum(chosen) / 2000 - 0.3) < 0.04
    assert chosen == [large(prompt, route(0.3)) for prompt in many]
    assert chosen != [large(prompt, route(0.3, seed=1)) for prompt in many]
    assert not any(large(prompt, route(0.0)) for prompt in many[:50])
    assert all(large(prompt, route(1.0)) for prompt in many[:50])
    assert abs(sum(large(prompt, route(None)) for prompt in many) / 2000 - 0.5) < 0.04


def test_the_choice_is_not_the_draw_of_the_first_token():
    many = prompts(500)
    drawn = [request_of(prompt, route()).draw() < 0.3 for prompt in many]
    assert drawn != [large(prompt, route(0.3)) for prompt in many]


def test_each_answer_is_one_models_from_its_first_token_on():
    """Where nobody placed the request, the small model hands it over and loses a token."""
    many = prompts(20)
    answers = serve([(prompt, route(0.5)) for prompt in many])
    choices = [large(prompt, route(0.5)) for prompt in many]
    assert 5 < sum(choices) < 15
    for prompt, answer, chosen in zip(many, answers, choices, strict=True):
        assert answer.tokens == alone(int(chosen), prompt)
        assert set(answer.writers) == {int(chosen)}
        assert answer.hand_overs == chosen


def test_the_last_of_many_models_is_the_large_one():
    many = prompts(6)
    for prompt, answer in zip(many, serve([(p, route(1.0, 3)) for p in many], 3), strict=True):
        assert answer.tokens == alone(2, prompt)


def test_a_request_that_was_placed_never_visits_another_model():
    many = prompts(20)
    scheduler = create("query", NAMES, 0.5)
    placed = []
    for prompt in many:
        members = scheduler.choose_members(request_of(prompt, route(0.5)), "")
        assert len(members) == 1
        path = msgspec.structs.replace(route(0.5), members=tuple(members), home=members[0])
        placed.append((prompt, path))
    for (prompt, path), answer in zip(placed, serve(placed), strict=True):
        assert answer.tokens == alone(path.home, prompt)
        assert answer.hand_overs == 0


@pytest.mark.parametrize("verify", [None, {"epsilon": 0.2}])
def test_where_the_small_model_is_chosen_another_algorithm_goes_on(verify: Any):
    then = {**THEN, "algorithm_args": {} if verify is None else {"verify": verify}}
    many = prompts(20)
    answers = serve([(prompt, route(0.4, then=then)) for prompt in many])
    choices = [large(prompt, route(0.4, then=then)) for prompt in many]
    assert 4 < sum(choices) < 16
    both = 0
    for prompt, answer, chosen in zip(many, answers, choices, strict=True):
        if chosen:
            assert (answer.tokens, set(answer.writers)) == (alone(1, prompt), {1})
            continue
        if verify is None:
            path = Route("entropy", (0, 1), 0, 0.6)
            want = routed_loop(NAMES, prompt, path, SAMPLING, (EOS,))
            assert answer == want
        else:
            rule = Rule("entropy", 0.6, 2, lambda t, p: by_entropy(t, p, 0.6), verify)
            loop = Loop(rule, prompt, SAMPLING).run()
            assert (answer.tokens, answer.writers) == (loop.output, loop.writers)
        both += len(set(answer.writers)) == 2
    assert both > 3


def test_whoever_goes_on_may_ask_all_models():
    scheduler = create("query", NAMES, 0.0, {"then": THEN})
    assert list(scheduler.choose_members(request_of([1], route()), "")) == [0, 1]
    scheduler = create("query", NAMES, 1.0, {"then": THEN})
    assert list(scheduler.choose_members(request_of([1], route()), "")) == [1]


def test_thresholds_of_what_goes_on_are_its_own():
    then = {"algorithm": "entropy", "router_threshold": 2.5}
    scheduler = create("query", NAMES, 0.3, {"then": then})
    assert isinstance(scheduler, Query)
    assert scheduler.inner.router_threshold == 2.5
    assert scheduler.router_threshold == 0.3


def test_a_head_sees_the_prompt_on_the_small_model(tmp_path: Path):
    """A timed member's head finds a function of the context."""
    head = tmp_path / "head.safetensors"
    head.touch()
    many = prompts(20)
    path = route(0.6, kind="head", head=str(head), then=THEN)
    chosen = [router_score(context_of(prompt, 0)) >= 0.6 for prompt in many]
    assert 4 < sum(chosen) < 16
    for prompt, answer, large in zip(many, serve([(p, path) for p in many]), chosen, strict=True):
        if large:
            assert (answer.tokens, answer.hand_overs) == (alone(1, prompt), 1)
        else:
            entropy = Route("entropy", (0, 1), 0, 0.6)
            assert answer == routed_loop(NAMES, prompt, entropy, SAMPLING, (EOS,))
    scheduler = create("query", NAMES, 0.6, path.args)
    assert not scheduler.chooses_members
    assert [list(scheduler.signals(m)) for m in (0, 1)] == [
        [Entropy(), CiterConfidence(str(head))],
        [],
    ]


def test_two_heads_cannot_be_told_apart(tmp_path: Path):
    for name in ("a", "b"):
        (tmp_path / name).touch()
    then = {"algorithm": "citer", "algorithm_args": {"head": str(tmp_path / "a")}}
    args = {"kind": "head", "head": str(tmp_path / "b"), "then": then}
    with pytest.raises(ConfigError, match="its head would hide this one"):
        create("query", NAMES, None, args)


ROUTERS = """
import os
assert os.environ["OPENAI_API_KEY"], "a client of OpenAI wants a key"

class Length:
    def __init__(self, scale):
        self.scale = scale

    def calculate_strong_win_rate(self, prompt):
        return len(prompt) / self.scale

ROUTER_CLS = {"length": Length}
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One that has RouteLLM's name and interface, and like it an OpenAI client."""
    folder = tmp_path / "routellm" / "routers"
    folder.mkdir(parents=True)
    (tmp_path / "routellm" / "__init__.py").touch()
    (folder / "__init__.py").touch()
    (folder / "routers.py").write_text(ROUTERS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "routellm"]:
        del sys.modules[name]


def routellm(threshold: float | None = 0.5, **args: Any) -> Query:
    given = {"kind": "routellm", "router": "length", "router_args": {"scale": 10}, **args}
    scheduler = create("query", NAMES, threshold, given)
    assert isinstance(scheduler, Query)
    return scheduler


@pytest.mark.usefixtures("package")
def test_routellm_scores_the_text_and_needs_no_key_of_anybody():
    scheduler = routellm()
    request = request_of([101], route())
    assert list(scheduler.choose_members(request, "12345")) == [1]  # its score is the threshold
    assert list(scheduler.choose_members(request, "1234")) == [0]
    assert list(routellm(then=THEN).choose_members(request, "1234")) == [0, 1]


@pytest.mark.usefixtures("package")
def test_members_take_a_request_that_routellm_placed_as_it_is():
    args = {"kind": "routellm", "router": "length", "router_args": {"scale": 10}}
    for member in (0, 1):
        path = Route("query", (member,), member, 0.5, args, token_models=True)
        (answer,) = serve([([101, 102], path)])
        assert answer.tokens == alone(member, [101, 102])


@pytest.mark.usefixtures("package")
def test_what_routellm_does_not_take_is_told():
    with pytest.raises(ConfigError, match="has no router 'depth'; it has length"):
        routellm(router="depth").choose_members(request_of([1], route()), "")
    with pytest.raises(ConfigError, match=r"router_args: .*scale"):
        routellm(router_args={}).choose_members(request_of([1], route()), "")


def test_without_the_package_its_name_is_told():
    with pytest.raises(ConfigError, match=r"needs the package 'routellm', .* pip install routellm"):
        routellm()


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        ({"kind": "coin"}, r"algorithm_args.kind: must be one of random, .*got 'coin'"),
        ({"kind": "head"}, "algorithm_args.head: kind head needs the file"),
        ({"kind": "head", "head": "nowhere"}, "algorithm_args.head: .* does not exist"),
        ({"head": "nowhere"}, "algorithm_args.head"),
        ({"router": "bert"}, "algorithm_args.router"),
        ({"kind": "routellm"}, "algorithm_args.router"),
        ({"kind": "routellm", "router": "bert"}, "router_threshold: kind routellm needs one"),
        ({"then": {"algorithm": "query"}}, "then: one choice of a model cannot follow another"),
        ({"then": {"algorithm": "entrpy"}}, "then: .*did you mean 'entropy'"),
        ({"then": {"algorithm_args": {}}}, "give {algorithm, router_threshold, algorithm_args}"),
        ({"then": {"algorithm": "entropy", "args": {}}}, "give {algorithm"),
        ({"then": {"algorithm": 1}}, "algorithm must be a name"),
        ({"then": "entropy"}, "give {algorithm"),
        ({"verify": {}}, "verify: give it to the algorithm that query is to go on with"),
    ],
)
def test_wrong_arguments_are_refused(args: dict[str, Any], complaint: str):
    with pytest.raises(ConfigError, match=complaint):
        create("query", NAMES, None, args)


def test_one_model_leaves_no_choice():
    with pytest.raises(ConfigError, match="query chooses between models"):
        create("query", ["only"])
