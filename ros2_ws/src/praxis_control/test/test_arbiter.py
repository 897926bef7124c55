# SPDX-License-Identifier: Apache-2.0
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from arbiter_rig import LEASE, PERIOD, Rig, leased, make_spec
from praxis_control.modes import Mode, Reason
from praxis_core.errors import ErrorCode

BAD = {
    'nan': ({'values': (np.nan, 0.0, 0.0)}, Reason.NON_FINITE),
    'infinite': ({'values': (0.0, -np.inf, 0.0)}, Reason.NON_FINITE),
    'short': ({'values': (0.0, 0.0)}, Reason.WRONG_SHAPE),
    'empty': ({'values': ()}, Reason.WRONG_SHAPE),
    'hash': ({'interface_hash': 'b' * 64}, Reason.WRONG_HASH),
    'space': ({'action_space': 'test.joint.absolute.v1'}, Reason.WRONG_ACTION_SPACE),
    'ten times the limit': ({'values': (10.0, 0.0, 0.0)}, Reason.SOFT_LIMIT),
}


def moving() -> Rig:
    rig = leased()
    rig.stream(5)
    assert rig.last.source == 'policy' and not rig.status.holding
    return rig


@pytest.mark.parametrize('case', BAD)
def test_bad_request_is_refused_and_the_robot_holds_at_once(case):
    fields, reason = BAD[case]
    rig = moving()
    rig.wait(PERIOD)
    executed = rig.request(**fields)
    assert executed.hold
    np.testing.assert_array_equal(executed.values, [0.0, 0.0, 1.0])
    assert rig.status.reason is reason and rig.status.refused_total == 1
    assert rig.status.holding


@pytest.mark.parametrize('case', BAD)
def test_bad_request_does_not_renew_the_lease(case):
    rig = moving()
    for _ in range(30):
        rig.wait(PERIOD)
        rig.request(**BAD[case][0])
    assert rig.arbiter.lease is None


def test_reason_names_the_value_and_the_limit():
    rig = moving()
    rig.wait(PERIOD)
    rig.request(values=(0.0, 10.0, 0.0))
    assert rig.status.text == 'policy refused: y is 10, allowed -1 to 1'


def test_bad_request_in_lockstep_is_answered_by_a_hold_for_its_observation():
    rig = leased(lockstep=True)
    executed = rig.request(values=(np.nan, 0.0, 0.0))
    assert executed.hold and executed.observation_seq == rig.seq
    assert rig.request() is None and rig.status.reason is Reason.STALE_REQUEST


def test_request_without_a_lease_is_refused():
    rig = Rig()
    rig.state()
    assert rig.request() is None
    assert rig.status.reason is Reason.NO_LEASE


def test_request_with_the_lease_of_another_is_refused():
    rig = leased()
    lease_id = rig.arbiter.lease.lease_id
    assert rig.request('primitive', lease_id=lease_id) is None
    assert rig.status.reason is Reason.NO_LEASE
    assert rig.request() is not None


def test_lease_expires_by_silence_and_says_so():
    rig = moving()
    lease_id = rig.arbiter.lease.lease_id
    rig.wait(1.2)
    assert rig.arbiter.lease is None
    assert rig.status.reason is Reason.SOURCE_SILENT and 'expired' in rig.status.text
    assert rig.request(lease_id=lease_id) is None
    assert rig.status.reason is Reason.LEASE_EXPIRED


def test_each_accepted_request_renews_the_lease():
    rig = leased()
    rig.stream(100)
    assert rig.arbiter.lease is not None


def test_silent_source_stops_within_two_ticks_and_is_named_within_three():
    rig = moving()
    rig.wait(2 * PERIOD)
    assert rig.last.hold
    rig.wait(PERIOD)
    assert rig.status.reason is Reason.SOURCE_SILENT


def test_second_source_cannot_take_a_lease_in_force():
    rig = leased()
    reply = rig.arbiter.acquire('primitive', 'f' * 32, rig.spec.interface_hash, 0.0, rig.now)
    assert reply.code == ErrorCode.LEASE_TAKEN and 'policy' in reply.message


