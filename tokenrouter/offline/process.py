"""The supervisor of an offline engine: as the server's, but it ends with the program it serves.

    python -m tokenrouter.offline.process FD

Started by `offline.handle`, which sends a configuration on standard input and is told on FD
where the front end answers, or why it does not.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
from typing import TextIO

from tokenrouter.config import UNIX_HOST, Config
from tokenrouter.errors import ConfigError, StartupError
from tokenrouter.processes import logs, titles
from tokenrouter.supervisor import serve


def main() -> None:
    """Serve one program until it asks to stop or is gone."""
    with open(int(sys.argv[1]), "w") as report, sys.stdin:
        os.set_inheritable(report.fileno(), False)
        order = json.load(sys.stdin)
        _end_with(order["owner"])
        config = Config.model_validate_json(order["config"])
        titles.entitle(config, "supervisor")
        logs.set_up("supervisor", config.log_level, config.log_format)
        try:
            status = serve(
                config, lambda url: _tell(report, socket=url.removeprefix(f"{UNIX_HOST}:"))
            )
        except ConfigError as error:
            _tell(report, problems=error.problems)
            status = 2
        except StartupError as error:
            _tell(report, failure=str(error))
            status = 1
    sys.exit(status)


def _tell(report: TextIO, **what: object) -> None:
    report.write(json.dumps(what) + "\n")
    report.flush()


def _end_with(owner: int) -> None:
    """Stop, as if asked to, when process ``owner`` is gone.

    The kernel can signal the death of a parent itself, but that of the parent's thread, and
    programs may start an engine in a thread that ends.
    """
    descriptor = os.pidfd_open(owner)
    if os.getppid() != owner:
        raise SystemExit(1)  # gone already, and another process has its number

    def wait() -> None:
        select.select([descriptor], [], [])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="owner", daemon=True).start()


if __name__ == "__main__":
    main()
