"""In front of Slurm: what was changed there was said first, is fair, and is taken back."""

from __future__ import annotations

from collections import Counter

from tests.checker.history import History

OURS = "pellucid: "
SEEN_S = 30.0  # a job that was there for so long is known
STALE_S = 10.0  # what a user did so long before an order is known to who gives it


def changes_are_events_first(history: History) -> list[str]:
    """Each priority that was given was an ORDERED event before, and is one in the log."""
    found = []
    logged = Counter((e["job"], e["body"].get("priority")) for e in history.log
                     if e["kind"] == "ordered")  # fmt: skip
    said: Counter[tuple[str, int]] = Counter()
    for one in history.records:
        if one["what"] == "ordered":
            said[one["job"], one["priority"]] += 1
        elif one["what"] == "update" and one["mark"] and one["priority"] is not None:
            change = one["job"], one["priority"]
            said[change] -= 1
            logged[change] -= 1
            if said[change] < 0:
                found.append(f"job {change[0]} was given priority {change[1]} before it was said")
    return found + [
        f"job {job} was given priority {priority} {-left} times more than is logged"
        for (job, priority), left in logged.items()
        if left < 0
    ]


def nobody_is_lifted_above_all(history: History) -> list[str]:
    """The priorities there are are dealt anew: none is above what one of them had."""
    most, found = 0, []
    for one in history.records:
        if one["what"] == "batch":
            most = max(most, one["priority"])
        elif one["what"] == "update" and (one["priority"] or 0) > most:
            found.append(
                f"job {one['job']} was lifted to {one['priority']}, and none had more than {most}"
            )
    return found


def held_jobs_and_the_sites_words_are_left(history: History) -> list[str]:
    """A held job stays held; a comment of the site's own stays."""
    held: dict[str, float] = {one["job"]: one["at"] for one in history.by["batch_held"]}
    site: dict[str, float] = {one["job"]: one["at"] for one in history.by["batch_said"]}
    found = []
    for one in history.by["update"]:
        job, at = str(one["job"]), float(one["at"])
        if one["priority"] is not None and at > held.get(job, at) + STALE_S:
            found.append(
                f"job {job} was held, and was given a priority {at - held[job]:.1f} s later"
            )
        if at > site.get(job, at) + STALE_S:
            found.append(f"job {job} was changed, whose comment is the site's own")
    return found


def all_is_taken_back(history: History) -> list[str]:
    """After a stop every job that waits has the priority that it had, and no word of ours."""
    held = {one["job"] for one in history.by["batch_held"]}
    found = []
    for one in history.by["batch_is"]:
        if one["state"] != "PENDING":
            continue
        if one["comment"].startswith(OURS):
            found.append(f"job {one['job']} has a comment left behind: {one['comment']}")
        if one["job"] not in held and one["priority"] != one["own"]:
            found.append(f"job {one['job']} had priority {one['own']}, and has {one['priority']}")
    return found


def every_job_is_shown(history: History) -> list[str]:
    """Who asks is told of every job, and of none that is not; of one as it was a moment ago."""
    if not history.begins.get("slurm") or not history.by["row"]:
        return []
    shown: dict[str, str] = {one["job"]: one["phase"] for one in history.by["row"]}
    asked = min(one["at"] for one in history.by["row"])
    there = {one["job"]: one for one in history.by["batch_is"]}
    found = [f"job {job} is shown, and is none of Slurm's" for job in shown.keys() - there.keys()]
    for job, one in there.items():
        if one["submitted"] + SEEN_S > asked or one["since"] + STALE_S > asked:
            continue
        live = one["state"] in ("PENDING", "RUNNING")
        phase = shown.get(job)
        if live != (phase in ("submitted", "queued", "held", "running", "starting")):
            found.append(f"job {job} is {one['state']}, and is shown as {phase}")
    return found


def times_of_looks_never_go_back(history: History) -> list[str]:
    """Times in the log go on, whichever host writes them."""
    latest, found = 0.0, []
    for event in history.log:
        if event["kind"] in ("advised", "ordered"):
            if event["at"] < latest - 1e-6:
                found.append(
                    f"event {event['seq']} is {latest - event['at']:.3f} s before the last"
                )
            latest = max(latest, event["at"])
    return found


RULES = (
    changes_are_events_first,
    nobody_is_lifted_above_all,
    held_jobs_and_the_sites_words_are_left,
    all_is_taken_back,
    every_job_is_shown,
    times_of_looks_never_go_back,
)
