# SPDX-License-Identifier: Apache-2.0
"""Physical observation to a model's own input, and its output to native control."""
