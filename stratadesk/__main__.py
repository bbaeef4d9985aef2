"""`python -m stratadesk` is the same as `stratadesk`."""

import sys

from stratadesk.cli import main

if __name__ == "__main__":
    sys.exit(main())
