"""Runs a decision core together with a second one, the shadow, that follows the first core's
decisions and in between decides itself.

The caller drives the first core, and the shadow gets the same calls. Where the shadow, after
following for a while, decides otherwise than the first core, its following has left out something
on which decisions depend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from features.codec import encode
from scheduler.core.core import Core
from scheduler.core.decisions import Decision
from scheduler.core.memory import remember
from scheduler.testing.worlds import Event

EVENTS = (
    "submitted",
    "profile_ended",
    "observed",
    "progressed",
    "pair_speed_observed",
    "ended",
    "withdrawn",
    "wake",
)
# What a policy found out while it decided: shown, and not decided by; a log does not have it.
FOUND = (".considered", ".type_costs", ".pair_prediction", ".policy.spent")
PASSES = 40  # that are followed, and then taken, on average


class Shadowed:
    """A core with a shadow: a second core that follows it. All other calls are answered by the
    first.

    Args:
        core: the core that decides.
        make: makes another core like it.
        made_again: makes a new core from the shadow, each time before the shadow decides.
        seed: seed of the numbers of passes that are followed or decided.
        passes: mean number of passes followed, and then decided, in turn.
        thorough: whether to compare what both cores remember each time that the shadow is to
            decide.

    Attributes:
        differences: a line for each difference found: in decisions, order, times of the next
            wake-up or, if `thorough`, what the cores remember.
    """

    def __init__(
        self,
        core: Core,
        make: Callable[[], Core],
        made_again: Callable[[Core], Core] | None = None,
        *,
        seed: int = 0,
        passes: int = PASSES,
        thorough: bool = False,
    ):
        self._thorough = thorough
        self._core, self._make, self._made_again = core, make, made_again
        self._shadow = make()
        self._draw = Random(seed)
        self._passes = passes
        self._heard: list[Event] = []
        self._follows, self._left = True, self._length()
        self.differences: list[str] = []
        self.followed = self.taken = self.decisions = self.times = 0

    def __getattr__(self, name: str) -> Any:
        if name not in EVENTS:
            return getattr(self._core, name)

        def heard(*given: Any, **named: Any) -> None:
            self._heard.append((name, given, named))
            getattr(self._core, name)(*given, **named)

        return heard

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "oracle":
            self._core.oracle = self._shadow.oracle = value

    def decide(self, now: float) -> list[Decision]:
        """Return the first core's decisions. The shadow follows them, or decides itself; a
        difference is added to `differences`.
        """
        decisions = self._core.decide(now)
        moved = {q.job.job_id: q.key for q in self._core.waiting.rekeyed()}
        shadow = self._shadow
        if self._follows:
            shadow.following.begin([Decision.from_body(d.body()) for d in decisions])
        for name, given, named in self._heard:
            getattr(shadow, name)(*given, **named)
        self._heard.clear()
        if self._follows:
            shadow.following.end(now)
            self.followed += 1
        else:
            self._compare(decisions, shadow.decide(now), now)
        moved_there = {q.job.job_id: q.key for q in shadow.waiting.rekeyed()}
        if moved != moved_there:
            self._differs(f"at {now}: {len(moved)} jobs moved, in the shadow {len(moved_there)}")
        wakes = self._core.next_wake(now), shadow.next_wake(now)
        if wakes[0] != wakes[1]:
            self._differs(f"at {now}: wakes at {wakes[0]}, the shadow at {wakes[1]}")
        self._left -= 1
        if self._left <= 0:
            self._follows, self._left = not self._follows, self._length()
            if not self._follows and self._thorough:
                self._compare_memories(now)
            if not self._follows and self._made_again is not None:
                self._shadow = self._made_again(shadow)
        return decisions

    def _compare_memories(self, now: float) -> None:
        ours, theirs = encode(remember(self._core)), encode(remember(self._shadow))
        for line in _unequal(ours, theirs):
            if not any(name in line for name in FOUND):
                self._differs(f"at {now}: {line}")

    def _compare(self, decisions: list[Decision], others: list[Decision], now: float) -> None:
        self.taken += 1
        self.decisions += len(decisions)
        for one, other in zip(decisions, others, strict=False):
            if one.body() != other.body():
                names = [n for n in Decision.__slots__ if getattr(one, n) != getattr(other, n)]
                pair = [(n, getattr(one, n), getattr(other, n)) for n in names][:3]
                there = f"{other.action} of job {other.job_id}"
                self._differs(
                    f"at {now}: decision {one.seq}, {one.action} of job {one.job_id}, is {there} "
                    f"in the shadow: {pair}"
                )
                return
        if len(decisions) != len(others):
            self._differs(f"at {now}: {len(decisions)} decisions, in the shadow {len(others)}")

    def _differs(self, line: str) -> None:
        self.differences.append(line)
        if len(self.differences) > 20:
            raise AssertionError("\n".join(self.differences))

    def _length(self) -> int:
        return self._draw.randint(1, 2 * self._passes)

    def summary(self) -> str:
        """Return in words how many decision passes the shadow followed, how many it decided itself,
        with how many decisions of the first core, and how many differences were found in all.
        """
        return (
            f"{self.followed:,} passes followed, {self.taken:,} taken with {self.decisions:,} "
            f"decisions: {len(self.differences)} differ"
        )


def _unequal(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Yield a line for each place in which two plain values differ. `path`: the place of both
    values.
    """
    if isinstance(one, dict) and isinstance(other, dict):
        for key in {**one, **other}:
            yield from _unequal(one.get(key), other.get(key), f"{path}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for at, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from _unequal(a, b, f"{path}[{at}]")
    elif one != other:
        yield f"{path}: {one!r}, in the shadow {other!r}"
