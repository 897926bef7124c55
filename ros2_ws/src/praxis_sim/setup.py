# SPDX-License-Identifier: Apache-2.0

from setuptools import find_packages, setup

PACKAGE = 'praxis_sim'

setup(
    name=PACKAGE,
    version='0.1.0',
    packages=find_packages(exclude=['test']),
    data_files=[
        ('share/ament_index/resource_index/packages', [f'resource/{PACKAGE}']),
        (f'share/{PACKAGE}', ['package.xml']),
    ],
    install_requires=['setuptools'],
    zip_safe=False,
    maintainer='The Praxis developers',
    maintainer_email='maintainers@praxis.invalid',
    description='Simulators as ROS 2 nodes; platforms are plug-ins.',
    license='Apache-2.0',
    extras_require={'test': ['pytest']},
    entry_points={
        'console_scripts': [
            'simulator = praxis_sim.simulator_node:main',
        ],
        'praxis_sim.platforms': [
            'tabletop = praxis_sim.tabletop:TabletopPlatform',
            # The same scene; its contract asks for joint control.
            'tabletop_joint = praxis_sim.tabletop:TabletopPlatform',
            'libero = praxis_sim.libero:LiberoPlatform',
        ],
    },
)
