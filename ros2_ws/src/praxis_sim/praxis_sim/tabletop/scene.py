# SPDX-License-Identifier: Apache-2.0
"""The tabletop scene as one compiled MuJoCo model: robot, table, objects, cameras, lights."""

from __future__ import annotations

from dataclasses import dataclass

import praxis_sim.tabletop.view as view  # binds the renderer's back end before mujoco loads

# isort: split
import mujoco
import numpy as np

from praxis_sim.tabletop import panda

PHYSICS_STEP = 0.002
"""s"""

CUBE = 0.02
"""Half edge of a cube, m."""

COLOURS = {
    'red': (0.85, 0.11, 0.10),
    'blue': (0.10, 0.32, 0.83),
    'green': (0.10, 0.62, 0.25),
    'yellow': (0.95, 0.77, 0.08),
    'purple': (0.50, 0.20, 0.70),
    'orange': (0.95, 0.45, 0.06),
}

BOWL_RADIUS = 0.075
"""Inner radius of the bowl at its rim, m."""
BOWL_HEIGHT = 0.050
_BOWL_FOOT = 0.040
_BOWL_SIDES = 20

CAN_RADIUS = 0.032
CAN_HALF = 0.029
"""Low enough for the hand to pass over it while it grasps a cube."""

# Robot and objects touch, objects touch each other and the table, the robot not itself.
_ROBOT = {'contype': 1, 'conaffinity': 2}
# Twice as stiff as the default, which lets things sink by millimetres.
_OBJECT = {'contype': 2, 'conaffinity': 3, 'solref': (0.008, 1.0)}
_NONE = {'contype': 0, 'conaffinity': 0}
_COLLISION_GROUP = 3


@dataclass(frozen=True)
class Item:
    """A movable object.

    Attributes:
        name: Body name.
        radius: Of its footprint, m; keeps objects apart.
        height: Of its frame above the table when it rests, m.
    """

    name: str
    radius: float
    height: float


ITEMS = (
    Item('red_cube', 0.029, CUBE),
    Item('cube_1', 0.029, CUBE),
    Item('cube_2', 0.029, CUBE),
    Item('bowl', BOWL_RADIUS + 0.008, 0.0),
    Item('can', CAN_RADIUS, CAN_HALF),
)


def build(quality: str) -> mujoco.MjModel:
    """Compile the scene.

    Args:
        quality: ``fast`` or ``reference``, see `praxis_sim.tabletop.view`.
    """
    spec = mujoco.MjSpec()
    spec.modelname = 'tabletop'
    spec.compiler.autolimits = True
    spec.compiler.degree = False
    option = spec.option
    option.timestep = PHYSICS_STEP
    option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    option.impratio = 10
    # Several contacts between a round foot and the flat table.
    option.enableflags |= mujoco.mjtEnableBit.mjENBL_MULTICCD
    spec.stat.extent = 1.5
    spec.stat.center = (0.4, 0, 0.2)
    spec.visual.map.znear = 0.01
    spec.visual.map.zfar = 6
    spec.visual.quality.numslices = 24
    spec.visual.quality.numstacks = 10
    spec.visual.headlight.ambient = (0.36, 0.36, 0.38)
    spec.visual.headlight.diffuse = (0.25, 0.25, 0.25)
    spec.visual.headlight.specular = (0.1, 0.1, 0.1)
    _add_room(spec)
    _add_robot(spec)
    for item in ITEMS:
        body = spec.worldbody.add_body(name=item.name, pos=(0.5, 0, item.height))
        body.add_freejoint(name=item.name)
        if item.name == 'bowl':
            _add_bowl(spec, body)
        elif item.name == 'can':
            _add_can(body)
        else:
            body.add_geom(
                name=item.name, type=mujoco.mjtGeom.mjGEOM_BOX, size=(CUBE,) * 3, mass=0.05,
                rgba=(*COLOURS['red'], 1), friction=(1.2, 0.02, 0.0005), **_OBJECT,
            )  # fmt: skip
    model = spec.compile()
    view.set_quality(model, quality)
    return model


