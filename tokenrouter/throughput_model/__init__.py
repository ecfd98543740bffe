"""How fast a deployment writes, as a function of its thresholds.

    parameters, systems, estimate   a system of models: by hand, of known algorithms, as measured
    chain                           its states and transitions, and their stationary law: exact
    count_simulation                counts of requests only, for systems too large for a chain
    event_simulation                every request by itself: gaps between tokens, recorded decisions
    evaluate, search                one prediction, and the best thresholds
    planning                        what `tokenrouter plan` reads and shows

Nothing here runs in a member's loop.
"""
