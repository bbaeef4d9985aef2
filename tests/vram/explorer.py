"""Drives a `CacheWorld` through every order of steps, or through long random ones."""

import random
from collections import deque
from collections.abc import Iterable
from itertools import count
from typing import NamedTuple, TypeAlias

from stratadesk.engine.vram.invariants import InvariantError
from tests.vram.cache_world import PIECES, Action, CacheWorld, Flight, WrongBytes

Choices: TypeAlias = list[tuple[float, Action]]

HASTE = (2, 10, 40)
"""Weights of moving a copy on, beside the weights of other steps."""


class Explored(NamedTuple):
    """How much was seen: different states, and steps taken."""

    states: int
    steps: int


class Found(Exception):
    """A sequence of steps after which a rule is broken."""

    def __init__(self, trace: Iterable[Action], why: Exception, start: str = "") -> None:
        self.trace = tuple(trace)
        self.why = why
        steps = " → ".join(map(str, self.trace[-12:]))
        super().__init__(f"{type(why).__name__}: {why} After {start} {steps}")


def explore(world: CacheWorld, depth: int | None = None, *, rules: bool = True) -> Explored:
    """Take every possible step from `world`, then from where these lead, breadth first.

    Up to `depth` steps in a row, or until no new state appears. States are compared by their
    key, and each is verified once, when it is first met.

    Raises:
        Found: a rule is broken, by the shortest sequence of steps there is.
    """
    verify(world, (), rules=rules)
    seen = {world.key()}
    frontier: deque[tuple[CacheWorld, tuple[Action, ...]]] = deque([(world, ())])
    steps = 0
    while frontier:
        before, trace = frontier.popleft()
        if len(trace) == depth:
            continue
        for action in before.actions():
            after = before.clone()
            take(after, action, trace)
            steps += 1
            key = after.key()
            if key not in seen:
                verify(after, (*trace, action), rules=rules)
                seen.add(key)
                frontier.append((after, (*trace, action)))
    return Explored(len(seen), steps)


def wander(world: CacheWorld, steps: int, seed: int, *, rules: bool = True) -> Explored:
    """Take `steps` random steps from `world`, verified one by one.

    Copies are quick at times and slow at others, so that much else happens before they end.

    Raises:
        Found: a rule is broken.
    """
    rng = random.Random(seed)
    haste = HASTE[0]
    seen = {world.key()}
    trace: deque[Action] = deque(maxlen=40)
    for number in range(steps):
        if number % 100 == 0:
            haste = rng.choice(HASTE)
        action = random_action(world, rng, haste)
        take(world, action, trace)
        trace.append(action)
        verify(world, trace, rules=rules)
        seen.add(world.key())
    return Explored(len(seen), steps)


def take(world: CacheWorld, action: Action, trace: Iterable[Action]) -> None:
    try:
        world.do(action)
    except (WrongBytes, InvariantError) as why:
        raise Found((*trace, action), why) from why


def verify(world: CacheWorld, trace: Iterable[Action], *, rules: bool = True) -> None:
    try:
        world.verify(rules=rules)
    except (WrongBytes, InvariantError) as why:
        raise Found(trace, why) from why


def random_action(world: CacheWorld, rng: random.Random, haste: float) -> Action:
    """One possible step; `haste` says how likely it is to move a copy on."""
    choices: Choices = [(4, Action("step")), (10, _random_window(world, rng))]
    if world.flights:
        index = rng.randrange(len(world.flights))
        choices += [(haste, _onward(world.flights[index], index)), (1, Action("fail", (index,)))]
        choices += [(0.3, Action("forget"))]
    if world.pending:
        choices += [(10, Action("begin")), (0.5, Action("skip"))]
    if world.late:
        choices += [(2, Action("report_late", (rng.randrange(len(world.late)),)))]
    choices += _loans(world, rng)
    choices += _sizes(world, rng)
    weights = [weight for weight, _ in choices]
    return rng.choices(choices, weights)[0][1]


def _random_window(world: CacheWorld, rng: random.Random) -> Action:
    layer = rng.randrange(world.geometry.layers)
    experts = rng.sample(range(world.experts), rng.randint(1, min(3, world.experts)))
    return Action("resolve", (layer, tuple(experts)))


def _onward(flight: Flight, index: int) -> Action:
    return Action("write" if flight.done < PIECES else "finish", (index,))


def _loans(world: CacheWorld, rng: random.Random) -> Choices:
    if not world.cache.lent:
        return [(1.5, Action("lend", (rng.randint(0, world.cache.slots),)))]
    layers, experts = world.geometry.layers, world.experts
    counts = tuple(tuple(rng.choices(range(4), k=experts)) for _ in range(layers))
    choices: Choices = [(1, Action("give_back", (back,))) for back in (None, counts)]
    return [*choices, (6, Action("scribble"))] if world.may_scribble else choices


def _sizes(world: CacheWorld, rng: random.Random) -> Choices:
    choices: Choices = []
    slots, lent = world.cache.slots, world.cache.lent
    if lent < slots:
        choices += [(1, Action("trim", (rng.randrange(lent, slots),)))]
    if slots < world.capacity:
        choices += [(2, Action("grow", (rng.randint(slots + 1, world.capacity),)))]
    return [*choices, (3, Action("unmap"))] if world.may_unmap else choices


def played(world: CacheWorld, script: str) -> CacheWorld:
    """Take the steps of a script such as "resolve 0 0,1; write 0; lend 1"."""
    for step in filter(None, map(str.strip, script.split(";"))):
        name, *arguments = step.split()
        values = [_value(name, place, text) for place, text in zip(count(), arguments)]
        assert world.may_scribble or name != "scribble", "the script does not wait"
        world.do(Action(name, tuple(values)))
    return world


def _value(name: str, place: int, text: str) -> object:
    if text == "None":
        return None
    numbers = tuple(int(part) for part in text.split(","))
    return numbers if name == "resolve" and place == 1 else numbers[0]
