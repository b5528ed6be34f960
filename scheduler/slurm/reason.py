"""Why a job of a followed Slurm waits, as a value, and the sentences made of it.

Every user who may see a job may read its reason, so no other job is named in it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from scheduler.core.plural import count
from scheduler.explain.shortage import Shortage, clauses, ready_clauses
from scheduler.explain.words import clock_time, duration
from scheduler.slurm.codes import meaning as meaning

SHOWN = 6  # nodes that are named


@dataclass(frozen=True, slots=True)
class LimitReached:
    """A limit of a QOS or an association that the job would exceed.

    Attributes:
        name: sacctmgr's name of the limit: ``GrpTRES``, ``MaxJobsPU``, ``MaxWall`` (seconds).
        tres: the limited resource: ``gres/gpu``; "": jobs, or time.
        whose: to what the limit belongs: ``QOS limited``, ``account physics``, ``user anna in
            account physics``.
        limit: the largest allowed amount (the least, for ``MinTRES``), in minutes where `name` is
            about minutes.
        used: the amount that running jobs have; None: Slurm does not show it.
        asked: the amount that this job would add.
        ever: whether the job fits within the limit once other jobs end.
    """

    name: str
    tres: str
    whose: str
    limit: float
    used: float | None
    asked: float
    ever: bool = True


@dataclass(frozen=True, slots=True)
class NodeNames:
    """A set of nodes: the names of the first few, and the number of all."""

    first: tuple[str, ...] = ()
    count: int = 0

    @classmethod
    def of(cls, names: Collection[str]) -> NodeNames:
        return cls(tuple(sorted(names)[:SHOWN]), len(names))

    def __str__(self) -> str:
        if self.count > SHOWN:
            return f"{', '.join(self.first[:-1])} and {self.count - SHOWN + 1} more nodes"
        return ", ".join(self.first)


@dataclass(frozen=True, slots=True)
class ReservationHeld:
    """A reservation that is in the job's way, or that the job asks for, with its begin and end in
    epoch seconds.
    """

    name: str
    nodes: NodeNames = NodeNames()
    begins: float | None = None
    ends: float | None = None


@dataclass(frozen=True, slots=True)
class TimeLimitTooLong:
    """The finding that a job asks for more seconds than its partitions allow (`allowed`, by name).
    The partitions in `others` would allow it."""

    asked_s: float
    allowed: dict[str, float]
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LicenceAsked:
    """A licence that the job asks for: the number asked for, the number there is, and the number in
    use by running jobs.
    """

    name: str
    asked: int
    there: int
    used: int


@dataclass(frozen=True, slots=True)
class GoesFirst:
    """How many jobs go before this job in its partition, and which other partitions' jobs go first
    on its nodes. `backfills` says whether the job may start before them if that delays none of
    them."""

    jobs: int
    partitions: tuple[str, ...] = ()
    backfills: bool = True


@dataclass(frozen=True, slots=True)
class Stopped:
    """The finding that a job in `partition`, which waits for a limit (reason `code`), holds up all
    jobs behind it, because of Slurm's `setting`. `limit` is that limit, where it is known."""

    setting: str
    code: str
    partition: str
    limit: LimitReached | None = None


@dataclass(frozen=True, slots=True)
class GpusAsked:
    """GPUs of a type; "" means any type."""

    type: str
    gpus: int


@dataclass(frozen=True, slots=True)
class ClosedNode:
    """A node on which no job starts, and its state in Slurm."""

    name: str
    state: str


@dataclass(frozen=True, slots=True)
class Needed:
    """Resources that the job needs and that are not free.

    Attributes:
        per_node: whether the GPUs are asked for on each of `nodes`.
        whole_nodes: whether the job shares no node.
        would_do: nodes of `partition` that suit the job.
        closed: where no open node suits it: the first closed nodes that would.
    """

    partition: str
    gpus: tuple[GpusAsked, ...]
    cpus: int
    nodes: int = 1
    whole_nodes: bool = False
    per_node: bool = False
    would_do: NodeNames = NodeNames()
    closed: tuple[ClosedNode, ...] = ()


@dataclass(frozen=True, slots=True)
class PlaceInLine:
    """The number of jobs of a partition that stand before the job and wait for room or their turn
    (or for a limit that stops all behind them). If the job waits for a limit, only jobs that wait
    for the same limit count. `limit` names it, as in ``QOS limited (GrpTRES gres/gpu)``.
    """

    partition: str
    before: int
    limit: str = ""


