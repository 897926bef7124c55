# SPDX-License-Identifier: Apache-2.0
"""Action models: clients as action servers, workers as processes of their own."""
