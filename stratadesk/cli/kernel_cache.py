"""Says that compiled kernels cannot be kept, before the wait for them begins."""

import os
from pathlib import Path

from stratadesk.cli.terminal import print_error
from stratadesk.paths import folders


def warn_of_unkept_kernels() -> None:
    """Print a line on standard error where the folder they are kept in cannot be written."""
    from stratadesk.kernels.host import compile_cache

    variable = compile_cache.CACHE_VARIABLE
    chosen = os.environ.get(variable)
    place = Path(chosen) if chosen else folders().cache
    if compile_cache.can_write(place):
        return
    shown, to_set = (f"{variable}={place}", variable) if chosen else (place, "STRATADESK_HOME")
    print_error(
        f"warning: {shown} cannot be written, so compiled kernels are not kept.",
        f"Set {to_set} to a folder that can.",
    )
