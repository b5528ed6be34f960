"""Judges whether an answer to `why` keeps the four rules, by what Slurm's own commands print.

No code that produces answers is imported: an answer is read as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import fmean, median
from typing import Any

Json = Mapping[str, Any]
Rows = dict[str, dict[str, str]]
CLOSED = ("DOWN", "DRAIN", "FAIL", "MAINT", "NOT_RESPONDING", "INVAL", "UNKNOWN", "BOOT", "POWER")
SLACK_S = 1.0  # between an answer and the clock that it is compared with
_FIELD = re.compile(r"(?:^| )([A-Za-z][\w/:.-]*)=")


def records(text: str, first: str) -> Rows:
    """Return the records that `scontrol show ... -o` printed, each as {field: value}. They are
    keyed by the value of the field `first`.
    """
    found: Rows = {}
    for line in text.splitlines():
        names = list(_FIELD.finditer(line))
        row: dict[str, str] = {}
        for name, following in zip(names, [*names[1:], None], strict=False):
            end = following.start() if following is not None else len(line)
            row.setdefault(name[1], line[name.end() : end].strip())
        if first in row:
            found[row[first]] = row
    return found


def hosts(said: str) -> set[str]:
    """Return the names in a Slurm host list such as ``n[1-2,5],a``."""
    found: set[str] = set()
    for prefix, inside in re.findall(r"([^,\[\]]+)(?:\[([^\]]*)\])?", said):
        if not inside:
            found.add(prefix)
            continue
        for part in inside.split(","):
            low, _, high = part.partition("-")
            found |= {f"{prefix}{n:0{len(low)}}" for n in range(int(low), int(high or low) + 1)}
    return found - {"(null)", ""}


def tasks_of(row: Json) -> list[str]:
    """Return the job ids of one record of `scontrol show job`, in the form that `why` takes: an
    array's record stands for several.
    """
    array, tasks = row.get("ArrayJobId", ""), row.get("ArrayTaskId", "")
    if not array or array == "0" or tasks in ("", "N/A"):
        head = row.get("HetJobId", "0")
        return [row["JobId"] if head in ("0", "") else f"{head}+{row.get('HetJobOffset', '0')}"]
    found = []
    for part in tasks.partition("%")[0].split(","):
        low, _, high = part.partition("-")
        found += [f"{array}_{n}" for n in range(int(low), int(high or low) + 1)]
    return found


# terms of a priority, and what `sprio -o` calls them
TERMS = {
    "site": "S", "age": "A", "association": "B", "fair share": "F", "job size": "J",
    "partition": "P", "QOS": "Q", "nice": "N", "TRES": "T",
}  # fmt: skip
SPRIO = "|".join(("%i", *(f"%{one}" for one in TERMS.values())))


def terms_of(text: str) -> dict[str, dict[str, float]]:
    """Parse what `sprio -h -o SPRIO` prints. Return, by JobId, the terms of the job's priority by
    name; only jobs with one partition are included.
    """
    found: dict[str, dict[str, float]] = {}
    twice: set[str] = set()
    for line in text.splitlines():
        job_id, *said = (one.strip() for one in line.split("|"))
        if len(said) == len(TERMS):
            twice |= {job_id} & found.keys()
            points = (sum(map(float, re.findall(r"-?[\d.]+(?=,|$)", one))) for one in said)
            found[job_id] = dict(zip(TERMS, points, strict=True))
            found[job_id]["nice"] *= -1.0  # what it takes away
    return {job_id: one for job_id, one in found.items() if job_id not in twice}


def unlike(answer: Json, known: Mapping[str, float]) -> list[str]:
    """Return one line for each term of a priority in which an answer differs from `known`, the
    terms that `sprio` prints, by more than rounding.
    """
    said = {one["name"]: one["points"] for one in (answer.get("slurm") or {}).get("terms") or ()}
    return [
        f"terms: {name} {said.get(name, 0.0):g}, sprio {points:g}"
        for name, points in known.items()
        if abs(said.get(name, 0.0) - points) > (3.0 if name == "TRES" else 1.0)
    ] + [f"terms: {name}" for name in said.keys() - known.keys()]


@dataclass(frozen=True, slots=True)
class Facts:
    """Slurm's state at one time, as its commands printed it, and functions that ask Slurm more.

    Attributes:
        can: function that returns whether a job could ever run on a given node, by ``sbatch
            --test-only -w``; None: unknown.
        asked: function that returns Slurm's refusal of a job with one option changed
            (``timelimit``: ``5``), by `sbatch --test-only`; "": accepted; None: not asked.
        terms: terms of each job's priority as `sprio` prints them, by JobId.
    """

    at: float
    jobs: Rows
    nodes: Rows
    reservations: Rows
    hidden: frozenset[str]
    can: Callable[[str, str], bool | None] = lambda *_: None
    asked: Callable[[str, str, str], str | None] = lambda *_: None
    terms: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    by_id: dict[str, dict[str, str]] = field(init=False)

    def __post_init__(self) -> None:
        by_id = {one: row for row in self.jobs.values() for one in tasks_of(row)}
        object.__setattr__(self, "by_id", by_id)

    def word(self, job_id: str) -> str:
        """Return Slurm's reason why a job waits; if that is a sentence, return only its first
        word.
        """
        return self.by_id[job_id]["Reason"].partition(",")[0].partition(":")[0]

    def open(self, node: str) -> bool:
        state = self.nodes.get(node, {}).get("State", "UNKNOWN")
        return not any(word in state for word in CLOSED)

    def reserved(self, job: Json, node: str, until: float) -> bool:
        """Return whether a reservation keeps a job off a node at some time from now to `until`."""
        return any(
            node in hosts(one.get("Nodes", ""))
            and float(one["StartTime"]) < until
            and float(one["EndTime"]) > self.at
            and one["ReservationName"] != job.get("Reservation", "")
            for one in self.reservations.values()
        )


def limit_s(job: Json) -> float:
    """Return the time limit of a job in seconds; 600 where `scontrol` shows no length of time."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", job.get("TimeLimit", ""))
    if match is None:
        return 600.0
    days, hours, minutes, seconds = (int(one or 0) for one in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60.0 + seconds


def faults(answer: Json, facts: Facts) -> list[str]:
    """Return one line for each rule that an answer about a waiting job breaks. A line begins with
    the rule's name.
    """
    job_id = str(answer["job_id"])
    job, slurm = facts.by_id[job_id], answer.get("slurm") or {}
    found = [f"no answer: {slurm.get('left_out')}"] * bool(slurm.get("left_out"))
    found += _nodes(job_id, job, slurm, facts)
    found += _reservation(job_id, job, slurm, facts)
    found += [
        f"time: {name} is {facts.at - at:.0f} s past"
        for name, at in _times(answer, slurm)
        if at < facts.at - SLACK_S
    ]
    text = json.dumps(answer)
    own = job.get("Partition", "").split(",")
    found += [f"hidden: {one}" for one in facts.hidden if one in text and one not in own]
    return found


def _nodes(job_id: str, job: Json, slurm: Json, facts: Facts) -> Iterator[str]:
    """Yield errors in the nodes that an answer names. A node said to suit the job must be able to
    run it. A node said to be closed must be closed.
    """
    needed = slurm.get("needed") or {}
    for node in (needed.get("would_do") or {}).get("first", ()):
        if not facts.open(node):
            yield f"node: {node} would do, and is {facts.nodes.get(node, {}).get('State')}"
        elif node in hosts(job.get("ExcNodeList", "")):
            yield f"node: {node} would do, and is excluded"
        elif facts.reserved(job, node, facts.at + limit_s(job)):
            yield f"node: {node} would do, and is reserved"
        elif facts.can(job_id, node) is False:
            yield f"node: {node} would do, and cannot"
    for one in needed.get("closed", ()):
        if facts.open(one["name"]):
            yield f"node: {one['name']} is said to be {one['state']}, and is open"


def _reservation(job_id: str, job: Json, slurm: Json, facts: Facts) -> Iterator[str]:
    held = slurm.get("reservation")
    if not held:
        return
    name = held["name"]
    row = facts.reservations.get(name)
    if row is None:
        yield f"reservation: there is no {name}"
    elif name != job.get("Reservation", ""):
        can = [facts.can(job_id, node) for node in hosts(row.get("Nodes", ""))]
        if can and all(one is False for one in can):
            yield f"reservation: {name} has no node that would do"
        if not facts.at - SLACK_S < float(row["EndTime"]):
            yield f"reservation: {name} is over"
        if float(row["StartTime"]) > facts.at + limit_s(job) + SLACK_S:
            yield f"reservation: {name} begins after the job would end"


def _times(answer: Json, slurm: Json) -> Iterator[tuple[str, float]]:
    forecast = answer.get("forecast") or {}
    for name in ("start_p10", "start_p50", "start_p90", "end_p50", "end_p90"):
        if forecast.get(name) is not None:
            yield name, forecast[name]
    if slurm.get("plan"):
        yield "the plan", slurm["plan"]["at"]
    if slurm.get("begins") is not None:
        yield "begin", slurm["begins"]


@dataclass(frozen=True, slots=True)
class Promise:
    """The first forecast of a job's start, made at time `at`. `start` is when the job really began;
    None: it had not begun by `until`.
    """

    at: float
    p50: float
    p90: float | None
    start: float | None
    until: float

    def began(self) -> float:
        return inf if self.start is None else self.start


NEAR_MIN = 10.0  # a second a minute
HORIZONS = {"to 10 min": 10.0, "to 1 h": 60.0, "to 6 h": 360.0, "longer": inf}


def promised(every: Iterable[Promise]) -> dict[str, dict[str, float]]:
    """Return how well first forecasts of a start held, in groups by how far ahead the median was.
    Each group holds the number of jobs and the share that started by p90. It also holds the share
    that started by p50, the share within ten minutes of p50, and the median distance from p50 to
    p90 in minutes. Forecasts without a p90 are only counted, as "crude"."""
    every = list(every)
    found: dict[str, dict[str, float]] = {}
    least = 0.0
    known = [one for one in every if one.p90 is not None]
    if len(known) < len(every):
        found["crude"] = {"jobs": len(every) - len(known)}
    for name, most in HORIZONS.items():
        some = [one for one in known if least <= max(0.0, one.p50 - one.at) < most]
        least = most
        if not some:
            continue
        over = [one for one in some if one.until >= (one.p90 or 0.0)]
        half = [one for one in some if one.until >= one.p50 + NEAR_MIN]
        found[name] = {"jobs": len(over), "open": len(some) - len(over), "of": len(half)}
        found[name]["width_min"] = median((one.p90 or 0.0) - one.p50 for one in some)
        if over:
            kept = [one.began() <= (one.p90 or 0.0) + SLACK_S for one in over]
            found[name]["by_p90"] = fmean(kept)
        if half:
            late = [one.began() - one.p50 for one in half]
            found[name]["by_p50"] = fmean(by <= SLACK_S for by in late)
            found[name]["within_10_min"] = fmean(abs(by) <= NEAR_MIN for by in late)
    return found


def offers(job_id: str, answer: Json, facts: Facts) -> list[str]:
    """Return one line for each rule that is broken by an answer to what would let a job start
    sooner.
    """
    found, was = [], (answer.get("as_it_is") or {}).get("start_p90")
    for one in answer.get("tried") or ():
        words = str(one["command"]).split()
        name, _, value = words[-1].partition("=")
        if words[:3] != ["scontrol", "update", f"jobid={job_id}"] or len(words) != 4:
            found.append(f"command: {one['command']}")
        elif refused := facts.asked(job_id, name, value):
            found.append(f"command: {one['command']}: {refused}")
        if one.get("start_p90") is None or (was is not None and one["start_p90"] >= was):
            found.append(f"command: {one['command']} makes p90 {one.get('start_p90')}, not {was}")
        found += [f"hidden: {part}" for part in facts.hidden if part in json.dumps(one)]
    return found


def estimated(
    options: Sequence[str], answer: Json, refused: Mapping[str, str], hidden: Collection[str] = ()
) -> list[str]:
    """Return where an answer of `pellucid eta` differs from what `sbatch --test-only` prints.

    Args:
        options: the options of sbatch that both were given.
        answer: the answer of `eta` as JSON.
        refused: maps each partition to Slurm's refusal of the options there; "": accepted.
        hidden: partitions that the asking user cannot see.
    """
    taken, closed = answer.get("tried", ()), answer.get("closed", ())
    said = [(one["partition"], refused.get(one["partition"])) for one in taken]
    found = [f"eta: {name} takes {options}: {why}" for name, why in said if why]
    found += [
        f"eta: {one['partition']} is closed to {options}: {one['why']}"
        for one in closed
        if refused.get(one["partition"]) == ""
    ]
    asked = " ".join(options)
    named = [name for name in hidden if name in json.dumps([*taken, *closed])]
    return [*found, *(f"hidden: {name}" for name in named if name not in asked)]
