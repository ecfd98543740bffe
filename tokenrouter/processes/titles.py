"""What processes call themselves in `ps`: whose deployment they are of, and which part of it."""

from __future__ import annotations

from urllib.parse import urlsplit

from setproctitle import setproctitle

from tokenrouter.config import UNIX_HOST, Config


def entitle(config: Config, name: str, url: str = "") -> None:
    """Call this process ``tokenrouter[SERVED_NAME:PORT]::NAME``.

    Args:
        url: where the deployment answers, if ``config`` leaves the port open.
    """
    port = (url and urlsplit(url).port) or config.port
    where = UNIX_HOST if config.host == UNIX_HOST else port
    setproctitle(f"tokenrouter[{config.served_name}:{where}]::{name}")
