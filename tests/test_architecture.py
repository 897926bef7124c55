# SPDX-License-Identifier: Apache-2.0
"""Holds the sources to the arrows of docs/architecture.md: who imports what."""

import ast
import importlib.metadata
import importlib.util
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ElementTree
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / 'ros2_ws' / 'src'
PACKAGES = sorted(
    path.parent.name
    for path in SRC.glob('praxis_*/package.xml')
    if not path.parent.is_symlink() and (path.parent / path.parent.name).is_dir()
)
WORKSPACE = {*PACKAGES, 'praxis_interfaces', 'praxis_bringup'}

EVERYONE = {'praxis_core', 'praxis_interfaces'}
ALSO = {
    'praxis_hil': {'praxis_data'},
    'praxis_label': {'praxis_data'},
    'praxis_learn': {'praxis_data'},
    'praxis_cli': {'praxis_data'},
    'praxis_models': {'praxis_learn'},
}
ROS_EDGES = {
    'praxis_agent': {'ros_robot'},
    'praxis_hil': {'subscriptions'},
    'praxis_models': {'goal_servers'},
    'praxis_sim': {'publishing'},
}
"""Modules besides ``*_node`` that may import rclpy; praxis_core is the edge that all share."""
CORE_WITHOUT_ROS = (
    'adapter',
    'contract',
    'errors',
    'exchange_error',
    'fieldpath',
    'images',
    'legacy',
    'model_exchange',
    'model_meta',
    'native_control',
    'schema',
    'strictyaml',
    'testing',
    'worker_python',
)
ROS = {'rclpy', 'rosidl_runtime_py', 'rosidl_parser'}
INTERFACES = {
    'praxis_interfaces',
    'std_msgs',
    'sensor_msgs',
    'geometry_msgs',
    'builtin_interfaces',
}
WORKER_SIDE = (
    'adapters',
    'backend',
    'embeddings',
    'latency',
    'normalisation',
    'pickled',
    'pixels',
    'rotations',
    'transport',
    'wording',
    'workers',
)
WORKER_IMPORTS = {
    'annotated_types',
    'msgpack',
    'numpy',
    'praxis_core',
    'praxis_models',
    'pydantic',
    'pydantic_core',
    'typing_extensions',
    'typing_inspection',
    'websockets',
}
"""What every model's environment has; a worker imports all else when it loads its model."""
NO_NAMES = {'util', 'utils', 'helper', 'helpers', 'base', 'common', 'misc'}
NO_MODULES = {'pickle', 'cPickle', '_pickle', 'dill', 'cloudpickle', 'marshal', 'shelve', 'joblib'}
NO_CALLS = {'eval', 'exec', 'yaml.load', 'yaml.unsafe_load', 'yaml.full_load', 'os.system'}


def sources(package):
    return sorted((SRC / package / package).rglob('*.py'))


def files_of_tests(package):
    return sorted((SRC / package / 'test').rglob('*.py'))


def system_tests():
    return sorted((ROOT / 'tests').rglob('*.py'))


def where(path, node):
    return f'{path.relative_to(ROOT)}:{node.lineno}'


@cache
def tree(path):
    return ast.parse(path.read_text(encoding='utf-8'), str(path))


def dotted(node):
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f'{dotted(node.value)}.{node.attr}'
    return ''


def imports(path):
    """Every (node, module) that a file imports, inside functions and by name too."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node, node.module
        elif (
            isinstance(node, ast.Call)
            and dotted(node.func) in ('importlib.import_module', 'import_module', '__import__')
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            yield node, str(node.args[0].value)


def calls(path):
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            yield node, dotted(node.func)


def first_party(path):
    for node, module in imports(path):
        top = module.split('.')[0]
        if top in WORKSPACE:
            yield node, top


def faults_in_imports(package, path):
    allowed = EVERYONE | ALSO.get(package, set()) | {package}
    if package == 'praxis_core':
        allowed = {'praxis_core', 'praxis_interfaces'}
    return [
        f'{where(path, node)}: {package} imports {top}'
        for node, top in first_party(path)
        if top not in allowed
    ]


def test_there_is_something_to_check():
    assert {'praxis_core', 'praxis_data', 'praxis_sim'} <= set(PACKAGES)
    assert sources('praxis_core')


@pytest.mark.parametrize('package', PACKAGES)
def test_no_package_reaches_into_another(package):
    files = sources(package) + files_of_tests(package)
    assert [fault for path in files for fault in faults_in_imports(package, path)] == []


@pytest.mark.parametrize('package', PACKAGES)
def test_every_package_that_is_imported_is_declared(package):
    manifest = ElementTree.parse(SRC / package / 'package.xml').getroot()
    declared = {
        element.text
        for tag in ('depend', 'exec_depend', 'test_depend')
        for element in manifest.findall(tag)
    }
    used = {top for path in sources(package) for _, top in first_party(path)} - {package}
    assert used - declared == set()


@pytest.mark.parametrize('package', [name for name in PACKAGES if name != 'praxis_core'])
def test_only_nodes_import_rclpy(package):
    edges = ROS_EDGES.get(package, set())
    faults = [
        f'{where(path, node)}: imports {module}'
        for path in sources(package)
        if not path.stem.endswith('_node') and path.stem not in edges
        for node, module in imports(path)
        if module.split('.')[0] == 'rclpy'
    ]
    assert faults == []


def test_listed_edges_exist():
    for package, stems in ROS_EDGES.items():
        assert stems <= {path.stem for path in sources(package)}, package


IMPORT_WITHOUT = """
    import importlib, pkgutil, sys

    refused, names = (set(words.split(',')) for words in sys.argv[1:])

    class Refuse:
        def find_spec(self, name, path=None, target=None):
            if name.split('.')[0] in refused:
                raise ImportError(f'{name} is not to be imported here')

    sys.meta_path.insert(0, Refuse())
    count = 0
    for name in names:
        found = importlib.import_module(name)
        inside = pkgutil.walk_packages(getattr(found, '__path__', ()), f'{name}.')
        for module in [name, *(each.name for each in inside)]:
            if not module.endswith('.__main__'):
                importlib.import_module(module)
                count += 1
    print(count, 'imported')
