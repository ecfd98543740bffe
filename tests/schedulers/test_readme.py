"""The README's example: extracted, run, configured, served, and equal to its own plain loop."""

from __future__ import annotations

import importlib
import random
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

import tokenrouter.schedulers
from tests.subserver.harness import ALPHABET, Deployment
from tests.subserver.reference import step_of
from tests.subserver.workload import Job, differences, submit_all
from tokenrouter.config import load
from tokenrouter.errors import ConfigError
from tokenrouter.ipc.messages import Route, Sampling
from tokenrouter.schedulers import registry
from tokenrouter.schedulers.signals import Signal

README = Path(tokenrouter.schedulers.__file__).with_name("README.md").read_text()


def blocks(language: str) -> list[str]:
    """The fenced blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The two Python files of the README, where a reader would have saved them."""
    algorithm, test = blocks("python")
    (tmp_path / "patience.py").write_text(algorithm)
    (tmp_path / "test_patience.py").write_text(test)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("test_patience")
    for name in ("patience", "test_patience"):
        sys.modules.pop(name, None)


def test_its_own_test_passes(example: ModuleType):
    tests = [name for name in vars(example) if name.startswith("test_")]
    assert tests == ["test_the_second_rescue_is_longer"]
    for name in tests:
        getattr(example, name)()


def test_its_own_test_can_fail(example: ModuleType, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(example.Patience, "receive", lambda *args: None)
    with pytest.raises((AssertionError, StopIteration)):
        example.test_the_second_rescue_is_longer()


@pytest.mark.parametrize("eager", [False, True])
def test_it_is_served_as_its_plain_loop_writes(example: ModuleType, eager: bool):
    rng = random.Random(7)
    deployment = Deployment([2, 5], pools=80, eager=eager, seed=3)
    jobs = []
    for uid in range(40):
        prompt = [rng.choice(ALPHABET) for _ in range(rng.randint(1, 9))]
        args = {"patience": rng.randint(1, 3), "run": rng.randint(1, 4)}
        tau = rng.choice([None, 0.2, 0.8])
        route = Route("patience:Patience", (0, 1), 0, tau, args, token_models=True)
        sampling = Sampling(rng.randint(1, 40), ignore_eos=True)
        jobs.append(Job(uid, prompt, route, sampling, True, rng.uniform(0, 500), None))
    submit_all(deployment, jobs)
    deployment.run()
    deployment.assert_clean()
    assert differences(deployment, jobs) == []

    models = [lambda tokens, m=m: step_of(tokens, m) for m in (0, 1)]
    written = [0, 0]
    for job in jobs:
        scheduler = example.Patience(["a", "b"], job.route.router_threshold, **job.route.args)
        count = job.sampling.max_new_tokens
        answer = deployment.answers[str(job.uid)]
        assert (answer.tokens, answer.models) == example.plain_loop(
            scheduler, models, job.prompt, count
        )
        written[0] += answer.models.count(0)
        written[1] += answer.models.count(1)
    assert min(written) > 100, "both models write"


def test_its_arguments_are_checked(example: ModuleType):
    with pytest.raises(ConfigError, match="patience and run must be at least 1"):
        registry.create("patience:Patience", ["a", "b"], None, {"run": 0})
    with pytest.raises(ConfigError, match="between 2 models"):
        registry.create("patience:Patience", ["a"])


def test_its_configuration_is_a_valid_one(example: ModuleType, tmp_path: Path):
    (text,) = blocks("yaml")
    path = tmp_path / "patience.yaml"
    path.write_text(text)
    config = load(path, environment={})
    made = registry.create(
        config.algorithm, config.names, config.router_threshold, config.algorithm_args
    )
    assert isinstance(made, example.Patience)
    assert (made.tau, made.patience, made.run) == (0.5, 2, 4)


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
    assert registry.find("patience") is example.Patience


def test_its_links_lead_somewhere():
    here = Path(tokenrouter.schedulers.__file__).parent
    prose = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)]+)\)", prose)
    assert targets
    assert all((here / target).exists() for target in targets)


def test_the_signals_it_lists_are_all_there_are():
    [table] = re.findall(r"^\| signal \|.*\n((?:\|.*\n)+)", README, re.MULTILINE)
    named = set(re.findall(r"`([A-Z]\w+)\(\w*\)`", table))
    assert named == {kind.__name__ for kind in get_args(Signal)}