def geom_labels(model: mujoco.MjModel, colours: dict[str, str]) -> dict[int, str]:
    """Category of every drawn geom.

    Args:
        model: From `build`.
        colours: Colour name of each cube, by body name.
    """
    labels = {}
    links = {link.name for link in panda.LINKS}
    for geom in range(model.ngeom):
        if model.geom_group[geom] == _COLLISION_GROUP:
            continue
        body = model.body(model.geom_bodyid[geom]).name
        if body in colours:
            labels[geom] = f'{colours[body]} cube'
        elif body in ('bowl', 'can', 'table'):
            labels[geom] = body
        elif body in links:
            labels[geom] = 'robot'
    return labels


def _add_room(spec: mujoco.MjSpec) -> None:
    world = spec.worldbody
    spec.add_texture(
        name='sky', type=mujoco.mjtTexture.mjTEXTURE_SKYBOX,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT, rgb1=(0.86, 0.90, 0.94),
        rgb2=(0.62, 0.68, 0.75), width=64, height=64,
    )  # fmt: skip
    texture = spec.add_texture(
        name='wood', type=mujoco.mjtTexture.mjTEXTURE_2D, width=256, height=256, nchannel=3
    )
    texture.data = _wood().tobytes()
    wood = spec.add_material(name='wood', specular=0.15, shininess=0.3, reflectance=0.03)
    wood.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = 'wood'
    wood.texrepeat = (1, 1)
    world.add_geom(
        name='floor', type=mujoco.mjtGeom.mjGEOM_PLANE, size=(4, 4, 0.1), pos=(0, 0, -0.75),
        rgba=(0.52, 0.56, 0.61, 1), **_NONE,
    )  # fmt: skip
    table = world.add_body(name='table')
    table.add_geom(
        name='table', type=mujoco.mjtGeom.mjGEOM_BOX, size=(0.50, 0.62, 0.02),
        pos=(0.32, 0, -0.02), material='wood', friction=(0.9, 0.01, 0.0005), **_OBJECT,
    )  # fmt: skip
    for x in (-0.13, 0.77):
        for y in (-0.56, 0.56):
            table.add_geom(
                type=mujoco.mjtGeom.mjGEOM_BOX, size=(0.025, 0.025, 0.355), pos=(x, y, -0.395),
                rgba=(0.22, 0.24, 0.27, 1), **_NONE,
            )  # fmt: skip
    world.add_light(
        pos=(0.9, -0.9, 2.2), dir=(-0.25, 0.4, -1), diffuse=(0.55, 0.54, 0.50),
        specular=(0.25, 0.25, 0.25), castshadow=True, directional=True,
    )  # fmt: skip
    _look_at(world.add_camera(name='agentview', fovy=45), (1.10, 0.0, 0.74), (0.40, 0.0, 0.12))


def _add_robot(spec: mujoco.MjSpec) -> None:
    bodies = {'': spec.worldbody}
    for link in panda.LINKS:
        quat = np.asarray(link.quaternion, float)
        body = bodies[link.parent].add_body(
            name=link.name, pos=link.position, quat=quat / np.linalg.norm(quat), gravcomp=1,
            mass=link.mass, ipos=link.centre, inertia=link.inertia, explicitinertial=True,
        )  # fmt: skip
        bodies[link.name] = body
        for index, shape in enumerate(link.shapes):
            _add_shape(body, f'{link.name}_{index}', shape)
        if link.joint is None:
            continue
        joint = link.joint
        arm = joint.kind == 'revolute'
        body.add_joint(
            name=joint.name,
            type=mujoco.mjtJoint.mjJNT_HINGE if arm else mujoco.mjtJoint.mjJNT_SLIDE,
            axis=joint.axis, range=joint.limits, armature=0.1, damping=1.0 if arm else 10.0,
        )  # fmt: skip
        # A velocity reference enters as ctrl = q + (kv / kp) dq, see `tabletop.control`.
        stiffness, damping = gains(joint.name)
        spec.add_actuator(
            name=joint.name, target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT,
            gaintype=mujoco.mjtGain.mjGAIN_FIXED, gainprm=[stiffness] + [0] * 9,
            biastype=mujoco.mjtBias.mjBIAS_AFFINE, biasprm=[0, -stiffness, -damping] + [0] * 7,
            forcerange=(-joint.effort, joint.effort),
        )  # fmt: skip
    hand = bodies['hand']
    hand.add_site(name='tcp', pos=panda.TCP)
    _look_at(
        hand.add_camera(name='wrist', fovy=75),
        (0.080, 0.0, 0.03),
        (0.035, 0.0, 0.18),
        up=(1, 0, 0),
    )


