"""From any exception to the three parts that a screen shows, title, sentence, remedy, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratadesk.engine.commands import Generate, LoadModel
from stratadesk.engine.events import Failure
from stratadesk.engine.memory_probe import sample_memory
from stratadesk.errors import MemoryShortageError, StrataDeskError, TemplateError
from stratadesk.exit_codes import ExitCode
from stratadesk.units import mib

if TYPE_CHECKING:
    from stratadesk.engine.runtime import Runtime


def failure_of(
    error: Exception, doing: str, job: Generate | LoadModel | None, runtime: Runtime | None
) -> Failure:
    """Return the event for `error`, raised while `doing` ("Loading x.gguf").

    `job` is what failed, None when it was no job; `runtime` the model it was for.
    """
    known = _as_known(error, doing)
    request = job if isinstance(job, Generate) else None
    return Failure(
        request_id=request.request_id if request is not None else None,
        title=known.title,
        sentence=known.sentence,
        remedy=known.remedy,
        exit_code=int(known.exit_code),
        offers_chatml=isinstance(error, TemplateError) and _chatml_would_help(request, runtime),
        loading=isinstance(job, LoadModel),
    )


def error_of(failure: Failure) -> StrataDeskError:
    """Return an error that says what `failure` says and ends a command with its code."""
    error = StrataDeskError(failure.sentence, failure.remedy)
    error.exit_code = ExitCode(failure.exit_code)
    return error


def _chatml_would_help(job: Generate | None, runtime: Runtime | None) -> bool:
    if job is None or runtime is None:
        return False
    return not job.force_chatml and runtime.template.origin == "model"


def _as_known(error: Exception, doing: str) -> StrataDeskError:
    if isinstance(error, StrataDeskError):
        return error
    if isinstance(error, MemoryError):
        return _memory_shortage(doing)
    cause = " ".join(str(error).split())
    return StrataDeskError(
        f"{doing} failed on an error in StrataDesk itself ({type(error).__name__}: {cause}).",
        "Try again; the log has the details, and `stratadesk paths` tells where it is.",
    )


def _memory_shortage(doing: str) -> MemoryShortageError:
    memory = sample_memory()
    return MemoryShortageError(
        f"{doing} needs more RAM than there is: StrataDesk holds {mib(memory.resident):,.0f} MiB, "
        f"and {mib(memory.available):,.0f} MiB of {mib(memory.total):,.0f} MiB are available.",
        "Close other programs, or choose a smaller --max-context or --prefill.",
    )
