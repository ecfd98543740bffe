"""What libraries say, and what of it users see."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from tokenrouter.processes.noise import NoiseFilter

pytestmark = pytest.mark.timeout(20)

CUDA_GRAPH = "Cuda graph is disabled because of using torch native attention backend"


@pytest.mark.parametrize(
    ("name", "level", "message", "shown"),
    [
        ("sglang.srt.server_args", logging.WARNING, CUDA_GRAPH, False),
        ("py.warnings", logging.WARNING, "a.py:1: UserWarning: The given NumPy array is not", True),
        (
            "py.warnings",
            logging.WARNING,
            "a.py:1: UserWarning: The given NumPy array is not writable, and\n  x = 1",
            False,
        ),
        ("sglang.srt.server_args", logging.WARNING, "The KV cache is too small", True),
        ("sglang.srt.server_args", logging.ERROR, CUDA_GRAPH, True),
        (
            "transformers.tokenization_utils_base",
            logging.WARNING,
            "Token indices sequence length is longer than the specified maximum sequence length "
            "for this model (600 > 512). Running this sequence through the model will result in "
            "indexing errors",
            False,
        ),
        ("sglang", logging.INFO, "Load weight begin", False),
        ("uvicorn.error", logging.INFO, "Started server process", False),
        ("tokenrouter.supervisor", logging.INFO, "ready", True),
        ("my_algorithm", logging.INFO, "routed", True),
        ("sglangish", logging.INFO, "other", True),
    ],
)
def test_what_is_shown(
    monkeypatch: pytest.MonkeyPatch, name: str, level: int, message: str, shown: bool
) -> None:
    record = logging.LogRecord(name, level, "f", 1, message, (), None)
    monkeypatch.setattr(logging.getLogger(), "level", logging.INFO)
    assert NoiseFilter().filter(record) == shown


def test_at_debug_everything_is_shown_as_debug() -> None:
    script = (
        "import logging; from tokenrouter.processes import logs;"
        "logs.set_up('m', 'debug');"
        f"logging.getLogger('sglang').warning('{CUDA_GRAPH}');"
        "logging.getLogger('sglang').info('begin'); logging.getLogger('sglang').error('broken')"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stderr
    assert [line.split(" ", 3)[2:] for line in said.splitlines()] == [
        ["m", f"DEBUG {CUDA_GRAPH}"],
        ["m", "DEBUG begin"],
        ["m", "ERROR broken"],
    ]
