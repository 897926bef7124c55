# SPDX-License-Identifier: Apache-2.0
import io
import struct
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from praxis_models.pickled import reader
from praxis_models.pickled.values import PickledError, Tensor

sys.path.insert(0, str(Path(__file__).parent))
from fakes import torch_files

T = np.array([[-1.0, -0.75, -0.5], [-0.25, 0.0, 0.25]], np.float32)


def written(path, data):
    path.write_bytes(data)
    return path


# --- what PyTorch and NumPy write ---


def test_a_pickled_mapping_of_tensors_is_read_without_pytorch():
    found = reader.loads(torch_files.PICKLED)
    assert list(found) == ['open the drawer', 'close it']
    assert found['open the drawer'].dtype == 'bfloat16'
    np.testing.assert_array_equal(found['open the drawer'].values, T[None])
    np.testing.assert_array_equal(found['close it'].values, T[None, 1:])
    assert 'torch' not in sys.modules


def test_a_file_of_torch_save_is_read(tmp_path):
    found = reader.read(written(tmp_path / 'a.pt', torch_files.SAVED))
    np.testing.assert_array_equal(found['context'].values, T)
    assert found['mask'].values.tolist() == [True, False]


def test_an_old_file_of_torch_save_is_read_with_its_strides(tmp_path):
    found = reader.read(written(tmp_path / 'a.pt', torch_files.SAVED_BEFORE_1_6))
    np.testing.assert_array_equal(found['context'].values, T.T)
    assert found['f'] == Tensor(pytest.approx(np.ones(2)), 'float16')


def test_arrays_keep_their_byte_order_and_layout():
    found = reader.loads(torch_files.ARRAYS)
    assert found['x'].tolist() == [[0, 2], [1, 3]]
    assert found['s'] == 1.5
    assert found['o'] == {'a': 1}


@pytest.mark.parametrize('name', ['ARRAYS_PROTOCOL_2', 'ARRAYS_PROTOCOL_4'])
def test_arrays_of_other_protocols_are_read(name):
    assert reader.loads(getattr(torch_files, name))['x'].tolist() == [0.0, 1.0, 2.0, 3.0]


def test_arrays_of_numpy_2_are_read_whose_modules_have_an_underscore():
    data = torch_files.ARRAYS_PROTOCOL_2.replace(b'numpy.core', b'numpy._core')
    assert data != torch_files.ARRAYS_PROTOCOL_2
    assert reader.loads(data)['x'].tolist() == [0.0, 1.0, 2.0, 3.0]


def test_arrays_of_protocol_5_are_read():
    found = reader.loads(torch_files.ARRAYS_PROTOCOL_5)
    assert found['x'].tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


def test_plain_values_are_what_they_were():
    data = (
        b'\x80\x04}(\x8c\x01a]K\x01a\x8c\x01b(K\x02G?\xf8\x00\x00\x00\x00\x00\x00Nt\x8c\x01c\x88u.'
    )
    assert reader.loads(data) == {'a': [1], 'b': (2, 1.5, None), 'c': True}


# --- what must not run ---


def text(value):
    return b'\x8c' + bytes([len(value)]) + value.encode()


@pytest.fixture
def harm(tmp_path):
    """Command whose success leaves a file behind, and the file."""
    victim = tmp_path / 'ran'
    return f'touch {victim}', victim


def refused(data, what):
    with pytest.raises(PickledError, match=what):
        reader.loads(data)


def test_a_call_of_the_shell_is_refused_by_name_and_does_not_run(harm):
    command, victim = harm
    refused(f"cos\nsystem\n(S'{command}'\ntR.".encode(), r'os\.system is not permitted')
    refused(f"cposix\nsystem\n(S'{command}'\ntR.".encode(), r'posix\.system is not permitted')
    stacked = b'\x80\x04' + text('os') + text('system') + b'\x93' + text(command) + b'\x85R.'
    refused(stacked, r'os\.system is not permitted')
    assert not victim.exists()


@pytest.mark.parametrize(
    'name',
    [
        ('builtins', 'eval'),
        ('builtins', 'getattr'),
        ('builtins', '__import__'),
        ('torch', 'load'),
        ('torch.storage', '_load_from_bytes.__globals__'),
        ('numpy', 'load'),
        ('numpy', 'ndarray.tofile'),
        ('_codecs', 'decode'),
        ('collections', 'OrderedDict.fromkeys'),
        ('functools', 'partial'),
        ('operator', 'attrgetter'),
    ],
)
def test_a_name_that_is_not_listed_is_refused(name):
    module, attribute = name
    data = b'\x80\x04' + text(module) + text(attribute) + b'\x93.'
    refused(data, f'{module}.{attribute} is not permitted')


