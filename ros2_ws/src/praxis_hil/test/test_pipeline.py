# SPDX-License-Identifier: Apache-2.0
import threading

from hypothesis import given, settings
from hypothesis import strategies as st
from praxis_hil.pipeline import Pipeline


@settings(deadline=None, max_examples=30)
@given(kinds=st.lists(st.booleans(), max_size=40))
def test_arrival_order_is_kept_though_encoding_takes_longer(kinds):
    pipeline, seen = Pipeline(workers=3), []
    pause = threading.Event()
    for k, encoded in enumerate(kinds):

        def encode(data, k=k):
            pause.wait(0.001 * (k % 3))
            return data + b'!'

        pipeline.offer(bytes([k]), seen.append, encode if encoded else None)
    pipeline.close()
    assert seen == [bytes([k]) + (b'!' if encoded else b'') for k, encoded in enumerate(kinds)]


def test_full_queue_refuses_and_counts():
    gate, seen = threading.Event(), []
    pipeline = Pipeline(max_bytes=10)
    pipeline.call(lambda: gate.wait(10))
    assert pipeline.offer(b'123456', seen.append)
    assert not pipeline.offer(b'123456', seen.append)
    assert pipeline.refused == 1
    gate.set()
    pipeline.close()
    assert seen == [b'123456']


def test_failed_encoding_is_reported_and_the_next_message_goes_on():
    failures, seen = [], []
    pipeline = Pipeline()

    def broken(data):
        raise ValueError('no image')

    pipeline.offer(b'1', seen.append, broken, failures.append)
    pipeline.offer(b'2', seen.append)
    pipeline.close()
    assert [str(f) for f in failures] == ['no image']
    assert seen == [b'2']


def test_error_while_taking_does_not_end_the_thread():
    errors, seen = [], []
    pipeline = Pipeline(on_error=errors.append)

    def broken(data):
        raise OSError('disk')

    pipeline.offer(b'1', broken)
    pipeline.offer(b'2', seen.append)
    pipeline.close()
    assert len(errors) == 1
    assert seen == [b'2']
