"""What ran: everything that was accepted, once, on GPUs that were there."""

from __future__ import annotations

import itertools
from collections import defaultdict
from math import inf

from tests.checker.history import OVER, STARTS, Entry, History

JOBS_PER_GPU = 2  # docs: GPU sharing capacity
LATE_S = 1.0  # by which a run may be longer than its limit
REPORTS = "started", "observed", "profiled", "ended", "lost", "not_started"


def nothing_is_lost(history: History) -> list[str]:
    """A submission that was answered is in the log, and comes to an end."""
    submitted = {event["job"] for event in history.log if event["kind"] == "submitted"}
    found = []
    for call in history.accepted("submit"):
        job = call["answer"]["job_id"]
        if job not in submitted:
            found.append(f"{job} was accepted and is not in the log")
        elif job not in history.final:
            found.append(f"{job} was accepted and is nowhere in the end")
    for job, row in history.final.items():
        if row["phase"] not in OVER:
            found.append(f"{job} is {row['phase']} in the end, and not over")
    return found


def nothing_runs_twice(history: History) -> list[str]:
    """A job runs once, after one look at it at most, or one more where its GPUs were changed since;
    an attempt is one."""
    by_job: dict[str, list[Entry]] = defaultdict(list)
    for one in history.began:
        if not _forgotten(history, one):
            by_job[one["job"]].append(one)
    found = []
    for job, begun in by_job.items():
        runs = sum(one["purpose"] == "run" for one in begun)
        attempts = [one["attempt"] for one in begun]
        looks = len(begun) - runs
        if runs > 1 or looks > _looks(history, job) or len(set(attempts)) < len(attempts):
            told = [(one["attempt"], one["purpose"]) for one in begun]
            found.append(f"{job} began {len(begun)} times: {told}")
    return found


def _forgotten(history: History, begun: Entry) -> bool:
    """It began on a machine that was replaced, and the backup does not say so: it begins again."""
    told = [
        e["seq"]
        for e in history.events(begun["job"], *REPORTS)
        if e["body"].get("attempt") == begun["attempt"]
    ]
    return any(
        begun["at"] < one["at"] and not any(seq <= one["seq"] for seq in told)
        for one in history.by["restored"]
    )


def _looks(history: History, job: str) -> int:
    """How often it may be looked at: a profile is not of another number of GPUs."""
    seen = [d["event"] for d in history.decisions if d["action"] == "profile" and d["job"] == job]
    changes = [e["seq"] for e in history.events(job, "changed") if "gpus" in e["body"]]
    return 1 + sum(any(a < at < b for at in changes) for a, b in itertools.pairwise(seen))


def what_runs_was_decided(history: History) -> list[str]:
    """Whatever begins is in the log as a decision, with the nodes it runs on."""
    decided = {
        (d["job"], "profile" if d["action"] == "profile" else "run", tuple(d["nodes"]))
        for d in history.decisions
        if d["action"] in (*STARTS, "profile")
    }
    return [
        f"{one['job']} began on nodes {one['nodes']} to {one['purpose']}; no pass decided so"
        for one in history.began
        if (one["job"], one["purpose"], tuple(one["nodes"])) not in decided
    ]


def ends_are_what_they_were(history: History) -> list[str]:
    """How a job is said to have ended is how its last attempt did."""
    last: dict[str, Entry] = {one["job"]: one for one in history.ended}
    begun: dict[str, Entry] = {one["job"]: one for one in history.began}
    restored = history.by["restored"]
    shims = " ".join(one["process"] for one in history.by["died"] if one["role"] == "shim")
    found = []
    for job, row in history.final.items():
        end = last.get(job)
        how = None if end is None else end["reason"]
        said = row["state"] or row["phase"]
        if how == "unknown" or (row["phase"] == "lost" and f"{job}@" in shims):
            continue  # whoever was to run it died first
        if row["phase"] == "lost" and any(one["at"] >= end["at"] for one in restored if end):
            continue  # what was known of it is not in a backup
        if end is None and (said in ("completed", "timeout") or row["phase"] == "lost"):
            found.append(f"{job} never ran, and is said to be {said}")
        elif row["phase"] == "lost" and how != "lost":
            found.append(f"{job} is said to be lost; it ended: {how}")
        elif said in ("completed", "failed") and how not in ("exited", None):
            found.append(f"{job} is said to be {said}; it ended: {how}")
        elif said == "timeout" and how != "limit":
            found.append(f"{job} is said to have reached its limit; it ended: {how}")
        elif said == "cancelled" and how == "exited" and begun[job]["purpose"] == "run":
            found.append(f"{job} is said to be cancelled; it ended by itself")
    return found


def _held(history: History) -> list[tuple[Entry, float]]:
    """Every attempt that ran, with when it ended: an attempt that a backup forgot, each time."""
    ends: dict[tuple[str, int], list[float]] = defaultdict(list)
    for one in history.ended:
        ends[one["job"], one["attempt"]].append(one["at"])
    return [
        (one, min((at for at in ends[one["job"], one["attempt"]] if at >= one["at"]), default=inf))
        for one in history.began
    ]


