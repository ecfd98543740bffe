"""The README's example: extracted, run, configured, served, and equal to its own plain loop."""

from __future__ import annotations

import importlib
import random
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

import tokenrouter.schedulers
from tests.subserver.harness import ALPHABET, Deployment
from tests.subserver.workload import Job, submit_all
from tokenrouter.config import load
from tokenrouter.errors import ConfigError
from tokenrouter.ipc.messages import Route, Sampling
from tokenrouter.schedulers import registry
from tokenrouter.schedulers.base import Check
from tokenrouter.schedulers.signals import Signal
from tokenrouter.subserver.timed import context_of, next_token, token_probability

README = Path(tokenrouter.schedulers.__file__).with_name("README.md").read_text()


def blocks(language: str) -> list[str]:
    """The fenced blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The two Python files of the README, where a reader would have saved them."""
    algorithm, test = blocks("python")
    (tmp_path / "proofread.py").write_text(algorithm)
    (tmp_path / "test_proofread.py").write_text(test)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("test_proofread")
    for name in ("proofread", "test_proofread"):
        sys.modules.pop(name, None)


def test_its_own_test_passes(example: ModuleType):
    tests = [name for name in vars(example) if name.startswith("test_")]
    assert tests == ["test_trust_grows_until_there_is_a_mistake"]
    for name in tests:
        getattr(example, name)()


def test_its_own_test_can_fail(example: ModuleType, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(example.Proofread, "send", lambda *args: b"fine")
    with pytest.raises((AssertionError, StopIteration)):
        example.test_trust_grows_until_there_is_a_mistake()


def test_it_is_short():
    algorithm, _ = blocks("python")
    assert len(algorithm.splitlines()) < 40


class Model:
    """A timed member, as the loop of the manual wants it."""

    def __init__(self, member: int) -> None:
        self.seed = member

    def step(self, tokens: Sequence[int]) -> tuple[int, dict[str, float]]:
        return next_token(context_of(tokens, self.seed), ALPHABET), {}

    def check(self, tokens: Sequence[int], draft: int) -> Check:
        context = context_of(tokens, self.seed)
        token = next_token(context, ALPHABET)
        return Check(token, token_probability(context, draft), token == draft)


@pytest.mark.parametrize("eager", [False, True])
def test_it_is_served_as_its_plain_loop_writes(example: ModuleType, eager: bool):
    rng = random.Random(7)
    deployment = Deployment([2, 5], pools=80, eager=eager, seed=3)
    jobs = []
    for uid in range(40):
        prompt = [rng.choice(ALPHABET) for _ in range(rng.randint(1, 9))]
        tau = rng.choice([None, 0.3, 0.8])
        args = {"longest": rng.randint(1, 9)}
        route = Route("proofread:Proofread", (0, 1), 0, tau, args, token_models=True)
        sampling = Sampling(rng.randint(1, 40), ignore_eos=True)
        jobs.append(Job(uid, prompt, route, sampling, True, rng.uniform(0, 500), None))
    submit_all(deployment, jobs)
    deployment.run()
    deployment.assert_clean()

    models = [Model(0), Model(1)]
    written = [0, 0]
    for job in jobs:
        scheduler = example.Proofread(["a", "b"], job.route.router_threshold, **job.route.args)
        count = job.sampling.max_new_tokens
        answer = deployment.answers[str(job.uid)]
        assert (answer.tokens, answer.models) == example.plain_loop(
            scheduler, models, job.prompt, count
        )
        written[0] += answer.models.count(0)
        written[1] += answer.models.count(1)
    assert min(written) > 100, "both models write"


def test_its_settings_are_checked(example: ModuleType):
    with pytest.raises(ConfigError, match="it takes longest"):
        registry.create("proofread:Proofread", ["a", "b"], None, {"window": 0})
    with pytest.raises(ConfigError, match="between 2 models"):
        registry.create("proofread:Proofread", ["a"])
    with pytest.raises(ConfigError, match="from 0 to 1"):
        registry.create("proofread:Proofread", ["a", "b"], 2.0)


def test_its_configuration_is_a_valid_one(example: ModuleType, tmp_path: Path):
    (text,) = blocks("yaml")
    path = tmp_path / "proofread.yaml"
    path.write_text(text)
    config = load(path, environment={})
    made = registry.create(
        config.algorithm, config.names, config.router_threshold, config.algorithm_args
    )
    assert isinstance(made, example.Proofread)
    assert (made.tau, made.longest) == (0.2, 8)


def test_its_entry_point_is_found(example: ModuleType, monkeypatch: pytest.MonkeyPatch):
    (text,) = blocks("toml")
    groups = tomllib.loads(text)["project"]["entry-points"]
    monkeypatch.setattr(
        registry,
        "entry_points",
        lambda group: EntryPoints(
            EntryPoint(name, value, group) for name, value in groups[group].items()
        ),
    )
    assert registry.find("proofread") is example.Proofread


def test_its_links_lead_somewhere():
    here = Path(tokenrouter.schedulers.__file__).parent
    prose = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)#]+)\)", prose)
    assert targets
    assert all((here / target).exists() for target in targets)


def test_the_signals_it_lists_are_all_there_are():
    [table] = re.findall(r"^\| signal \|.*\n((?:\|.*\n)+)", README, re.MULTILINE)
    named = set(re.findall(r"`([A-Z]\w+)\(\w*\)`", table))
    assert named == {kind.__name__ for kind in get_args(Signal)}
