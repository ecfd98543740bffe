"""RouteLLM's routers (lm-sys/RouteLLM), where that package is installed: a score of a prompt.

The score is the rate at which the strong model is expected to win; the strong model is asked
if it reaches the threshold. Routers by RouteLLM's names: ``bert`` and ``causal_llm`` compute on
this machine; ``mf`` and ``sw_ranking`` embed prompts at ``OPENAI_BASE_URL``.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tokenrouter.errors import ConfigError

PACKAGE = "routellm"
KEY = "OPENAI_API_KEY"


class RouteLLM:
    """The router ``name`` with its arguments; it is loaded when it is first asked.

    Raises:
        ConfigError: the package is not installed.
    """

    def __init__(self, name: str, arguments: Mapping[str, Any]) -> None:
        if importlib.util.find_spec(PACKAGE) is None:
            raise ConfigError(
                f"algorithm_args.kind: routellm needs the package {PACKAGE!r}, which is not "
                f"installed here; pip install {PACKAGE}, or use another kind"
            )
        self._name, self._arguments = name, dict(arguments)
        self._lock = threading.Lock()
        self._router: Any = None

    def score(self, text: str) -> float:
        """Of the last message, or of the whole prompt; from any thread, one at a time.

        Raises:
            ConfigError: RouteLLM has no such router, or it does not take these arguments.
        """
        with self._lock:
            if self._router is None:
                self._router = self._load()
            return float(self._router.calculate_strong_win_rate(text))

    def _load(self) -> Any:
        with _no_key_demanded():
            known = importlib.import_module(f"{PACKAGE}.routers.routers").ROUTER_CLS
        if self._name not in known:
            raise ConfigError(
                f"algorithm_args.router: {PACKAGE} has no router {self._name!r}; it has "
                f"{', '.join(known)}"
            )
        try:
            return known[self._name](**self._arguments)
        except TypeError as error:
            raise ConfigError(f"algorithm_args.router_args: {error}") from error


@contextmanager
def _no_key_demanded() -> Iterator[None]:
    """The package makes an OpenAI client when it is imported, whoever is to be asked."""
    if KEY in os.environ:
        yield
        return
    os.environ[KEY] = "none"
    try:
        yield
    finally:
        del os.environ[KEY]
