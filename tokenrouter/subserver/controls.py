"""What operators ask of a member between two steps: `Control` in, `Controlled` out.

Called by `loop.Subserver`; the engine does it.
"""

from __future__ import annotations

from tokenrouter.errors import TokenRouterError
from tokenrouter.ipc.operations import Control, Controlled
from tokenrouter.subserver.engine import Engine

ALONE = frozenset({"flush_cache", "update_weights_from_disk"})
"""What would pull the KV away under a visit."""
LONGEST_S = 1800.0
"""Weights of a large model come from a slow disk."""


def carry_out(engine: Engine, member: int, held: int, control: Control) -> Controlled:
    """Have ``engine`` do it, unless it needs a member that holds no request.

    Args:
        held: visits here and requests owned here.
    """
    if held and control.action in ALONE:
        message = f"{held} requests and visits are here"
        return Controlled(control.ticket, member, False, message, busy=True)
    try:
        message = engine.control(control.action, control.arguments)
    except TokenRouterError as error:
        return Controlled(control.ticket, member, False, str(error))
    return Controlled(control.ticket, member, True, message)
