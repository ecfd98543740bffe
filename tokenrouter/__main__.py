"""``python -m tokenrouter ...`` is ``tokenrouter ...``."""

from __future__ import annotations

from tokenrouter.cli import main

if __name__ == "__main__":
    main()
