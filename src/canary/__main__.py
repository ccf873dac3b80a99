"""`python -m canary` is the `canary` command."""

import sys

from canary.cli import main

sys.exit(main())