"""


def count_imported(names, *, refused):
    """Import modules, and all that packages hold, in a process where others cannot be had."""
    result = subprocess.run(
        [
            sys.executable,
            '-c',
            textwrap.dedent(IMPORT_WITHOUT),
            ','.join(refused),
            ','.join(names),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return int(result.stdout.split()[0])


def test_data_contract_and_images_import_without_rclpy():
    names = ['praxis_data', *(f'praxis_core.{name}' for name in CORE_WITHOUT_ROS)]
    assert count_imported(names, refused=ROS) > len(names)


def test_the_gateway_imports_without_rclpy():
    assert count_imported(['praxis_models.gateway'], refused=ROS) > 1


def test_workers_import_with_what_every_models_environment_has():
    installed = set(importlib.metadata.packages_distributions())
    names = [f'praxis_models.{name}' for name in WORKER_SIDE]
    refused = {*ROS, *INTERFACES, *installed} - WORKER_IMPORTS
    assert count_imported(names, refused=refused) > len(names)


@pytest.mark.parametrize('package', PACKAGES)
def test_no_room_without_a_name(package):
    named = [
        str(path.relative_to(ROOT))
        for path in (SRC / package).rglob('*.py')
        if path.stem in NO_NAMES or path.parent.name in NO_NAMES
    ]
    assert named == []


@pytest.mark.parametrize('package', PACKAGES)
def test_nothing_loads_code_from_data(package):
    faults = []
    for path in sources(package):
        faults += [
            f'{where(path, node)}: imports {module}'
            for node, module in imports(path)
            if module.split('.')[0] in NO_MODULES
        ]
        for node, name in calls(path):
            keywords = {word.arg: word.value for word in node.keywords}
            truth = {
                key: value.value for key, value in keywords.items() if hasattr(value, 'value')
            }
            if (
                name in NO_CALLS
                or truth.get('allow_pickle') is True
                or truth.get('shell') is True
                or (name == 'torch.load' and truth.get('weights_only') is not True)
            ):
                faults.append(f'{where(path, node)}: calls {name}')
    assert faults == []


@pytest.mark.parametrize('package', [*PACKAGES, None])
def test_tests_wait_on_conditions_not_on_time(package):
    files = system_tests() if package is None else files_of_tests(package)
    faults = []
    for path in files:
        named = {
            alias.asname or alias.name
            for node in ast.walk(tree(path))
            if isinstance(node, ast.ImportFrom) and node.module == 'time'
            for alias in node.names
            if alias.name == 'sleep'
        }
        faults += [
            f'{where(path, node)}: {name}'
            for node, name in calls(path)
            if name == 'time.sleep' or name in named
        ]
    assert faults == []


@pytest.mark.parametrize('package', [*PACKAGES, None])
def test_every_file_states_its_licence(package):
    files = system_tests() if package is None else sorted((SRC / package).rglob('*.py'))
    without = [
        str(path.relative_to(ROOT))
        for path in files
        if not path.read_text(encoding='utf-8').startswith('# SPDX-License-Identifier: Apache-2.0')
    ]
    assert without == []


# --- the test itself ---


@pytest.mark.parametrize(
    'line',
    [
        'import praxis_sim',
        'import praxis_sim.platform as p',
        'from praxis_sim.platform import Task',
        'def f():\n    from praxis_sim import platform',
        'import importlib\nimportlib.import_module("praxis_sim.platform")',
    ],
)
def test_a_reach_across_is_found(tmp_path, monkeypatch, line):
    path = tmp_path / 'module.py'
    path.write_text(f'{line}\n')
    monkeypatch.setattr(sys.modules[__name__], 'ROOT', tmp_path)
    assert len(faults_in_imports('praxis_control', path)) == 1
    assert faults_in_imports('praxis_sim', path) == []


def attributes_set(file, chosen):
    """Names that the chosen classes of a file set on self."""
    return {
        part.attr
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef) and chosen(node)
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store)
        if ast.unparse(part.value) == 'self'
    }


def test_no_node_shadows_an_attribute_of_rclpy():
    rclpy = Path(importlib.util.find_spec('rclpy').origin).parent
    taken = attributes_set(rclpy / 'node.py', lambda node: node.name == 'Node')
    taken |= attributes_set(rclpy / 'lifecycle' / 'node.py', lambda node: True)
    assert {'_parameters', '_services', '_state_machine'} <= taken
    files = [*(ROOT / 'scripts').rglob('*.py'), *(ROOT / 'tests').rglob('*.py')]
    for package in PACKAGES:
        files += [*sources(package), *files_of_tests(package)]
    shadows = {
        f'{file.relative_to(ROOT)}: {name}'
        for file in files
        for name in taken
        & attributes_set(
            file, lambda node: any(ast.unparse(base).endswith('Node') for base in node.bases)
        )
    }
    assert not shadows
