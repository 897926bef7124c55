# SPDX-License-Identifier: Apache-2.0
"""Processes that own a model's weights. Nothing here imports rclpy."""
