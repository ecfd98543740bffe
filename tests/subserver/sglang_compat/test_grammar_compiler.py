"""Grammars are compiled once, in threads, and few are kept."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from transformers import AutoTokenizer

from tests.integration.models import DEMO
from tests.subserver.sglang_compat.driver import Driver
from tokenrouter.errors import OverloadedError
from tokenrouter.ipc.messages import Grammar, Sampling
from tokenrouter.subserver.engine import Visit
from tokenrouter.subserver.sglang_compat import grammar_compiler, grammar_process
from tokenrouter.subserver.sglang_compat.grammar_compiler import GrammarCompiler

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def compiler() -> GrammarCompiler:
    return GrammarCompiler(AutoTokenizer.from_pretrained(DEMO / "small"), 300)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Compilations wait for it; it is open when the test ends."""
    gate = threading.Event()
    monkeypatch.setattr(grammar_process, "compiled", lambda *_: gate.wait(30))
    yield gate
    gate.set()


def visit(text: str, eos_ids: tuple[int, ...] = (260,)) -> Visit:
    visit = Driver(None).visit([65], Sampling(8, grammar=Grammar("regex", text)))  # type: ignore[arg-type]
    visit.eos_ids = eos_ids
    return visit


def test_one_compilation_serves_all_who_ask(compiler: GrammarCompiler, gate: Any) -> None:
    woken = [threading.Event() for _ in range(3)]
    futures = [compiler.request(visit("a"), each.set) for each in woken]
    assert not futures[0].done()
    gate.set()
    assert all(each.wait(20) for each in woken)
    assert futures[0] is futures[1] is futures[2]


def test_ends_belong_to_the_grammar(compiler: GrammarCompiler) -> None:
    both = [compiler.request(visit("a", ids), lambda: None) for ids in ((260,), (260, 98, 10**6))]
    stops = [sorted(each.result(30).grammar.tokenizer_info.stop_token_ids) for each in both]
    assert stops == [[260], [98, 260]]


def test_few_are_kept_and_the_latest(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammar_compiler, "KEPT", 2)
    first = compiler.request(visit("a"), lambda: None)
    first.result(20)
    for text in ("b", "c"):
        assert compiler.request(visit("a"), lambda: None) is first
        compiler.request(visit(text), lambda: None).result(20)
    assert len(compiler._known) <= 2
    assert compiler.request(visit("a"), lambda: None) is first


def test_a_queue_of_grammars_has_an_end(
    compiler: GrammarCompiler, gate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammar_compiler, "MOST_WAITING", 3)
    for text in "abc":
        compiler.request(visit(text), lambda: None)
    with pytest.raises(OverloadedError, match="too many") as caught:
        compiler.request(visit("d"), lambda: None)
    assert caught.value.field == "regex"
    compiler.request(visit("a"), lambda: None)


def test_a_machine_without_room_is_tried_again(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> int:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(os, "fork", full)
    with pytest.raises(OverloadedError, match="no more processes") as caught:
        compiler.request(visit("a"), lambda: None).result(20)
    assert caught.value.status == 429
    monkeypatch.undo()
    assert compiler.request(visit("a"), lambda: None).result(20).grammar


SLOW_TEXT = "a" * 5000


def test_what_nobody_waits_for_is_not_compiled(compiler: GrammarCompiler, gate: Any) -> None:
    compiler.request(visit("a"), lambda: None)
    leaving, staying = visit("b"), visit("b")
    for each in (leaving, staying):
        each.grammar = compiler.request(each, lambda: None)
    compiler.abandon(leaving)
    assert not staying.grammar.cancelled()
    compiler.abandon(staying)
    assert staying.grammar.cancelled() and len(compiler._known) == 1
    assert "b" not in [job.grammar.text for job in compiler._quick._jobs]
    again = compiler.request(visit("b"), lambda: None)
    gate.set()
    assert again.result(20)


def test_what_runs_for_nobody_is_killed(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler._info((260,))
    stock = grammar_process._compile
    monkeypatch.setattr(
        grammar_process, "_compile", lambda *a: time.sleep(50 * (a[1].text != "b")) or stock(*a)
    )
    left = [visit(f"a{i}") for i in range(4)]
    for each in left:
        each.grammar = compiler.request(each, lambda: None)
    while (pid := compiler._known[left[0].sampling.grammar, (260,)].apart._pid) is None:
        time.sleep(0.01)
    for each in left:
        compiler.abandon(each)
    assert compiler.request(visit("b"), lambda: None).result(20)
    assert not os.path.exists(f"/proc/{pid}")


@pytest.mark.parametrize("first", [SLOW_TEXT, "slow"])
def test_small_grammars_do_not_wait_behind_large_ones(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    compiler._info((260,))
    stock = grammar_process._compile

    def work(info: Any, grammar: Grammar) -> Any:
        while grammar.text == first:
            pass
        return stock(info, grammar)

    monkeypatch.setattr(grammar_process, "_compile", work)
    large = visit(first)
    large.grammar = compiler.request(large, lambda: None)
    assert compiler.request(visit("b"), lambda: None).result(15)
    assert not large.grammar.done()
    compiler.abandon(large)


def test_without_a_turn_it_may_be_tried_again(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammar_compiler, "LONGEST_QUEUE_S", -1.0)
    with pytest.raises(OverloadedError, match="regex: too many grammars"):
        compiler.request(visit("a"), lambda: None).result(20)
    monkeypatch.undo()
    assert compiler.request(visit("a"), lambda: None).result(20).grammar
