"""Routing algorithms: the interface (`base`), the registry, one algorithm a file."""
