"""How fast a deployment writes, as a function of its thresholds.

    parameters     a system: models, latencies, routing, committed tokens
    systems        those of known algorithms
    chain, exact   its states and transitions, and their stationary law
    simulate       counts of requests only, for systems too large for a chain
    events         every request by itself, on tapes of decisions: gaps, longest waits
    search         the best thresholds
    bounds         what no thresholds can exceed
    planning       what `tokenrouter plan` says of a `parameter_file`

Nothing here runs in a member's loop.
"""
