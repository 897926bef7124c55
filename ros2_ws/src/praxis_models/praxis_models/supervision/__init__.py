# SPDX-License-Identifier: Apache-2.0
"""Life of model workers: environment, process, health. Imports no rclpy."""
