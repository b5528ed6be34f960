"""What a user has used of a cluster lately, compared with the part due to the user, and how that
moves the user's jobs in the order. The page, the API and commands show it."""

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
    """A user's part of something that several users share.

    Attributes:
        of: what is shared: "virtual cluster vision", "account physics".
        whose: the user or account that has this part.
        had, due: the part that it had lately, and the part due to it by weight; 0 to 1.
        members: how many share it.
        before: number of members that are further behind their due, so that their jobs go first as
            far as this term decides; None: members are not ranked.
        term: effect on the order, in `unit`: "s", seconds by which a job is put back (below 0:
            forward), or "points" of priority; None: no effect of its own.
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
    """All parts of a user. What was used `half_life_s` seconds ago counts half."""

    user: str
    shares: list[Share] = field(default_factory=list)
    half_life_s: float | None = None
    unavailable: str = ""


def of_policy(policy: Policy, user: str, vcs: Collection[str], now: float) -> Shares:
    """Return the parts that a user had of those of the virtual clusters `vcs` of which the user is
    a member, by the usage that the policy counts. A policy that counts none has no answer
    (`unavailable`)."""
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
    """Return the parts of a user as sentences; [] where there are none, or no answer."""
    if found.unavailable:
        return []
    since = ""
    if found.half_life_s is not None:
        since = f" (use of {duration(found.half_life_s)} ago counts half)"
    return [_sentence(one) + since * (not n) + "." for n, one in enumerate(found.shares)]


def _sentence(one: Share) -> str:
    text = (
        f"{one.whose} used {percent(one.had)} of what was used lately of {one.of}; the fair share "
        f"of {one.whose} there is {percent(one.due)}, as one of {count(one.members, 'member')}"
    )
    if one.before is not None:
        text += f"; {one.before or 'no'} others are further below their share and go first"
    if one.term is None or not one.term:
        return text
    if one.unit == "points":
        return f"{text}, which gives {one.term:,.0f} points of priority"
    where = "back" if one.term > 0 else "forward"
    by = f"{duration(abs(one.term))} of its order value"
    return f"{text}, which moves a job {where} in line by {by}"
