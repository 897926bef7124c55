# Source this file: the ROS 2 that Praxis runs on, and the built workspace if there is one.
# PRAXIS_VENV=DIR uses an environment elsewhere; a sourced ROS 2 is used as it is.

praxis_root="$(cd "$(dirname "${BASH_SOURCE[0]:-$0}")/.." && pwd)"
export PRAXIS_ROOT="$praxis_root"
praxis_venv="${PRAXIS_VENV:-$praxis_root/.venv}"

if [ -n "${ROS_DISTRO:-}" ] && [ -z "${PRAXIS_PIP_ROS:-}" ]; then
  if [ -f "$praxis_venv/bin/activate" ]; then
    . "$praxis_venv/bin/activate"
    # colcon of a system ROS 2 starts nodes with the system's Python, which must find our libraries.
    for praxis_dir in "$VIRTUAL_ENV"/lib/python3*/site-packages; do
      case ":${PYTHONPATH:-}:" in
        *":$praxis_dir:"*) ;;
        *) export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$praxis_dir" ;;
      esac
    done
  fi
elif [ -f "$praxis_venv/bin/activate" ]; then
  . "$praxis_venv/bin/activate"
  export PRAXIS_PIP_ROS=1 ROS_DISTRO=jazzy ROS_VERSION=2 ROS_PYTHON_VERSION=3
  export RMW_IMPLEMENTATION="${RMW_IMPLEMENTATION:-rmw_fastrtps_cpp}"
  case ":${CMAKE_PREFIX_PATH:-}:" in
    *":$VIRTUAL_ENV:"*) ;;
    *) export CMAKE_PREFIX_PATH="$VIRTUAL_ENV${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}" ;;
  esac
  praxis_libs="$VIRTUAL_ENV/lib"
  for praxis_dir in "$VIRTUAL_ENV"/lib/python3*/site-packages/ros_*.libs; do
    praxis_libs="$praxis_libs:$praxis_dir"
  done
  case ":${LD_LIBRARY_PATH:-}:" in
    *":$VIRTUAL_ENV/lib:"*) ;;
    *) export LD_LIBRARY_PATH="$praxis_libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" ;;
  esac
  # The libraries are on the path already, so the bootstrapper need not start Python twice.
  export _ROS_WHEELS_BOOTSTRAP_COMPLETE=1
else
  echo "praxis: no ROS 2 sourced and no environment in $praxis_venv; run scripts/setup.sh" >&2
fi

if [ -f "$praxis_root/ros2_ws/install/local_setup.sh" ]; then
  COLCON_CURRENT_PREFIX="$praxis_root/ros2_ws/install" . "$praxis_root/ros2_ws/install/local_setup.sh"
fi
if [ -n "${PRAXIS_PIP_ROS:-}" ]; then
  case ":${AMENT_PREFIX_PATH:-}:" in
    *":$VIRTUAL_ENV:"*) ;;
    *) export AMENT_PREFIX_PATH="${AMENT_PREFIX_PATH:+$AMENT_PREFIX_PATH:}$VIRTUAL_ENV" ;;
  esac
fi

# Images need a shared-memory segment that holds them (docs/architecture.md, section 5).
praxis_profile="$praxis_root/params/fastdds.xml"
if [ -f "$praxis_profile" ]; then
  export FASTRTPS_DEFAULT_PROFILES_FILE="${FASTRTPS_DEFAULT_PROFILES_FILE:-$praxis_profile}"
fi
export MUJOCO_GL="${MUJOCO_GL:-egl}"
unset praxis_root praxis_venv praxis_libs praxis_dir praxis_profile
