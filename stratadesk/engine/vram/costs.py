"""How long reading a prompt takes, in seconds (DESIGN 4 and 5).

While a chunk is read, a layer's experts stream in beside the computing, so a layer takes the
longer of the two. The decode path misses only what a least-recently-used cache does not hold.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from stratadesk.engine.vram.machine_facts import Rates
from stratadesk.engine.vram.shape import LayerShape

Groups = Counter[tuple[int, int]]
"""How many layers are of a kind and hold so many experts."""

HIT_RATES = ((0.0, 0.0), (0.06, 0.37), (0.19, 0.74), (0.38, 0.89), (1.0, 1.0))
"""Share of a layer's experts held, and hit rate of a per-layer LRU (DESIGN 5: Qwen3-30B-A3B)."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Seconds: what the link and computing need by themselves, and `both` layer by layer."""

    link: float
    compute: float
    both: float

    def __add__(self, other: "Reading") -> "Reading":
        return Reading(self.link + other.link, self.compute + other.compute, self.both + other.both)

    def times(self, count: int) -> "Reading":
        """The same work done `count` times."""
        return Reading(self.link * count, self.compute * count, self.both * count)


NO_READING = Reading(0.0, 0.0, 0.0)


def distinct_experts(experts: int, used: int, tokens: int) -> float:
    """Experts that `tokens` tokens use between them if routing is uniform: E·(1-(1-k/E)^n)."""
    return experts * (1 - (1 - used / experts) ** tokens) if experts else 0.0


def hit_rate(share: float) -> float:
    """Expected hit rate of a cache that holds this share of a layer's experts (0 to 1)."""
    for (left, low), (right, high) in pairwise(HIT_RATES):
        if share <= right:
            return low + (high - low) * (share - left) / (right - left)
    return 1.0


class CostModel:
    """Seconds for `layers` at `rates`; `pinned` is the share of host experts that are pinned.

    `resident` lists how many experts of each layer stay in slots meanwhile, for the layers with
    experts in order.
    """

    def __init__(self, layers: Sequence[LayerShape], rates: Rates, pinned: float) -> None:
        self._kinds = tuple(dict.fromkeys(layers))
        numbers = {kind: number for number, kind in enumerate(self._kinds)}
        self._kind_of = tuple(numbers[layer] for layer in layers)
        self._rates = rates
        slow = min(rates.link, rates.pageable)
        self._per_byte = pinned / rates.link + (1 - pinned) / slow

    def stream(self, n_bytes: float) -> float:
        """Seconds for expert bytes over the link."""
        return n_bytes * self._per_byte

    def copy_back(self, n_bytes: int) -> float:
        """Seconds for the head's return: its host copy is pinned."""
        return n_bytes / self._rates.link

    def prompt(self, tokens: int, chunk: int, resident: Sequence[int]) -> Reading:
        """Seconds for reading `tokens` in chunks; each attends to half of them on average."""
        groups = self._groups(resident)
        chunks, rest = divmod(tokens, chunk)
        whole = self._chunk(groups, chunk, tokens / 2).times(chunks)
        return whole + self._chunk(groups, rest, tokens / 2) if rest else whole

    def decode(self, tokens: int, window: int, resident: Sequence[int]) -> Reading:
        """Seconds for reading `tokens` through decode windows."""
        groups = self._groups(resident)
        windows, rest = divmod(tokens, window)
        whole = self._window(groups, window).times(windows)
        return whole + self._window(groups, rest) if rest else whole

    def _groups(self, resident: Sequence[int]) -> Groups:
        """Equal layers with equally many resident experts, counted."""
        held, kinds = iter(resident), self._kinds
        return Counter(
            (kind, next(held) if kinds[kind].has_experts else 0) for kind in self._kind_of
        )

    def _chunk(self, groups: Groups, tokens: int, position: float) -> Reading:
        total = NO_READING
        for (kind, held), count in groups.items():
            layer = self._kinds[kind]
            feed = layer.feed_forward
            missing = max(0.0, distinct_experts(feed.experts, feed.used, tokens) - held)
            link = self.stream(missing * feed.expert_bytes)
            compute = tokens * layer.flops(position) / self._rates.compute
            total += Reading(link, compute, max(link, compute)).times(count)
        return total

    def _window(self, groups: Groups, tokens: int) -> Reading:
        total = NO_READING
        for (kind, held), count in groups.items():
            layer = self._kinds[kind]
            feed = layer.feed_forward
            needed = distinct_experts(feed.experts, feed.used, tokens) * feed.expert_bytes
            missed = 1 - hit_rate(held / feed.experts) if feed.experts else 0.0
            link = self.stream(needed * missed)
            compute = (layer.dense_bytes + needed) / self._rates.read
            total += Reading(link, compute, max(link, compute)).times(count)
        return total
