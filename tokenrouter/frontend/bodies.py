"""What every JSON object of a request has: nulls that mean "not given", and no unknown fields.

Base of the models in `protocol`, `operator_protocol` and `names`. FastAPI validates, and
`http_errors` tells what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from tokenrouter.configuration.sglang_args import nearest

MOST_ENTRIES = 4096
"""Of an object, or of a list that no prompt, message or tool is in."""
Entry = TypeVar("Entry")
Many = Annotated[list[Entry], Field(fail_fast=True)]
"""A list as long as a body may be: the first wrong entry is told, and nothing after it read."""


class Body(BaseModel):
    """A JSON object.

    A null is as good as no field where null is not a value of its own, as in OpenAI's API.
    Where ``extra`` is "forbid", unknown fields are refused with the nearest known one.
    """

    model_config = ConfigDict(protected_namespaces=())

    refused: ClassVar[Mapping[str, str]] = {}
    """Fields that SGLang takes and this server does not, and why; null, false and 0 ask nothing."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, body: Any) -> Any:
        if isinstance(body, cls):
            return body
        if not isinstance(body, dict):
            raise ValueError("must be a JSON object")
        _check_length(body, "fields")
        body = {name: value for name, value in body.items() if not cls._asks_nothing(name, value)}
        if cls.model_config.get("extra") == "forbid":
            cls._check_names(body)
        return body

    @classmethod
    def _asks_nothing(cls, name: str, value: Any) -> bool:
        if name in cls.refused:
            return not value
        field = cls.model_fields.get(name)
        if field is None or value is not None:
            return False
        return not field.is_required() and field.default is not None

    @classmethod
    def _check_names(cls, body: Iterable[str]) -> None:
        for name in body:
            if name in cls.refused:
                raise wrong(f"not served: {cls.refused[name]}", name)
            if name not in cls.model_fields:
                raise wrong(f"unknown field{nearest(name, cls.model_fields)}", name)


def check_lists(value: Any, most: int = MOST_ENTRIES) -> Any:
    """Refuse too long a list, or an object that holds one, before its entries are validated.

    Raises:
        ValidationError, ValueError: a list has more than ``most``.
    """
    if isinstance(value, list):
        _check_length(value, "entries", most)
    elif isinstance(value, dict):
        _check_length(value, "fields")
        for name, each in value.items():
            if isinstance(each, list) and len(each) > most:
                raise wrong(_too_long(each, "entries", most), name)
    return value


Short = BeforeValidator(lambda value: check_lists(value))
"""Of a field with lists that are not long."""


def _check_length(value: Sized, what: str, most: int = MOST_ENTRIES) -> None:
    if len(value) > most:
        raise ValueError(_too_long(value, what, most))


def _too_long(value: Sized, what: str, most: int) -> str:
    return f"has {len(value)} {what}, and may have {most}"


def wrong(message: str, *location: str | int) -> ValidationError:
    """What a validator raises about something inside the value that it sees."""
    complaint = PydanticCustomError("wrong", "{message}", {"message": message})
    details = InitErrorDetails(type=complaint, loc=location, input=None)
    return ValidationError.from_exception_data("body", [details])
