"""The order of the log: a pass that knew of a request obeys it."""

from __future__ import annotations

import itertools

from tests.checker.history import Entry, History

SOON_S = 60.0  # what was stopped ends within, when nothing is in the way any more


def cancelled_jobs_do_not_start(history: History) -> list[str]:
    """Not by a pass that knew of it; and what really began later was decided before."""
    asked: dict[str, int] = {
        e["job"]: e["seq"] for e in reversed(history.log) if e["kind"] == "cancel_asked"
    }
    found = []
    decided: dict[str, int] = {}
    for start, knew in history.starts():
        decided.setdefault(start["job"], knew)
        if start["job"] in asked and asked[start["job"]] <= knew:
            found.append(f"{start['job']} was cancelled, and a later pass started it")
    acknowledged: dict[str, float] = {}
    for call in history.accepted("cancel", "cancel_many"):
        job = call["job"]
        if job in asked and (call["op"] == "cancel" or job in call["answer"]["asked"]):
            acknowledged.setdefault(job, call["at"])
    ends = {one["job"]: one for one in history.ended}
    for one in history.began:
        job = one["job"]
        if one["purpose"] != "run" or one["at"] <= acknowledged.get(job, float("inf")):
            continue
        if job not in decided or decided[job] >= asked[job]:
            found.append(f"{job} began after its cancellation was acknowledged")
        elif job not in ends:
            found.append(f"{job} was cancelled, began all the same and was never stopped")
    return found


def cancelled_jobs_are_stopped(history: History) -> list[str]:
    """In the end each is cancelled, or ended first."""
    found = []
    for call in history.accepted("cancel", "cancel_many"):
        job = call["job"]
        if call["op"] == "cancel_many" and job not in call["answer"]["asked"]:
            continue
        row = history.final.get(job)
        if row is not None and row["phase"] not in ("cancelled", "ended", "lost", "refused"):
            found.append(f"{job} was cancelled, and is {row['phase']}")
    return found


def held_jobs_do_not_start(history: History) -> list[str]:
    """Not by a pass that knew of the hold and of no release after it."""
    found = []
    for start, knew in history.starts():
        job = start["job"]
        last: Entry | None = None
        for event in history.events(job, "held", "released"):
            if event["seq"] <= knew:
                last = _in_force(last, event)
        if last is not None and last["kind"] == "held":
            found.append(f"{job} was held, and a pass that knew of it started it")
    return found


def _in_force(last: Entry | None, event: Entry) -> Entry:
    """An operator's hold is released by an operator only."""
    if last is not None and last["kind"] == "held" and last["body"].get("operator"):
        return event if event["body"].get("operator") else last
    return event


def drained_nodes_are_left_alone(history: History) -> list[str]:
    """Nothing starts on a node that a pass knew to be drained."""
    found = []
    changes = [event for event in history.log if event["kind"] == "node_set"]
    for start, knew in history.starts():
        is_open: dict[int, bool] = {}
        for event in changes:
            if event["seq"] <= knew:
                is_open[event["body"]["node"]] = event["body"]["open"]
        shut = [node for node in start["nodes"] if not is_open.get(node, True)]
        if shut:
            found.append(f"{start['job']} was started on node {shut[0]}, which was drained")
    return found


def everything_is_decided_from_what_was_known(history: History) -> list[str]:
    """A pass decides about jobs that it knew of, and each pass knows more than the one before."""
    came: dict[str, int] = {e["job"]: e["seq"] for e in history.log if e["kind"] == "submitted"}
    found = [
        f"{d['job']} was decided on before it was submitted"
        for d in history.decisions
        if d["job"] and came.get(d["job"], 0) > history.cause[d["event"]]
    ]
    passes = sorted(history.cause.items())
    for (one, knew), (other, knows) in itertools.pairwise(passes):
        if knows < knew:
            found.append(f"the pass {other} knew less than the pass {one}")
    return found


RULES = (
    cancelled_jobs_do_not_start,
    cancelled_jobs_are_stopped,
    held_jobs_do_not_start,
    drained_nodes_are_left_alone,
    everything_is_decided_from_what_was_known,
)
