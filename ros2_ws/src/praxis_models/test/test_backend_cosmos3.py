# SPDX-License-Identifier: Apache-2.0
import json
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from praxis_core.model_exchange import PhysicalObservation, check_reply, reply_of
from praxis_models.backend import BackendError, Session
from praxis_models.workers import cosmos3

sys.path.insert(0, str(Path(__file__).parent))
from fakes.sglang_server import SGLang

VALUES = np.tile(np.array([0.5, 0, -0.5, 1, 0, 0, 0, 1, 0, 1.0], np.float32), (16, 1))
EXPECTED = [1.0, 0.0, -1.0, 0.0, 0.0, 0.0, -1.0]
STATISTICS = {
    # halves and doubles are exact: x -> 2 x for the translation, 1 stays 1 for the rest
    'global_raw': {'q01': [-2.0] * 3 + [-1.0] * 6 + [0.0], 'q99': [2.0] * 3 + [1.0] * 7},
    'global': {'q01': [0.0] * 10, 'q99': [9.0] * 10},
}
OBSERVATION = PhysicalObservation(
    images={role: np.zeros((256, 256, 3), np.uint8) for role in ('primary', 'wrist')},
    state={},
    instruction='open the drawer',
)


@pytest.fixture
def server():
    server = SGLang(VALUES)
    yield server
    server.close()


@pytest.fixture
def statistics(tmp_path):
    path = tmp_path / 'libero_native_frame_wise_relative_rot6d.json'
    path.write_text(json.dumps(STATISTICS))
    return path


@pytest.fixture
def backend(server, statistics):
    backend = cosmos3.load(options(server, statistics))
    yield backend
    backend.close()


def options(server, statistics, **more):
    given = {'timeout_s': 5.0, 'connect_timeout_s': 5.0, 'ready_timeout_s': 5.0, **more}
    return cosmos3.Options(endpoint=server.endpoint, statistics=str(statistics), **given)


def asked(backend):
    reply = reply_of(backend.predict(OBSERVATION, Session('a')))
    return check_reply(backend.meta, reply).actions


@pytest.mark.parametrize('behaviour', ['', 'json'])
def test_a_chunk_comes_from_arrays_and_from_lists(server, backend, behaviour):
    server.behaviour = behaviour
    assert asked(backend)[9] == pytest.approx(EXPECTED)


def test_the_server_gets_one_image_and_one_prompt(server, backend):
    asked(backend)
    request = server.requests[0]
    assert request['input']['input_reference'].shape == (192, 320, 3)
    assert request['input']['prompt'].startswith('open the drawer. This video')
    assert request['parameters']['num_frames'] == 17


def test_the_meta_says_what_is_served(server, backend):
    meta = backend.meta
    assert meta.checkpoint == '/models/Cosmos3-Nano-LIBERO'
    assert meta.camera_roles == ('primary', 'wrist') and meta.state_schema == {}
    assert (meta.chunk_size, meta.execute_steps, meta.policy_hz) == (16, 16, 20.0)
    assert meta.control.action_space == 'libero.osc_pose.delta.v1'


def test_one_connection_serves_many_chunks(server, backend):
    for _ in range(3):
        asked(backend)
    assert server.connections == 1


def test_a_connection_that_the_server_closed_is_opened_again(server, backend):
    server.behaviour = 'close'
    for _ in range(3):
        assert asked(backend)[0] == pytest.approx(EXPECTED)


def test_a_refusal_names_the_reason_and_the_next_request_is_served(server, statistics):
    backend = cosmos3.load(options(server, statistics, domain='libera'))
    with pytest.raises(BackendError, match='SGLang answers 400: Unknown Cosmos3 domain_name'):
        asked(backend)
    backend.close()
    backend = cosmos3.load(options(server, statistics))
    assert asked(backend)[0] == pytest.approx(EXPECTED)
    backend.close()


