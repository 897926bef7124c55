#!/usr/bin/env bash
# Set up, then run every test. Arguments go to pytest: scripts/test.sh -m "not slow" -k arbiter
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
"$root/scripts/setup.sh"
set +u; . "$root/scripts/env.sh"; set -u
cd "$root"
ruff check .
ruff format --check .
exec python -m pytest "$@"
