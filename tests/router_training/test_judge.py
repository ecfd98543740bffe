"""The judge, a real HTTP server with scripted verdicts; and labels that follow it."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.router_training.builders import wanted
from tokenrouter.cli_progress import progress_bars
from tokenrouter.errors import MeasurementError
from tokenrouter.router_training import judge as judging
from tokenrouter.router_training.judge import Dispute, Judge, differs, two_sentences, verdicts_on
from tokenrouter.router_training.report import Report
from tokenrouter.router_training.run import train

pytestmark = pytest.mark.timeout(60)
Reply = Callable[[str], tuple[int, Any]]


def says(text: str) -> tuple[int, Any]:
    """A completion."""
    return 200, {"choices": [{"message": {"role": "assistant", "content": text}}]}


@dataclass
class Server:
    """A judge that answers as ``reply`` says to what it was asked."""

    judge: Judge
    reply: Reply = lambda _: says("same")
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(judging, "PAUSE_S", 0.001)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            known.asked.append(body | {"path": self.path})
            known.keys.append(self.headers["Authorization"])
            status, content = known.reply(body["messages"][0]["content"])
            payload = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, *_: Any) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    known = Server(Judge(f"http://127.0.0.1:{httpd.server_port}/v1/", "grader", "secret"))
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield known
    httpd.shutdown()
    httpd.server_close()
    thread.join()


def ask(server: Server, *seconds: str) -> list[bool]:
    """The verdicts on disputes whose small continuations are these."""
    disputes = [Dispute("2+2", "=4.", second) for second in seconds]
    return asyncio.run(verdicts_on(disputes, server.judge))


def test_verdicts_come_back_in_order(server: Server) -> None:
    server.reply = lambda text: says("Different." if "=5" in text else "They are the Same")
    assert ask(server, "=5.", " = 4.", "=5!", "=four.") == [True, False, True, False]
    body = server.asked[0]
    assert (body["model"], body["temperature"], body["path"]) == (
        "grader",
        0,
        "/v1/chat/completions",
    )
    assert all(part in body["messages"][0]["content"] for part in ("2+2", "=4."))
    assert set(server.keys) == {"Bearer secret"}


def test_busy_judges_are_asked_again(server: Server) -> None:
    replies = iter([(429, {}), (503, {}), says("same")])
    server.reply = lambda _: next(replies)
    assert ask(server, "x") == [False]


@pytest.mark.parametrize(
    ("reply", "asked", "complaint"),
    [
        ((401, {"error": "bad key"}), 1, "does not answer .401: .*bad key"),
        ((500, {}), judging.TRIES, "does not answer .500"),
        ((200, {"choices": []}), 1, "answers no chat completion"),
    ],
)
def test_judges_that_cannot_judge(
    server: Server, reply: tuple[int, Any], asked: int, complaint: str
) -> None:
    server.reply = lambda _: reply
    with pytest.raises(MeasurementError, match=complaint):
        ask(server, "x")
    assert len(server.asked) == asked


def test_nobody_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "PAUSE_S", 0.001)
    with pytest.raises(MeasurementError, match=r"http://127.0.0.1:9 does not answer .ConnectError"):
        asyncio.run(verdicts_on([Dispute("", "", "")], Judge("http://127.0.0.1:9", "m")))


def test_the_last_verdict_counts_and_none_means_different() -> None:
    assert not differs("Are they different? No: same.")
    assert differs("The same words, yet DIFFERENT") and differs("I cannot tell") and differs("")


def test_two_sentences() -> None:
    assert two_sentences("One is 1.5 wide. Two! Three.") == "One is 1.5 wide. Two!"
    assert two_sentences("a line\nanother\nthird") == "a line\nanother\n"
    assert two_sentences("no end") == "no end"


def test_labels_follow_the_judge(
    server: Server, noisy: Path, finished: tuple[Path, Report], tmp_path: Path
) -> None:
    """It finds the same meaning wherever the small model's token is an even digit."""

    def reply(text: str) -> tuple[int, Any]:
        second = text.split("<second>\n")[1].split("\n</second>")[0]
        return says("same" if second[:1] in "02468" else "different")

    server.reply = reply
    out = tmp_path / "copy"
    shutil.copytree(finished[0], out)
    with progress_bars(shown=False) as bars:
        judged = train(wanted(noisy, out, judge=server.judge), bars)
    disputes = [
        each
        for path in sorted(out.glob("disputes_0.1/*.json"))
        for each in json.loads(path.read_text())
    ]
    verdicts = [
        each
        for path in sorted(out.glob("judgements_0.1_*/*.json"))
        for each in json.loads(path.read_text())
    ]
    assert verdicts == [each["small"][:1] not in "02468" for each in disputes]
    assert len(server.asked) == len(disputes) and 0 < sum(verdicts) < len(verdicts)
    assert judged.divergent < finished[1].divergent
    for each in disputes:
        assert each["large"][0] != each["small"][0], "they part at the first character"
    with progress_bars(shown=False) as bars:
        assert train(wanted(noisy, out, judge=server.judge), bars) == judged
    assert len(server.asked) == len(disputes), "what is known is not asked again"
