# SPDX-License-Identifier: Apache-2.0
"""LIBERO and LIBERO-PRO as a platform. Importing this package loads no simulator."""

from praxis_sim.libero.platform import LiberoPlatform

__all__ = ['LiberoPlatform']
