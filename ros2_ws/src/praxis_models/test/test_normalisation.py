# SPDX-License-Identifier: Apache-2.0
import json

import numpy as np
import pytest
from praxis_models import normalisation
from praxis_models.normalisation import StatisticsError, load_statistics


def written(tmp_path, document, name='norm_stats.json'):
    path = tmp_path / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_quantiles_are_the_ends_of_minus_one_to_one():
    low, high = np.array([-2.0, 10.0]), np.array([2.0, 30.0])
    values = np.array([[-2.0, 10.0], [2.0, 30.0], [0.0, 15.0]])
    unit = normalisation.to_unit_range(values, low, high, epsilon=0.0)
    assert unit.tolist() == [[-1.0, -1.0], [1.0, 1.0], [0.0, -0.5]]
    assert normalisation.from_unit_range(unit, low, high, epsilon=0.0).tolist() == values.tolist()


def test_quantile_widens_by_a_millionth_as_openpi_does():
    # openpi 15a9616a: (x - q01) / (q99 - q01 + 1e-6) * 2 - 1, and back
    # with q01 = 0, q99 = 3e-6 and x = 1e-6: 2 * 1 / 4 - 1 = -0.5; back: 0.25 * 4e-6 = 1e-6
    low, high = np.array([0.0]), np.array([3e-6])
    unit = normalisation.to_unit_range(np.array([1e-6]), low, high)
    np.testing.assert_allclose(unit, [-0.5], rtol=1e-12)
    np.testing.assert_allclose(
        normalisation.from_unit_range(np.array([-0.5]), low, high), [1e-6], rtol=1e-12
    )


def test_value_that_never_changed_is_restored_as_it_was():
    constant = np.array([0.7])
    unit = normalisation.to_unit_range(constant, constant, constant)
    assert unit.tolist() == [-1.0]
    assert normalisation.from_unit_range(unit, constant, constant).tolist() == [0.7]
    assert normalisation.z_score(constant, constant, np.zeros(1)).tolist() == [0.0]


def test_z_score_is_in_standard_deviations_from_the_mean():
    mean, std = np.array([1.0, -1.0]), np.array([2.0, 0.5])
    scores = normalisation.z_score(np.array([5.0, -1.25]), mean, std, epsilon=0.0)
    assert scores.tolist() == [2.0, -0.5]
    assert normalisation.from_z_score(scores, mean, std, epsilon=0.0).tolist() == [5.0, -1.25]


def test_whole_chunk_of_float32_is_restored_by_statistics_of_each_field(tmp_path):
    path = written(tmp_path, {'norm_stats': {'actions': {'q01': [0.0, -4.0], 'q99': [8.0, 4.0]}}})
    statistics = load_statistics(path, 'norm_stats/actions', needs=('q01', 'q99'), size=2)
    chunk = np.array([[-1.0, -1.0], [0.5, 0.25], [1.0, 1.0]], dtype=np.float32)
    restored = statistics.restore(chunk, 'quantile', epsilon=0.0)
    assert restored.tolist() == [[0.0, -4.0], [6.0, 1.0], [8.0, 4.0]]
    back = statistics.normalise(restored, 'quantile', epsilon=0.0)
    assert back.tolist() == chunk.tolist()


def test_key_may_hold_dots_and_the_names_may_be_others(tmp_path):
    path = written(tmp_path, {'action.arm': {'min': [0], 'max': [1]}, 'p_min': [2], 'p_max': [3]})
    assert load_statistics(path, 'action.arm').pair('min_max')[1].tolist() == [1.0]
    named = load_statistics(path, names={'min': 'p_min', 'max': 'p_max'}, needs=('min', 'max'))
    assert [vector.tolist() for vector in named.pair('min_max')] == [[2.0], [3.0]]


@pytest.mark.parametrize(
    ('document', 'key', 'message'),
    [
        ({'norm_stats': {'state': {}}}, 'norm_stats/actions', 'norm_stats/actions: there is no'),
        ({'norm_stats': {'state': {}}}, 'norm_stats/actions', r'\(there are state\)'),
        ({'actions': {'mean': [1.0]}}, 'actions', r'actions: has no q01 \(there are mean\)'),
        ({'actions': {'q01': [1], 'q99': [2, 3]}}, 'actions', 'q01 has 1 numbers, expected 2'),
        ({'actions': {'q01': [1, 2], 'q99': [2, 1]}}, 'actions', r'q01\[1\] is above q99\[1\]'),
        ({'actions': {'q01': ['a'], 'q99': [1]}}, 'actions', 'actions/q01: must be a list'),
        ('{"actions": {"q01": [NaN, 1], "q99": [1, 1]}}', 'actions', r'q01\[0\]: must be finite'),
        ('{"actions": ', 'actions', 'line 1: is no JSON'),
        ({'actions': [1]}, 'actions', 'actions: must be a mapping'),
    ],
)
def test_unusable_file_is_refused_naming_file_and_key(tmp_path, document, key, message):
    path = written(tmp_path, document)
    with pytest.raises(StatisticsError, match=message) as caught:
        load_statistics(path, key, needs=('q01', 'q99'), size=2)
    assert str(caught.value).startswith(str(path))


def test_missing_file_is_named(tmp_path):
    with pytest.raises(StatisticsError, match=r'nowhere\.json: cannot be read: No such file'):
        load_statistics(tmp_path / 'nowhere.json', 'actions')


def test_values_of_another_width_and_modes_without_statistics_are_refused(tmp_path):
    statistics = load_statistics(written(tmp_path, {'mean': [0.0, 1.0], 'std': [1.0, 1.0]}))
    with pytest.raises(StatisticsError, match=r'2 statistics do not fit values of shape \[5, 3\]'):
        statistics.restore(np.zeros((5, 3)), 'z_score')
    with pytest.raises(StatisticsError, match=r'quantile needs q01 \(it has mean, std\)'):
        statistics.restore(np.zeros((5, 2)), 'quantile')
