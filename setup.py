# SPDX-License-Identifier: Apache-2.0
"""The repository root as the ROS 2 package praxis_bringup: launch, params, rviz."""

from pathlib import Path

from setuptools import setup

PACKAGE = 'praxis_bringup'


def shared(folder: str) -> list[tuple[str, list[str]]]:
    """List a folder's files as data_files entries that keep its tree."""
    folders = [Path(folder), *(path for path in Path(folder).rglob('*') if path.is_dir())]
    return [
        (f'share/{PACKAGE}/{path}', [str(file) for file in path.iterdir() if file.is_file()])
        for path in folders
    ]


setup(
    name=PACKAGE,
    version='0.1.0',
    packages=[],
    data_files=[
        ('share/ament_index/resource_index/packages', [f'resource/{PACKAGE}']),
        (f'share/{PACKAGE}', ['package.xml']),
        *shared('launch'),
        *shared('params'),
        *shared('rviz'),
    ],
    install_requires=['setuptools'],
    zip_safe=False,
    maintainer='The Praxis developers',
    maintainer_email='maintainers@praxis.invalid',
    description='Launch files, parameters and rviz layouts of Praxis.',
    license='Apache-2.0',
    extras_require={'test': ['pytest']},
)
