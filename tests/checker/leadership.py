"""Somebody decides, and one at a time."""

from __future__ import annotations

from collections import Counter

from tests.checker.history import Entry, History

CLOCK_S = 0.05  # by which a reading may be off
MARGIN_S = 3.0  # for reading the log anew, and between two looks at the lease
BACKOFF_S = 30.0  # longest pause before a process that died again and again is started


def terms_go_up(history: History) -> list[str]:
    """Whoever decides does so under a term that is never an older one."""
    found, highest = [], 0
    for event in history.log:
        if event["kind"] == "lease":
            if event["body"]["term"] < highest:
                found.append(f"event {event['seq']}: term {event['body']['term']} after {highest}")
            highest = max(highest, event["body"]["term"])
    return found


def one_decides_at_a_time(history: History) -> list[str]:
    """Whoever lost the lease may end what it was at, and no more."""
    highest, late = 0, Counter[str]()
    for one in history.by["decides"]:
        highest = max(highest, one["term"])
        late[one["holder"]] += one["term"] < highest
    return [f"{who} decided {n} times after it lost the lease" for who, n in late.items() if n > 1]


def who_lost_the_lease_writes_nothing(history: History) -> list[str]:
    """Events that were written under a lease stand in the log by its terms."""
    found, highest = [], dict[str, int]()
    for one in sorted(history.by["wrote"], key=lambda one: one["seq"]):
        most = highest.setdefault(one["lease"], one["term"])
        if one["term"] < most:
            found.append(
                f"event {one['seq']} was written by {one['holder']} under term {one['term']} of "
                f"{one['lease']!r}, after one under term {most}"
            )
        highest[one["lease"]] = max(most, one["term"])
    return found


def leases_are_taken_once_they_ran_out(history: History) -> list[str]:
    """Nobody takes a lease that was renewed less long ago than it holds, but its own holder."""
    return [
        f"lease {one['lease']!r} was taken by {one['holder']} {one['silent_s']:.1f} s after it was "
        f"renewed, and holds for {one['for_s']:g} s"
        for one in history.by["took"]
        if one["silent_s"] < one["for_s"] - CLOCK_S
    ]


def what_is_written_is_fenced(history: History) -> list[str]:
    """Nothing is written under a lease that another holds by then."""
    return [
        f"{one['holder']} wrote under term {one['term']} of {one['lease']!r}, which {one['by']} "
        f"held under term {one['now']}"
        for one in history.by["unfenced"]
    ]


def somebody_takes_over(history: History) -> list[str]:
    """After the last thing that went wrong somebody decides within the time that is stated.

    With another decider standing by that nothing happened to: within the lease. Else when a
    process was started again, too.
    """
    lease_s = history.begins.get("lease_s")
    decides = [one["at"] for one in history.by["decides"]]
    if not lease_s:
        return []
    until = max((call["at"] for call in history.calls), default=0.0)
    found = []
    for quiet_from, quiet_to in zip([0.0, *decides], [*decides, until], strict=True):
        if quiet_to - quiet_from <= lease_s:
            continue
        since = max([quiet_from, *_disturbed(history, quiet_from, quiet_to)])
        most = lease_s * 5 / 4 + history.begins.get("folds_s", 0.0) + MARGIN_S
        if not _stands_by(history, since, quiet_to):
            most += BACKOFF_S
        if quiet_to - since > most:
            found.append(
                f"nobody decided from {quiet_from:.1f} to {quiet_to:.1f} s; nothing was in the "
                f"way for {quiet_to - since:.1f} s, and {most:.1f} s are stated"
            )
    return found


def _disturbed(history: History, start: float, end: float) -> list[float]:
    """When things went wrong from outside, or the last of it was over."""
    found = []
    for one in history.records:
        at = one.get("at", 0.0)
        if one["what"] == "frozen":
            at += _hangs_s(history, one)
        elif one["what"] == "power":
            at += one["seconds"]
        elif one["what"] == "died" and not one["where"]:
            continue  # by itself
        elif one["what"] not in ("died", "fault", "clock", "stopped"):
            continue
        if one["at"] <= end and start - 1.0 <= at:
            found.append(min(at, end))
    return found


def _hangs_s(history: History, frozen: Entry) -> float:
    """For how long a process that was frozen is in the way: one that hangs for longer is killed.

    By its supervisor; that one by systemd's watchdog, and it is in the way only while it begins, or
    its decider is none.
    """
    begin = frozen["at"]
    if frozen["role"] != "supervisor":
        hangs_s = history.begins.get("hangs_s", float("inf"))
        host = frozen["process"].partition("/")[0]
        # a process that was killed for it may be silent for twice as long the next time
        hangs_s *= 2 ** sum(
            one["role"] == frozen["role"] and one["process"].partition("/")[0] == host
            for one in history.by["frozen"]
            if one["at"] < begin and one["seconds"] >= hangs_s
        )
        end = begin + hangs_s
        for one in history.by["frozen"]:  # nor does a supervisor that hangs itself kill it
            thaws = one["at"] + min(one["seconds"], history.begins.get("watchdog_s", float("inf")))
            if frozen["process"].startswith(f"{one['process']}/") and one["at"] <= end:
                end = max(end, thaws + hangs_s if begin <= thaws else end)
        return float(min(frozen["seconds"], end - begin))
    end = begin + min(frozen["seconds"], history.begins.get("watchdog_s", float("inf")))
    if _begins(history, frozen):
        return float(end - begin)
    for one in (*history.by["frozen"], *history.by["died"]):
        until = one["at"] + one.get("seconds", 1.0)
        its_decider = one["process"].startswith(f"{frozen['process']}/decider")
        if its_decider and one["at"] <= end and begin <= until:
            return float(end - begin)
    return 0.0


def _begins(history: History, frozen: Entry) -> bool:
    """Whether a supervisor has started nothing yet: it may be writing, and others wait for it."""
    name, at = frozen["process"], frozen["at"]
    ends = (one["at"] for one in history.by["died"] if one["process"] == name and one["at"] <= at)
    since = max(ends, default=0.0)
    return not any(
        one["process"].startswith(f"{name}/") and since <= one["at"] <= at
        for one in history.by["started"]
    )


def _stands_by(history: History, start: float, end: float) -> bool:
    """Whether a decider lives all through a span of time."""
    alive: dict[str, float] = {}
    gone: dict[str, float] = {}
    for one in history.records:
        if one["what"] == "started" and one["role"] == "decider":
            alive[one["process"]] = one["at"]
        elif one["what"] == "died" and one["role"] == "decider":
            gone[one["process"]] = one["at"]
    return any(at <= start and gone.get(name, end + 1) > end for name, at in alive.items())


RULES = (
    terms_go_up,
    one_decides_at_a_time,
    who_lost_the_lease_writes_nothing,
    leases_are_taken_once_they_ran_out,
    what_is_written_is_fenced,
    somebody_takes_over,
)
