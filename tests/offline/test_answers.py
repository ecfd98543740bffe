"""From a front end's answers to content or to the error that they tell of."""

from __future__ import annotations

import orjson
import pytest

from tokenrouter import errors
from tokenrouter.frontend import http_errors
from tokenrouter.offline.answers import content, error, events

pytestmark = pytest.mark.timeout(20)


@pytest.mark.parametrize("kind", [kind for kind, _ in errors.CODES])
def test_every_error_comes_back_as_what_it_was(kind: type[errors.TokenRouterError]) -> None:
    raised = kind("no good", "n") if issubclass(kind, errors.RequestError) else kind("no good")
    status, body = http_errors.error_body(raised)
    with pytest.raises(errors.TokenRouterError, match="no good") as caught:
        content(status, orjson.dumps(body))
    assert type(caught.value) is kind
    assert getattr(caught.value, "field", "n") == "n"
    with pytest.raises(kind, match="no good"):
        list(events(http_errors.error_event(raised).decode().strip()))


def test_a_refusal_with_a_code_of_its_own_is_a_wrong_request() -> None:
    body = {"message": "m", "type": "invalid_request_error", "param": None, "code": "odd"}
    assert type(error(body)) is errors.RequestError
    assert type(error({**body, "type": "server_error"})) is errors.TokenRouterError


def test_events() -> None:
    assert list(events('data: {"text": "a"}')) == [{"text": "a"}]
    assert list(events("data: [DONE]")) == list(events("")) == list(events(": comment")) == []
