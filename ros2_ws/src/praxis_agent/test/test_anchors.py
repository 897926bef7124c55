# SPDX-License-Identifier: Apache-2.0

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from praxis_agent.anchors import AnchorError, Located, choose, stands_over
from praxis_agent.recipe import Relation
from praxis_agent.shape import describe_points, rectangle_yaw


def thing(label, x, y, z=0.05, size=(0.1, 0.1), bottom=0.0):
    # The camera looks from the front: columns grow with y, rows with x.
    return Located(
        label, np.array([x, y, z]), z, bottom, np.array(size), 0.0, (500 * x, 500 * y), 100
    )


PLATE = thing('plate', 0.05, 0.20, 0.02)
RAMEKIN = thing('ramekin', -0.20, 0.19)
BOWLS = [thing('bowl', -0.19, 0.32), thing('bowl', -0.06, 0.20)]
OTHERS = {'plate': PLATE, 'ramekin': RAMEKIN}


def pick(relation, candidates=BOWLS, others=OTHERS):
    return choose('bowl', Relation.model_validate(relation), candidates, others)


@pytest.mark.parametrize(
    ('relation', 'index'),
    [
        ({'between': ['plate', 'ramekin']}, 1),
        ({'nearest_to': 'plate'}, 1),
        ({'nearest_to': 'ramekin'}, 0),
        ({'farthest_from': 'plate'}, 0),
        ({'right_of': 'plate'}, 0),
        ({'behind': 'plate'}, 1),
        ({'in_front_of': 'ramekin'}, 1),
        ({'leftmost': True}, 1),
        ({'rightmost': True}, 0),
    ],
)
def test_relation_picks_the_bowl_it_means(relation, index):
    assert pick(relation) is BOWLS[index]
    assert pick(relation, BOWLS[::-1]) is BOWLS[index]


def test_only_one_means_only_one():
    assert pick({'only': True}, BOWLS[:1]) is BOWLS[0]
    with pytest.raises(AnchorError, match='there are 2'):
        pick({'only': True})


def test_nothing_in_view_is_an_error_that_names_the_anchor():
    with pytest.raises(AnchorError, match='bowl: nothing'):
        pick({'nearest_to': 'plate'}, [])
    with pytest.raises(AnchorError, match='left of the plate'):
        pick({'left_of': 'plate'}, [BOWLS[0]])


def test_on_top_of_wants_it_higher_and_within_the_footprint():
    on_plate = thing('bowl', 0.06, 0.21, 0.07, bottom=0.02)
    assert pick({'on_top_of': 'plate'}, [*BOWLS, on_plate]) is on_plate
    with pytest.raises(AnchorError, match='stands on'):
        pick({'on_top_of': 'plate'})


def test_an_object_is_not_its_own_neighbour():
    others = {'first': BOWLS[1]}
    assert pick({'nearest_to': 'first'}, BOWLS, others) is BOWLS[0]


def test_stands_over():
    assert stands_over(thing('cube', 0.05, 0.21, 0.04), PLATE, 0.06)
    assert not stands_over(thing('cube', 0.15, 0.21, 0.04), PLATE, 0.06)


@given(st.floats(-1.5, 1.5), st.floats(-0.5, 0.5), st.floats(0.03, 0.06), st.integers(0, 9))
def test_top_of_a_box_gives_centre_sides_and_direction(yaw, x, short, seed):
    rng = np.random.default_rng(seed)
    box = rng.uniform(-0.5, 0.5, (3000, 2)) * [0.1, short]
    turn = np.array([[math.cos(yaw), -math.sin(yaw)], [math.sin(yaw), math.cos(yaw)]])
    top = np.column_stack([box @ turn.T + [x, 0.2], np.full(len(box), 0.04)])
    # The side the camera sees must not pull the centre.
    side = np.column_stack([np.full(500, x + 0.1), np.full(500, 0.2), rng.uniform(0, 0.02, 500)])
    shape = describe_points(np.vstack([top, side]))
    assert shape['top_centre'] == pytest.approx([x, 0.2, 0.04], abs=0.002)
    assert shape['top_size'] == pytest.approx([0.1, short], abs=0.004)
    assert abs(math.sin(shape['long_axis_yaw'] - yaw)) < 0.05


def test_too_few_points_have_no_shape():
    assert describe_points(np.full((100, 3), np.nan)) == {}
    assert describe_points(np.zeros((3, 3))) == {}


def test_direction_is_that_of_the_long_side():
    rng = np.random.default_rng(0)
    points = rng.uniform(-0.5, 0.5, (2000, 2)) * [0.02, 0.2]
    assert rectangle_yaw(points) == pytest.approx(math.pi / 2, abs=0.02)
