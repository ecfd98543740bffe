#!/usr/bin/env bash
# Makes .venv with TokenRouter (editable) in it. Run it as often as you like: when nothing that
# decides the environment has changed it does nothing, and when it was interrupted it goes on.
#
#   PYTHON=python3.12 launch/install.sh     another interpreter (3.11 or newer)
#   EXTRAS=cuda,dev launch/install.sh       upstream's GPU set beside the development tools
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=.venv
stamp=$venv/.installed
extras=${EXTRAS-dev}
# A CPU serves best on this release. Asked for alone and first, so that a CPU build known to pip
# (find-links, an extra index) wins over whatever the range in pyproject.toml would bring.
cpu_torch=2.13.0

say() { printf '[install] %s\n' "$*"; }
die() { printf '[install] error: %s\n' "$*" >&2; exit 1; }
version_of() { "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null; }
is_recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

# Only one installation at a time: a second caller waits here and then finds nothing to do.
if command -v flock >/dev/null; then
  exec 9<"launch/install.sh"
  flock 9
fi

find_python() {
  local candidate
  if [ -n "${PYTHON-}" ]; then
    command -v "$PYTHON" >/dev/null || die "PYTHON=$PYTHON is not a program"
    is_recent "$PYTHON" || die "PYTHON=$PYTHON is $(version_of "$PYTHON"); 3.11 or newer is needed"
    echo "$PYTHON"
    return
  fi
  for candidate in python3.11 python3.12 python3.13 python3 python; do
    if command -v "$candidate" >/dev/null && is_recent "$candidate"; then
      echo "$candidate"
      return
    fi
  done
  die "no Python 3.11 or newer found (python3 is $(version_of python3 || echo absent));" \
    "install one, or name it: PYTHON=/path/to/python3.11 $0"
}

# Everything that decides what the environment holds, and where it stands: its scripts name the
# folder, so a moved environment is made anew.
fingerprint() {
  { cat pyproject.toml launch/install.sh; printf '%s\n' "$1" "$extras" "$PWD"; } | sha256sum
}

wanted=
if [ -n "${PYTHON-}" ] || [ ! -x $venv/bin/python ]; then
  python=$(find_python)
  wanted=$(version_of "$python")
fi
have=$(version_of $venv/bin/python || true)

if [ -n "$have" ] && [ "${wanted:-$have}" = "$have" ] && [ -f $stamp ] &&
  [ "$(cat $stamp)" = "$(fingerprint "$have")" ]; then
  say "$venv is up to date (Python $have)"
  exit 0
fi

# A link leads to the environment of another folder, which must not be cleared from here.
[ ! -L $venv ] || die "$venv is a link to $(readlink $venv), which was not made for this folder;" \
  "run launch/install.sh where it stands, or remove the link"

rm -f $stamp # from here until the end the environment counts as unfinished
if [ -z "$have" ] || [ "${wanted:-$have}" != "$have" ] ||
  ! grep -q "^command = .* $PWD/$venv\$" $venv/pyvenv.cfg; then
  python=${python-$(find_python)}
  say "making $venv with $("$python" -V)"
  "$python" -m venv --clear $venv ||
    die "$python cannot make environments; on Debian, install the matching python3-venv package"
fi

pip() { $venv/bin/python -m pip --disable-pip-version-check "$@"; }
case ",$extras," in
  *,cuda,*) say "torch: left to the cuda extra" ;;
  *)
    say "torch $cpu_torch"
    pip install --quiet "torch==$cpu_torch"
    ;;
esac
say "tokenrouter-serve${extras:+[$extras]} and what it needs (a minute or two)"
pip install --quiet --editable ".${extras:+[$extras]}"

fingerprint "$(version_of $venv/bin/python)" >$stamp.partial
mv $stamp.partial $stamp
say "done: $venv/bin/tokenrouter"
