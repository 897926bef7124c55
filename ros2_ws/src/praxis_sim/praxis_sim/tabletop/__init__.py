# SPDX-License-Identifier: Apache-2.0
"""A light MuJoCo scene of our own: a Panda, cubes, a bowl and a can on a table."""

from praxis_sim.tabletop.platform import TabletopPlatform

__all__ = ['TabletopPlatform']
