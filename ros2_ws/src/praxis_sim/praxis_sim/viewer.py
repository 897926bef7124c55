# SPDX-License-Identifier: Apache-2.0
"""MuJoCo's own window on the running scene."""

from __future__ import annotations

import os
import sys

from praxis_sim.platform import Platform, PlatformError


class Viewer:
    """Passive viewer of a platform that lives in this process.

    Raises:
        PlatformError: No display, or a platform without a MuJoCo model here.
    """

    def __init__(self, platform: Platform) -> None:
        if sys.platform == 'linux' and not (
            os.environ.get('DISPLAY') or os.environ.get('WAYLAND_DISPLAY')
        ):
            raise PlatformError('gui: no display (DISPLAY and WAYLAND_DISPLAY are empty)')
        if not hasattr(platform, 'mujoco_handles'):
            raise PlatformError('gui: this platform has no MuJoCo model in this process')
        self._platform = platform
        self._model = None
        self._window = None
        self.update()

    def update(self) -> None:
        """Show the present state; a closed window stays closed."""
        from mujoco import viewer

        model, data = self._platform.mujoco_handles()
        if model is not self._model:
            self.close()
            self._model = model
            self._window = viewer.launch_passive(
                model, data, show_left_ui=False, show_right_ui=False
            )
        if self._window is not None and self._window.is_running():
            self._window.sync()

    def close(self) -> None:
        """Close the window."""
        if self._window is not None:
            self._window.close()
            self._window = None
