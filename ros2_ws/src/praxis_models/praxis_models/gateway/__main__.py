# SPDX-License-Identifier: Apache-2.0
"""`python -m praxis_models.gateway`."""

import sys

from praxis_models.gateway.server import main

sys.exit(main())
