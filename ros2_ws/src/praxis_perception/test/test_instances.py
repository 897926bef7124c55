# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
from praxis_perception import instances

LABELS = ('plate', 'bowl', 'bowl', 'red cube')


@pytest.fixture
def image():
    segmentation = np.zeros((20, 30), np.uint16)
    segmentation[2:6, 3:9] = 2
    segmentation[10:16, 3:13] = 3
    segmentation[12:13, 3:13] = 4  # the cube cuts the bowl in two
    segmentation[0, 0] = 1
    return segmentation


def test_two_of_one_category_are_two_instances_largest_first(image):
    found = instances.by_prompt(image, LABELS, 'the bowls')
    assert [i.area for i in found] == [50, 24]
    assert [i.box for i in found] == [(10, 3, 16, 13), (2, 3, 6, 9)]
    assert found[1].centroid == (3.5, 5.5)


def test_object_cut_in_two_by_another_stays_one(image):
    assert len(instances.by_prompt(image, LABELS, 'bowl')) == 2


def test_sliver_is_no_instance(image):
    assert instances.by_prompt(image, LABELS, 'plate') == []


def test_known_labels_are_those_in_view(image):
    image[image == 4] = 0
    assert instances.visible_labels(image, LABELS) == ['plate', 'bowl']


def test_point_gives_the_instance_under_it(image):
    found = instances.by_point(image, LABELS, 12, 5)
    assert (found.label, found.score, found.area) == ('red cube', 1.0, 10)
    assert instances.by_point(image, LABELS, 19, 29) is None


def test_point_outside_is_refused(image):
    with pytest.raises(ValueError, match='outside the image of 20 x 30'):
        instances.by_point(image, LABELS, 20, 0)
