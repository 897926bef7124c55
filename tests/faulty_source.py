# SPDX-License-Identifier: Apache-2.0
"""A policy in a process of its own, to be killed: moves along x until it ends."""

from __future__ import annotations

import sys
import uuid

import rclpy
from praxis_core import qos
from praxis_core.contract import load_contract
from praxis_interfaces.msg import Command, ControlStatus, StateVector
from praxis_interfaces.srv import AcquireLease


def main(contract_path: str, value: str) -> None:
    contract = load_contract(contract_path)
    rclpy.init(args=[])
    node = rclpy.create_node('faulty_source')
    publisher = node.create_publisher(Command, 'command_request/policy', qos.REQUEST)
    client = node.create_client(AcquireLease, 'acquire_lease')
    lease = uuid.uuid4().hex
    granted = False

    states = 0

    def answer(state: StateVector) -> None:
        nonlocal states
        states += 1
        if not granted:
            return
        message = Command(source='policy', lease_id=lease, values=[0.0] * contract.action_dim)
        message.values[0] = float(value)
        message.episode_uuid = state.episode_uuid
        message.observation_seq = state.observation_seq
        message.observation_stamp = state.header.stamp
        message.interface_hash = contract.interface_hash
        message.action_space = contract.interface.action_space
        publisher.publish(message)

    node.create_subscription(StateVector, 'state', answer, qos.SENSOR_SUBSCRIBE)
    seen: list[ControlStatus] = []
    node.create_subscription(ControlStatus, 'control_status', seen.append, qos.LATCHED)
    client.wait_for_service()
    while not granted:
        # A lease that is not used for a second ends: states must arrive, requests be heard.
        heard = states and publisher.get_subscription_count()
        if not heard or not seen or not seen[-1].episode_uuid:
            rclpy.spin_once(node, timeout_sec=0.1)
            continue
        request = AcquireLease.Request(
            source='policy', lease_id=lease, interface_hash=contract.interface_hash
        )
        future = client.call_async(request)
        rclpy.spin_until_future_complete(node, future, timeout_sec=5.0)
        granted = future.done() and future.result().success
    print('leased', flush=True)
    rclpy.spin(node)


if __name__ == '__main__':
    main(*sys.argv[1:])
