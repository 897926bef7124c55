# SPDX-License-Identifier: Apache-2.0
import pytest
from praxis_core.errors import ErrorCode
from praxis_models.goals.policy_run import Limits, PolicyRun, Verdict

LEASE = 'a' * 32


def begun(**limits):
    run = PolicyRun(LEASE, Limits(**limits), 0.0)
    run.bind('one', 0.0)
    run.lease_status(LEASE, '', '', 0.0)
    assert run.observe('one', 0.0)
    return run


def verdict(run, episode='one', *, success=False, terminated=False, truncated=False):
    run.task(Verdict(episode, 7, success, terminated, truncated))


def max_chunks(run):
    run.chunks = 2
    run.played_out()


def model_fault(kind):
    def cause(run):
        run.model_failed(kind, 'because', 1.0)
        run.check(1.0 + 10.1)

    return cause


def withdrawn(reason):
    return lambda run: run.lease_status('', reason, f'{reason} it was', 1.0)


def stale_camera(run):
    for now in (1.0, 1.5, 2.1):
        run.observe('one', now)
        run.stale('camera wrist: 0.300 s old, limit 0.15 s', now)
        run.check(now)


# The end that each cause has, and the words that its message must have.
ENDS = {
    'max_chunks': (max_chunks, 'succeeded', 'max_chunks', ErrorCode.NONE, ''),
    'timeout': (lambda run: run.check(20.0, 15.0), 'succeeded', 'timeout', ErrorCode.NONE, '15 s'),
    'success': (
        lambda run: verdict(run, success=True), 'succeeded', 'task_success', ErrorCode.NONE, ''
    ),
    'failure': (
        lambda run: verdict(run, terminated=True),
        'succeeded', 'task_failure', ErrorCode.NONE, 'without success',
    ),
    'truncated': (
        lambda run: verdict(run, truncated=True),
        'succeeded', 'task_failure', ErrorCode.NONE, 'step limit',
    ),
    'cancel': (
        lambda run: run.cancel(), 'canceled', 'cancelled', ErrorCode.CANCELLED, 'client'
    ),
    'takeover': (
        withdrawn('takeover'), 'aborted', 'takeover', ErrorCode.LEASE_LOST, 'takeover it was'
    ),
    'operator': (withdrawn('operator'), 'aborted', 'takeover', ErrorCode.LEASE_LOST, 'operator'),
    'estop': (withdrawn('estop'), 'aborted', 'estop', ErrorCode.ESTOPPED, 'estop'),
    'reset_status': (withdrawn('reset'), 'aborted', 'reset', ErrorCode.EPISODE_CHANGED, 'reset'),
    'reset_state': (
        lambda run: run.observe('two', 1.0),
        'aborted', 'reset', ErrorCode.EPISODE_CHANGED, 'one was replaced by two',
    ),
    'reset_renewal': (
        lambda run: run.bind('two', 1.0),
        'aborted', 'reset', ErrorCode.EPISODE_CHANGED, 'one was replaced by two',
    ),
    'lease_lost': (
        withdrawn('source_silent'), 'aborted', 'lease_lost', ErrorCode.LEASE_LOST, 'silent'
    ),
    'renewal_refused': (
        lambda run: run.lease_refused(ErrorCode.WRONG_MODE, 'mode is teleop'),
        'aborted', 'takeover', ErrorCode.LEASE_LOST, 'mode is teleop',
    ),
    'model_unreachable': (
        model_fault('unreachable'),
        'aborted', 'model_unreachable', ErrorCode.MODEL_UNREACHABLE, 'because (for 10.1 s)',
    ),
    'model_lost': (
        model_fault('lost'), 'aborted', 'model_lost', ErrorCode.MODEL_LOST, 'because'
    ),
    'model_refused': (
        model_fault('refused'), 'aborted', 'model_refused', ErrorCode.MODEL_REFUSED, 'because'
    ),
    'model_timeout': (
        model_fault('timeout'), 'aborted', 'model_timeout', ErrorCode.MODEL_TIMEOUT, 'because'
    ),
    'reply_invalid': (
        model_fault('invalid'),
        'aborted', 'model_reply_invalid', ErrorCode.MODEL_REPLY_INVALID, 'because',
    ),
    'mismatch': (
        lambda run: run.model_failed('mismatch', 'backend: expected a (got b)', 1.0),
        'aborted', 'model_mismatch', ErrorCode.MODEL_MISMATCH, 'expected a (got b)',
    ),
    'worker_failed': (
        lambda run: run.model_failed('worker_failed', 'exit status 1', 1.0),
        'aborted', 'worker_failed', ErrorCode.WORKER_FAILED, 'exit status 1',
    ),
    'stale_camera': (
        stale_camera,
        'aborted', 'stale_observation', ErrorCode.STALE_OBSERVATION, 'camera wrist',
    ),
    'no_state': (
        lambda run: run.check(1.1),
        'aborted', 'stale_observation', ErrorCode.STALE_OBSERVATION, 'no state for 1.10 s',
    ),
    'deactivated': (
        lambda run: run.abort('deactivated', ErrorCode.NOT_ACTIVE, 'going'),
        'aborted', 'deactivated', ErrorCode.NOT_ACTIVE, 'going',
    ),
}  # fmt: skip


@pytest.mark.parametrize('name', ENDS)
def test_every_cause_has_its_own_end(name):
    cause, status, reason, code, words = ENDS[name]
    run = begun(max_chunks=2, timeout_s=15.0)
    cause(run)
    assert run.end is not None
    assert (run.end.status, run.end.reason, run.end.code) == (status, reason, code)
    assert words in run.end.message


