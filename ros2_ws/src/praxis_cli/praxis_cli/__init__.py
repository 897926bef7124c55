# SPDX-License-Identifier: Apache-2.0
"""The praxis command: launch, bag, doctor."""
