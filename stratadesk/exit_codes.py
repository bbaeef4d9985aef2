"""Exit codes of every `stratadesk` command; scripts rely on them."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Process exit status, one meaning each."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    MODEL_UNUSABLE = 3
    NO_GPU = 4
    OUT_OF_MEMORY = 5
    INTERRUPTED = 130