@pytest.mark.parametrize('name', ENDS)
def test_the_first_end_counts_and_nothing_is_answered_after_it(name):
    run = begun(max_chunks=2, timeout_s=15.0)
    run.cancel()
    ENDS[name][0](run)
    assert run.end.reason == 'cancelled'
    assert not run.observe('one', 2.0)


def test_a_lease_that_is_refused_at_the_start_is_told_with_the_arbiters_words():
    run = PolicyRun(LEASE, Limits(), 0.0)
    run.lease_refused(ErrorCode.LEASE_TAKEN, 'primitive holds lease b')
    assert run.end.reason == 'lease_refused' and run.end.code == ErrorCode.LEASE_TAKEN
    assert run.end.message == 'primitive holds lease b'


def test_a_status_from_before_the_grant_does_not_end_the_run():
    run = PolicyRun(LEASE, Limits(), 0.0)
    run.bind('one', 0.0)
    run.lease_status('', 'released', 'the one before', 0.1)
    assert run.end is None
    run.lease_status('', 'released', 'the one before', 0.6)
    assert run.end is not None


def test_states_of_an_episode_that_is_being_replaced_are_not_answered():
    run = PolicyRun(LEASE, Limits(), 0.0)
    run.bind('two', 0.0)
    assert not run.observe('one', 0.1)
    assert run.end is None
    assert run.observe('two', 0.2)


def test_a_model_that_comes_back_in_time_is_forgiven():
    run = begun(observation_patience_s=100.0)
    run.model_failed('lost', 'gone', 1.0)
    run.lease_status(LEASE, '', '', 10.0)
    run.check(10.0)
    run.model_answered()
    run.model_failed('lost', 'gone', 12.0)
    run.lease_status(LEASE, '', '', 21.0)
    run.check(21.0)
    assert run.end is None
    run.check(22.1)
    assert run.end.reason == 'model_lost'


def test_what_the_model_answered_is_told_before_the_connection_that_was_lost_over_it():
    run = begun(observation_patience_s=100.0)
    run.model_failed('refused', 'no such instruction', 1.0)
    run.model_failed('lost', 'closed', 1.1)
    run.check(11.1)
    assert run.end.reason == 'model_refused' and 'no such instruction' in run.end.message
    run = begun(observation_patience_s=100.0)
    run.model_failed('lost', 'closed', 1.0)
    run.model_failed('timeout', 'no reply', 1.1)
    run.check(11.1)
    assert run.end.reason == 'model_timeout'


def test_a_model_that_turns_the_first_request_down_is_not_asked_for_long():
    run = begun()
    run.model_refused('instruction: expected a task', 1.0)
    assert run.end.reason == 'model_refused' and 'expected a task' in run.end.message


def test_a_model_that_has_worked_may_turn_a_request_down():
    run = begun(observation_patience_s=100.0)
    run.commands = 1
    run.model_refused('busy', 1.0)
    assert run.end is None
    run.check(11.1)
    assert run.end.reason == 'model_refused'


def test_a_camera_that_recovers_in_time_is_forgiven_but_counted():
    run = begun()
    run.stale('camera wrist', 1.0)
    run.fresh()
    run.observe('one', 3.0)
    run.check(3.0)
    assert run.end is None and run.stale_observations == 1


def test_standing_time_is_no_missing_observation():
    run = begun()
    run.standing(50.0)
    run.lease_status(LEASE, '', '', 50.0)
    run.check(50.5)
    assert run.end is None


def test_the_verdict_of_another_episode_is_not_ours():
    run = begun()
    verdict(run, 'zero', success=True)
    assert run.end is None and run.outcome == 'unknown'


@pytest.mark.parametrize('success', [True, False])
def test_outcome_is_what_the_task_said_whatever_ended_the_run(success):
    run = begun()
    run.cancel()
    assert run.outcome == 'unknown'
    run = begun()
    verdict(run, success=success, terminated=not success)
    assert run.outcome == ('success' if success else 'failure')


def test_a_task_that_had_its_verdict_does_not_end_the_next_run():
    run = PolicyRun(LEASE, Limits(), 0.0)
    run.bind('one', 0.0)
    run.judged_before(Verdict('one', 0, success=True))
    run.observe('one', 0.0)
    verdict(run, success=True)
    assert run.end is None and run.outcome == 'success'


def test_playing_out_ends_a_run_only_after_its_last_chunk():
    run = begun(max_chunks=2)
    run.chunks = 1
    run.played_out()
    assert run.end is None and run.wants_chunks
    run.chunks = 2
    assert not run.wants_chunks


def test_an_observation_waits_for_its_verdict_only_where_every_one_has_its_own():
    run = begun()
    assert not run.awaits_verdict(7, 0.0)
    verdict(run)  # on observation 7
    assert not run.awaits_verdict(7, 0.0)
    assert run.awaits_verdict(8, 1.0) and run.awaits_verdict(8, 1.4)
    assert not run.awaits_verdict(8, 1.6), 'it does not come'
    assert not run.awaits_verdict(9, 1.7), 'nor does the next'


def test_a_run_ends_when_the_arbiter_that_granted_its_lease_falls_silent():
    run = begun(observation_patience_s=60.0)
    run.lease_status(LEASE, '', '', 1.0)
    run.check(3.9)
    assert run.end is None
    run.lease_status(LEASE, '', '', 3.9)
    run.check(6.8)
    assert run.end is None
    run.check(7.0)
    assert run.end.reason == 'lease_lost'
    assert run.end.message == 'no control_status for 3.1 s (limit 3 s)'
