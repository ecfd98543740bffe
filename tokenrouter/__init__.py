"""TokenRouter: serve token-level routing between language models.

The package root stays free of heavy imports, so that the supervisor, the planner and the
command line start without loading torch or SGLang.
"""

__version__ = "0.1.0"