@pytest.mark.parametrize(
    ('behaviour', 'what'),
    [
        ('fail', 'SGLang answers 500: Internal Server Error'),
        ('odd', r'answers without data\[0\]\.action\.values'),
        ('cut', 'is lost: IncompleteRead'),
    ],
)
def test_a_failure_is_one_line_and_does_not_last(server, backend, behaviour, what):
    server.behaviour = behaviour
    with pytest.raises(BackendError, match=what) as caught:
        asked(backend)
    assert '\n' not in str(caught.value)
    server.behaviour = ''
    assert asked(backend)[0] == pytest.approx(EXPECTED)


def test_a_server_that_hangs_is_given_up_and_its_late_answer_is_not_taken(server, statistics):
    backend = cosmos3.load(options(server, statistics, timeout_s=0.3))
    server.behaviour = 'hang'
    started = time.monotonic()
    with pytest.raises(BackendError, match='does not answer in time'):
        asked(backend)
    assert time.monotonic() - started < 3.0
    server.behaviour = ''
    assert asked(backend)[0] == pytest.approx(EXPECTED)
    backend.close()


def test_a_server_that_is_gone_is_named(server, backend):
    server.close()
    with pytest.raises(BackendError, match=r'http://127\.0\.0\.1:\d+ '):
        asked(backend)


@pytest.mark.parametrize(
    ('values', 'what'),
    [
        (VALUES[:12], r'expected \[16, 10\] \(got \[12, 10\]\)'),
        (VALUES * np.nan, 'expected finite numbers'),
        (np.stack([VALUES, VALUES]), 'without data'),
    ],
    ids=['short', 'nan', 'two'],
)
def test_an_answer_that_is_no_chunk_is_refused(server, backend, values, what):
    server.values = np.asarray(values, np.float32)
    with pytest.raises(BackendError, match=what):
        asked(backend)


def test_loading_waits_until_the_model_is_there(server, statistics):
    server.loading = 2
    backend = cosmos3.load(options(server, statistics))
    assert asked(backend)[0] == pytest.approx(EXPECTED)
    backend.close()


def test_loading_ends_when_nobody_comes(server, statistics):
    server.close()
    with pytest.raises(BackendError, match=r'cannot be reached: .*refused'):
        cosmos3.load(options(server, statistics, ready_timeout_s=0.0))


def test_another_model_is_refused(server, statistics):
    server.family = 'pi05'
    with pytest.raises(BackendError, match="a model of the family 'pi05', not cosmos3"):
        cosmos3.load(options(server, statistics))


def test_a_server_without_metadata_is_taken_as_it_is(server, statistics):
    server.family = None
    backend = cosmos3.load(options(server, statistics, checkpoint='Cosmos3-Nano'))
    assert backend.meta.checkpoint == 'Cosmos3-Nano'
    assert asked(backend)[0] == pytest.approx(EXPECTED)
    backend.close()


def test_actions_that_the_server_denormalised_are_left_as_they_are(server, statistics):
    backend = cosmos3.load(options(server, '', server_denormalises=True))
    assert asked(backend)[0] == pytest.approx([0.5, 0, -0.5, 0, 0, 0, -1])
    backend.close()
    with pytest.raises(BackendError, match='applies them already'):
        cosmos3.load(options(server, statistics, server_denormalises=True))


def test_statistics_are_needed_and_checked(server, tmp_path):
    with pytest.raises(BackendError, match='statistics: needed'):
        cosmos3.load(options(server, ''))
    path = tmp_path / 'short.json'
    path.write_text(json.dumps({'global_raw': {'q01': [0.0] * 7, 'q99': [1.0] * 7}}))
    with pytest.raises(BackendError, match=r'global_raw: q01 has 7 numbers, expected 10'):
        cosmos3.load(options(server, path))


@pytest.mark.parametrize('endpoint', ['ftp://host:1', 'http://', 'http://host:port'])
def test_an_endpoint_that_is_none_is_refused(endpoint):
    with pytest.raises(BackendError, match=r'endpoint: .*\(got '):
        cosmos3.ActionServer(endpoint, 1.0, 1.0)
