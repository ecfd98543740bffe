"""Stock ``sglang.launch_server``, unrouted, with what it needs to run on a CPU.

    python -m tests.integration.stock_server --model-path ... (SGLang's arguments)

Its own children import this module again: the preparation must happen on import.
"""

from __future__ import annotations

import sys

from tokenrouter.subserver.sglang_compat.cpu_imports import prepare_sglang_import

prepare_sglang_import()

from sglang.srt.entrypoints.http_server import launch_server  # noqa: E402
from sglang.srt.server_args import prepare_server_args  # noqa: E402

from tokenrouter.subserver.sglang_compat.cpu_patches import apply_cpu_patches  # noqa: E402

apply_cpu_patches()

if __name__ == "__main__":
    launch_server(prepare_server_args(sys.argv[1:]))