def what_is_over_runs_no_more(history: History) -> list[str]:
    """No pass says of a job that it is over while an attempt of it runs."""
    found = []
    spans = defaultdict(list)
    for one, end in _held(history):
        spans[one["job"]].append((one["at"], end, one["attempt"]))
    for said in history.by["over"]:
        for at, end, attempt in spans[said["job"]]:
            if at < said["at"] < end:
                found.append(
                    f"{said['job']} is said to be {said['phase']} at {said['at']}, while attempt "
                    f"{attempt} runs until {end}"
                )
    return found


def what_is_stopped_is_over(history: History) -> list[str]:
    """What was stopped neither begins nor runs on, unless who stands by it was stopped itself, or a
    machine was replaced that knew of it.
    """
    spans = defaultdict(list)
    for one, end in _held(history):
        spans[one["job"], one["attempt"]].append((one["at"], end))
    frozen = [one for one in history.by["frozen"] if one["role"] == "shim"]
    found = set[str]()
    for stop in history.by["stops"]:
        for at, end in spans[stop["job"], stop["attempt"]]:
            if end <= max(at, stop["at"]) + LATE_S or _between(
                history.by["restored"], stop["at"], at
            ):
                continue
            if not any(f["at"] <= end and stop["at"] <= f["at"] + f["seconds"] for f in frozen):
                found.add(f"attempt {stop['attempt']} of {stop['job']} runs on, and was stopped")
    return sorted(found)


def _between(records: list[Entry], start: float, end: float) -> bool:
    return any(start <= one["at"] <= end for one in records)


def limits_are_kept(history: History) -> list[str]:
    """No run is longer than the job's limit, unless who stands by it was stopped meanwhile."""
    stopped = [one for one in history.by["frozen"] if one["role"] == "shim"]
    found = []
    for one, end in _held(history):
        limit_s = history.final.get(one["job"], {}).get("time_limit_s")
        if one["purpose"] != "run" or limit_s is None or end - one["at"] <= limit_s + LATE_S:
            continue
        if not any(at["at"] <= end and one["at"] <= at["at"] + at["seconds"] for at in stopped):
            found.append(f"{one['job']} ran {end - one['at']:.1f} s, and may for {limit_s:g} s")
    return found


def who_waits_for_others_begins_after_them(history: History) -> list[str]:
    """A job that is to begin after others begins when what ran of those is over."""
    spans = defaultdict(list)
    for one, end in _held(history):
        spans[one["job"]].append((one["at"], end))
    found = []
    for event in history.log:
        other = event["body"].get("after_any") if event["kind"] == "submitted" else None
        begins = min((at for at, _ in spans[event["job"]]), default=inf)
        if other and any(begins < end for _, end in spans[other]):
            found.append(f"{event['job']} began at {begins}, before {other} ended, as it asked for")
    return found


def gpus_are_not_given_too_often(history: History) -> list[str]:
    """At most two jobs share a GPU, and only such as would share; and a job has its number."""
    found = []
    on: dict[str, list[tuple[float, float, Entry]]] = defaultdict(list)
    for one, end in _held(history):
        row = history.final.get(one["job"])
        if row is not None and one["purpose"] == "run" and len(one["gpus"]) != row["gpus"]:
            found.append(f"{one['job']} wants {row['gpus']} GPUs and ran on {len(one['gpus'])}")
        for gpu in one["gpus"]:
            on[gpu].append((one["at"], end, one))
    for gpu, spans in on.items():
        for at, _, one in spans:
            there = [other for begin, end, other in spans if begin <= at < end]
            jobs = sorted({other["job"] for other in there})
            if len(there) > JOBS_PER_GPU:
                found.append(f"GPU {gpu} was given to {len(there)} at {at}: {', '.join(jobs)}")
            for job in jobs if len(there) > 1 else ():
                if not history.final.get(job, {}).get("share", True):
                    found.append(f"{job} does not share, and had company on GPU {gpu} at {at}")
            del one
    return found


def virtual_clusters_keep_their_nodes(history: History) -> list[str]:
    """A job runs on nodes of its own virtual cluster; where none of them was ever moved."""
    there = [*history.begins.get("nodes", ()), *history.by["node"]]
    moved = {event["body"]["node"] for event in history.log if event["kind"] == "node_changed"}
    vc_of: dict[int, str] = {one["node"]: one["vc"] for one in there if one["node"] not in moved}
    return [
        f"{one['job']} of {history.final[one['job']]['vc']} ran on node {node} of {vc_of[node]}"
        for one in history.began
        if one["purpose"] == "run" and one["job"] in history.final
        for node in one["nodes"]
        if node in vc_of and vc_of[node] != history.final[one["job"]]["vc"]
    ]


RULES = (
    nothing_is_lost,
    nothing_runs_twice,
    what_runs_was_decided,
    ends_are_what_they_were,
    what_is_over_runs_no_more,
    what_is_stopped_is_over,
    limits_are_kept,
    who_waits_for_others_begins_after_them,
    gpus_are_not_given_too_often,
    virtual_clusters_keep_their_nodes,
)
