"""Under which driver model the card runs: it decides what happens when its memory is full."""

from enum import StrEnum

_NVML_MODELS = ("WDDM", "TCC", "MCDM")


class DriverModel(StrEnum):
    """Who manages the card's memory. NVML calls TCC "WDM"."""

    WDDM = "WDDM"
    TCC = "TCC"
    MCDM = "MCDM"
    LINUX = "Linux"
    WSL = "WSL"
    """Linux in Windows: names no model of its own, yet WDDM lies underneath."""
    UNKNOWN = "unknown"

    @property
    def pages(self) -> bool | None:
        """Whether a full card is paged to RAM without an error; None where that is not known.

        MCDM manages memory as WDDM does but has not been tried, so it counts as not known.
        """
        if self in (DriverModel.WDDM, DriverModel.WSL):
            return True
        return False if self in (DriverModel.LINUX, DriverModel.TCC) else None

    @property
    def words(self) -> str:
        """The name as the status line shows it."""
        if self is DriverModel.UNKNOWN:
            return "driver model unknown"
        return "WSL (WDDM underneath)" if self is DriverModel.WSL else str(self)


def model_of_platform(system: str, release: str) -> DriverModel:
    """Tell the model from `platform.system()` and `.release()`; `UNKNOWN` on Windows.

    >>> model_of_platform("Linux", "6.6.87.2-microsoft-standard-WSL2").words
    'WSL (WDDM underneath)'
    """
    if system != "Linux":
        return DriverModel.UNKNOWN
    return DriverModel.WSL if "microsoft" in release.lower() else DriverModel.LINUX


def model_of_nvml(code: int) -> DriverModel:
    """Tell the model from NVML's number: 0 WDDM, 1 WDM (TCC), 2 MCDM; else `UNKNOWN`."""
    known = 0 <= code < len(_NVML_MODELS)
    return DriverModel(_NVML_MODELS[code]) if known else DriverModel.UNKNOWN
