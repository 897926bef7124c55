# SPDX-License-Identifier: Apache-2.0
"""Segmentation and back-projection services."""
