"""Every error TokenRouter raises on purpose, and the HTTP status each becomes.

TokenRouterError
|-- ConfigError           the deployment cannot start; names the field and the remedy
|-- StartupError          a process of the deployment could not start; names the cause
|-- MeasurementError      a deployment cannot be calibrated; names the cause and the remedy
|-- RequestError     400  the request is wrong and stays wrong; the server is fine
|   |-- UnknownModelError   404
|   |-- UnsupportedError    400  valid elsewhere, not served here
|   |-- AuthenticationError 401  no API key, or a wrong one
|   |-- ConflictError       409  not while requests are being served
|   `-- OverloadedError     429  as many requests are here as may be; try again
|-- RoutingError     500  an algorithm broke its contract; fails that request only
|-- ModelError       500  a model computed NaN or infinity; fails that request only
|-- MemberDeadError  503  a member died; the request may be retried
|-- DrainingError    503  the server is stopping
|-- EngineClosedError     an offline engine was shut down, or has ended
|-- ChannelError          fatal for a member: a link is broken or out of order
|   `-- LinkFullError         fatal for the receiver, which has stopped reading
`-- RankError             fatal for a member: its tensor-parallel ranks differ, or one is gone
"""

from __future__ import annotations


class TokenRouterError(Exception):
    """Root of every error TokenRouter raises on purpose."""

    status = 500
    retry_after_s: int | None = None
    """After how many seconds a client may try again, if that can help."""


class ConfigError(TokenRouterError):
    """The configuration cannot be served; each of ``problems`` names a field and the remedy."""

    def __init__(self, *problems: str) -> None:
        many = "".join(f"\n  - {problem}" for problem in problems)
        super().__init__(problems[0] if len(problems) == 1 else f"{len(problems)} problems:{many}")
        self.problems = problems


class StartupError(TokenRouterError):
    """A process of the deployment could not start; the message names the cause."""


class MeasurementError(TokenRouterError):
    """A deployment cannot be calibrated; the message names the cause and the remedy."""


class RequestError(TokenRouterError):
    """The client asked for something impossible; ``field`` names the offending field."""

    status = 400

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


def field_of(error: TokenRouterError) -> str | None:
    """The field that ``error`` names, if it is one of a request's."""
    return error.field if isinstance(error, RequestError) else None


class UnknownModelError(RequestError):
    """The model name of a request matches neither the deployment nor a member."""

    status = 404


class UnsupportedError(RequestError):
    """A feature of the API that a routed deployment does not serve."""


class AuthenticationError(RequestError):
    """The request carries no API key, or a wrong one."""

    status = 401


class ConflictError(RequestError):
    """The server is serving requests, and what was asked for must not happen meanwhile."""

    status = 409


class OverloadedError(RequestError):
    """The server holds as many requests as it may; nothing is wrong with this one."""

    status = 429
    retry_after_s = 1


class RoutingError(TokenRouterError):
    """A routing algorithm returned an impossible decision or raised."""

    status = 500


class ModelError(TokenRouterError):
    """A model computed NaN or infinite logits for a request."""


class MemberDeadError(TokenRouterError):
    """A member that a request had visited is gone."""

    status = 503
    retry_after_s = 2


class DrainingError(TokenRouterError):
    """The server finishes what it has and takes nothing more."""

    status = 503
    retry_after_s = 10


class EngineClosedError(TokenRouterError):
    """An offline engine was shut down or has ended; only a new one can answer."""


class ChannelError(TokenRouterError):
    """A link between processes is full, broken, or lost a frame."""


class LinkFullError(ChannelError):
    """A receiver has stopped reading, for so long that its link is full."""


class RankError(TokenRouterError):
    """The tensor-parallel ranks of a member have diverged, or lost each other."""


class Terminated(SystemExit):
    """SIGTERM came: the process leaves. Not an error, and nobody may keep it from leaving.

    Another ``SystemExit`` in a process that serves is a mistake of whoever raised it.
    """


CODES: tuple[tuple[type[TokenRouterError], str], ...] = (
    (UnknownModelError, "model_not_found"),
    (UnsupportedError, "unsupported_parameter"),
    (AuthenticationError, "invalid_api_key"),
    (ConflictError, "conflict"),
    (OverloadedError, "rate_limit_exceeded"),
    (RequestError, "invalid_value"),
    (MemberDeadError, "service_unavailable"),
    (DrainingError, "server_stopping"),
    (TokenRouterError, "internal_error"),
)
"""The codes of error bodies; of several kinds that an error is, the first counts."""
