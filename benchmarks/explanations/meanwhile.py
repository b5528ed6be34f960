"""Checks of what an answer says about the whole of a job's wait; `sentences` calls them. Each check
returns the error in words, or "".
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from benchmarks.explanations.asked import Asked, between, near, times
from benchmarks.explanations.log import Moment

JUST_S = 5.0  # what a job has said of itself is in an answer after so long
SLACK_S = 3.0  # of sums of times, which go on while one is answered
NAMED = 2  # of those that had GPUs meanwhile
LEAST = 0.01  # of a wait, that its reason is named
WAITS = ("wait", "enqueue", "preempt")
HELD = ("HeldByOwner", "HeldByOperator", "DependencyNotMet", "DependencyNeverMet", "ArrayLimit")
HOURS = r"([\d.,]+ GPU (?:hour|minute|second))s?"
_UNITS = {"hour": 3600.0, "minute": 60.0, "second": 1.0}


def slack(a: Asked) -> float:
    return SLACK_S + a.answered_at - a.asked_at


JUST_CAME = " was submitted a moment ago."


def spells(a: Asked) -> Iterator[tuple[str, float, float]]:
    """Yield the stretches of a job's wait, by the decisions about it: (reason, begin, end)."""
    since, reason, idle = a.moment.asked[a.job_id]["submitted_at"], "NotYetEvaluated", True
    for row in a.moment.by_job[a.job_id]:
        action, at = row["body"]["action"], max(since, row["at"])
        if idle and at > since:
            yield reason, since, at
        since = at
        idle = action in WAITS and row["body"]["reason"] not in HELD
        reason = "NotYetEvaluated" if action == "enqueue" else row["body"]["reason"]
    if idle:
        yield reason, since, a.answered_at


def had(a: Asked) -> dict[str, float]:
    """Return how many GPU-seconds each other job had on the nodes of this job's virtual cluster
    while this job waited for GPUs, by job id.
    """
    nodes = set(a.moment.pool(a.moment.asked[a.job_id]["vc"]))
    waited = [(s, u) for reason, s, u in spells(a) if reason != "AwaitingProfile"]
    found = defaultdict[str, float](float)
    for job_id in a.moment.by_job:
        for gpus, since, until in _runs(a.moment, job_id, nodes, a.answered_at):
            for start, end in waited:
                if job_id != a.job_id:
                    found[job_id] += gpus * max(0.0, min(until, end) - max(since, start))
    return {job_id: gpu_s for job_id, gpu_s in found.items() if gpu_s > 0}


def _runs(
    moment: Moment, job_id: str, nodes: set[int], now: float
) -> Iterator[tuple[int, float, float]]:
    over = moment.left.get(job_id, (now, ""))[0]
    rows = moment.by_job[job_id]
    for i, row in enumerate(rows):
        if row["body"]["action"] not in ("start", "pack"):
            continue
        stops = (later["at"] for later in rows[i + 1 :] if later["body"]["action"] == "preempt")
        given = zip(row["body"]["nodes"], row["body"]["gpus"], strict=True)
        gpus = sum(mask.bit_count() for node, mask in given if node in nodes)
        yield gpus, row["at"], next(stops, over)


def wait(a: Asked) -> str:
    """Check the sentence on the job's whole wait: its length, the share of each reason, the GPU
    hours of other jobs, jobs that started first, and the bound on waiting if it has passed. Return
    the error in words, or "".
    """
    text, asked = a.told["wait"]["text"], a.moment.asked[a.job_id]
    if text.endswith(JUST_CAME):
        late_s = a.answered_at - asked["submitted_at"] - slack(a)
        return f"{text!r}, {late_s:.0f} s after it was" if late_s > 1.0 else ""
    found = re.match(
        r"Job (\w+) \((\d+) GPUs?, virtual cluster (\S+)\) has waited (.+?): (.+?)\. "
        rf"(\d+) GPUs? for that long (?:is|are) {HOURS}\.",
        text,
    )
    if found is None or (found[1], found[3]) != (a.job_id, asked["vc"]):
        return f"{text!r}"
    if {int(found[2]), int(found[6])} != {asked["gpus"]}:
        return f"{text!r}, truly of {asked['gpus']} GPUs"
    by = defaultdict[str, float](float)
    for reason, since, until in spells(a):
        by[SHORT.get(reason) or _plain(reason)] += until - since
    total = sum(by.values())
    if not _close(a, times(found[4])[0], total):
        return f"waited {found[4]}, truly {total:.0f} s"
    if not _close(a, _hours(found[7]), total * asked["gpus"], asked["gpus"]):
        return f"{found[7]} GPU hours, truly {total * asked['gpus'] / 3600:.2f}"
    return _shares(a, found[5], by) or _meanwhile(a, text) or _last(a, text, total)


