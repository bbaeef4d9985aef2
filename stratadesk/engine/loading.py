"""From a GGUF file to a model that can compute: plan, memory, kernels, weights."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from stratadesk.engine.architectures import family
from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.backends import choose_device, open_backend
from stratadesk.engine.commands import Device
from stratadesk.engine.gguf_file import GgufFile
from stratadesk.engine.host_plan import plan_for_host
from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.engine.load_report import LoadReport
from stratadesk.engine.protocols import PhaseSink, ProgressSink, tell_nobody
from stratadesk.engine.tensor_formats import HOST_FORMATS
from stratadesk.errors import GgufError, UnsupportedModelError
from stratadesk.paths import folders

if TYPE_CHECKING:
    from stratadesk.engine.commands import EngineSettings
    from stratadesk.engine.cuda_model import CudaModel
    from stratadesk.engine.model import LoadedModel
    from stratadesk.engine.vram.plan import VramPlan
    from stratadesk.kernels.host.backend import HostOps


def load_model(
    path: Path,
    settings: EngineSettings,
    progress: ProgressSink,
    phases: PhaseSink = tell_nobody,
) -> LoadedModel | CudaModel:
    """Open, check and prepare the model at `path`, telling `progress` how far it is.

    Dense weights and head are copied into the arena, experts stay in the mapped file. `phases`
    is told of every phase of the memory, on the calling thread.

    Raises:
        GgufError: the file is unsound, or a tensor is missing or misshapen.
        UnsupportedModelError: an architecture, tensor type or tensor this version cannot run.
        DeviceError: the device asked for is not available.
        MemoryShortageError: card or RAM are too small for the plan.
    """
    device = choose_device(settings.device)
    with ExitStack() as undo:
        gguf = undo.enter_context(GgufFile.open(path))
        architecture = family(gguf.architecture)
        report = LoadReport(progress, gguf.get_str("general.name", gguf.path.stem), gguf.file_bytes)
        report.step("Planning the memory")
        formats = _checked_formats(gguf) | {"F32"}
        if device is Device.CUDA:
            cuda_model = _on_card(gguf, settings, formats, report)
            undo.pop_all()
            return cuda_model
        plan = plan_for_host(gguf, settings)
        plan.check()
        backend = open_backend(device, folders().cache)
        backend.prepare(
            formats,
            settings.kv_format.upper(),
            report.kernels(patient=backend.kernels_kept),
            architecture.kernels,
        )
        model = _build(gguf, plan, backend.ops, settings, phases, report)
        undo.pop_all()
        return model


def _on_card(
    gguf: GgufFile, settings: EngineSettings, formats: set[str], report: LoadReport
) -> CudaModel:
    from stratadesk.engine.cuda_loading import CardContents
    from stratadesk.engine.cuda_model import CudaModel

    return CudaModel(CardContents(gguf, settings, formats, report))


def _build(
    gguf: GgufFile,
    plan: VramPlan,
    ops: HostOps,
    settings: EngineSettings,
    phases: PhaseSink,
    report: LoadReport,
) -> LoadedModel:
    from stratadesk.engine.arena_loader import ArenaLoader
    from stratadesk.engine.card_memory import CardMemory
    from stratadesk.engine.expert_supply import CardExperts
    from stratadesk.engine.model import LoadedModel

    vocab_size = len(gguf.get_strings("tokenizer.ggml.tokens"))
    if not vocab_size:
        raise GgufError(f"{gguf.label} has an empty vocabulary.")
    memory = CardMemory(gguf, plan, phases, poison=settings.poison)
    with ExitStack() as undo:
        undo.callback(memory.machine.release)
        memory.machine.loading()
        loader = ArenaLoader(gguf, ops, memory, report.copied)
        table = TensorTable(gguf.tensors, loader)
        weights = family(gguf.architecture)(
            Hyperparameters(gguf), table, vocab_size, mtp=plan.settings.mtp
        )
        table.finish()
        memory.machine.loaded()
        undo.pop_all()
    experts = CardExperts(memory, loader.tier, verify=settings.poison)
    ops.supplier = experts
    return LoadedModel(gguf, ops, memory, experts, weights)


def _checked_formats(gguf: GgufFile) -> set[str]:
    """The formats in the file; UnsupportedModelError names a tensor in one that cannot run."""
    for name, info in gguf.tensors.items():
        if info.format.name not in HOST_FORMATS:
            raise UnsupportedModelError(
                f"Tensor {name} is stored as {info.format.name}, which this version cannot "
                f"compute; it computes {', '.join(HOST_FORMATS)}.",
                "Choose a quantization made of these types, such as Q4_K_M or IQ4_XS.",
            )
    return {info.format.name for info in gguf.tensors.values()}