@pytest.mark.parametrize(
    ('change', 'code'),
    [
        ({'source': 'teleop'}, ErrorCode.SOURCE_UNKNOWN),
        ({'lease_id': 'G' * 32}, ErrorCode.INVALID_REQUEST),
        ({'interface_hash': 'b' * 64}, ErrorCode.WRONG_INTERFACE),
        ({'duration': float('nan')}, ErrorCode.INVALID_REQUEST),
        ({'duration': -1.0}, ErrorCode.INVALID_REQUEST),
        ({'duration': 1e6}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_bad_application_for_a_lease_is_refused(change, code):
    rig = Rig()
    rig.state()
    application = {
        'source': 'policy',
        'lease_id': LEASE,
        'interface_hash': rig.spec.interface_hash,
        'duration': 0.0,
        **change,
    }
    assert rig.arbiter.acquire(**application, now=rig.now).code == code


def test_released_lease_ends_in_a_hold_and_cannot_be_used():
    rig = moving()
    lease_id = rig.arbiter.lease.lease_id
    reply, executed = rig.arbiter.release(lease_id, rig.now)
    assert reply.success and executed.hold and rig.status.reason is Reason.RELEASED
    rig.wait(PERIOD)
    assert rig.request(lease_id=lease_id) is None
    assert rig.arbiter.release(lease_id, rig.now)[0].code == ErrorCode.LEASE_LOST
    assert rig.arbiter.release('e' * 32, rig.now)[0].code == ErrorCode.LEASE_UNKNOWN


# Human intervention


def test_request_of_a_human_takes_over_at_once():
    rig = moving()
    executed = rig.request('teleop', values=(-0.1, 0.0, 1.0))
    assert executed.source == 'teleop'
    status = rig.status
    assert status.mode is Mode.TELEOP and status.intervention and status.lease_id == ''
    assert status.reason is Reason.TAKEOVER


def test_takeover_drops_what_was_queued_and_is_latched():
    rig = moving()
    lease_id = rig.arbiter.lease.lease_id
    rig.state()
    assert rig.request() is None, 'waits for the next slot'
    rig.request('teleop')
    for _ in range(20):
        rig.wait(PERIOD)
        rig.request(lease_id=lease_id)
    late = [e for t, e in rig.published if e.source == 'policy'][5:]
    assert not late and rig.status.mode is Mode.TELEOP
    assert rig.arbiter.acquire('policy', LEASE, rig.spec.interface_hash, 0.0, rig.now).code == (
        ErrorCode.WRONG_MODE
    )


@pytest.mark.parametrize('mode', [Mode.HOLD, Mode.TELEOP, Mode.ESTOP])
def test_change_of_mode_drops_what_was_queued(mode):
    rig = moving()
    rig.state()
    assert rig.request() is None and rig.status.refused_total == 0, 'waits for the next slot'
    rig.mode(mode)
    mark = len(rig.published)
    rig.wait(5 * PERIOD)
    assert all(e.hold for _, e in rig.published[mark:])


def test_bad_request_of_a_human_still_stops_the_policy():
    rig = moving()
    executed = rig.request('teleop', values=(np.nan, 0.0, 0.0))
    assert executed.hold and rig.status.mode is Mode.TELEOP
    assert rig.status.reason is Reason.NON_FINITE


def test_after_give_back_only_a_fresh_observation_may_be_answered():
    rig = moving()
    rig.request('teleop')
    assert rig.mode(Mode.AUTONOMOUS)
    rig.acquire()
    assert rig.request() is None
    assert rig.status.reason is Reason.STALE_REQUEST and 'given back' in rig.status.text
    rig.wait(PERIOD)
    assert rig.request().source == 'policy'


def test_give_back_in_lockstep_brings_a_fresh_observation():
    rig = leased(lockstep=True)
    rig.request()
    rig.state()
    rig.request('teleop')
    rig.state()
    assert rig.mode(Mode.AUTONOMOUS)
    assert rig.last.hold and rig.last.observation_seq == rig.seq
    rig.state()
    rig.acquire()
    assert rig.request().source == 'policy'


def test_human_stream_that_goes_on_does_not_undo_the_give_back():
    rig = moving()
    rig.stream(5, 'teleop')
    assert rig.mode(Mode.AUTONOMOUS)
    rig.stream(20, 'teleop')
    assert rig.status.mode is Mode.AUTONOMOUS and rig.status.reason is Reason.OPERATOR
    rig.wait(0.6)
    rig.request('teleop')
    assert rig.status.mode is Mode.TELEOP


def test_takeover_in_lockstep_answers_the_observation():
    rig = leased(lockstep=True)
    executed = rig.request('teleop')
    assert executed.source == 'teleop' and rig.status.mode is Mode.TELEOP


# Operator


@pytest.mark.parametrize('mode', [Mode.HOLD, Mode.TELEOP, Mode.ESTOP])
def test_change_of_mode_stops_the_policy_at_once(mode):
    rig = moving()
    assert rig.mode(mode)
    assert rig.last.hold and rig.arbiter.lease is None
    rig.stream(5)
    assert rig.last.hold


def test_emergency_stop_leaves_to_hold_by_the_operator_only():
    rig = moving()
    assert rig.mode(Mode.ESTOP, 'policy')
    for mode, source in [
        (Mode.HOLD, 'policy'),
        (Mode.HOLD, 'teleop'),
        (Mode.AUTONOMOUS, 'operator'),
        (Mode.TELEOP, 'operator'),
    ]:
        assert not rig.mode(mode, source)
    rig.stream(20, 'teleop')
    assert rig.status.mode is Mode.ESTOP and rig.last.hold
    assert rig.status.reason is Reason.ESTOP
    assert rig.mode(Mode.HOLD)


def test_autonomous_source_cannot_end_an_intervention():
    rig = moving()
    rig.request('teleop')
    assert not rig.mode(Mode.AUTONOMOUS, 'policy')
    assert not rig.mode(Mode.HOLD, 'policy')
    assert rig.mode(Mode.AUTONOMOUS, 'teleop')


def test_disabled_arbiter_grants_no_lease():
    rig = Rig(enable=False)
    rig.state()
    reply = rig.arbiter.acquire('policy', LEASE, rig.spec.interface_hash, 0.0, rig.now)
    assert reply.code == ErrorCode.WRONG_MODE
    assert not rig.status.model_control_enabled


def test_second_publisher_ends_the_lease_and_holds():
    rig = moving()
    rig.publishers(2)
    assert rig.last.hold and rig.arbiter.lease is None
    assert rig.status.reason is Reason.SECOND_PUBLISHER and '2 publishers' in rig.status.text
    reply = rig.arbiter.acquire('policy', LEASE, rig.spec.interface_hash, 0.0, rig.now)
    assert reply.code == ErrorCode.SECOND_PUBLISHER
    rig.publishers(1)
    rig.acquire()
    rig.wait(PERIOD)
    assert rig.request().source == 'policy'


# Observations


def test_stale_state_holds_within_a_tick_of_its_limit():
    rig = moving()
    seq = rig.seq
    rig.wait(0.25 + PERIOD, states=False)
    assert rig.last.hold and rig.status.reason is Reason.STALE_STATE
    assert rig.request() is None and rig.seq == seq


def test_frozen_state_is_told_from_a_missing_one():
    rig = moving()
    for _ in range(10):
        rig.wait(PERIOD, states=False)
        rig.state(advance=False)
    assert rig.last.hold and rig.status.reason is Reason.FROZEN_STATE
    rig.wait(PERIOD)
    assert rig.request() is not None, 'the lease outlives a short freeze'


def test_sequence_without_a_newer_stamp_is_frozen():
    rig = moving()
    for _ in range(10):
        rig.wait(PERIOD, states=False)
        rig.seq += 1
        rig.state(advance=False)
    assert rig.status.reason is Reason.FROZEN_STATE


@pytest.mark.parametrize(
    ('fields', 'reason'),
    [
        ({'values': (np.nan, 0.0, 0.0)}, Reason.NON_FINITE),
        ({'values': (0.0,)}, Reason.WRONG_SHAPE),
        ({'interface_hash': 'b' * 64}, Reason.WRONG_HASH),
    ],
)
def test_invalid_state_holds(fields, reason):
    rig = moving()
    rig.state(**fields)
    rig.wait(PERIOD, states=False)
    assert rig.last.hold and rig.status.reason is reason


def test_stalled_camera_holds_a_policy_but_not_a_human():
    rig = moving()
    for _ in range(5):
        rig.wait(PERIOD, states=False)
        rig.state(cameras=())
        rig.request()
    assert rig.last.hold and rig.status.reason is Reason.STALE_CAMERA
    assert 'front' in rig.status.text
    rig.state(cameras=())
    assert rig.request('teleop').source == 'teleop'


def test_cameras_are_not_watched_where_that_is_off():
    rig = leased(watch_cameras=False)
    for _ in range(8):
        rig.wait(PERIOD, states=False)
        rig.state(cameras=())
        assert rig.request() is not None


def test_reset_ends_the_lease_and_refuses_the_old_episode():
    rig = moving()
    old = rig.make_request(observation_seq=rig.seq + 1)
    rig.reset()
    assert rig.last.hold and rig.arbiter.lease is None
    assert rig.status.reason is Reason.RESET
    rig.acquire()
    rig.wait(PERIOD)
    assert rig.request(episode_uuid=old.episode_uuid) is None
    assert rig.status.reason is Reason.WRONG_EPISODE
    assert rig.request() is not None


def test_request_for_an_answered_or_old_observation_is_refused():
    rig = moving()
    assert rig.request() is None and rig.status.reason is Reason.STALE_REQUEST
    for _ in range(10):
        rig.wait(PERIOD)
    assert rig.request(observation_seq=rig.seq - 7) is None
    assert 'old, limit 0.25 s' in rig.status.text


def test_request_that_overtakes_its_state_is_executed_when_the_state_arrives():
    for lockstep in (False, True):
        rig = leased(lockstep=lockstep)
        rig.request()
        assert rig.request(observation_seq=rig.seq + 1) is None
        rig.now += PERIOD / 4
        assert rig.status.refused_total == 0
        if not lockstep:
            rig.now = rig.arbiter.deadline
            rig.arbiter.tick(rig.now)
        executed = rig.state()
        assert executed.source == 'policy' and executed.observation_seq == rig.seq


# Time


def test_source_at_the_command_rate_is_executed_at_once_whatever_its_phase():
    for phase in np.linspace(0.0, PERIOD, 13):
        rig = Rig()
        rig.state()
        rig.wait(0.3)
        rig.now += phase
        rig.wait(0.0)
        rig.acquire()
        rig.published.clear()
        rig.stream(20)
        assert [e.source for _, e in rig.published].count('policy') == 20
        assert not any(e.hold for _, e in rig.published[1:]), 'no hold between requests'


def test_slot_executes_the_newest_of_many_requests():
    rig = leased(human_sources=('teleop',))
    rig.published.clear()
    for index in range(100):
        rig.wait(PERIOD / 10)
        rig.request('teleop', values=(index / 1000, 0.0, 0.0))
    moves = [e for _, e in rig.published if not e.hold]
    assert 9 <= len(moves) <= 13
    steps = np.diff([e.values[0] for e in moves])
    assert (steps > 0).all()


def test_late_tick_is_skipped_not_caught_up():
    rig = Rig()
    rig.state()
    rig.now += 10.3 * PERIOD
    rig.arbiter.tick(rig.now)
    assert rig.now < rig.arbiter.deadline <= rig.now + PERIOD + 1e-9


def test_deadlines_do_not_drift():
    rig = Rig()
    rig.state()
    first = rig.arbiter.deadline
    for _ in range(200):
        rig.now = rig.arbiter.deadline + 0.003
        rig.arbiter.tick(rig.now)
    assert rig.arbiter.deadline == pytest.approx(first + 200 * PERIOD, abs=1e-9)


def test_lockstep_executes_one_answer_per_observation():
    rig = leased(lockstep=True)
    for _ in range(5):
        assert rig.request().observation_seq == rig.seq
        assert rig.request() is None and rig.status.reason is Reason.STALE_REQUEST
        rig.state()
    assert len(rig.published) == 5


def test_lockstep_holds_only_after_the_idle_limit_and_only_if_nobody_has_a_lease():
    rig = Rig(lockstep=True, idle_hold_s=2.0, lease_s=5.0)
    rig.state()
    rig.wait(1.9, states=False)
    assert not rig.published
    rig.wait(0.2, states=False)
    assert rig.last.hold and rig.last.observation_seq == rig.seq
    rig.wait(10.0, states=False)
    assert len(rig.published) == 1, 'one observation is held once'
    rig.state()
    rig.acquire()
    rig.wait(4.5, states=False)
    assert len(rig.published) == 1
    rig.wait(1.0, states=False)
    assert len(rig.published) == 2 and rig.status.reason is Reason.SOURCE_SILENT


def test_lockstep_never_holds_by_itself_where_the_limit_is_zero():
    rig = Rig(lockstep=True, idle_hold_s=0.0)
    rig.state()
    rig.wait(1000.0, states=False)
    assert not rig.published


# Limits and holds


def test_jump_is_clamped_and_the_request_is_kept():
    rig = moving()
    rig.wait(PERIOD)
    executed = rig.request(values=(1.0, -1.0, 1.0))
    np.testing.assert_allclose(executed.values, [0.6, -0.5, 1.0])
    np.testing.assert_allclose(executed.requested, [1.0, -1.0, 1.0])
    assert executed.clamped and rig.status.clamped_total == 1


def test_absolute_hold_is_the_setpoint_at_entry():
    rig = leased(spec=make_spec(delta=False))
    rig.wait(PERIOD)
    np.testing.assert_allclose(rig.last.values, [0.1, 0.2, -1.0])
    rig.request(values=(0.3, 0.2, 1.0))
    rig.wait(4 * PERIOD)
    assert rig.last.hold
    np.testing.assert_allclose(rig.last.values, [0.3, 0.2, 1.0])


def test_absolute_setpoint_after_a_reset_is_the_measured_state():
    rig = leased(spec=make_spec(delta=False))
    rig.request(values=(0.3, 0.2, 1.0))
    rig.reset()
    np.testing.assert_allclose(rig.last.values, [0.1, 0.2, -1.0])


def test_nothing_is_published_before_the_first_state():
    rig = Rig()
    rig.wait(1.0, states=False)
    assert not rig.published and rig.status.reason is Reason.STALE_STATE