def _plain(reason: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", reason).lower().replace("gpus", "GPUs")


# the few words that a reason code has in a list; another code is its name in lower case
SHORT = {
    "AwaitingProfile": "waiting to be profiled",
    "GpusBusy": "too few GPUs free",
    "GpusFragmented": "free GPUs on too many nodes",
    "NodeDrained": "too many GPUs closed to new jobs",
    "MemoryGuard": "too little GPU memory left to share",
    "InterferenceGuard": "sharing GPUs would slow jobs too much",
    "KeepsOthersOut": "sharing GPUs would delay jobs ahead",
    "SharingOptedOut": "too few GPUs free for it alone",
    "BehindHigherPriority": "other jobs go first",
    "ReservedForStarvingJob": "free GPUs kept for a job that waited too long",
    "WouldDelayFirst": "free GPUs kept for the first in line",
    "FasterGpusSoon": "waiting for faster GPUs ends it sooner",
    "NextRound": "next round of decisions not begun",
    "ShorterJobWaiting": "stopped for a job with less left to do",
    "MoreServiceAttained": "stopped for a job that had less GPU time",
}


def _hours(text: str) -> float:
    """Return the GPU-seconds that "2.5 GPU hours" or "40 GPU seconds" are."""
    amount, _, unit = text.split()
    return float(amount.replace(",", "")) * _UNITS[unit.removesuffix("s")]


def _close(a: Asked, said_s: float, true_s: float, gpus: float = 1.0) -> bool:
    return near(said_s, true_s) or abs(said_s - true_s) <= gpus * slack(a) + 18.0


def _shares(a: Asked, text: str, by: Mapping[str, float]) -> str:
    said = {
        why: float(share) / 100
        for why, share in re.findall(
            r"(?:^|, | and )([A-Za-z ]+?) \(([\d.]+) % of the wait\)", text
        )
    }
    total = sum(by.values())
    room = 0.01 + slack(a) / max(total, 1.0)
    true = {why: seconds / max(total, 1e-9) for why, seconds in by.items()}
    names = {why for why, share in true.items() if share >= LEAST + room} | said.keys()
    wrong = [why for why in names if abs(said.get(why, 0.0) - true.get(why, 0.0)) > room]
    return f"shares {said}, truly {true}" if wrong else ""


def _meanwhile(a: Asked, text: str) -> str:
    true = had(a)
    said = {job: _hours(n) for job, n in re.findall(rf"job (\w+) had {HOURS}", text)}
    others = re.search(rf"(\d[\d,]*) (?:other )?jobs? had {HOURS}", text)
    ranked = sorted(true.values(), reverse=True)
    for job, gpu_s in said.items():
        room = a.moment.asked[job]["gpus"] if job in a.moment.asked else 0
        if not _close(a, gpu_s, true.get(job, 0.0), room):
            return f"job {job} had {gpu_s:.0f} GPU-seconds, truly {true.get(job)}"
        least = ranked[min(NAMED, len(ranked)) - 1]
        if true.get(job, 0.0) < least - room * slack(a):
            return f"{job} is not among those that had most"
        if wrong := _predicted(a, text, job):
            return wrong
    rest = sum(ranked) - sum(true.get(job, 0.0) for job in said)
    count, gpu_s = (int(others[1].replace(",", "")), _hours(others[2])) if others else (0, 0.0)
    short = sum(v < 40 for v in ranked)  # less than a second, or one that has just begun or ended
    if not _close(a, gpu_s, rest, 8.0 * max(1, count)):
        return f"{count} others had {gpu_s:.0f} GPU-seconds, truly {rest:.0f}"
    right = len(ranked) - len(said) - short <= count <= len(ranked) - len(said) + 2
    return "" if right else f"{count} others, truly {len(ranked) - len(said)}"


def _predicted(a: Asked, text: str, job: str) -> str:
    """Check the predicted and the true duration that a text gives for job `job`, which had GPUs
    while the asked job waited. Return the error in words, or "".
    """
    predicts = r"\(predicted to run (.+?), (?:has run|ran) (.+?)\)"
    found = re.search(rf"job {job} had {HOURS} {predicts}", text)
    predicted = a.moment.predicted(job)
    began = [r["at"] for r in a.moment.by_job[job] if r["body"]["action"] in ("start", "pack")][-1]
    ran = a.moment.left.get(job, (a.answered_at, ""))[0] - began
    if found is None:
        return "" if predicted is None else f"not said how long {job} was predicted to run"
    said = [times(found[2])[0], times(found[3])[0]]
    ok = predicted is not None and between(said[0], predicted)
    just = a.moment.stated.get(job, (-1.0,))[0] > a.asked_at - JUST_S  # as it was asked
    ok = ok or (just and near(said[0], a.moment.last(job, "estimate_s") or -1.0))
    ok = ok and _close(a, said[1], ran)
    return "" if ok else f"{job}: {found[0]!r}, truly predicted {predicted} s, ran {ran:.0f} s"


def _counted(jobs: str, how: str, why: Mapping[str, int]) -> bool:
    """Return whether a text names every reason why jobs started first, with the right number of
    jobs for each. `why` maps a reason to that number.
    """
    said = [int(number.replace(",", "")) for number in (jobs, *re.findall(r"\b\d[\d,]*", how))]
    ranked = sorted(why.values(), reverse=True)
    true = [sum(ranked), *(ranked if len(ranked) > 1 else [])]
    return said == true and all(cause in how for cause in why)


def _last(a: Asked, text: str, waited_s: float) -> str:
    why = (a.told["overtaken"] or {"why": {}})["why"]
    first = re.search(r"([\d,]+) jobs? submitted later got GPUs first: ([^.]+)\.", text)
    if (first is not None) != bool(why) or (first and not _counted(first[1], first[2], why)):
        return f"{text!r}: who started first is {why}"
    bound = a.moment.settings.get("max_wait_s")
    passed = bound is not None and waited_s > bound + slack(a)
    found = re.search(r"It waited longer than (.+?), the bound after which", text)
    if passed != (found is not None) or (found and not near(times(found[1])[0], bound or 0.0)):
        return f"{text!r}: the bound is {bound}"
    return ""
