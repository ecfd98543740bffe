"""``python -m tokenrouter.launch_server ...`` is ``tokenrouter serve ...``."""

from __future__ import annotations

import sys

from tokenrouter.cli import main

if __name__ == "__main__":
    main(["serve", *sys.argv[1:]])