@dataclass(frozen=True, slots=True)
class PriorityTerm:
    """One term of a job's priority, as `sprio` shows it."""

    name: str
    points: float


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """When (epoch seconds) and where backfill would start the job if every run took its whole time
    limit.
    """

    at: float
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodesAllowed:
    """The numbers of nodes that a partition allows, where the job's number is not among them:
    `least` to `most` nodes (None: no maximum). The partition has `there` nodes."""

    partition: str
    least: int
    most: int | None
    there: int


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A statement that was withdrawn: at `since` it was stated that the job's limit has room, but
    Slurm did not start the job. `held` of `judged` such statements were right."""

    since: float
    held: int = 0
    judged: int = 0


@dataclass(frozen=True, slots=True)
class SlurmReason:
    """Why a job waits, in Slurm's own word, and the findings that explain it.

    Attributes:
        code: Slurm's word, as `squeue` shows it; "": the job was not seen waiting.
        started: whether Slurm has started it; the other fields are of the last poll before that.
        dependency: the jobs that it waits for, as Slurm writes them.
        reservation: the reservation that it waits for.
        begins: the time that it waits for, seconds since the epoch.
        nodes, time_limit_s: nodes and time that it asks for, where these are the reason.
        nodes_allowed: the numbers of nodes that its partitions allow.
        no_features: its constraint on features, where no node of its partitions satisfies it.
        limit: the limit that it would exceed.
        lapsed: whether the limit that `code` names has room now. `ahead` jobs that wait for the
            same limit stand before this one.
        withdrawn: the withdrawn statement that the limit has room; None: there is none.
        stopped: the limit that stops it because a job ahead waits for that limit.
        shortage: what it lacks, node by node.
        places: its place in line in each partition.
        priority: Slurm's priority of the job.
        terms: the terms that sum to the priority, the largest first.
        own: what Pellucid's own policy would do: "start", "wait"; "": it was not asked.
        left_out: why Pellucid could not plan it at all.
        partition, account, qos: to which it was submitted, and against which it counts.
    """

    code: str = ""
    started: bool = False
    dependency: str = ""
    reservation: ReservationHeld | None = None
    begins: float | None = None
    nodes: int | None = None
    time_limit_s: float | None = None
    too_long: TimeLimitTooLong | None = None
    licences: tuple[LicenceAsked, ...] = ()
    limit: LimitReached | None = None
    lapsed: bool = False
    goes_first: GoesFirst | None = None
    needed: Needed | None = None
    places: tuple[PlaceInLine, ...] = ()
    priority: int | None = None
    terms: tuple[PriorityTerm, ...] = ()
    plan: PlannedStart | None = None
    own: str = ""
    left_out: str = ""
    ahead: int = 0
    stopped: Stopped | None = None
    shortage: Shortage | None = None
    partition: str = ""
    account: str = ""
    qos: str = ""
    withdrawn: Withdrawn | None = None
    nodes_allowed: tuple[NodesAllowed, ...] = ()
    no_features: str = ""

    def as_of(self, now: float) -> SlurmReason:
        """Return the reason without times that have passed since it was found."""
        plan = self.plan if self.plan is not None and self.plan.at > now else None
        begins = self.begins if self.begins is not None and self.begins > now else None
        held = self.reservation
        if held is not None and held.ends is not None and held.ends <= now:
            held = None
        return replace(self, plan=plan, begins=begins, reservation=held)


# --- in words ------------------------------------------------------------------------------------


def headline(reason: SlurmReason, job_id: str, now: float) -> str:
    """Return Slurm's reason with its explanation in a sentence. For a started job, say so, with the
    last reason for which it waited."""
    if not reason.started:
        return ": ".join(filter(None, [f"Slurm says {reason.code}", sentence(reason, job_id, now)]))
    last = ": ".join([reason.code, *because(reason, job_id, now)[:1]])
    return "Slurm started it" + f"; its last reason to wait was {last}" * bool(last)


def rows(reason: SlurmReason, job_id: str, now: float) -> list[tuple[str, str]]:
    """Return what is known of a waiting job beyond the headline: pairs of a label and a line of
    text. Return [] for a job that Slurm has started."""
    if reason.started:
        return []
    found = [("Place", _place(one)) for one in reason.places]
    if reason.terms:
        parts = " + ".join(f"{one.name} {one.points:.0f}" for one in reason.terms)
        found.append(("Priority", f"{reason.priority} = {parts}."))
    elif reason.priority is not None:
        array = job_id.partition("_")[0]
        found.append(("Priority", f"{reason.priority} by Slurm (`sprio -j {array} -l`)."))
    if reason.plan is not None:
        where = f" on {', '.join(reason.plan.nodes)}" if reason.plan.nodes else ""
        at = clock_time(reason.plan.at, now)
        text = f"a start at {at}{where}, if running jobs take all of their time limits."
        found.append(("Slurm plans", text))
    if reason.own or reason.left_out:
        found.append(("Pellucid", own_policy(reason.own) or f"{reason.left_out}."))
    return found


def whole(reason: SlurmReason, job_id: str, now: float) -> str:
    """Return the whole reason as text, one line for each part."""
    more = (f"{label}: {text}" for label, text in rows(reason, job_id, now))
    return "\n".join([headline(reason, job_id, now), *more])


def sentence(reason: SlurmReason, job_id: str, now: float) -> str:
    """Return a sentence that explains Slurm's word, or "" where nothing certain is known."""
    parts = because(reason, job_id, now)
    return "; ".join(parts) + "." * bool(parts)


