"""NVML: how full the card is, and who holds its memory, as the driver tells."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from stratadesk.engine.vram.driver_model import DriverModel, model_of_nvml
from stratadesk.engine.vram.program_names import program_name
from stratadesk.engine.vram.readings import CardFigure, ProgramList, ProgramUse, Source
from stratadesk.engine.vram.sources import Unavailable

NO_FIGURES = "the driver gives NVML no figure per program"
NOT_TOLD = "{count} NVIDIA GPUs, and nobody said which one"


def import_nvml() -> Any:
    """Import pynvml. Raises Unavailable when the package is missing."""
    try:
        import pynvml
    except ImportError as error:
        raise Unavailable("the package nvidia-ml-py is missing") from error
    return pynvml


class NvmlSource:
    """The card with this PCI bus id, or the only one.

    NVML is opened by the first read. After an error it is closed, so that the next read finds a
    card that came back.
    """

    def __init__(
        self,
        pci_bus_id: str | None = None,
        load: Callable[[], Any] = import_nvml,
        name_of: Callable[[int], str | None] = program_name,
    ) -> None:
        self._pci_bus_id = pci_bus_id
        self._load = load
        self._name_of = name_of
        self._nvml: Any = None
        self._device: Any = None

    def read(self) -> CardFigure:
        """Total and free bytes of the card."""
        try:
            with self._opened() as nvml:
                memory = nvml.nvmlDeviceGetMemoryInfo(self._device)
        except Unavailable as reason:
            return CardFigure(Source.NVML, why=str(reason))
        return CardFigure(Source.NVML, total=int(memory.total), free=int(memory.free))

    def read_programs(self) -> ProgramList:
        """All processes on the card; N/A under WDDM, where NVML gives no figure per process."""
        try:
            with self._opened() as nvml:
                used = self._used_by_pid(nvml)
        except Unavailable as reason:
            return ProgramList(Source.NVML, None, str(reason))
        if used and all(figure is None for figure in used.values()):
            return ProgramList(Source.NVML, None, NO_FIGURES)
        uses = (ProgramUse(pid, self._name_of(pid), figure) for pid, figure in used.items())
        return ProgramList(Source.NVML, tuple(uses))

    def read_driver_model(self) -> DriverModel:
        """The driver model; NVML tells it on Windows only."""
        try:
            with self._opened() as nvml:
                return model_of_nvml(nvml.nvmlDeviceGetCurrentDriverModel(self._device))
        except Unavailable:
            return DriverModel.UNKNOWN

    def close(self) -> None:
        """Shut NVML down."""
        nvml, self._nvml, self._device = self._nvml, None, None
        if nvml is not None:
            with suppress(nvml.NVMLError):
                nvml.nvmlShutdown()

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        nvml = self._load()
        try:
            if self._nvml is None:
                nvml.nvmlInit()
                self._nvml = nvml
            if self._device is None:
                self._device = self._find_device(nvml)
            yield nvml
        except nvml.NVMLError as error:
            self.close()
            raise Unavailable(str(error)) from error

    def _find_device(self, nvml: Any) -> Any:
        if self._pci_bus_id is not None:
            return nvml.nvmlDeviceGetHandleByPciBusId(self._pci_bus_id)
        count = nvml.nvmlDeviceGetCount()
        if count != 1:
            raise Unavailable(NOT_TOLD.format(count=count))
        return nvml.nvmlDeviceGetHandleByIndex(0)

    def _used_by_pid(self, nvml: Any) -> dict[int, int | None]:
        """Bytes by pid. A process that computes and draws is in both lists with one figure."""
        processes = [
            *nvml.nvmlDeviceGetComputeRunningProcesses(self._device),
            *nvml.nvmlDeviceGetGraphicsRunningProcesses(self._device),
        ]
        used: dict[int, int | None] = {}
        for process in processes:
            figures = [used.get(process.pid), process.usedGpuMemory]
            used[process.pid] = max((f for f in figures if f is not None), default=None)
        return used
