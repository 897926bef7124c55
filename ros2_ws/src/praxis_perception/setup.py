# SPDX-License-Identifier: Apache-2.0

from setuptools import find_packages, setup

PACKAGE = 'praxis_perception'

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
    description='Segmentation and back-projection services.',
    license='Apache-2.0',
    extras_require={'test': ['pytest']},
    entry_points={
        'console_scripts': [
            'perception = praxis_perception.perception_node:main',
        ],
    },
)
