# SPDX-License-Identifier: Apache-2.0
"""Simulators as ROS 2 nodes; platforms are plug-ins."""
