#!/usr/bin/env bash
# Installs, then checks everything that CI checks, except the tests marked slow.
#
#   launch/test.sh                        all checks and tests
#   launch/test.sh tests/ipc -k channel   only pytest, with these arguments
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

launch/install.sh
bin=.venv/bin

if [ $# -gt 0 ]; then
  exec $bin/python -m pytest "$@"
fi

step() { printf '\n== %s\n' "$*"; "$@"; }
step $bin/ruff check .
step $bin/ruff format --check .
step $bin/mypy
step $bin/lint-imports --no-logo
step $bin/python -m pytest -m "not slow"