def gains(joint: str) -> tuple[float, float]:
    """Stiffness and damping of a joint's servo, N m/rad and N m s/rad (N/m, N s/m)."""
    if joint in panda.FINGER_JOINTS:
        return 1500.0, 60.0
    return (4500.0, 220.0) if joint in panda.ARM_JOINTS[:4] else (2000.0, 100.0)


def _add_shape(body, name: str, shape: panda.Shape) -> None:
    bits = dict(_ROBOT) if shape.collides else dict(_NONE)
    if shape.pad:
        bits.update(friction=(2.0, 0.05, 0.0005), condim=4, solimp=(0.95, 0.99, 0.001, 0.5, 2))
    common = dict(name=name, rgba=shape.rgba, mass=0, **bits)
    if shape.kind == 'box':
        body.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, size=shape.size, pos=shape.start, **common)
        return
    kinds = {'capsule': mujoco.mjtGeom.mjGEOM_CAPSULE, 'cylinder': mujoco.mjtGeom.mjGEOM_CYLINDER}
    body.add_geom(
        type=kinds[shape.kind], size=(shape.size[0], 0, 0), fromto=(*shape.start, *shape.end),
        **common,
    )  # fmt: skip


def _add_can(body) -> None:
    cylinder = mujoco.mjtGeom.mjGEOM_CYLINDER
    body.add_geom(
        name='can', type=cylinder, size=(CAN_RADIUS, CAN_HALF, 0), mass=0.12,
        rgba=(0.80, 0.82, 0.84, 1), friction=(1.0, 0.02, 0.0005), **_OBJECT,
    )  # fmt: skip
    body.add_geom(
        name='can_label', type=cylinder, size=(CAN_RADIUS + 0.0006, CAN_HALF - 0.006, 0), mass=0,
        rgba=(0.05, 0.50, 0.48, 1), **_NONE,
    )  # fmt: skip
    body.add_geom(
        name='can_stripe', type=cylinder, size=(CAN_RADIUS + 0.0010, 0.006, 0), mass=0,
        rgba=(0.96, 0.95, 0.90, 1), **_NONE,
    )  # fmt: skip


def _add_bowl(spec: mujoco.MjSpec, body) -> None:
    """Smooth lathed shell to look at, a ring of boxes to touch; its frame is its foot's centre."""
    vertices, faces = _lathe(32)
    mesh = spec.add_mesh(name='bowl')
    mesh.uservert = vertices.reshape(-1)
    mesh.userface = faces.reshape(-1)
    # The shell has no volume to take an inertia from.
    mesh.inertia = mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL
    body.add_geom(
        name='bowl', type=mujoco.mjtGeom.mjGEOM_MESH, meshname='bowl', mass=0,
        rgba=(0.93, 0.92, 0.88, 1), **_NONE,
    )  # fmt: skip
    contact = dict(
        group=_COLLISION_GROUP, friction=(0.9, 0.01, 0.0005), rgba=(0.5, 0.5, 0.5, 1),
        **_OBJECT,
    )  # fmt: skip
    body.add_geom(
        name='bowl_foot', type=mujoco.mjtGeom.mjGEOM_CYLINDER, size=(_BOWL_FOOT + 0.004, 0.003, 0),
        pos=(0, 0, 0.003), mass=0.08, **contact,
    )  # fmt: skip
    # The walls end above the table: only the foot stands on it.
    low, high = np.array([_BOWL_FOOT + 0.005, 0.009]), np.array([BOWL_RADIUS, BOWL_HEIGHT])
    middle, slope = (low + high) / 2, np.arctan2(*(high - low))
    length = float(np.linalg.norm(high - low)) / 2
    for index in range(_BOWL_SIDES):
        angle = 2 * np.pi * index / _BOWL_SIDES
        turn, tilt, quat = np.empty(4), np.empty(4), np.empty(4)
        mujoco.mju_axisAngle2Quat(turn, np.array([0.0, 0, 1]), angle)
        mujoco.mju_axisAngle2Quat(tilt, np.array([0.0, 1, 0]), slope)
        mujoco.mju_mulQuat(quat, turn, tilt)
        radius = middle[0] + 0.003
        width = (BOWL_RADIUS + 0.006) * np.tan(np.pi / _BOWL_SIDES)
        body.add_geom(
            name=f'bowl_{index}', type=mujoco.mjtGeom.mjGEOM_BOX, size=(0.003, width, length),
            pos=(radius * np.cos(angle), radius * np.sin(angle), middle[1]), quat=quat,
            mass=0.12 / _BOWL_SIDES, **contact,
        )  # fmt: skip


