# SPDX-License-Identifier: Apache-2.0
from praxis_hil.disk_space import GIB, DiskGuard


def guard(free_gb, min_free_gb, path):
    return DiskGuard([path], min_free_gb, lambda _: (100 * GIB, 0, int(free_gb * GIB)))


def test_shortage_names_folder_and_limit(tmp_path):
    text = guard(1.5, 2.0, tmp_path).shortage()
    assert str(tmp_path) in text
    assert '1.50 GiB free' in text
    assert 'min_free_gb = 2' in text


def test_enough_space_is_no_shortage(tmp_path):
    assert guard(2.5, 2.0, tmp_path).shortage() == ''


def test_folder_that_does_not_exist_yet_counts_as_its_parent(tmp_path):
    real = DiskGuard([tmp_path / 'a' / 'b'], 0.0)
    assert real.free_bytes() > 0
    assert real.shortage() == ''