def because(reason: SlurmReason, job_id: str, now: float) -> list[str]:
    """Return clauses that explain Slurm's word for why a job waits. The first clause is the main
    reason; the others add to it. Return [] where nothing certain is known."""
    if reason.nodes_allowed:
        return [_nodes(reason.nodes or 0, reason.nodes_allowed, job_id)]
    words = PLAIN.get(reason.code, ())
    if words and (reason.reservation is not None or "{reservation}" not in words[0]):
        asked = {
            "job": job_id,
            "dependency": _dependency(reason.dependency),
            "reservation": reason.reservation.name if reason.reservation else "",
            "nodes": count(reason.nodes or 0, "node"),
        }
        return [part.format_map(asked) for part in words]
    if reason.no_features:
        asked_for = f"what --constraint={reason.no_features} asks for"
        return [f"no node of its partition has {asked_for}", "change it or cancel it"]
    if reason.begins is not None:
        return [f"it may not begin before {clock_time(reason.begins, now)}"]
    if reason.too_long is not None:
        return [_too_long(reason.too_long, job_id)]
    if reason.licences:
        first, *more = map(_licence, reason.licences)
        return [f"it asks for {first}", *more]
    if found := _by_limit(reason, now):
        return found
    if reason.shortage is not None and (found := clauses(reason.shortage, now)):
        return found
    return _by_place(reason, now) or _by_code(reason.code)


def _dependency(text: str) -> str:
    """Return what a job depends on, in words for ``singleton``, otherwise as Slurm writes it."""
    if text.startswith("singleton"):
        return "every earlier job of its user with the same name to end (--dependency=singleton)"
    return text


def _by_code(code: str) -> list[str]:
    """Return what Slurm's code means, as clauses; [] where the manual adds nothing."""
    return [part for part in meaning(code).split("; ") if part]


def _by_limit(reason: SlurmReason, now: float) -> list[str]:
    """Return as clauses the limit that keeps the job, or a job before it, from starting. Return []
    if no limit does.
    """
    if reason.limit is not None:
        return [_limit(reason.limit)]
    if reason.lapsed:
        return _lapsed(reason.ahead) if reason.withdrawn is None else _not_so(reason.withdrawn, now)
    return _stopped(reason.stopped) if reason.stopped is not None else []


def _by_place(reason: SlurmReason, now: float) -> list[str]:
    """Return as clauses which jobs go first, which resources the job needs, or which reservation is
    in its way. Return [] if none of them is known.
    """
    if reason.goes_first is not None:
        return _goes_first(reason.goes_first)
    if reason.shortage is not None and (found := ready_clauses(reason.shortage)):
        return found
    if reason.needed is not None:
        return _needed(reason.needed)
    held = reason.reservation
    if held is not None and held.begins is not None and held.ends is not None:
        begins, ends = clock_time(held.begins, now), clock_time(held.ends, now)
        return [
            f"reservation {held.name} has {held.nodes} from {begins} to {ends}, and it would run "
            f"into that with a time limit of {duration(reason.time_limit_s)}"
        ]
    return []


