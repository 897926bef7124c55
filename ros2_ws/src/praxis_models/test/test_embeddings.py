# SPDX-License-Identifier: Apache-2.0
import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from praxis_models import embeddings
from praxis_models.embeddings import Embedding, Embeddings, EmbeddingsError

sys.path.insert(0, str(Path(__file__).parent))
from fakes import torch_files

T = np.array([[-1.0, -0.75, -0.5], [-0.25, 0.0, 0.25]], np.float32)


@pytest.fixture
def pickled(tmp_path):
    path = tmp_path / 'libero_t5_embeddings.pkl'
    path.write_bytes(torch_files.PICKLED)
    return path


def table(**entries):
    return Embeddings({key: Embedding(value) for key, value in entries.items()}, 'test')


def test_a_table_comes_back_as_it_was_written(tmp_path):
    mask = np.array([True, False])
    written = Embeddings(
        {
            'open the drawer': Embedding(T, mask, 'bfloat16'),
            'fermer le tiroir \u00e0 c\u00f4t\u00e9': Embedding(T[:1] * np.float32(1.1)),
        },
        'here',
    )
    embeddings.write(tmp_path / 'a.npz', written)
    found = embeddings.read(tmp_path / 'a.npz')
    assert found.instructions == written.instructions
    assert (len(found), found.width) == (2, 3)
    entry = found.of('open the drawer')
    assert entry.values.dtype == np.float32 and entry.dtype == 'bfloat16'
    np.testing.assert_array_equal(entry.values, T)
    np.testing.assert_array_equal(entry.mask, mask)
    other = found.of(found.instructions[1])
    np.testing.assert_array_equal(other.values, T[:1] * np.float32(1.1))
    assert other.mask is None


def test_the_file_is_one_that_numpy_reads_without_pickles(tmp_path):
    embeddings.write(tmp_path / 'a.npz', table(a=T))
    with np.load(tmp_path / 'a.npz', allow_pickle=False) as found:
        np.testing.assert_array_equal(found['0'], T)


def test_bfloat16_is_stored_in_its_sixteen_bits(tmp_path):
    entry = Embedding(np.full((1, 2), 1.5, np.float32), None, 'bfloat16')
    embeddings.write(tmp_path / 'a.npz', Embeddings({'a': entry}))
    with np.load(tmp_path / 'a.npz', allow_pickle=False) as found:
        # 1.5: sign 0, exponent 127, fraction 1000000
        assert found['0'].tolist() == [[0x3FC0, 0x3FC0]]


def test_the_same_table_gives_the_same_bytes(tmp_path):
    for name in ('a.npz', 'b.npz'):
        embeddings.write(tmp_path / name, table(a=T, b=T))
    assert (tmp_path / 'a.npz').read_bytes() == (tmp_path / 'b.npz').read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ['a.npz', 'b.npz']


def test_an_instruction_that_is_not_there_names_the_nearest():
    with pytest.raises(EmbeddingsError, match=r"got 'open the drawers'.*did you mean 'open the d"):
        Embeddings({'open the drawer': Embedding(T)}).of('open the drawers')
    with pytest.raises(EmbeddingsError, match='none of the 1 cached ones'):
        Embeddings({'a': Embedding(T)}).of('zzz')


def test_embeddings_of_different_width_are_refused():
    with pytest.raises(EmbeddingsError, match=r'of widths \[2, 3\]'):
        table(a=T, b=T[:, :2])
    with pytest.raises(EmbeddingsError, match='none'):
        Embeddings({})


def test_cosmos_policys_pickle_is_converted(tmp_path, pickled):
    embeddings.write(tmp_path / 'a.npz', embeddings.convert_file(pickled))
    found = embeddings.read(tmp_path / 'a.npz')
    assert found.instructions == ['open the drawer', 'close it']
    np.testing.assert_array_equal(found.of('open the drawer').values, T)
    np.testing.assert_array_equal(found.of('close it').values, T[1:])
    assert found.of('close it').dtype == 'bfloat16'


def test_what_is_no_mapping_of_embeddings_is_refused(pickled):
    pickled.write_bytes(b'\x80\x04]K\x01a.')
    with pytest.raises(EmbeddingsError, match='must hold a mapping from instructions'):
        embeddings.convert_file(pickled)
    pickled.write_bytes(b'\x80\x04}K\x01K\x02s.')
    with pytest.raises(EmbeddingsError, match='an instruction must be text'):
        embeddings.convert_file(pickled)


