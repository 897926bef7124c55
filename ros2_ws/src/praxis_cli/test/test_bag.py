# SPDX-License-Identifier: Apache-2.0
import json

import numpy as np
import pytest
from praxis_cli.main import main
from praxis_data import convert, messages
from praxis_data.bag import BagReader, BagTopic, BagWriter

START = 1_700_000_000_000_000_000
PERIOD = 50_000_000
ROWS = 8
KINDS = {
    'state': 'praxis_interfaces/msg/StateVector',
    'command': 'praxis_interfaces/msg/Command',
    'cameras/top/image_raw': 'sensor_msgs/msg/Image',
}
CONTRACT = """\
schema_version: 2
name: bench
interface:
  embodiment: bench_2d
  robot_type: bench
  policy_hz: 20.0
  action_space: bench.delta.v1
  action_kind: delta
  gripper: {action: grip, open: -1.0, close: 1.0}
  state: {names: [x, opening], units: [m, m]}
  action: {names: [dx, grip], units: [normalised, normalised]}
  cameras:
    top: {role: primary, width: 64, height: 48, channels: 3}
deployment:
  base_frame: world
  command_hz: 20.0
  record_hz: 20.0
  cameras:
    top: {fps: 20.0, frame: top_optical_frame, max_age: 0.15}
  limits:
    dx: {min: -1.0, max: 1.0, max_step: 2.0}
    grip: {min: -1.0, max: 1.0, max_step: 2.0}
  max_age: {state: 0.25, request: 0.25}
"""
METADATA = {convert.CONTRACT: CONTRACT, convert.TASK: 'reach', convert.EPISODE_UUID: 'a' * 32}


def write(path, metadata=METADATA, close=True):
    """Write a short episode as a bag; `close=False` leaves it as a crash does."""
    writer = BagWriter(
        path, 'mcap', [BagTopic(name, kind) for name, kind in KINDS.items()], metadata
    )
    for k in range(ROWS):
        stamp = START + k * PERIOD
        header = {'stamp': messages.time_fields(stamp), 'frame_id': 'world'}
        fields = {
            'cameras/top/image_raw': {
                'height': 48,
                'width': 64,
                'encoding': 'rgb8',
                'step': 192,
                'data': np.full((48, 64, 3), k, np.uint8).tobytes(),
            },
            'state': {'observation_seq': k, 'values': [0.1 * k, 0.05], 'cameras': ['top']},
            'command': {
                'seq': k,
                'source': 'policy',
                'values': [0.5, 1.0],
                'requested': [0.5, 1.0],
            },
        }
        for topic, values in fields.items():
            message = messages.make(KINDS[topic], header=header, **values)
            writer.write(topic, messages.encode(KINDS[topic], message), stamp)
    if close:
        writer.close()
    else:
        writer.flush()
        writer.abort()
    return path


def test_info_shows_counts_rates_and_what_the_bag_carries(tmp_path, capsys):
    bag = write(tmp_path / 'bag')
    assert main(['bag', 'info', str(bag), '--json']) == 0
    (info,) = json.loads(capsys.readouterr().out)
    assert info['counts'] == dict.fromkeys(KINDS, ROWS)
    assert (info['closed'], info['message_count']) == (True, 3 * ROWS)
    assert info['custom_data'][convert.CONTRACT] == 'bench'
    assert main(['bag', 'info', str(bag)]) == 0
    text = capsys.readouterr().out
    assert 'praxis_interfaces/msg/StateVector' in text
    assert '20.0' in text
    assert 'task          reach' in text


def test_convert_makes_an_episode_of_each_bag(tmp_path, capsys):
    bags = [write(tmp_path / name, METADATA | {convert.EPISODE_UUID: name * 32}) for name in 'ab']
    dataset = tmp_path / 'dataset'
    assert main(['bag', 'convert', *map(str, bags), '--dataset', str(dataset), '--json']) == 0
    outcomes = json.loads(capsys.readouterr().out)
    assert [outcome['episode_index'] for outcome in outcomes] == [0, 1]
    assert [outcome['rows'] for outcome in outcomes] == [ROWS, ROWS]
    assert len(list(dataset.rglob('*.mp4'))) == 2


def test_a_bag_without_contract_and_task_needs_them_given(tmp_path, capsys):
    bag = write(tmp_path / 'bag', {})
    command = ['bag', 'convert', str(bag), '--dataset', str(tmp_path / 'dataset')]
    assert main(command) == 1
    assert 'carries no contract; give one' in capsys.readouterr().err
    contract = tmp_path / 'bench.yaml'
    contract.write_text(CONTRACT)
    assert main([*command, '--contract', str(contract), '--task', 'reach']) == 0
    assert f'{ROWS} rows' in capsys.readouterr().out


def test_one_bad_bag_does_not_keep_the_others_back(tmp_path, capsys):
    bag = write(tmp_path / 'bag')
    assert main(['bag', 'info', str(tmp_path / 'none'), str(bag), '--json']) == 1
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)) == 1
    assert 'error:' in captured.err


def test_recover_rebuilds_the_unfinished_bags_of_a_folder(tmp_path, capsys):
    folder = tmp_path / 'bags'
    write(folder / 'whole')
    write(folder / 'cut', close=False)
    assert main(['bag', 'recover', str(folder), '--json']) == 0
    (outcome,) = json.loads(capsys.readouterr().out)
    assert outcome['path'] == str(folder / 'cut_recovered')
    assert outcome['messages'] == 3 * ROWS
    assert BagReader(folder / 'cut_recovered').closed


def test_a_bag_without_one_whole_message_is_a_failure_and_leaves_nothing(tmp_path, capsys):
    bag = tmp_path / 'cut.mcap'
    write(tmp_path / 'whole')
    bag.write_bytes(next((tmp_path / 'whole').glob('*.mcap')).read_bytes()[:20])
    assert main(['bag', 'recover', str(bag)]) == 1
    assert f'{bag}: holds no whole message' in ' '.join(capsys.readouterr().err.split())
    assert not list(tmp_path.glob('*_recovered'))


def test_a_file_that_is_no_bag_is_named(tmp_path, capsys):
    path = tmp_path / 'notes.txt'
    path.write_text('no bag')
    assert main(['bag', 'info', str(path)]) == 1
    assert 'is no bag: a .txt file' in ' '.join(capsys.readouterr().err.split())


def test_recover_into_a_dataset_brings_the_episode_in(tmp_path, capsys):
    bag = write(tmp_path / 'bags/cut', close=False)
    assert main(['bag', 'recover', str(bag), '--dataset', str(tmp_path / 'dataset')]) == 0
    assert f'episode 0 of {tmp_path}/dataset, {ROWS} rows' in capsys.readouterr().out


def test_a_folder_without_unfinished_bags_is_no_failure(tmp_path, capsys):
    write(tmp_path / 'bags/whole')
    assert main(['bag', 'recover', str(tmp_path / 'bags')]) == 0
    assert 'no unfinished bag' in capsys.readouterr().err


@pytest.mark.parametrize('action', ['info', 'convert', 'recover'])
def test_every_action_explains_itself(action, capsys):
    with pytest.raises(SystemExit) as raised:
        main(['bag', action, '--help'])
    assert raised.value.code == 0
    assert '--json' in capsys.readouterr().out
