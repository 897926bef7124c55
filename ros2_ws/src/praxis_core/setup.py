# SPDX-License-Identifier: Apache-2.0

from setuptools import find_packages, setup

PACKAGE = 'praxis_core'

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
    description='Contract, images, QoS, parameters and diagnostics of Praxis.',
    license='Apache-2.0',
    extras_require={'test': ['pytest']},
    entry_points={
        'pytest11': ['praxis_core = praxis_core.testing'],
    },
)
