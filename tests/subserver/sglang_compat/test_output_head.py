"""A model without an output head of its own serves, and checks nothing; its member lives on."""

from __future__ import annotations

import pytest

from tests.subserver.sglang_compat.conftest import Served
from tests.subserver.sglang_compat.driver import Driver
from tokenrouter.errors import ConfigError, RequestError
from tokenrouter.schedulers.signals import Checks, Entropy


@pytest.fixture
def headless(radix: Served, monkeypatch: pytest.MonkeyPatch) -> Served:
    monkeypatch.delattr(radix.engine.scheduler.tp_worker.model_runner.model, "lm_head")
    return radix


def test_checks_are_refused_when_a_visit_opens(headless: Served, radix_driver: Driver) -> None:
    visit = radix_driver.visit([5, 6, 7])
    assert headless.engine.prepare(visit, lambda: None)
    visit.check = Checks()
    assert visit.prepares, "the loop asks before it steps"
    with pytest.raises(RequestError, match="its output head where drafts cannot be che") as caught:
        headless.engine.prepare(visit, lambda: None)
    assert caught.value.field == "algorithm"


def test_a_deployment_that_has_it_check_is_refused_at_the_start(headless: Served) -> None:
    from tokenrouter.subserver.sglang_compat.engine import SGLangEngine

    scheduler = headless.engine.scheduler
    with pytest.raises(ConfigError, match=r"algorithm: Qwen3ForCausalLM keeps its output head"):
        SGLangEngine(scheduler, signals=[Entropy(), Checks()])
