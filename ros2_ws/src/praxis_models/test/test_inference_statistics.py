# SPDX-License-Identifier: Apache-2.0
import pytest
from praxis_models.inference_statistics import InferenceStatistics


def of(*latencies):
    statistics = InferenceStatistics()
    for latency in latencies:
        statistics.add(latency / 2, latency)
    return statistics


@pytest.mark.parametrize(
    ('latency_ms', 'ticks'),
    [(4.0, 0), (24.9, 0), (25.1, 1), (74.9, 1), (75.1, 2), (1000.0, 20)],
)
def test_an_inference_that_is_done_within_half_a_tick_takes_none(latency_ms, ticks):
    assert of(latency_ms).ticks(20.0) == ticks


def test_the_slowest_of_the_newest_counts():
    statistics = of(200.0, *[4.0] * 9)
    assert statistics.ticks(20.0) == 4
    statistics.add(2.0, 4.0)
    assert statistics.ticks(20.0) == 0


def test_diagnostics_tell_counts_and_percentiles():
    statistics = of(10.0, 20.0, 30.0)
    statistics.failures = 2
    assert statistics.values() == {
        'inferences': 3, 'failures': 2,
        'inference_ms_p50': '10.00', 'inference_ms_p95': '14.50',
        'latency_ms_p50': '20.00', 'latency_ms_p95': '29.00',
    }  # fmt: skip
    assert InferenceStatistics().values() == {'inferences': 0, 'failures': 0}
