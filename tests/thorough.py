"""What a thorough run tries beyond every other run: more seeds, and whole products of cases.

`STRATADESK_THOROUGH=1 python3 tools/dev.py test` runs everything at full size.
"""

import os
from typing import TypeVar

Size = TypeVar("Size")

THOROUGH = bool(os.environ.get("STRATADESK_THOROUGH"))


def usual(size: Size, *, thorough: Size) -> Size:
    """`size`, or that of a thorough run."""
    return thorough if THOROUGH else size
