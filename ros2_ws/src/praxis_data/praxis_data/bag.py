# SPDX-License-Identifier: Apache-2.0
"""rosbag2 bags: the names that other modules and packages use."""

from praxis_data.bag_format import BagError, BagTopic, qos_profile
from praxis_data.bag_reader import BagInfo, BagReader, Message, bag_info
from praxis_data.bag_writer import BagWriter

__all__ = [
    'BagError',
    'BagInfo',
    'BagReader',
    'BagTopic',
    'BagWriter',
    'Message',
    'bag_info',
    'qos_profile',
]
