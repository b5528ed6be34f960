"""What a user used of a cluster lately, compared with their part of it, and the effect on the
order; for the page, the API and commands.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scheduler.core.plural import count
from scheduler.explain.words import duration, percent

if TYPE_CHECKING:
    from scheduler.core.policy import Policy


@dataclass(frozen=True, slots=True)
class Share:
    """A user's part of something that several share.

    Attributes:
        of: what is shared: "virtual cluster vision", "account physics". whose: who has this part.
        had, due: the part of it that they had lately, and theirs by weight; 0 to 1.
        members: how many share it.
        before: how many others there are further behind their part: their jobs go first, as far as
            this decides; None: it is not ranked here.
        term: what it does in the order, in `unit`: "s", by which a job is put back (below 0:
            forward), or "points" of priority; None: nothing by itself.
    """

    of: str
    whose: str
    had: float
    due: float
    members: int
    before: int | None = None
    term: float | None = None
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Shares:
    """The parts of a user. What was used `half_life_s` ago counts half."""

    user: str
    shares: list[Share] = field(default_factory=list)
    half_life_s: float | None = None
    unavailable: str = ""


def of_policy(policy: Policy, user: str, vcs: Collection[str], now: float) -> Shares:
    """Return a user's parts by the usage that a policy counts, in each of these virtual
    clusters.
    """
    found, half_life_s = [], None
    if policy.usage is None:
        return Shares(user, unavailable="the policy knows no shares")
    for vc in vcs:
        parts = policy.usage.parts(vc, now)
        half_life_s = parts.half_life_s
        if user not in parts.members:
            continue
        had, due = parts.members[user]
        counts = bool(parts.term_s)
        before = sum(h - d < had - due for h, d in parts.members.values())
        found.append(
            Share(
                of=f"virtual cluster {vc}",
                whose=user,
                had=had,
                due=due,
                members=len(parts.members),
                before=before if counts else None,
                term=parts.term_s * (had - due) if counts else None,
                unit="s" if counts else "",
            )
        )
    return Shares(user, found, half_life_s)


def sentences(found: Shares) -> list[str]:
    """Return the parts of a user in words; [] where there are none."""
    if found.unavailable:
        return []
    since = ""
    if found.half_life_s is not None:
        since = f" (half of what was had {duration(found.half_life_s)} ago counts)"
    return [_sentence(one) + since * (not n) + "." for n, one in enumerate(found.shares)]


def _sentence(one: Share) -> str:
    text = (
        f"{one.whose} had {percent(one.had)} of what was had of {one.of} lately; "
        f"{percent(one.due)} are due, of {count(one.members, 'member')}"
    )
    if one.before is not None:
        text += f"; {one.before or 'no'} others go first by fair share"
    if one.term is None or not one.term:
        return text
    if one.unit == "points":
        return f"{text}, which gives {one.term:,.0f} points of priority"
    where = "back" if one.term > 0 else "forward"
    return f"{text}, which puts a job {where} by {duration(abs(one.term))}"
