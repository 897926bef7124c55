#!/usr/bin/env bash
# Set up, then run every test. Arguments go to pytest: scripts/test.sh -m "not slow" -k arbiter
# openpi's policies are run for real, so they are installed too where Python has their libraries.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
sets="core sim dev"
if "${PRAXIS_PYTHON:-python3}" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then sets="$sets openpi"; fi
"$root/scripts/setup.sh" --extras "$sets"
set +u; . "$root/scripts/env.sh"; set -u
cd "$root"
ruff check .
ruff format --check .
exec python -m pytest "$@"
