#!/usr/bin/env bash
# Set up, then run the main job: a LIBERO task and a tabletop task, from a sentence to verified success.
# Options: scripts/demo.sh --help
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
"$root/scripts/setup.sh" --extras "core sim"
set +u; . "$root/scripts/env.sh"; set -u
exec python "$root/scripts/demo.py" "$@"
