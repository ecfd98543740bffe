"""Trained routers on an engine: scores equal those of Hugging Face's states by plain functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.routers.heads import confidence, head_state
from tests.routers.official import checkpoint, probability, write
from tests.subserver.sglang_compat.conftest import Build
from tests.subserver.sglang_compat.driver import Driver
from tests.subserver.sglang_compat.tiny_models import VOCABULARY, TinyModel
from tokenrouter.errors import ConfigError, RequestError
from tokenrouter.ipc.messages import Sampling
from tokenrouter.schedulers.signals import (
    Checks,
    CiterConfidence,
    DeferralProbability,
    Entropy,
    RouterScore,
    Signal,
)
from tokenrouter.subserver.engine import StepBatch, Visit

HOT = Sampling(max_new_tokens=64, temperature=2.0)


@dataclass(frozen=True)
class Trained:
    """An engine with two routers and a head, and what they are."""

    model: TinyModel
    driver: Driver
    routers: dict[RouterScore, dict[str, Any]]
    head: tuple[CiterConfidence, dict[str, torch.Tensor]]

    @property
    def signals(self) -> tuple[Signal, ...]:
        return (*self.routers, self.head[0], Entropy())

    def visits(self, count: int, seed: int, signals: Sequence[Signal] | None = None) -> list[Visit]:
        prompts = self.model.prompts(count, seed)
        visits = [self.driver.visit(prompt, HOT) for prompt in prompts]
        for visit in visits:
            visit.signals = tuple(self.signals if signals is None else signals)
        return visits

    def check(self, batch: StepBatch, row: int, visit: Visit) -> None:
        """The values of a row whose tokens are all fed."""
        with torch.no_grad():
            output = self.model.plain(
                torch.tensor([visit.tokens[: visit.computed]]), output_hidden_states=True
            )
            token = torch.tensor([batch.tokens[row]])
            embedded = self.model.plain.get_input_embeddings()(token)
        hidden, logits = output.hidden_states[-1][:, -1], output.logits[:, -1]
        for signal, content in self.routers.items():
            top = logits.sort(dim=-1, descending=True).values[
                :, : content["init_args"]["logits_size"]
            ]
            score, threshold = batch.signals[signal][row]
            expected = probability(content, hidden, embedded, top)
            assert score == pytest.approx(float(expected), abs=2e-5)
            assert threshold == content["common_args"]["threshold"]
        signal, state = self.head
        assert batch.signals[signal][row] == pytest.approx(
            float(confidence(state, hidden)), abs=2e-5
        )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("routers")
    write(folder / "full.pt", checkpoint(hidden=64, logits=100, threshold=0.406))
    plain = checkpoint(
        "HiddenStatesLogitsClassifier", 64, 20, normalize=True, threshold=0.2, seed=1
    )
    write(folder / "plain.pt", plain)
    torch.save(head_state(64), folder / "head.pt")
    return folder


@pytest.fixture(scope="module")
def trained(qwen3: TinyModel, build: Build, files: Path) -> Iterator[Trained]:
    routers = {
        RouterScore(str(files / name)): torch.load(files / name, weights_only=True)
        for name in ("full.pt", "plain.pt")
    }
    head = CiterConfidence(str(files / "head.pt"))
    engine = build(qwen3.path, max_total_tokens=4000, signals=(*routers, head))
    driver = Driver(engine)
    yield Trained(qwen3, driver, routers, (head, head_state(64)))
    driver.release_all()
    engine.check_pools()


def test_of_prompts_chunks_and_single_tokens(trained: Trained) -> None:
    visits = trained.visits(4, seed=50)
    work = [(visit, visit.pending - (row == 0)) for row, visit in enumerate(visits)]
    batch = trained.driver.step(work, trained.signals)
    for row in (1, 2, 3):
        trained.check(batch, row, visits[row])
        visits[row].tokens.append(batch.tokens[row])
    for _ in range(3):  # a decode, after the chunk's last token
        batch = trained.driver.step([(visit, 1) for visit in visits], trained.signals)
        for row, visit in enumerate(visits):
            trained.check(batch, row, visit)
            visit.tokens.append(batch.tokens[row])


def test_only_rows_that_ask_are_scored(trained: Trained) -> None:
    silent, *asking = trained.visits(3, seed=51)
    silent.signals = (Entropy(),)
    visits = [asking[0], silent, asking[1]]
    for visit in visits:
        trained.driver.admit(visit)
    batch = trained.driver.step([(each, each.pending) for each in visits], trained.signals)
    for row in (0, 2):
        trained.check(batch, row, visits[row])
    head, _ = trained.head
    assert batch.signals[head][1] != batch.signals[head][1], "not a number"
    assert batch.signals[Entropy()][1] > 0


def test_a_score_does_not_depend_on_the_batch(trained: Trained) -> None:
    visits = trained.visits(12, seed=52)
    [lone] = trained.visits(1, seed=52)
    for visit in (*visits, lone):
        trained.driver.admit(visit)
    trained.driver.step([(each, each.pending) for each in (*visits, lone)])
    for visit in (*visits, lone):
        visit.tokens.append(7)
    together = trained.driver.step([(each, 1) for each in visits], trained.signals)
    alone = trained.driver.step([(lone, 1)], trained.signals)
    head, _ = trained.head
    plain = next(each for each in trained.routers if "plain" in each.path)
    # These two do not see the token, which is drawn.
    assert together.signals[head][0] == pytest.approx(alone.signals[head][0], abs=1e-6)
    assert together.signals[plain][0].score == pytest.approx(
        alone.signals[plain][0].score, abs=1e-6
    )


def test_beside_drafts_that_are_checked(trained: Trained) -> None:
    checking, other = trained.visits(2, seed=55)
    for visit in (checking, other):
        trained.driver.admit(visit)
    trained.driver.step([(each, each.pending) for each in (checking, other)])
    checking.tokens += [7, 8, 9]
    checking.check, checking.unchecked = Checks(), 2
    other.tokens.append(7)
    batch = trained.driver.step([(checking, 3), (other, 1)], trained.signals)
    assert len(batch.checks[0]) == 2
    for row, visit in enumerate((checking, other)):
        trained.check(batch, row, visit)


def test_what_is_not_loaded_is_refused_when_a_visit_opens(trained: Trained) -> None:
    engine = trained.driver.engine
    [visit] = trained.visits(1, seed=53)
    assert engine.prepare(visit, lambda: None)
    visit.signals = (RouterScore("/other.pt"),)
    with pytest.raises(RequestError, match=r"^algorithm: /other\.pt is not loaded") as caught:
        engine.prepare(visit, lambda: None)
    assert caught.value.field == "algorithm"
    visit.signals = (DeferralProbability(),)
    with pytest.raises(RequestError, match=r"^algorithm: co_llm needs a deployment") as caught:
        engine.prepare(visit, lambda: None)
    assert caught.value.field == "algorithm"


def test_a_router_of_another_model_is_refused_at_the_start(
    qwen3: TinyModel, build: Build, tmp_path: Path
) -> None:
    path = write(tmp_path / "router.pt", checkpoint(hidden=32))
    with pytest.raises(ConfigError, match=r"algorithm_args\.router: .* hidden size 32"):
        build(qwen3.path, max_total_tokens=100, signals=(RouterScore(str(path)),))
    torch.save(head_state(32), tmp_path / "head.pt")
    with pytest.raises(ConfigError, match=r"algorithm_args\.head: .* hidden size 32"):
        build(
            qwen3.path, max_total_tokens=100, signals=(CiterConfidence(str(tmp_path / "head.pt")),)
        )


def test_the_deferral_row_is_cut_off(qwen3: TinyModel, build: Build) -> None:
    engine = build(qwen3.path, max_total_tokens=400, signals=(DeferralProbability(),))
    assert engine.vocab_size == VOCABULARY - 1
    driver = Driver(engine)
    for prompt in qwen3.prompts(3, seed=54):
        visit = driver.visit(prompt)
        visit.signals = (DeferralProbability(),)
        assert engine.prepare(visit, lambda: None)
        batch = driver.step([(visit, len(prompt))], (DeferralProbability(), Entropy()))
        logits = qwen3.logits(prompt)
        assert batch.tokens == [int(logits[:-1].argmax())]
        assert batch.signals[DeferralProbability()][0] == pytest.approx(
            float(torch.sigmoid(logits[-1])), abs=1e-5
        )
        p = torch.softmax(logits[:-1].double(), dim=-1)
        assert batch.signals[Entropy()][0] == pytest.approx(float(-(p * p.log()).sum()), abs=1e-4)
    driver.release_all()
    engine.check_pools()


def test_graphs_are_captured_with_hidden_states_only_where_they_are_needed(
    qwen3: TinyModel, build: Build, files: Path
) -> None:
    plain = build(qwen3.path, max_total_tokens=100)
    assert not plain.scheduler.server_args.enable_return_hidden_states
    signal = CiterConfidence(str(files / "head.pt"))
    needing = build(qwen3.path, max_total_tokens=100, signals=(signal,))
    assert needing.scheduler.server_args.enable_return_hidden_states
