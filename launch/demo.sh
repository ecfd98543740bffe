#!/usr/bin/env bash
# The embedded demo pair, installed if need be.
#
#   launch/demo.sh                  serve it (options as of `tokenrouter serve`), and say how to talk
#   launch/demo.sh --once "..."     print one routed answer and stop; "" asks a question of the task
#   launch/demo.sh --help           print this; the options: .venv/bin/tokenrouter serve --help
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

if [ "${1-}" = --help ]; then # installs nothing
  sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit 0
fi
"$here/install.sh" >&2
if [ "${1-}" = --once ]; then
  shift
  exec "$here/../.venv/bin/python" -m tokenrouter.demo.show "$@"
fi
exec "$here/../.venv/bin/tokenrouter" serve --demo "$@"
