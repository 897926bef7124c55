# SPDX-License-Identifier: Apache-2.0

from pathlib import Path

import numpy as np
import pytest
from praxis_core.errors import ErrorCode
from praxis_core.images import fill_image, image_array
from praxis_interfaces.srv import BackProject, RenderCamera, Segment
from praxis_perception.perception_node import PerceptionNode
from rclpy.node import Node
from rclpy.parameter import Parameter
from sensor_msgs.msg import Image

CONTRACT = Path(__file__).parents[4] / 'params' / 'robots' / 'tabletop.yaml'


class Simulator(Node):
    """A camera 1 m above a table, looking straight down on two boxes."""

    def __init__(self):
        super().__init__('render')
        self.sizes = []
        self.create_service(RenderCamera, 'render_camera', self.render)

    def render(self, request, response):
        width, height = request.width, request.height
        self.sizes.append((width, height))
        segmentation = np.zeros((height, width), np.uint16)
        segmentation[height // 4 : height // 2, width // 4 : width // 2] = 1
        segmentation[-4:, -4:] = 2
        depth = np.where(segmentation > 0, 0.9, 1.0).astype(np.float32)
        response.observation_seq = 7
        focal = float(height)
        response.camera_info.k = np.array(
            [[focal, 0, (width - 1) / 2], [0, focal, (height - 1) / 2], [0, 0, 1.0]]
        ).ravel()
        response.camera_pose.header.frame_id = 'world'
        response.camera_pose.pose.position.z = 1.0
        response.camera_pose.pose.orientation.x = 1.0
        response.camera_pose.pose.orientation.w = 0.0
        if request.depth:
            fill_image(response.depth_image, depth, '32FC1')
        if request.segmentation:
            fill_image(response.segmentation_image, segmentation, '16UC1')
            response.labels = ['red cube', 'bowl']
        return response


@pytest.fixture
def graph(graph_probe):
    parameters = {'contract': str(CONTRACT), 'timeout_s': 2.0}
    node = PerceptionNode(
        parameter_overrides=[Parameter(name, value=value) for name, value in parameters.items()]
    )
    graph_probe.spin(node)
    simulator = graph_probe.spin(Simulator())
    graph_probe.simulator = simulator
    yield graph_probe
    for other in (simulator, node):
        graph_probe.node.executor.remove_node(other)
        other.destroy_node()


def test_segment_finds_by_words_and_says_it_is_an_oracle(graph):
    answer = graph.call(Segment, 'segment', Segment.Request(prompt='red cube', camera='agentview'))
    assert answer.found and answer.error_code == 0 and answer.backend == 'oracle'
    assert answer.observation_seq == 7
    assert graph.simulator.sizes == [(224, 224)]
    (found,) = answer.instances
    assert found.label == 'red cube'
    assert list(found.box) == [56, 56, 112, 112] and found.area == 56 * 56
    mask = image_array(found.mask)
    assert mask[56, 56] == 255 and mask[55, 56] == 0 and mask.sum() == 255 * 56 * 56


def test_segment_finds_by_a_point(graph):
    request = Segment.Request(point=[100, 100], camera='agentview', width=256, height=256)
    answer = graph.call(Segment, 'segment', request)
    assert [i.label for i in answer.instances] == ['red cube']
    assert graph.simulator.sizes == [(256, 256)]


def test_unknown_prompt_is_not_found_with_a_reason(graph):
    request = Segment.Request(prompt='the teapot', camera='agentview')
    answer = graph.call(Segment, 'segment', request)
    assert not answer.found and answer.error_code == ErrorCode.NO_DETECTION
    assert 'teapot' in answer.reason and list(answer.known_labels) == ['red cube', 'bowl']
    assert answer.backend == 'oracle'


@pytest.mark.parametrize(
    ('request_', 'code', 'words'),
    [
        (Segment.Request(camera='agentview'), ErrorCode.INVALID_REQUEST, 'exactly one'),
        (
            Segment.Request(camera='agentview', prompt='cube', point=[1, 1]),
            ErrorCode.INVALID_REQUEST,
            'exactly one',
        ),
        (
            Segment.Request(camera='agentview', point=[1, 1, 1]),
            ErrorCode.INVALID_REQUEST,
            'row, col',
        ),
        (
            Segment.Request(camera='agentview', point=[500, 1]),
            ErrorCode.INVALID_REQUEST,
            'outside the image',
        ),
        (Segment.Request(camera='top', prompt='cube'), ErrorCode.CAMERA_UNKNOWN, 'agentview'),
        (
            Segment.Request(camera='wrist', prompt='cube', width=10**6),
            ErrorCode.INVALID_REQUEST,
            'exceeds',
        ),
    ],
)
def test_bad_segment_request_is_refused_with_its_reason(graph, request_, code, words):
    answer = graph.call(Segment, 'segment', request_)
    assert not answer.found and answer.error_code == code
    assert words in answer.error_msg and answer.backend == 'oracle'


def test_back_projection_of_pixels_is_exact(graph):
    request = BackProject.Request(
        camera='agentview', width=101, height=101, rows=[50, 60, 10], cols=[50, 50, 10]
    )
    answer = graph.call(BackProject, 'back_project', request)
    assert answer.success and answer.backend == 'oracle' and answer.frame_id == 'world'
    points = [(p.x, p.y, p.z) for p in answer.points]
    assert points[0] == pytest.approx((0.0, 0.0, 0.0), abs=1e-6)
    assert points[1] == pytest.approx((0.0, -10 / 101, 0.0), abs=1e-6)
    assert points[2] == pytest.approx((-40 / 101, 40 / 101, 0.0), abs=1e-6)


def test_back_projection_of_a_mask_gives_its_statistics(graph):
    mask = np.zeros((224, 224), np.uint8)
    mask[56:112, 56:112] = 255
    request = BackProject.Request(camera='agentview', mask=fill_image(Image(), mask, 'mono8'))
    answer = graph.call(BackProject, 'back_project', request)
    assert answer.success and answer.valid == 56 * 56 and len(answer.points) == 0
    assert answer.centroid.z == pytest.approx(0.1, abs=1e-6)
    assert answer.minimum.x < answer.centroid.x < answer.maximum.x < 0
    request.z_max = 0.05
    answer = graph.call(BackProject, 'back_project', request)
    assert not answer.success and answer.error_code == ErrorCode.NO_DEPTH


@pytest.mark.parametrize(
    ('fields', 'words'),
    [
        ({}, 'exactly one'),
        ({'rows': [1]}, '1 rows but 0 cols'),
        ({'rows': [1, 2], 'cols': [1]}, '2 rows but 1 cols'),
        ({'rows': [224], 'cols': [0]}, 'outside the image'),
    ],
)
def test_bad_back_projection_is_refused_with_its_reason(graph, fields, words):
    request = BackProject.Request(camera='agentview', **fields)
    answer = graph.call(BackProject, 'back_project', request)
    assert not answer.success and answer.error_code == ErrorCode.INVALID_REQUEST
    assert words in answer.error_msg


def test_absent_simulator_is_an_answer_in_bounded_time(graph):
    service = next(iter(graph.simulator.services))
    graph.node.executor.remove_node(graph.simulator)
    graph.simulator.destroy_service(service)
    request = Segment.Request(prompt='cube', camera='agentview')
    answer = graph.call(Segment, 'segment', request, timeout=8.0)
    assert answer.error_code == ErrorCode.TIMEOUT and 'render_camera' in answer.error_msg
