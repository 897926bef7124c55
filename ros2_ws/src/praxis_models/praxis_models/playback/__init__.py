# SPDX-License-Identifier: Apache-2.0
"""Chunks to commands: scaling in time, anchoring, blending."""