def test_an_entry_that_is_no_embedding_is_named(tmp_path):
    path = tmp_path / 'one.pt'
    path.write_bytes(torch_files.SAVED)
    with pytest.raises(EmbeddingsError, match="'mask': must be numbers of shape"):
        embeddings.convert_file(path)


def folder_with(tmp_path, instruction, prompt=embeddings.FAST_WAM_PROMPT):
    folder = tmp_path / 'libero'
    folder.mkdir(exist_ok=True)
    digest = hashlib.sha256(prompt.replace('{task}', instruction).encode()).hexdigest()
    (folder / f'{digest}.t5_len128.wan22ti2v5b.pt').write_bytes(torch_files.SAVED)
    return folder


def test_fast_wams_folder_is_converted_by_the_digest_of_its_prompt(tmp_path):
    folder = folder_with(tmp_path, 'open the drawer')
    found = embeddings.convert_folder(folder, ['open the drawer'])
    entry = found.of('open the drawer')
    np.testing.assert_array_equal(entry.values, T)
    assert entry.mask.tolist() == [True, False]
    assert entry.dtype == 'bfloat16'


def test_the_digest_is_that_of_the_published_prompt():
    text = embeddings.FAST_WAM_PROMPT.replace('{task}', 'open the drawer')
    assert text == (
        "A video recorded from a robot's point of view executing the following instruction: "
        'open the drawer'
    )


def test_an_instruction_without_a_file_is_named(tmp_path):
    folder = folder_with(tmp_path, 'open the drawer')
    with pytest.raises(EmbeddingsError, match=r"no file [0-9a-f]{12}\.\.\.\*\.pt for 'close it'"):
        embeddings.convert_folder(folder, ['open the drawer', 'close it'])


@pytest.mark.parametrize(
    ('damage', 'what'),
    [
        (lambda path: path.write_bytes(b'no zip'), 'is no file of embeddings'),
        (lambda path: path.write_bytes(torch_files.PICKLED), 'convert a pickle with'),
        (lambda path: path.unlink(), 'cannot be read: No such file'),
    ],
    ids=['text', 'pickle', 'missing'],
)
def test_a_file_that_is_no_table_is_refused_by_name(tmp_path, damage, what):
    path = tmp_path / 'a.npz'
    path.write_bytes(b'')
    damage(path)
    with pytest.raises(EmbeddingsError, match=rf'a\.npz: {what}|a\.npz.*{what}'):
        embeddings.read(path)


def rewritten(path, change):
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, 'w') as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def test_an_array_of_objects_in_a_table_is_refused(tmp_path):
    path = tmp_path / 'a.npz'
    embeddings.write(path, table(a=T))

    def change(members):
        members['0.npy'] = members['0.npy'].replace(b"'<f4'", b"'|O' ")

    rewritten(path, change)
    with pytest.raises(EmbeddingsError, match='Object arrays cannot be loaded'):
        embeddings.read(path)


def test_a_table_of_another_version_is_refused(tmp_path):
    path = tmp_path / 'a.npz'
    embeddings.write(path, table(a=T))

    def change(members):
        index = json.loads(members['index.json'])
        members['index.json'] = json.dumps({**index, 'format': 'praxis.embeddings.v9'}).encode()

    rewritten(path, change)
    with pytest.raises(EmbeddingsError, match=r'not of the format praxis\.embeddings\.v1'):
        embeddings.read(path)


def test_the_command_converts_a_folder_and_says_what_it_wrote(tmp_path, capsys):
    folder = folder_with(tmp_path, 'open the drawer')
    (tmp_path / 'libero.txt').write_text('open the drawer\n\n')
    output = tmp_path / 'libero.npz'
    wanted = str(tmp_path / 'libero.txt')
    assert embeddings.main([str(folder), str(output), '--instructions', wanted]) == 0
    assert '1 embeddings of 3 numbers a token' in capsys.readouterr().out
    assert embeddings.read(output).instructions == ['open the drawer']


def test_the_command_refuses_a_pickle_that_would_run_something(tmp_path):
    victim = tmp_path / 'ran'
    evil = tmp_path / 'evil.pkl'
    evil.write_bytes(f"cos\nsystem\n(S'touch {victim}'\ntR.".encode())
    result = subprocess.run(
        [sys.executable, '-m', 'praxis_models.embeddings', str(evil), str(tmp_path / 'a.npz')],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 1
    assert 'os.system is not permitted' in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not victim.exists() and not (tmp_path / 'a.npz').exists()
