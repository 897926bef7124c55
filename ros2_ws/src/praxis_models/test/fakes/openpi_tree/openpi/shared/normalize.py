# SPDX-License-Identifier: Apache-2.0
"""Statistics as openpi 15a9616a writes them (shared/normalize.py)."""

import json


def deserialize_json(data):
    return json.loads(data)['norm_stats']
