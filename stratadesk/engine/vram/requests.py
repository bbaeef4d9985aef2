"""How n fresh tokens are read: path, layout and chunk by predicted time (DESIGN 4)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from stratadesk.engine.vram.buffers import CHUNK_STEP
from stratadesk.engine.vram.costs import CostModel, Reading
from stratadesk.engine.vram.geometry import aligned
from stratadesk.engine.vram.layouts import ArenaPlanner, PlannedArena
from stratadesk.engine.vram.plan_settings import HeadAlias, Layout, PlanSettings
from stratadesk.units import format_seconds

DECODE, PROMPT = "decode", "prompt"

SHORT_READ = 64
"""Unless `--short-read` says otherwise, no slot is lent to so few fresh tokens (B11)."""


@dataclass(frozen=True, slots=True)
class RequestPlan:
    """What is done for `tokens` fresh tokens.

    `path` is "decode" (windows of `chunk` tokens, nothing lent, `layout` None) or "prompt".
    Buffers take `buffer_bytes`, lent are slots 0 to `slots_lent` - 1, and `head_out` tells
    whether the head's bytes are. `seconds` are `reading` (per layer the longer of link and
    computing), `refill` and `head_return` together; `why` says it in words.
    """

    tokens: int
    path: str
    layout: Layout | None
    chunk: int
    buffer_bytes: int
    slots_lent: int
    reading: Reading
    refill: float
    head_return: float
    why: str = ""

    @property
    def head_out(self) -> bool:
        """Whether the head is overwritten meanwhile."""
        return self.layout is Layout.ALIAS

    @property
    def seconds(self) -> float:
        """Predicted seconds until decoding can begin as before."""
        return self.reading.both + self.refill + self.head_return

    @property
    def words(self) -> str:
        """Name, chunk and time in a few words."""
        if self.layout is None:
            return f"decode windows: {format_seconds(self.seconds)}"
        return f"{self.layout} at chunk {self.chunk:,}: {format_seconds(self.seconds)}"

    def as_json(self) -> dict[str, object]:
        """Return the object that `stratadesk plan --json` prints for this request."""
        return {
            "tokens": self.tokens,
            "path": self.path,
            "layout": self.layout,
            "chunk": self.chunk,
            "slots_lent": self.slots_lent,
            "head": "out" if self.head_out else "in",
            "seconds": round(self.seconds, 6),
            "terms": {
                "link": round(self.reading.link, 6),
                "compute": round(self.reading.compute, 6),
                "reading": round(self.reading.both, 6),
                "refill": round(self.refill, 6),
                "head_return": round(self.head_return, 6),
            },
            "why": self.why,
        }


class RequestPlanner:
    """Chooses among the layouts of a loaded arena; `window` is the decode path's, in tokens."""

    def __init__(
        self, planner: ArenaPlanner, settings: PlanSettings, costs: CostModel, window: int
    ) -> None:
        self._planner = planner
        self._settings = settings
        self._costs = costs
        self._window = window

    def with_alias(self, alias: HeadAlias) -> "RequestPlanner":
        """The same with another choice about the head."""
        settings = replace(self._settings, alias=alias)
        return RequestPlanner(self._planner, settings, self._costs, self._window)

    def choose(self, arena: PlannedArena, tokens: int) -> RequestPlan:
        """The quickest way to read `tokens` (at least 1) that the settings allow."""
        prompts = sorted(self._prompts(arena, tokens), key=_quickness)
        decode = self.decode(arena, tokens)
        limit = self._settings.short_read
        if limit is None and tokens <= SHORT_READ:
            prompts = [plan for plan in prompts if not plan.slots_lent]
        by_hand = limit is not None and tokens <= limit
        if not prompts or by_hand or (limit is None and decode.seconds <= prompts[0].seconds):
            return _explained(decode, self._why_decode(tokens, prompts))
        slower = [*prompts[1:], *([decode] if limit is None else [])]
        return _explained(prompts[0], self._why_prompt(prompts[0], slower))

    def decode(self, arena: PlannedArena, tokens: int) -> RequestPlan:
        """Reading through decode windows."""
        reading = self._costs.decode(tokens, self._window, arena.resident())
        return RequestPlan(tokens, DECODE, None, self._window, 0, 0, reading, 0.0, 0.0)

    def best(self, arena: PlannedArena, layout: Layout, tokens: int) -> RequestPlan | None:
        """The quickest chunk of one layout, None where not even the smallest fits."""
        chunks = self._chunks(self._planner.facts_in(arena, layout).max_chunk, tokens)
        plans = (self.prompt(arena, layout, chunk, tokens) for chunk in chunks)
        return min(plans, key=_quickness, default=None)

    def prompt(self, arena: PlannedArena, layout: Layout, chunk: int, tokens: int) -> RequestPlan:
        """Reading in chunks of `chunk` tokens, which must fit the layout."""
        buffer_bytes = aligned(self._planner.buffers(chunk))
        lent = arena.lent(layout, buffer_bytes)
        back = arena.geometry.head.size if layout is Layout.ALIAS else 0
        return RequestPlan(
            tokens,
            PROMPT,
            layout,
            chunk,
            buffer_bytes,
            lent,
            reading=self._costs.prompt(tokens, chunk, arena.resident(lent)),
            refill=self._costs.stream(arena.geometry.end_of(lent) - arena.geometry.rows_start),
            head_return=self._costs.copy_back(back),
        )

    def allowed(self, arena: PlannedArena) -> tuple[Layout, ...]:
        """The layouts that settings and arena leave."""
        other = Layout.FIXED if arena.fixed_buffers else Layout.LOAN
        alias = self._settings.alias
        if alias is HeadAlias.OFF or not self._planner.facts_in(arena, Layout.ALIAS).max_chunk:
            return (other,)
        return (Layout.ALIAS,) if alias is HeadAlias.ON else (other, Layout.ALIAS)

    def largest_chunk(self, arena: PlannedArena) -> int:
        """The largest chunk among the allowed layouts, 0 when none holds any."""
        allowed = self.allowed(arena)
        return max(self._planner.facts_in(arena, layout).max_chunk for layout in allowed)

    def _prompts(self, arena: PlannedArena, tokens: int) -> Iterator[RequestPlan]:
        bests = (self.best(arena, layout, tokens) for layout in self.allowed(arena))
        return (plan for plan in bests if plan is not None)

    def _chunks(self, most: int, tokens: int) -> Sequence[int]:
        most = min(most, -(-tokens // CHUNK_STEP) * CHUNK_STEP)
        if self._settings.prefill is not None and most:
            return (min(self._settings.prefill, most),)
        return range(CHUNK_STEP, most + 1, CHUNK_STEP)

    def _why_decode(self, tokens: int, prompts: Sequence[RequestPlan]) -> str:
        limit = self._settings.short_read
        if limit is not None and tokens <= limit:
            return f"{tokens:,} fresh tokens are within --short-read {limit:,}; nothing is lent"
        if not prompts and tokens <= SHORT_READ:
            return f"short: up to {SHORT_READ} fresh tokens never lend a slot"
        if not prompts:
            return "no layout holds a chunk here, so it is read through decode windows"
        return f"short: nothing is lent, and the next best would be {prompts[0].words}"

    def _why_prompt(self, chosen: RequestPlan, slower: Sequence[RequestPlan]) -> str:
        lent = f"{chosen.slots_lent:,} slots lent" if chosen.slots_lent else "no slot lent"
        by_hand = self._settings.alias is HeadAlias.ON and chosen.head_out
        reasons = [lent, "--prefill-head-alias on"] if by_hand else [lent]
        if self._settings.prefill is not None:
            reasons.append(f"--prefill {self._settings.prefill:,}")
        bound = "computing" if chosen.reading.compute > chosen.reading.link else "the link"
        others = f"; slower: {', '.join(plan.words for plan in slower)}" if slower else ""
        return f"{chosen.words}, bound by {bound}, {', '.join(reasons)}{others}"


def _quickness(plan: RequestPlan) -> tuple[float, int, int]:
    """Seconds to the microsecond, so that equal plans differ by what they lend."""
    return round(plan.seconds, 6), plan.slots_lent, plan.chunk


def _explained(plan: RequestPlan, why: str) -> RequestPlan:
    return replace(plan, why=why)
