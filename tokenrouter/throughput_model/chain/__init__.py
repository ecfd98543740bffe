"""The exact chain of a system: states, transitions, stationary law."""
