# SPDX-License-Identifier: Apache-2.0
"""Rendering without EGL: MuJoCo's back end is bound at import, so each runs in a process."""

import ctypes.util
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

CONTRACT = Path(__file__).parents[4] / 'params' / 'robots' / 'tabletop.yaml'
SCRIPT = textwrap.dedent(
    """
    import sys
    import numpy as np
    from praxis_core.contract import load_contract
    from praxis_sim.platform import PlatformOptions
    from praxis_sim.tabletop import TabletopPlatform

    platform = TabletopPlatform(PlatformOptions(load_contract(sys.argv[1])))
    platform.reset('tabletop/pick', 2, -1, {})
    view = platform.render('agentview', 96, 64, depth=True, segmentation=True)
    large = platform.render('wrist', 640, 480)
    import mujoco
    np.savez(sys.argv[2], rgb=view.rgb, depth=view.depth, segments=view.segmentation,
             large=large.rgb, back_end=mujoco.gl_context.GLContext.__module__)
    platform.close()
    """
)


def render(back_end, path):
    subprocess.run(
        [sys.executable, '-c', SCRIPT, str(CONTRACT), str(path)],
        env={**os.environ, 'MUJOCO_GL': back_end},
        check=True,
        timeout=120,
    )
    with np.load(path) as archive:
        return dict(archive)


@pytest.mark.skipif(not ctypes.util.find_library('OSMesa'), reason='libOSMesa is not installed')
def test_osmesa_sees_what_egl_sees(tmp_path):
    soft = render('osmesa', tmp_path / 'osmesa.npz')
    assert soft['back_end'] == 'mujoco.osmesa'
    assert soft['large'].shape == (480, 640, 3) and soft['large'].std() > 10
    assert np.isfinite(soft['depth']).mean() > 0.5
    if not ctypes.util.find_library('EGL'):
        return
    egl = render('egl', tmp_path / 'egl.npz')
    assert egl['back_end'] == 'mujoco.egl'
    same = soft['segments'] == egl['segments']
    assert same.mean() > 0.99  # edges may fall on either side
    np.testing.assert_allclose(soft['depth'][same], egl['depth'][same], rtol=0.02)
    difference = np.abs(soft['rgb'].astype(int) - egl['rgb'])[same]
    assert np.median(difference) <= 2
