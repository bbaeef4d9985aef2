"""Says that compiled kernels cannot be kept, before the wait for them begins."""

import os
from pathlib import Path

from stratadesk.cli.terminal import print_error
from stratadesk.paths import folders


def unkept_kernels() -> tuple[str, str] | None:
    """A sentence and what to do where the folder kernels are kept in cannot be written, or None."""
    from stratadesk.kernels.host import compile_cache

    variable = compile_cache.CACHE_VARIABLE
    chosen = os.environ.get(variable)
    place = Path(chosen) if chosen else folders().cache
    if compile_cache.can_write(place):
        return None
    shown, to_set = (f"{variable}={place}", variable) if chosen else (place, "STRATADESK_HOME")
    return (
        f"{shown} cannot be written, so compiled kernels are not kept.",
        f"Set {to_set} to a folder that can.",
    )


def warn_of_unkept_kernels() -> None:
    """Print that on standard error."""
    unkept = unkept_kernels()
    if unkept is not None:
        print_error(f"warning: {unkept[0]}", unkept[1])
