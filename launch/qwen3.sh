#!/usr/bin/env bash
# The paper's pairs of models, on two GPUs (launch/qwen3-*.yaml says how they are laid out).
#
#   launch/qwen3.sh serve 0.6b-32b [FLAGS]     or 1.7b-8b, 4b-8b; flags as of `tokenrouter serve`
#   launch/qwen3.sh check 0.6b-32b [FLAGS]     only say what would be served
#
#   ROUTER=/data/r2r.pt   route by R2R's neural router of that pair instead of by entropy, at the
#                         threshold saved in it (--router-threshold P: at another)
#   MODELS=/data/models   the folder with Qwen3-0.6B, Qwen3-32B, ... (default: /models)
#   PYTHON=python3.11     the interpreter with TokenRouter (default: .venv's, see launch/install.sh)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() { sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
[ $# -ge 2 ] || usage
command=$1 pair=$2
shift 2
config=$here/qwen3-$pair.yaml
case $command in serve | check) ;; *) usage ;; esac
[ -f "$config" ] || usage

name() { tr bm BM <<<"Qwen3-$1"; }
models=${MODELS-/models}
python=${PYTHON-$here/../.venv/bin/python}
routing=()
if [ -n "${ROUTER-}" ]; then
  args=$("$python" -c 'import json, sys; print(json.dumps({"router": sys.argv[1]}))' "$ROUTER")
  routing=(--algorithm r2r --algorithm-args "$args")
fi
exec "$python" -m tokenrouter "$command" --config "$config" "${routing[@]}" \
  --model "small=$models/$(name "${pair%-*}")" "large=$models/$(name "${pair#*-}")" "$@"
