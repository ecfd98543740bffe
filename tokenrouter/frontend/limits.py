"""Whether a prompt, and what is asked after it, fits every member it may visit."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from tokenrouter.errors import RequestError, RoutingError, Terminated
from tokenrouter.frontend.algorithms import scheduler_of
from tokenrouter.ipc.messages import Route, Sampling
from tokenrouter.ipc.supervision import Roster
from tokenrouter.schedulers.mistakes import failure

logger = logging.getLogger(__name__)

UNASKED_TOKENS = 128
"""Output tokens of a request that says nothing of its length, as in SGLang."""
CHARACTERS_A_TOKEN = 128
"""No vocabulary in use has a longer token (runs of spaces come closest)."""


class Limits:
    """What the members can hold, and algorithms can do. ``names``: the members', in order."""

    def __init__(self, roster: Roster, names: Sequence[str]) -> None:
        self._members = roster.members
        self._names = names

    def check_text(self, route: Route, characters: int, field: str) -> None:
        """Refuse a text that cannot fit, before seconds are spent on tokenising it.

        Raises:
            RequestError: naming ``field``.
        """
        capacity, what = self._tightest(route)
        if characters > capacity * CHARACTERS_A_TOKEN:
            raise RequestError(
                f"{field}: {characters} characters cannot fit into {capacity} tokens ({what}); "
                "shorten it",
                field,
            )

    def check_prompt(self, route: Route, prompt: Sequence[int], field: str) -> None:
        """Refuse an empty prompt, and ids that some member does not know.

        Raises:
            RequestError: naming ``field``.
        """
        if not prompt:
            raise RequestError(f"{field}: the prompt is empty", field)
        vocabulary = self._vocabulary(route)
        low, high = min(prompt), max(prompt)
        if low < 0 or high >= vocabulary:
            wrong = low if low < 0 else high
            raise RequestError(
                f"{field}: token id {wrong} is not in the vocabulary; ids go from 0 to "
                f"{vocabulary - 1}",
                field,
            )

    def room(self, route: Route, prompt_length: int, field: str) -> int:
        """The most output tokens that fit after the prompt (at least one).

        Raises:
            RequestError: not even one does; names ``field``.
        """
        capacity, what = self._tightest(route)
        if prompt_length >= capacity:
            raise RequestError(
                f"{field}: the prompt has {prompt_length} tokens, and prompt and output "
                f"together may have {capacity} ({what}); shorten it",
                field,
            )
        return capacity - prompt_length

    def check_length(self, route: Route, prompt_length: int, asked: int, field: str) -> None:
        """Refuse ``asked`` output tokens that do not fit after the prompt.

        Raises:
            RequestError: naming ``field``.
        """
        capacity, what = self._tightest(route)
        if prompt_length + asked > capacity:
            raise RequestError(
                f"{field}: {prompt_length} prompt tokens and {asked} output tokens are "
                f"{prompt_length + asked}, and together they may have {capacity} ({what}); ask "
                f"for at most {capacity - prompt_length}",
                field,
            )

    def check_sampling(self, route: Route, sampling: Sampling, prefix: str) -> None:
        """Refuse what cannot be had with the algorithm of ``route``.

        ``prefix``: of the fields of ``sampling``, as the client knows them.

        Raises:
            RequestError: naming the field.
            RoutingError: the algorithm's ``check`` failed.
        """
        scheduler = scheduler_of(route, self._names)
        try:
            scheduler.check(sampling, self._vocabulary(route))
        except RequestError as error:
            field = None if error.field is None else prefix + error.field
            raise RequestError(f"{prefix}{error}", field) from error
        except Terminated:
            raise
        except (Exception, SystemExit) as error:
            logger.exception("check of %r", route.algorithm)
            raise RoutingError(failure(route.algorithm, "check", error)) from error

    def check_bias(self, biases: Mapping[str, float], field: str) -> None:
        """Refuse a bias on ids that some member does not know.

        Raises:
            RequestError: naming ``field``.
        """
        vocabulary = min(member.vocab_size for member in self._members)
        for token in biases:
            if int(token) >= vocabulary:
                raise RequestError(
                    f"{field}.{token}: token ids go from 0 to {vocabulary - 1}", f"{field}.{token}"
                )

    def _tightest(self, route: Route) -> tuple[int, str]:
        bounds = []
        for member in route.members:
            ready, name = self._members[member], self._names[member]
            bounds.append((ready.context_length, f"the context length of {name!r}"))
            bounds.append((ready.pool_tokens, f"the KV pool of {name!r}"))
        capacity, what = min(bounds)
        if scratch := scheduler_of(route, self._names).scratch_tokens:
            what = f"{what}, less {scratch} that algorithm {route.algorithm!r} reads meanwhile"
        return max(capacity - scratch, 0), what

    def _vocabulary(self, route: Route) -> int:
        return min(self._members[member].vocab_size for member in route.members)


def check_minimum(minimum: int, asked: int, field: str) -> None:
    """Refuse to write at least more tokens than at most.

    Raises:
        RequestError: naming ``field``.
    """
    if minimum > asked:
        raise RequestError(
            f"{field}: at least {minimum} tokens, and at most {asked}; ask for fewer", field
        )
