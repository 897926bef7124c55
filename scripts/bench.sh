#!/usr/bin/env bash
# Run one benchmark; the last line printed is one JSON object.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
names() { for file in "$root"/scripts/bench/*.py; do basename "$file" .py; done | grep -v '^_' | tr '\n' ' '; }
if [ $# -lt 1 ] || [ "$1" = -h ] || [ "$1" = --help ]; then
  echo "usage: scripts/bench.sh NAME [options]; names: $(names); options: scripts/bench.sh NAME --help"
  [ $# -ge 1 ] && exit 0 || exit 2
fi
name="$1"; shift
[ -f "$root/scripts/bench/$name.py" ] || { echo "bench: unknown name $name; names: $(names)" >&2; exit 2; }
set +u; . "$root/scripts/env.sh"; set -u
exec python "$root/scripts/bench/$name.py" "$@"
