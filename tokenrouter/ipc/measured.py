"""`Measurements` as JSON with names, which ``/get_server_info`` tells, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import asdict

from tokenrouter.ipc.member_state import Measurements, StepSums


def to_json(measurements: Measurements) -> dict[str, Any]:
    """With the fields' names; the keys of mappings stay numbers."""
    return {
        **asdict(measurements),
        "steps": {size: asdict(sums) for size, sums in measurements.steps.items()},
        "prefill": asdict(measurements.prefill),
        "profile": {size: asdict(sums) for size, sums in measurements.profile.items()},
    }


def from_json(content: Mapping[str, Any]) -> Measurements:
    """What `to_json` made, after it travelled as JSON, whose keys are text.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    return Measurements(
        at=float(content["at"]),
        steps=_sums(content["steps"]),
        prefill=StepSums(**content["prefill"]),
        profile=_sums(content["profile"]),
        hops={int(to): (int(count), int(kept)) for to, (count, kept) in content["hops"].items()},
        runs={int(length): int(count) for length, count in content["runs"].items()},
        live_seconds=float(content["live_seconds"]),
    )


def _sums(content: Mapping[str, Any]) -> dict[int, StepSums]:
    return {int(size): StepSums(**sums) for size, sums in content.items()}
