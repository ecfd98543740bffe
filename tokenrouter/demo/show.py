"""What a newcomer sees of the demo pair: how to talk to it, or one routed answer.

    python -m tokenrouter.demo.show "QUESTION"

starts the pair on a free port, asks, shows which model wrote what, and stops it. An empty
question asks one of the task.
"""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

ANSWER_LIMIT_S = 120.0
COLOURS = ("default", "bold magenta", "bold green", "bold blue")
SERVER = (sys.executable, "-m", "tokenrouter.launch_server", "--demo", "--port", "0")


def how_to_talk(url: str, name: str, keyed: bool = False) -> str:
    """Examples for a reader's own terminal and program; ``keyed``: the server wants a key."""
    header = ' -H "Authorization: Bearer $TOKENROUTER_API_KEY"' if keyed else ""
    key = 'os.environ["TOKENROUTER_API_KEY"]' if keyed else '"none"'
    imports = "import os\n  from" if keyed else "from"
    return f"""\

From a terminal:

  curl {url}/v1/chat/completions -H 'Content-Type: application/json'{header} -d '{{
    "model": "{name}", "temperature": 0, "routing": {{"token_models": true}},
    "messages": [{{"role": "user", "content": "{question()}"}}]}}'

From Python:

  {imports} openai import OpenAI
  client = OpenAI(base_url="{url}/v1", api_key={key})
  answer = client.chat.completions.create(model="{name}", temperature=0, messages=[
      {{"role": "user", "content": "{question()}"}}])
  print(answer.choices[0].message.content, answer.routing)

Model "{name}@0.02" sends more tokens to the large model, "{name}/small" and "{name}/large"
are each model alone. Ctrl-C stops the server.
"""


def question() -> str:
    """A question of the task that no model was trained on."""
    from tokenrouter.demo.task import problems

    return next(problems("held_out", 1)).question


def ask(url: str, text: str) -> dict[str, Any]:
    """The server's answer to one question, with the writer of each token.

    Raises:
        RuntimeError: it is no answer; the message is the server's.
    """
    import httpx

    body = {
        "model": "demo",
        "messages": [{"role": "user", "content": text}],
        "temperature": 0,
        "routing": {"token_models": True},
    }
    response = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=ANSWER_LIMIT_S)
    if response.status_code != httpx.codes.OK:
        raise RuntimeError(f"the server answered {response.status_code}: {response.text}")
    answer: dict[str, Any] = response.json()
    return answer


def runs(text: str, writers: Sequence[str]) -> list[tuple[str, str]]:
    """(member, what it wrote in one go), in order.

    A token of the demo tokenizer is one byte; the token that ends the answer has no text.
    """
    pairs = zip(writers, text.encode(), strict=False)
    return [
        (member, bytes(byte for _, byte in group).decode(errors="replace"))
        for member, group in itertools.groupby(pairs, key=lambda pair: pair[0])
    ]


def show(answer: dict[str, Any]) -> None:
    """Print an answer: in colours on a terminal, else other members' text in brackets."""
    from rich.console import Console
    from rich.text import Text

    routing = answer["routing"]
    members = list(routing["tokens"])
    console = Console(highlight=False, soft_wrap=True)
    shown = Text()
    content, writers = answer["choices"][0]["message"]["content"], routing["token_models"][0]
    for member, text in runs(content, writers):
        index = members.index(member)
        marked = text if index == 0 or console.is_terminal else f"[{text}]"
        shown.append(marked, style=COLOURS[index % len(COLOURS)])
    console.print(shown)
    legend = Text("\n")
    for index, (member, count) in enumerate(routing["tokens"].items()):
        name = member if index == 0 or console.is_terminal else f"[{member}]"
        legend.append(name, style=COLOURS[index % len(COLOURS)]).append(f" {count} tokens, ")
    legend.append(f"{routing['hand_overs']} hand-overs, LLM ratio {answer['llm_ratio']:.1%}")
    console.print(legend)


@contextmanager
def server() -> Iterator[str]:
    """The demo pair on a free port, and its URL, for the time of the context.

    Raises:
        RuntimeError: it did not start; the message is its log.
    """
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(SERVER, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            first = process.stdout.readline() if process.stdout else ""
            if not first:
                log.seek(0)
                raise RuntimeError(f"the server did not start\n{log.read()}")
            yield first.split()[-1]
        finally:
            process.send_signal(signal.SIGTERM)


def main() -> None:
    """Show one answer, to the question on the command line or one of the task."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    asked = " ".join(sys.argv[1:]).strip() or question()
    print(asked)
    try:
        with server() as url:
            show(ask(url, asked))
    except RuntimeError as error:
        raise SystemExit(f"demo: {error}") from error


if __name__ == "__main__":
    main()
