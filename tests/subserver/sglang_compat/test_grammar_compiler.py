"""Grammars are compiled once, in threads, and few are kept."""

from __future__ import annotations

import os
import threading
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
def compiler() -> Iterator[GrammarCompiler]:
    compiler = GrammarCompiler(AutoTokenizer.from_pretrained(DEMO / "small"), 300)
    yield compiler
    compiler._threads.shutdown()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Compilations wait for it; it is open when the test ends."""
    gate = threading.Event()
    monkeypatch.setattr(grammar_process, "compiled", lambda info, grammar: gate.wait(30))
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
    with pytest.raises(OverloadedError, match="too many"):
        compiler.request(visit("d"), lambda: None)
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
