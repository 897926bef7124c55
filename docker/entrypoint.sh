#!/bin/bash
# Source ROS 2 and the workspace, then run the command.
source /opt/ros/jazzy/setup.bash
source /praxis/scripts/env.sh
exec "$@"
