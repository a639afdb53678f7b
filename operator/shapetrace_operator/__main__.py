"""``python3 -m shapetrace_operator``."""

from __future__ import annotations

import sys

from shapetrace_operator.main import main

sys.exit(main())
