# SPDX-License-Identifier: Apache-2.0
"""Command arbiter, safety gate and motion primitives."""
