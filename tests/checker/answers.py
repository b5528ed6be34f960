"""Answers: what was said is in the log, in that order, and stays so."""

from __future__ import annotations

from collections import defaultdict

from tests.checker.history import OVER, Entry, History

KIND = {
    "hold": "held",
    "release": "released",
    "change": "changed",
    "priority": "priority_set",
    "node": "node_set",
    "node_add": "node_added",
    "node_change": "node_changed",
    "node_remove": "node_removed",
    "set": "settings_set",
}


def keys_submit_once(history: History) -> list[str]:
    """A request that is sent again under its key submits nothing and names the first job; and
    nobody has jobs that they did not ask for."""
    named: dict[tuple[str, str], set[str]] = defaultdict(set)
    unsure: set[tuple[str, str]] = set()  # asked for, and nobody said what became of it
    for call in history.calls:
        if call["op"] == "submit" and call["status"] not in (403, 409, 422):
            unsure.add((call["who"], call["key"]))
    for call in history.accepted("submit"):
        named[call["who"], call["key"]].add(call["answer"]["job_id"])
    found = [
        f"key {key} of {who} was answered with the jobs {', '.join(sorted(jobs))}"
        for (who, key), jobs in named.items()
        if len(jobs) > 1
    ]
    jobs: dict[str, set[str]] = defaultdict(set)
    for event in history.log:
        if event["kind"] == "submitted":
            jobs[event["actor"]].add(event["job"])
    for who, theirs in jobs.items():
        told = {job for (one, _), found_jobs in named.items() for job in found_jobs if one == who}
        if len(theirs - told) > sum(one == who for one, _ in unsure - named.keys()):
            found.append(f"{who} has jobs that nobody was told of: {sorted(theirs - told)}")
    return found


def what_was_accepted_is_in_the_log(history: History) -> list[str]:
    """Every change that was answered as made is an event of whoever asked for it."""
    left: dict[tuple[str, str, str], int] = defaultdict(int)
    for event in history.log:
        left[event["kind"], event["actor"], event["job"]] += 1
    found = []
    for call in history.accepted(*KIND):
        if not _made(call):
            continue
        key = KIND[call["op"]], call["who"], call["job"]
        left[key] -= 1
        if left[key] < 0:
            found.append(f"{call['op']} of {call['job'] or 'a node'} by {call['who']} is not there")
    return found


def cancellations_are_in_the_log(history: History) -> list[str]:
    """Of every job that was not over, and whose cancellation was accepted."""
    asked = {event["job"] for event in history.log if event["kind"] == "cancel_asked"}
    found = set[str]()
    for call in history.accepted("cancel", "cancel_many"):
        answer = call["answer"]
        there = answer["asked"] if call["op"] == "cancel_many" else [call["job"]]
        if answer.get("phase") not in OVER:
            found |= set(there) - asked
    return [
        f"the cancellation of {job} was accepted and is not in the log" for job in sorted(found)
    ]


def _made(call: Entry) -> bool:
    answer = call["answer"] or {}
    if "priority_before" in answer:
        return bool(answer["priority_before"] != answer["priority_after"])
    return bool(answer.get("needed", answer.get("changed", True)))


def what_is_over_stays_over(history: History) -> list[str]:
    """Whoever saw the end of a job sees the same end ever after."""
    ends: dict[str, str] = {}
    found = []
    for one in history.records:
        if one["what"] == "call" and one["status"] == 200 and one["op"] == "get":
            job, phase = one["job"], one["answer"]["phase"]
        elif one["what"] == "final":
            job, phase = one["job_id"], one["phase"]
        else:
            continue
        if ends.get(job, phase) != phase:
            found.append(f"{job} was {ends[job]}, and is {phase} later")
        if phase in OVER:
            ends[job] = phase
    return found


def nobody_waits_with_too_many(history: History) -> list[str]:
    """A submitter has no more jobs waiting than may: by the log, when they are submitted."""
    most = history.begins.get("most_waiting")
    if not most:
        return []
    left: dict[str, int] = {
        d["job"]: d["event"] for d in reversed(history.decisions) if d["action"] in LEAVES
    }
    operators = {e["actor"] for e in history.log if e["kind"].startswith("node_")}
    waiting: dict[str, list[str]] = defaultdict(list)
    found = []
    for event in history.log:
        if event["kind"] != "submitted" or event["actor"] in operators:
            continue
        there = waiting[event["actor"]]
        there[:] = [job for job in there if left.get(job, 1 << 60) > event["seq"]]
        there.append(event["job"])
        if len(there) > most:
            found.append(f"{event['actor']} has {len(there)} jobs waiting where {most} may")
    return found


LEAVES = ("start", "pack", "profile", "refuse", "cancel")

RULES = (
    keys_submit_once,
    what_was_accepted_is_in_the_log,
    cancellations_are_in_the_log,
    what_is_over_stays_over,
    nobody_waits_with_too_many,
)
