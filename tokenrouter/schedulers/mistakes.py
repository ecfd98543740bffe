"""What an algorithm's hooks raise, told in a line that names the algorithm and the hook."""

from __future__ import annotations


def failure(algorithm: str, hook: str, error: BaseException) -> str:
    """That ``hook`` of ``algorithm`` raised ``error``."""
    return f"algorithm {algorithm!r}: {hook} failed: {told(error)}"


def told(error: BaseException) -> str:
    """The class and the text of ``error``, which is a foreign class's to give."""
    try:
        text = str(error).encode("utf-8", "backslashreplace").decode()
    except Exception as another:  # noqa: BLE001
        text = f"its text cannot be had for {type(another).__name__}"
    return f"{type(error).__name__}: {text}"