def test_a_call_deep_inside_containers_is_refused(harm):
    command, victim = harm
    inner = b'cos\nsystem\n' + b'(' + text(command) + b'tR'
    refused(b'\x80\x04}' + text('embeddings') + b'](' + inner + b'es.', 'not permitted')
    assert not victim.exists()


def test_a_call_inside_the_storage_of_a_tensor_is_refused(harm):
    command, victim = harm
    evil = f"cos\nsystem\n(S'{command}'\ntR.".encode()
    inside = b'B' + struct.pack('<I', len(evil)) + evil
    data = b'\x80\x04' + text('torch.storage') + text('_load_from_bytes') + b'\x93' + inside
    refused(data + b'\x85R.', r'os\.system is not permitted')
    assert not victim.exists()


def test_a_storage_inside_a_storage_is_refused():
    magic = b'\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.'
    nested = magic + b'\x80\x02M\xe9\x03.' + b'\x80\x02ctorch.storage\n_load_from_bytes\n.'
    inside = b'B' + struct.pack('<I', len(nested)) + nested
    data = b'\x80\x04' + text('torch.storage') + text('_load_from_bytes') + b'\x93' + inside
    refused(data + b'\x85R.', r'torch\.storage\._load_from_bytes is not permitted')


@pytest.mark.parametrize(
    'data',
    [
        b'\x80\x02}}b.',
        b'\x80\x02](K\x01K\x02eN}b.',
        b'\x80\x02cnumpy\nndarray\n}b.',
        b'\x80\x02ctorch\nFloatStorage\n}b.',
    ],
    ids=['mapping', 'none', 'class', 'storage'],
)
def test_a_state_is_set_on_arrays_only(data):
    refused(data, 'a state for .* is not permitted')


def test_a_second_state_is_refused():
    make = b'cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tC\x01btR'
    dtype = b'(cnumpy\ndtype\n(X\x02\x00\x00\x00f4I00\nI01\ntR'
    state = b'(K\x01(K\x01t' + dtype[1:] + b'I00\nC\x04\x00\x00\x80?t'
    assert reader.loads(b'\x80\x03' + make + state + b'b.').tolist() == [1.0]
    refused(b'\x80\x03' + make + state + b'b' + state + b'b.', 'a state for array')


@pytest.mark.parametrize(
    ('data', 'what'),
    [
        (b'\x80\x02\x82\x01.', 'EXT1'),
        (b'\x80\x02\x83\x01\x00.', 'EXT2'),
        (b'\x80\x02\x84\x01\x00\x00\x00.', 'EXT4'),
        (b'(ios\nsystem\nN.', 'INST'),
        (b'(cnumpy\ndtype\no.', 'OBJ'),
        (b'\x80\x02cnumpy\ndtype\n)\x81.', 'NEWOBJ'),
        (b'\x80\x04cnumpy\ndtype\n)}\x92.', 'NEWOBJ_EX'),
        (b'P1\n.', 'PERSID'),
        (b'\x80\x05\x97.', 'NEXT_BUFFER'),
        (b'\x80\x04\x8f.', 'EMPTY_SET'),
    ],
)
def test_other_ways_to_build_objects_are_refused(data, what):
    refused(data, f'the operation {what} is not permitted')


def test_an_extension_code_is_refused_even_if_this_process_has_registered_it():
    copyreg = pytest.importorskip('copyreg')
    copyreg.add_extension('os', 'system', 241)
    try:
        refused(b'\x80\x02\x82\xf1(S"false"\ntR.', 'EXT1 is not permitted')
    finally:
        copyreg.remove_extension('os', 'system', 241)


@pytest.mark.parametrize(
    ('data', 'what'),
    [
        (b'\x80\x02h\x05.', 'damaged'),
        (
            b'\x80\x02cnumpy\ndtype\nq\x000h\x00(X\x01\x00\x00\x00OtR.',
            "dtype 'O' is not permitted",
        ),
        (b'\x80\x02X\x02\x00\x00\x00osq\x00h\x00X\x06\x00\x00\x00system\x93.', 'not permitted'),
        (b'\x80\x02(q\x000h\x00R.', 'damaged'),
        (b'\x80\x02ctorch\nFloatStorage\n)R.', 'a call of torch.FloatStorage is not permitted'),
        (b'\x80\x02K\x01)R.', 'a call of 1 is not permitted'),
        (b'\x80\x02K\x01Q.', 'a persistent identity is not permitted'),
        (b'\x80\x02]q\x00h\x00a.', 'nested too deeply'),
        (b'\x80\x02}](K\x01eK\x01s.', 'a key of type list is not permitted'),
        (b'\x80\x02R.', 'nothing to take'),
        (b'\x80\x02}u.', 'no mark'),
        (b'\x80\x02K\x01', 'damaged|no end'),
        (b'', 'damaged'),
        (b'GIF89a', 'damaged'),
    ],
    ids=str,
)
def test_tricks_with_memo_stack_and_mark_end_in_an_error(data, what):
    refused(data, what)


