"""Settings that need the model loaded again: their values, and going from one to the next."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from stratadesk.engine.backends import choose_device
from stratadesk.engine.commands import Device, EngineSettings, KvFormat
from stratadesk.engine.vram.buffers import GPU_RULE

Value = int | str | None


@dataclass(frozen=True, slots=True)
class ReloadChoice:
    """A setting with the key that changes it, its name in the settings file, and its values.

    `read` takes the value out of the engine's settings, `write` returns settings with another
    one. `on_card` tells that it means nothing without a card. `settled` is for what a real card,
    which holds all of a model, leaves no choice of: what it is there, and why in one word.
    """

    key_id: str
    field: str
    values: tuple[Value, ...]
    read: Callable[[EngineSettings], Value]
    write: Callable[[EngineSettings, Value], EngineSettings]
    on_card: bool = False
    settled: tuple[str, str] | None = None

    def means_something(self, settings: EngineSettings, *, has_card: bool) -> bool:
        """Whether a model with these settings, on a card or not, is loaded differently by it."""
        if settings.device is Device.CUDA:
            return self.settled is None
        return has_card or not self.on_card

    def next(self, settings: EngineSettings) -> EngineSettings:
        """Return `settings` with the next value; after one that is not listed comes the first."""
        now = self.read(settings)
        place = self.values.index(now) + 1 if now in self.values else 0
        return self.write(settings, self.values[place % len(self.values)])

    def words(self, settings: EngineSettings) -> str:
        """Write the value, "auto" where it is left to the planner."""
        value = self.read(settings)
        if value in (None, 0):
            return "auto"
        return f"{value:,}" if isinstance(value, int) else str(value)


def _device(settings: EngineSettings) -> Value:
    return choose_device(settings.device).value


def _with_device(settings: EngineSettings, value: Value) -> EngineSettings:
    return replace(settings, device=Device(str(value)))


def _chunk(settings: EngineSettings) -> Value:
    return settings.chunk or (settings.plan.prefill if settings.plan else None) or 0


def _with_chunk(settings: EngineSettings, value: Value) -> EngineSettings:
    chunk = value if isinstance(value, int) else 0
    plan = replace(settings.plan, prefill=chunk or None) if settings.plan else None
    return replace(settings, chunk=chunk, plan=plan)


def _cache(settings: EngineSettings) -> Value:
    return settings.plan.expert_cache if settings.plan else None


def _with_cache(settings: EngineSettings, value: Value) -> EngineSettings:
    if settings.plan is None:
        return settings
    slots = value if isinstance(value, int) else None
    return replace(settings, plan=replace(settings.plan, expert_cache=slots))


def _with_kv(settings: EngineSettings, value: Value) -> EngineSettings:
    return replace(settings, kv_format=KvFormat(str(value)))


def _context(settings: EngineSettings) -> Value:
    return settings.max_context or (settings.plan.max_context if settings.plan else 0)


def _with_context(settings: EngineSettings, value: Value) -> EngineSettings:
    tokens = value if isinstance(value, int) else 0
    plan = replace(settings.plan, max_context=tokens) if settings.plan else None
    return replace(settings, max_context=tokens, plan=plan)


DEVICE = ReloadChoice(
    "set_device",
    "device",
    (Device.HOST.value, Device.CUDA.value),
    _device,
    _with_device,
)
"""Which plan and which machine go with a device is for others to say: see `LiveControl.choose`."""

MEMORY_CHOICES = (
    ReloadChoice(
        "set_chunk",
        "prefill",
        (0, 256, 512, 1024, 2048, 4096, 8192),
        _chunk,
        _with_chunk,
        settled=(f"{GPU_RULE.decode_window}", "fixed"),
    ),
    ReloadChoice(
        "set_cache",
        "expert_cache",
        (None, 1, 256, 512, 1024, 2048, 4096),
        _cache,
        _with_cache,
        on_card=True,
        settled=("all", "resident"),
    ),
    ReloadChoice(
        "set_kv",
        "kv_format",
        tuple(KvFormat(name).value for name in ("f16", "q8_0", "f32")),
        lambda settings: settings.kv_format.value,
        _with_kv,
    ),
    ReloadChoice(
        "set_context",
        "max_context",
        (0, 4096, 8192, 16_384, 32_768, 65_536, 131_072),
        _context,
        _with_context,
    ),
)


RELOAD_CHOICES = (DEVICE, *MEMORY_CHOICES)

MEMORY_FIELDS = frozenset(choice.field for choice in MEMORY_CHOICES)


def waiting(settings: EngineSettings, loaded: EngineSettings) -> tuple[ReloadChoice, ...]:
    """Return what was chosen since the load with `loaded`."""
    return tuple(each for each in RELOAD_CHOICES if each.read(settings) != each.read(loaded))


def with_choices_of(source: EngineSettings, settings: EngineSettings) -> EngineSettings:
    """Return `settings`, on their device, with all else that is chosen here as in `source`."""
    return _written(MEMORY_CHOICES, source, settings)


def with_changes(
    before: EngineSettings, after: EngineSettings, settings: EngineSettings
) -> EngineSettings:
    """Return `settings`, on their device, with all else that was chosen between two others."""
    changed = (each for each in MEMORY_CHOICES if each.read(before) != each.read(after))
    return _written(changed, after, settings)


def _written(
    choices: Iterable[ReloadChoice], source: EngineSettings, settings: EngineSettings
) -> EngineSettings:
    for choice in choices:
        settings = choice.write(settings, choice.read(source))
    return settings


def kept_value(choice: ReloadChoice, settings: EngineSettings) -> Value:
    """Return the value as a settings file holds it: "auto" where the flag has that word."""
    value = choice.read(settings)
    automatic = value is None or (value == 0 and choice.field == "prefill")
    return "auto" if automatic else value
