# SPDX-License-Identifier: Apache-2.0
import sys

from lerobot.policies import inference_inputs

sys.modules['lerobot.policies.utils'] = inference_inputs
