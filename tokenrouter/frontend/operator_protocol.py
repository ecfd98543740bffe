"""Bodies of what operators ask for, under SGLang's names; unknown fields are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field

from tokenrouter.frontend.bodies import Body, Many

Name = Annotated[str, Field(min_length=1, max_length=4096)]
COUNTED = "members count steps of their own; end the profile with /stop_profile"
Text = Annotated[str, Field(max_length=1_000_000)]


class OperatorBody(Body):
    """What they have in common."""

    model_config = ConfigDict(extra="forbid")


class AbortBody(OperatorBody):
    """Of ``/abort_request``: one of the two."""

    rid: Annotated[str, Field(max_length=4096)] = ""
    """The client's own, or the id of the answer; exactly."""
    abort_all: bool = False


class WeightsBody(OperatorBody):
    """Of ``/update_weights_from_disk``."""

    model_path: Name
    """A folder on the server, with weights of the same shapes."""
    member: str | None = None
    """Whose; needed where there are several."""
    load_format: str | None = None
    abort_all_requests: bool = False
    weight_version: Name | None = None


class VersionBody(OperatorBody):
    """Of ``/update_weight_version``."""

    new_version: Name
    abort_all_requests: bool = True


class ProfileBody(OperatorBody):
    """Of ``/start_profile``. It ends with ``/stop_profile``, not after a number of steps."""

    refused: ClassVar[Mapping[str, str]] = {
        "start_step": COUNTED,
        "num_steps": COUNTED,
        "profile_by_stage": "a step may hold prefill and decode",
    }

    output_dir: Name | None = None
    """A folder on the server."""
    activities: Annotated[Many[str], Field(min_length=1)] | None = None
    with_stack: bool | None = None
    record_shapes: bool | None = None


class ParseBody(OperatorBody):
    """Of ``/parse_function_call``."""

    text: Text
    tools: Many[dict[str, Any]]
    tool_call_parser: str | None = None
    """None: the deployment's."""


class SeparateBody(OperatorBody):
    """Of ``/separate_reasoning``."""

    text: Text
    reasoning_parser: str | None = None
    """None: the deployment's."""