PLAIN: Mapping[str, tuple[str, ...]] = {
    "None": ("Slurm has not considered it yet",),
    "JobHeldUser": ("it is held by its user", "`scontrol release {job}` lets it go"),
    "JobHeldAdmin": ("it is held by an administrator, who alone can release it",),
    "Dependency": ("it waits for {dependency}",),
    "DependencyNeverSatisfied": (
        "what it waits for ({dependency}) can never happen any more",
        "cancel it",
    ),
    "JobArrayTaskLimit": ("as many tasks of its array run as the array allows at once",),
    "PartitionDown": ("its partition is down: jobs wait until an administrator opens it",),
    "PartitionNodeLimit": ("it asks for {nodes}, which its partition does not allow",),
    "Reservation": ("it waits for reservation {reservation} to begin, or for room in it",),
    "InvalidAccount": ("its account or user is not known to Slurm's accounting",),
    "InvalidQOS": ("its QOS is not one that it may use",),
    "job requeued in held state": (
        "it was put back into the queue and held",
        "`scontrol release {job}` lets it go, by whoever held it",
    ),
    "launch failed requeued held": (
        "its node could not launch it, and Slurm put it back into the queue and held it",
        "`scontrol release {job}` lets it go once the node is mended",
    ),
}


def _lapsed(ahead: int) -> list[str]:
    keeps = "Slurm shows this reason until it considers the job again"
    if ahead:
        return [
            f"there is room in that limit for one such job now, but {count(ahead, 'job')} that "
            f"{'waits' if ahead == 1 else 'wait'} for the same limit may start before it", keeps,
        ]  # fmt: skip
    so = "the limit was reached when Slurm last considered the job. There is room in that limit now"
    return [so, keeps]


def _not_so(one: Withdrawn, now: float) -> list[str]:
    return [
        f"by all that is known here there has been room in that limit since "
        f"{clock_time(one.since, now)}, but Slurm has not started it: why is not known"
        f"{held_words(one.held, one.judged)}"
    ]


def held_words(held: int, judged: int) -> str:
    """Return how often claims like this one held, in brackets; "" where none was judged."""
    return f" ({held} of {count(judged, 'such statement')} came true)" if judged else ""


def _stopped(one: Stopped) -> list[str]:
    limit = f" ({_limit(one.limit)})" if one.limit is not None else ""
    return [
        f"a job of higher priority in partition {one.partition} waits for a limit, "
        f"{one.code}{limit}",
        f"SchedulerParameters={one.setting} makes all jobs of lower priority in that partition "
        "wait until it starts",
    ]


def own_policy(own: str) -> str:
    """Return as text what Pellucid's own policy would do with the job. Return "" if it was not
    asked.
    """
    if not own:
        return ""
    does = "start it now" if own == "start" else "have it wait"
    return f"its own policy, which counts GPUs but no CPUs or memory, would {does}."


def _place(one: PlaceInLine) -> str:
    have = "has" if one.before == 1 else "have"
    where = f"that wait for {one.limit}" if one.limit else f"that wait in partition {one.partition}"
    if not one.before:
        return f"it has the highest priority of the jobs {where}."
    return f"of the jobs {where}, {one.before:,} {have} a higher priority."


