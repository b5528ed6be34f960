"""What a user has used of a Slurm cluster lately, by account, compared with the part that is
due."""

from __future__ import annotations

from collections.abc import Iterator

from scheduler.explain.share import Share, Shares
from scheduler.slurm.twin.priority import Multifactor, duration_s
from scheduler.slurm.twin.site import Assoc, Site


def of_site(site: Site, user: str) -> Shares:
    """Return what a user had, and is due, in each of the user's accounts, and what the accounts
    above had, by the usage and shares of Slurm's associations. Where Slurm computes no priorities,
    or does not show its accounts, `unavailable` says so."""
    if not site.weighs:
        return Shares(user, unavailable="Slurm's priorities here know no shares")
    if ("root", "") not in site.assocs:
        return Shares(user, unavailable="Slurm does not show its accounts")
    factor = Multifactor(site)
    users = {key: value for key, value in factor.fairshare.items() if site.assocs[key].user}
    found = []
    for key, mine in site.assocs.items():
        if mine.user.partition("|")[0] != user:
            continue
        own = users.get(key, 0.0)
        before = sum(value > own for value in users.values())
        found.append(_of(site, mine, before, factor.points(own)))
        found += [_of(site, one) for one in _above(site, mine)]
    half_life_s = duration_s(site.config.get("PriorityDecayHalfLife", "7-0"))
    return Shares(user, found, half_life_s or None)


def _above(site: Site, assoc: Assoc) -> Iterator[Assoc]:
    """Yield the accounts above a user's association, except root."""
    name, seen = assoc.account, set[str]()
    while name not in ("", "root", *seen):
        seen.add(name)
        one = site.assocs.get((name, ""))
        if one is None:
            return
        yield one
        name = one.parent


def _of(site: Site, one: Assoc, before: int | None = None, points: float | None = None) -> Share:
    above = one.account if one.user else one.parent
    beside = [a for a in site.assocs.values() if (a.account if a.user else a.parent) == above]
    used, shares = sum(a.usage for a in beside), sum(a.shares or 0 for a in beside)
    return Share(
        of="the cluster" if above == "root" else f"account {above}",
        whose=one.user or f"account {one.account}",
        had=one.usage / used if used else 0.0,
        due=(one.shares or 0) / shares if shares else 0.0,
        members=len(beside),
        before=before,
        term=points,
        unit="points" if points is not None else "",
    )