def _lathe(sides: int) -> tuple[np.ndarray, np.ndarray]:
    """Closed surface of revolution of the bowl's wall: vertices [V, 3] m, faces [F, 3]."""
    inner = [
        (0.0001, 0.006),
        (_BOWL_FOOT * 0.8, 0.007),
        (_BOWL_FOOT + 0.012, 0.016),
        (BOWL_RADIUS - 0.008, 0.034),
        (BOWL_RADIUS, BOWL_HEIGHT),
    ]
    outer = [
        (BOWL_RADIUS + 0.005, BOWL_HEIGHT),
        (BOWL_RADIUS - 0.002, 0.032),
        (_BOWL_FOOT + 0.016, 0.012),
        (_BOWL_FOOT, 0.006),
        (_BOWL_FOOT, 0.0),
        (0.001, 0.0),
    ]
    profile = np.array(inner + outer)
    angles = 2 * np.pi * np.arange(sides) / sides
    ring = np.stack([np.cos(angles), np.sin(angles)], 1)
    vertices = np.concatenate(
        [np.column_stack([radius * ring, np.full(sides, z)]) for radius, z in profile]
    )
    faces = []
    for row in range(len(profile)):
        following = (row + 1) % len(profile)
        for i in range(sides):
            j = (i + 1) % sides
            a, b = row * sides + i, row * sides + j
            c, d = following * sides + i, following * sides + j
            faces += [(a, d, b), (a, c, d)]
    return vertices, np.array(faces)


def _wood() -> np.ndarray:
    """Planks of light oak: uint8[256, 256, 3]."""
    rng = np.random.default_rng(7)
    size, planks = 256, 6
    rows = np.arange(size)
    plank = rows * planks // size
    tone = rng.uniform(0.90, 1.05, planks)[plank]
    grain = np.zeros((size, size))
    for _ in range(40):
        centre, width = rng.uniform(0, size), rng.uniform(0.6, 3.0)
        wave = 2.5 * np.sin(np.arange(size) / rng.uniform(25, 60) + rng.uniform(0, 6))
        grain += rng.uniform(-0.05, 0.03) * np.exp(
            -(((rows[:, None] - centre - wave[None]) / width) ** 2)
        )
    seam = np.where(np.diff(plank, prepend=0) != 0, 0.80, 1.0)
    shade = (tone * seam)[:, None] * (1 + grain)
    base = np.array([186, 147, 104])
    return np.clip(base * shade[..., None], 0, 255).astype(np.uint8)


def _look_at(camera, eye, target, up=(0.0, 0.0, 1.0)) -> None:
    back = np.asarray(eye, float) - np.asarray(target, float)
    back /= np.linalg.norm(back)
    right = np.cross(up, back)
    right /= np.linalg.norm(right)
    wxyz = np.empty(4)
    rotation = np.stack([right, np.cross(back, right), back], axis=1)
    mujoco.mju_mat2Quat(wxyz, rotation.reshape(9))
    camera.pos, camera.quat = eye, wxyz