def _too_long(one: TimeLimitTooLong, job_id: str) -> str:
    parts = [f"{name} allows {duration(most)}" for name, most in one.allowed.items()]
    could = f", or another partition ({', '.join(one.others)})" if one.others else ""
    minutes = int(max(one.allowed.values()) // 60)
    return (
        f"it asks for {duration(one.asked_s)}, and partition {', '.join(parts)}. It can never "
        f"start like this: lower its time limit (`scontrol update jobid={job_id} "
        f"timelimit={minutes}`){could}"
    )


def _nodes(asked: int, allowed: Sequence[NodesAllowed], job_id: str) -> str:
    parts, could = [], set[int]()
    for one in allowed:
        most = one.there if one.most is None else min(one.most, one.there)
        if asked < one.least:
            gives = f"gives a job {count(one.least, 'node')} or more (MinNodes)"
        elif one.most is not None and asked > one.most:
            gives = f"gives a job {count(one.most, 'node')} at most (MaxNodes)"
        else:
            gives = f"has {count(one.there, 'node')}"
        parts.append(f"partition {one.partition} {gives}")
        could |= {one.least if asked < one.least else most} if one.least <= most else set()
    n = min(could, default=0)
    ask = f": ask for {n} (`scontrol update jobid={job_id} numnodes={n}-{n}`)" * bool(n)
    never = "It can never start like this"
    return f"it asks for {count(asked, 'node')}, and {', '.join(parts)}. {never}{ask}"


def _licence(one: LicenceAsked) -> str:
    use = f"of which {one.there} exist and running jobs use {one.used}"
    return f"{count(one.asked, 'licence')} of {one.name}, {use}"


def _limit(one: LimitReached) -> str:
    if one.name == "MaxWall":
        asked, most = duration(one.asked), duration(one.limit)
        return f"{one.whose} may ask for {most} at most, and this job asks for {asked}"
    if not one.tres:
        most, used = count(int(one.limit), "running job"), int(one.used or 0.0)
        return f"{one.whose} may have {most} at once ({one.name}), and has {used}"
    what, never = _of_one_job(one), "it can never start like this"
    if what:
        asks = f"and this job asks for {_much(one, one.asked)}"
        return f"{one.whose} {what} ({one.name}), {asks}: {never}"
    if one.name in _MINUTES:
        return _of_minutes(one)
    has = f"{one.whose} may have {_much(one, one.limit)} {one.tres} at once ({one.name})"
    if not one.ever:
        return f"{has}, and this job alone asks for {_much(one, one.asked)}: {never}"
    return f"{has}, has {_much(one, one.used)}, and this job asks for {_much(one, one.asked)} more"


_LEFT = ("GrpTRESRunMins", "MaxTRESRunMinsPU", "MaxTRESRunMinsPA")  # that running jobs have
_MINUTES = (*_LEFT, "GrpTRESMins", "GrpWall")


def _of_one_job(one: LimitReached) -> str:
    """Return as text what a limit on a single job allows; "" for a limit on several jobs
    together."""
    most = f"{_much(one, one.limit)} {one.tres}"
    return {
        "MinTRES": f"takes no job of fewer than {most}",
        "MaxTRES": f"gives a job {most} at most",
        "MaxTRESPerJob": f"gives a job {most} at most",
        "MaxTRESPerNode": f"gives a job {most} on a node at most",
        "MaxTRESMins": f"gives a job {most} minutes at most, by its time limit",
    }.get(one.name, "")


def _of_minutes(one: LimitReached) -> str:
    what = "minutes" if one.name == "GrpWall" else f"{one.tres} minutes"
    most, asked = f"{_much(one, one.limit)} {what}", _much(one, one.asked)
    if one.name not in _LEFT:
        used = "Slurm does not show here how many are used up"
        asks = f"and this job asks for {asked} by its time limit"
        return f"{one.whose} may use up {most} ({one.name}), {asks} ({used})"
    may = f"{one.whose} may have running jobs with {most} left by their time limits ({one.name})"
    if not one.ever:
        return f"{may}, and this job alone asks for {asked}: it can never start like this"
    return f"{may}, has {_much(one, one.used)}, and this job asks for {asked} more"


def _much(one: LimitReached, amount: float | None) -> str:
    if amount is None:
        return "what Slurm does not show"
    if one.tres == "mem" and one.name not in (*_MINUTES, "MaxTRESMins"):
        return f"{amount / 1024:.4g} GiB"
    return f"{amount:.0f}" if one.name in (*_MINUTES, "MaxTRESMins") else f"{amount:g}"


def _goes_first(one: GoesFirst) -> list[str]:
    if one.jobs:
        go = "goes" if one.jobs == 1 else "go"
        text = f"{count(one.jobs, 'job')} of higher priority in its partition {go} first"
    else:
        which = "partition" if len(one.partitions) == 1 else "partitions"
        text = f"jobs of {which} {', '.join(one.partitions)} go first on the nodes that suit it"
    may = "it may start before them only if, by all time limits, that delays none of them"
    return [text, may] if one.backfills else [text]


def _needed(one: Needed) -> list[str]:
    """Return clauses on what the job needs, and on which suitable nodes have too little free."""
    need = [count(g.gpus, f"GPU of type {g.type}" if g.type else "GPU") for g in one.gpus]
    need += [count(one.cpus, "CPU"), *(["whole nodes"] if one.whole_nodes else [])]
    per = " on each node" if one.per_node and one.nodes > 1 else ""
    text = f"it needs {', '.join(need)}{per}" + (f" on {one.nodes} nodes" if one.nodes > 1 else "")
    if one.would_do.count:
        suits = "suits" if one.would_do.count == 1 else "suit"
        return [text, f"{one.would_do} {suits} it, but not enough is free there now"]
    shut = ", ".join(f"{node.name} ({node.state})" for node in one.closed)
    where = f"no node of partition {one.partition} that suits it is open"
    return [text, f"{where}: {shut}" if shut else where]
