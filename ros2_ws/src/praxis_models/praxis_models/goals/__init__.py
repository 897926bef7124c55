# SPDX-License-Identifier: Apache-2.0
"""Goals of the node `action_model`, from acceptance to end."""
