# SPDX-License-Identifier: Apache-2.0
"""Contract, images, QoS, parameters, diagnostics: what every package of Praxis shares."""
