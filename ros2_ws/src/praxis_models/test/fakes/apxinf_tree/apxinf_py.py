# SPDX-License-Identifier: Apache-2.0
"""The CUDA extension, of which only its presence is needed."""
