# SPDX-License-Identifier: Apache-2.0
"""Messages of the graph to what a model wants to see."""
