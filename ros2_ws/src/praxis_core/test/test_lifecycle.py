# SPDX-License-Identifier: Apache-2.0
import pytest
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from praxis_core.lifecycle import AutostartNode
from praxis_core.parameters import ParameterError
from praxis_core.testing import wait_until
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter
from std_msgs.msg import String

SUCCESS = TransitionCallbackReturn.SUCCESS


class Device(AutostartNode):
    def __init__(self, fail_in=(), **kwargs):
        super().__init__('device', **kwargs)
        self.log = []
        self.fail_in = set(fail_in)
        self.publisher = None

    def _note(self, step):
        self.log.append(step)
        if step in self.fail_in:
            raise RuntimeError(f'{step} went wrong')
        return SUCCESS

    def on_configure(self, state):
        self.publisher = self.create_publisher(String, 'reading', 10)
        return self._note('configure')

    def on_activate(self, state):
        self.publisher.publish(String(data='active'))
        return self._note('activate')

    def on_deactivate(self, state):
        return self._note('deactivate')

    def on_cleanup(self, state):
        self.destroy_publisher(self.publisher)
        return self._note('cleanup')

    def on_shutdown(self, state):
        return self._note('shutdown')


@pytest.fixture
def device(graph_probe):
    made = []

    def make(**kwargs):
        made.append(graph_probe.spin(Device(**kwargs)))
        return made[-1]

    yield make
    for node in made:
        node.destroy_node()


def change(probe, transition):
    request = ChangeState.Request(transition=Transition(id=transition))
    return probe.call(ChangeState, 'device/change_state', request).success


def state_of(probe):
    return probe.call(GetState, 'device/get_state').current_state.label


def test_autostart_configures_and_activates(device, graph_probe):
    node = device()
    wait_until(lambda: node.is_active, message='active')
    assert node.log == ['configure', 'activate']
    assert state_of(graph_probe) == 'active'


def test_without_autostart_it_waits_and_publishes_nothing(device, graph_probe):
    node = device(parameter_overrides=[Parameter('autostart', value=False)])
    assert state_of(graph_probe) == 'unconfigured'
    assert node.log == []
    assert graph_probe.node.count_publishers('/reading') == 0
    assert change(graph_probe, Transition.TRANSITION_CONFIGURE)
    assert state_of(graph_probe) == 'inactive'


@pytest.mark.parametrize(('text', 'starts'), [('false', False), ('True', True)])
def test_autostart_reads_the_text_of_a_launch_argument(device, text, starts):
    node = device(parameter_overrides=[Parameter('autostart', value=text)])
    assert node.get_parameter('autostart').value is starts


def test_autostart_refuses_another_value(rclpy_context):
    with pytest.raises(ParameterError, match=r'^parameter autostart: .* \(got 3\)$'):
        Device(parameter_overrides=[Parameter('autostart', value=3)])


def test_failed_configure_cleans_up_and_can_be_repeated(device, graph_probe):
    node = device(fail_in=['configure'])
    wait_until(lambda: node.log == ['configure', 'cleanup'], message='cleanup')
    assert state_of(graph_probe) == 'unconfigured'
    node.fail_in.clear()
    assert change(graph_probe, Transition.TRANSITION_CONFIGURE)
    assert change(graph_probe, Transition.TRANSITION_ACTIVATE)
    assert node.is_active


def test_failed_activate_cleans_up(device, graph_probe):
    node = device(fail_in=['activate'])
    wait_until(lambda: node.log == ['configure', 'activate', 'cleanup'], message='cleanup')
    assert state_of(graph_probe) == 'unconfigured'


def test_failed_cleanup_after_an_error_finalises(device):
    node = device(fail_in=['configure', 'cleanup'])
    wait_until(lambda: node.state_label == 'finalized', message='finalized')


def test_deactivate_and_cleanup_by_service(device, graph_probe):
    node = device()
    wait_until(lambda: node.is_active, message='active')
    assert change(graph_probe, Transition.TRANSITION_DEACTIVATE)
    assert change(graph_probe, Transition.TRANSITION_CLEANUP)
    assert node.log == ['configure', 'activate', 'deactivate', 'cleanup']
    assert state_of(graph_probe) == 'unconfigured'


def test_close_goes_through_every_state(device):
    node = device()
    wait_until(lambda: node.is_active, message='active')
    node.close()
    assert node.log == ['configure', 'activate', 'deactivate', 'cleanup', 'shutdown']
    assert node.state_label == 'finalized'
    node.close()
