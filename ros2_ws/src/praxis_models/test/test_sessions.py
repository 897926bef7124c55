# SPDX-License-Identifier: Apache-2.0
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from praxis_core.exchange_error import ExchangeError
from praxis_models.workers.sessions import Sessions


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def sessions(clock):
    return Sessions(clock, idle_s=10.0, limit=3)


def test_new_session_is_named_s_and_eight_hex_digits(sessions):
    assert re.fullmatch(r's_[0-9a-f]{8}', sessions.register().id)


def test_touch_gives_the_registered_session_with_its_memory(sessions):
    session = sessions.register()
    session.memory['step'] = 4
    assert sessions.touch(session.id) is session
    assert sessions.touch(session.id).memory == {'step': 4}


@pytest.mark.parametrize('wrong', ['s_00000000', '', None, 7, ['s']])
def test_unknown_id_is_refused_by_name(sessions, wrong):
    with pytest.raises(ExchangeError, match='session_id') as caught:
        sessions.touch(wrong)
    assert caught.value.got == repr(wrong)


def test_use_keeps_a_session_and_idleness_ends_it(sessions, clock):
    session = sessions.register()
    for _ in range(5):
        clock.now += 9.0
        sessions.touch(session.id)
    clock.now += 10.5
    with pytest.raises(ExchangeError):
        sessions.touch(session.id)
    assert sessions.sweep() == [session]
    assert len(sessions) == 0


def test_running_call_keeps_a_session(sessions, clock):
    session = sessions.register()
    sessions.begin(session.id)
    clock.now += 100.0
    assert sessions.sweep() == []
    sessions.end(session.id)
    clock.now += 9.0
    assert sessions.touch(session.id) is session
    clock.now += 11.0
    assert sessions.sweep() == [session]


def test_end_of_a_call_whose_session_was_closed_is_harmless(sessions):
    session = sessions.register()
    sessions.begin(session.id)
    assert sessions.close(session.id) is session
    sessions.end(session.id)
    assert len(sessions) == 0


def test_pinned_session_stays_until_it_is_closed(sessions, clock):
    session = sessions.register(pinned=True)
    clock.now += 1e6
    assert sessions.sweep() == []
    assert sessions.close(session.id) is session
    with pytest.raises(ExchangeError):
        sessions.touch(session.id)


def test_no_more_sessions_than_the_limit(sessions):
    first, *_ = (sessions.register() for _ in range(3))
    with pytest.raises(ExchangeError, match='at most 3'):
        sessions.register()
    assert sessions.register(first.id) is first, 'going on is no new session'
    sessions.close(first.id)
    sessions.register()


def test_registering_a_live_id_goes_on_with_it(sessions, clock):
    session = sessions.register('rpc_12345678')
    clock.now += 9.0
    assert sessions.register('rpc_12345678') is session
    clock.now += 9.0
    assert sessions.touch('rpc_12345678') is session


@pytest.mark.parametrize('name', ['a b', 'x' * 65, 'a/b', 'é', '\n'])
def test_id_with_other_signs_is_refused(sessions, name):
    with pytest.raises(ExchangeError, match='session_id'):
        sessions.register(name)


@given(st.text(alphabet='abcXYZ019_.:-', min_size=1, max_size=64))
def test_any_plain_id_can_be_chosen(name):
    assert Sessions(Clock()).register(name).id == name


class Model(RuleBasedStateMachine):
    """Against a plain dictionary of last uses."""

    IDLE, LIMIT = 10.0, 4

    def __init__(self):
        super().__init__()
        self.clock = Clock()
        self.sessions = Sessions(self.clock, idle_s=self.IDLE, limit=self.LIMIT)
        self.used: dict[str, float] = {}
        self.gone: list[str] = []

    def alive(self, name):
        return self.clock.now - self.used[name] <= self.IDLE

    @rule(seconds=st.floats(0, 15))
    def wait(self, seconds):
        self.clock.now += seconds

    @rule()
    def register(self):
        try:
            session = self.sessions.register()
        except ExchangeError:
            assert len(self.used) == self.LIMIT
        else:
            assert len(self.used) < self.LIMIT
            assert session.id not in self.used
            assert session.memory == {}
            self.used[session.id] = self.clock.now

    @precondition(lambda self: self.used)
    @rule(data=st.data())
    def touch(self, data):
        name = data.draw(st.sampled_from(list(self.used)))
        if self.alive(name):
            assert self.sessions.touch(name).id == name
            self.used[name] = self.clock.now
        else:
            with pytest.raises(ExchangeError):
                self.sessions.touch(name)

    @precondition(lambda self: self.used)
    @rule(data=st.data())
    def close(self, data):
        name = data.draw(st.sampled_from(list(self.used)))
        if self.alive(name):
            self.sessions.close(name)
            del self.used[name]
            self.gone.append(name)
        else:
            with pytest.raises(ExchangeError):
                self.sessions.close(name)

    @rule()
    def sweep(self):
        swept = [session.id for session in self.sessions.sweep()]
        assert swept == [name for name in self.used if not self.alive(name)]
        for name in swept:
            del self.used[name]
        self.gone += swept

    @precondition(lambda self: self.gone)
    @rule(data=st.data())
    def gone_stays_gone(self, data):
        with pytest.raises(ExchangeError):
            self.sessions.touch(data.draw(st.sampled_from(self.gone)))

    @invariant()
    def counted(self):
        assert len(self.sessions) == len(self.used) <= self.LIMIT


TestAgainstADictionary = Model.TestCase
