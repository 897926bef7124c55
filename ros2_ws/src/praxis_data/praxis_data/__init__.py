# SPDX-License-Identifier: Apache-2.0
"""The data path: frame assembly, rosbag2 files, LeRobot datasets."""
