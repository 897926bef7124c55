# SPDX-License-Identifier: Apache-2.0

from setuptools import find_packages, setup

PACKAGE = 'praxis_control'

setup(
    name=PACKAGE,
    version='0.1.0',
    packages=find_packages(exclude=['test']),
    package_data={PACKAGE: ['models/*.xml']},
    data_files=[
        ('share/ament_index/resource_index/packages', [f'resource/{PACKAGE}']),
        (f'share/{PACKAGE}', ['package.xml']),
    ],
    install_requires=['setuptools'],
    zip_safe=False,
    maintainer='The Praxis developers',
    maintainer_email='maintainers@praxis.invalid',
    description='Command arbiter, safety gate and motion primitives.',
    license='Apache-2.0',
    extras_require={'test': ['pytest']},
    entry_points={
        'console_scripts': [
            'arbiter = praxis_control.arbiter_node:main',
            'primitives = praxis_control.primitives_node:main',
        ],
    },
)
