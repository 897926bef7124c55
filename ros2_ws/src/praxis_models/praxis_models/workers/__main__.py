# SPDX-License-Identifier: Apache-2.0
"""`python -m praxis_models.workers BACKEND`."""

import sys

from praxis_models.workers.command_line import main

sys.exit(main())
