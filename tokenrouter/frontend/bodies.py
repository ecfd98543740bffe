"""What every JSON object of a request has: nulls that mean "not given", and no unknown fields.

Base of the models in `protocol`, `operator_protocol` and `names`. FastAPI validates, and
`http_errors` tells what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from tokenrouter.configuration.sglang_args import nearest


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


def wrong(message: str, *location: str | int) -> ValidationError:
    """What a validator raises about something inside the value that it sees."""
    complaint = PydanticCustomError("wrong", "{message}", {"message": message})
    details = InitErrorDetails(type=complaint, loc=location, input=None)
    return ValidationError.from_exception_data("body", [details])
