# SPDX-License-Identifier: Apache-2.0
"""The reference's remote calls over HTTP, carried to a worker."""
