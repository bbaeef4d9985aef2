"""What a plan is made from, in one piece."""

from dataclasses import dataclass

from stratadesk.engine.vram.buffers import BufferRule
from stratadesk.engine.vram.machine_facts import MachineFacts
from stratadesk.engine.vram.plan_settings import DEFAULT_CONTEXT, PlanSettings
from stratadesk.engine.vram.shape import ModelShape


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """A model, a machine, settings, and the backend's rule for buffers."""

    shape: ModelShape
    machine: MachineFacts
    settings: PlanSettings
    rule: BufferRule

    @property
    def context(self) -> int:
        """Tokens the context holds: as chosen, else the model's own but at most the default."""
        return self.settings.max_context or min(self.shape.context, DEFAULT_CONTEXT)

    @property
    def room(self) -> int:
        """Bytes the arena may have, whole blocks; negative when not even the reserve is free."""
        room = self.machine.free_before - self.settings.reserve
        return room // self.settings.block_bytes * self.settings.block_bytes
