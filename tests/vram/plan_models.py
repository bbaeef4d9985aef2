"""Shapes that plans are tried on, and making a plan of one."""

from stratadesk.engine.vram.machine_facts import MachineFacts
from stratadesk.engine.vram.plan import VramPlan, make_plan
from stratadesk.engine.vram.plan_settings import PlanSettings
from stratadesk.engine.vram.shape import (
    AttentionShape,
    FeedForwardShape,
    LayerShape,
    ModelShape,
)
from stratadesk.units import MIB


def plan_of(shape: ModelShape, machine: MachineFacts | None = None, **settings: object) -> VramPlan:
    return make_plan(shape, machine or MachineFacts(), PlanSettings(**settings))  # type: ignore[arg-type]


def mib(n_bytes: int) -> int:
    return round(n_bytes / MIB)


def dense_model(width: int = 1024, layers: int = 4, *, tied: bool = False) -> ModelShape:
    layer = LayerShape(
        40 * MIB, 40 * MIB, AttentionShape((1024, 256, 256), 1024, 256, 256), FeedForwardShape(4096)
    )
    head = 80 * MIB
    return ModelShape(
        "dense", "qwen3", width, 50_000, 8192, 64, head, 0 if tied else head, 4096, tied,
        (layer,) * layers,
    )  # fmt: skip


def tiny_moe(kv_layers: int = 13, slots: int = 4, context: int = 32_768) -> ModelShape:
    """2 KiB of f16 keys and values a token and layer; `slots` experts of 1 MiB a layer."""
    feed = FeedForwardShape(0, slots, min(2, slots), 256, MIB, 1_000_000)
    layer = LayerShape(MIB, 500_000, AttentionShape((512, 512, 512), 512, 512, 512), feed)
    return ModelShape(
        "tiny", "qwen3moe", 512, 1000, context, 64, 8 * MIB, 8 * MIB, 4096, False,
        (layer,) * kv_layers,
    )  # fmt: skip