def test_the_names_in_the_list_are_labels_and_are_not_imported(monkeypatch):
    class Refuse:
        def find_spec(self, name, path=None, target=None):
            raise AssertionError(f'{name} is imported')

    monkeypatch.setattr(sys, 'meta_path', [Refuse()])
    assert reader.loads(torch_files.PICKLED)['close it'].values.shape == (1, 1, 3)


# --- sizes that lie ---


def tensor(storage_bytes, size, stride, offset=0, length=None):
    """A file of torch.save with one float32 tensor."""

    def numbers(values):
        return b'(' + b''.join(b'J' + struct.pack('<i', value) for value in values) + b't'

    length = len(storage_bytes) // 4 if length is None else length
    identity = (
        b'(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu'
    )
    identity += b'J' + struct.pack('<i', length) + b't'
    body = b'ctorch._utils\n_rebuild_tensor_v2\n(' + identity + b'Q'
    body += b'J' + struct.pack('<i', offset) + numbers(size) + numbers(stride)
    body += b'\x89ccollections\nOrderedDict\n)RtR.'
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, 'w', zipfile.ZIP_STORED) as archive:
        archive.writestr('a/data.pkl', b'\x80\x02' + body)
        archive.writestr('a/data/0', storage_bytes)
    return stream.getvalue()


FOUR = np.arange(4, dtype='<f4').tobytes()


def test_the_hand_made_file_is_read(tmp_path):
    found = reader.read(written(tmp_path / 'a.pt', tensor(FOUR, (2, 2), (1, 2))))
    assert found.values.tolist() == [[0.0, 2.0], [1.0, 3.0]]


@pytest.mark.parametrize(
    ('made', 'what'),
    [
        (lambda: tensor(FOUR, (5,), (1,)), 'reaches beyond'),
        (lambda: tensor(FOUR, (2,), (1,), offset=3), 'reaches beyond'),
        (lambda: tensor(FOUR, (1 << 30,), (0,)), 'reaches beyond'),
        (lambda: tensor(FOUR, (2,), (-1,), offset=3), 'not made of numbers'),
        (lambda: tensor(FOUR, (2,), (1, 1)), 'of size'),
        (lambda: tensor(FOUR, (4,), (1,), length=1 << 30), 'not all there'),
    ],
    ids=['size', 'offset', 'repeated', 'backwards', 'dims', 'length'],
)
def test_a_tensor_beyond_its_storage_is_refused(tmp_path, made, what):
    with pytest.raises(PickledError, match=what):
        reader.read(written(tmp_path / 'a.pt', made()))


def test_an_array_whose_bytes_do_not_fit_is_refused():
    data = torch_files.ARRAYS_PROTOCOL_4.replace(b'C\x10', b'C\x0f', 1)
    assert data != torch_files.ARRAYS_PROTOCOL_4
    with pytest.raises(PickledError):
        reader.loads(data)


def test_an_array_of_objects_is_refused():
    data = torch_files.ARRAYS_PROTOCOL_2.replace(b'f4', b'O8')
    refused(data, "dtype 'O8' is not permitted")


@pytest.mark.parametrize('data', [torch_files.PICKLED, torch_files.SAVED_BEFORE_1_6])
def test_a_cut_file_ends_in_an_error_wherever_it_is_cut(data):
    for end in range(len(data)):
        with pytest.raises(PickledError):
            reader.loads(data[:end])


@pytest.mark.filterwarnings('ignore:invalid escape sequence')
def test_random_bytes_end_in_an_error_or_in_data():
    random = np.random.default_rng(7)
    for _ in range(3000):
        data = bytearray(torch_files.PICKLED)
        for at in random.integers(0, len(data), 3):
            data[at] = random.integers(256)
        try:
            reader.loads(bytes(data))
        except PickledError:
            continue


def test_a_compressed_or_foreign_zip_is_refused(tmp_path):
    path = tmp_path / 'a.pt'
    with zipfile.ZipFile(path, 'w') as archive:
        archive.writestr('readme', 'x')
    with pytest.raises(PickledError, match=r'a\.pt: a zip that is not of torch\.save'):
        reader.read(path)
    saved = zipfile.ZipFile(io.BytesIO(tensor(FOUR, (4,), (1,))))
    with saved, zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as archive:
        for name in saved.namelist():
            archive.writestr(name, saved.read(name))
    with pytest.raises(PickledError, match="storage '0' is not there"):
        reader.read(path)


def test_a_parameter_names_what_it_would_need():
    refused(torch_files.PARAMETER, r'torch\._utils\._rebuild_parameter is not permitted')
