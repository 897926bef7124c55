# SPDX-License-Identifier: Apache-2.0

from setuptools import find_packages, setup

PACKAGE = 'praxis_models'

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
    description='Action-model clients and workers.',
    license='Apache-2.0',
    extras_require={'test': ['pytest']},
    entry_points={
        'console_scripts': [
            'action_model = praxis_models.action_model_node:main',
            'worker = praxis_models.workers.command_line:main',
            'gateway = praxis_models.gateway.server:main',
        ],
    },
)
