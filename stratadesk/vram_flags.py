"""The settings of the card's memory, each described once as in `settings.py`, and the machine.

`VRAM_FLAGS` are choices about a model's memory (`engine/vram/plan_settings.py`), beside the
context and the KV format among the engine's own; `MACHINE_FLAGS` say what there is to plan for.
"""

from stratadesk.settings import ENGINE_FLAGS, MOST_TOKENS, Flag

MOST_MIB = 10_000_000
"""Far above the memory of any card."""

VRAM_FLAGS = (
    Flag(
        "vram_reserve_mib",
        ("--vram-reserve-mib",),
        int,
        590,
        "MiB of the card that stay free in every phase",
        low=0,
        high=MOST_MIB,
    ),
    Flag(
        "expert_cache",
        ("--expert-cache",),
        int,
        "auto",
        "expert slots on the card in all; 1 keeps the staging slot alone",
        low=1,
        high=MOST_TOKENS,
        words=("auto",),
    ),
    Flag(
        "prefill",
        ("--prefill",),
        int,
        "auto",
        "prompt tokens computed at once; auto takes the quickest for each prompt",
        aliases=("--chunk", "-ub", "--ubatch-size"),
        low=1,
        high=8192,
        unset=0,
        unset_means="for auto",
        words=("auto",),
    ),
    Flag(
        "prefill_head_alias",
        ("--prefill-head-alias",),
        str,
        "auto",
        "let prompts use the output head's bytes and read it back afterwards",
        choices=("auto", "on", "off"),
    ),
    Flag(
        "prefill_layout",
        ("--prefill-layout",),
        str,
        "auto",
        "where prompts are read when not in the head: buffers of their own, or lent slots",
        choices=("auto", "fixed", "loan"),
    ),
    Flag(
        "short_read",
        ("--short-read",),
        int,
        "auto",
        "up to so many fresh tokens are read like answers are written, lending nothing",
        low=0,
        high=MOST_TOKENS,
        words=("auto",),
    ),
    Flag(
        "pin_gib",
        ("--pin-gib",),
        float,
        "auto",
        "GiB of RAM to pin for experts; auto keeps what the system can spare",
        low=0,
        high=1_000_000,
        words=("auto", "all"),
    ),
    Flag("mtp", ("--mtp",), bool, False, "load the block that drafts tokens"),
    Flag(
        "spec",
        ("--spec",),
        int,
        0,
        "tokens drafted per step by the MTP block; needs --mtp",
        low=0,
        high=7,
    ),
    Flag(
        "vram_block_mib",
        ("--vram-block-mib",),
        int,
        0,
        "the memory taken is a multiple of so many MiB; 0 counts bytes",
        low=0,
        high=4096,
    ),
)

MACHINE_FLAGS = (
    Flag("vram_mib", ("--vram-mib",), int, 8151, "MiB the card has", low=1, high=MOST_MIB),
    Flag(
        "free_mib",
        ("--free-mib",),
        int,
        None,
        "MiB free for the engine; without it, 700 for other programs and 300 for the CUDA "
        "context are taken off the card",
        low=0,
        high=MOST_MIB,
    ),
    Flag("ram_gib", ("--ram-gib",), float, 32, "GiB of RAM", low=0.1, high=1_000_000),
    Flag(
        "commit_gib",
        ("--commit-gib",),
        float,
        None,
        "GiB that Windows commits at most: RAM and page files",
        low=0.1,
        high=1_000_000,
    ),
    Flag(
        "link_gbps",
        ("--link-gbps",),
        float,
        12.5,
        "GB/s from RAM to the card",
        low=0.01,
        high=10_000,
    ),
    Flag(
        "os",
        ("--os",),
        str,
        None,
        "the system to plan for, by default this one",
        choices=("linux", "windows", "wsl"),
    ),
)

CARD_FLAGS = tuple(flag for flag in MACHINE_FLAGS if flag.field in ("vram_mib", "free_mib"))
"""What the engine shall believe of the card; on the host this is the simulated one."""

PLAN_FLAGS = (
    *(flag for flag in ENGINE_FLAGS if flag.field in ("max_context", "kv_format")),
    *VRAM_FLAGS,
)
"""Every choice that `stratadesk plan` knows."""
