# SPDX-License-Identifier: Apache-2.0
"""Planner agent and the tools it acts through."""
