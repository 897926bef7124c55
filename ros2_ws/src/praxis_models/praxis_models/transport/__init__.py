# SPDX-License-Identifier: Apache-2.0
"""Talking to model servers: wire format, sockets, and a connection that outlives them."""
