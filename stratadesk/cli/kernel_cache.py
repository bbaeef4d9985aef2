"""Says that compiled kernels cannot be kept, before the wait for them begins."""

import os

from stratadesk.cli.terminal import print_error
from stratadesk.paths import folders


def warn_of_unkept_kernels() -> None:
    """Print a line on standard error where the cache folder cannot be written."""
    from stratadesk.kernels.host import compile_cache

    chosen = os.environ.get(compile_cache.CACHE_VARIABLE)
    if chosen or compile_cache.can_write(folders().cache):
        return
    print_error(
        f"warning: {folders().cache} cannot be written, so compiled kernels are not kept.",
        "Set STRATADESK_HOME to a folder that can.",
    )
