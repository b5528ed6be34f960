"""Why a job of a followed Slurm waits: Slurm's own reason, explained by the policy `slurm`.

Slurm is never contradicted: what the policy found is used only where its reason is the same as
Slurm's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from math import ceil, isfinite

from scheduler.slurm.follow.partitions import closed_to_user
from scheduler.slurm.follow.shortages import Accounts
from scheduler.slurm.read.parse import SlurmJob
from scheduler.slurm.read.site import slurm_word
from scheduler.slurm.read.snapshot import ClusterSnapshot
from scheduler.slurm.reason import (
    PLAIN,
    SHOWN,
    ClosedNode,
    GoesFirst,
    GpusAsked,
    LicenceAsked,
    LimitReached,
    Needed,
    NodeNames,
    NodesAllowed,
    PlaceInLine,
    PlannedStart,
    PriorityTerm,
    ReservationHeld,
    SlurmReason,
    Stopped,
    TimeLimitTooLong,
)
from scheduler.slurm.twin.capacity import suits
from scheduler.slurm.twin.limits import Hit, is_kept, is_limit
from scheduler.slurm.twin.passes import (
    CAPACITY,
    LICENSES,
    NOT_AVAILABLE,
    PRIORITY,
    RESOURCES,
    PendingReason,
    Ranked,
)
from scheduler.slurm.twin.site import Ask, Partition, Site, SiteNode
from scheduler.slurm.twin.twin import SlurmTwin
from scheduler.slurm.twin.unmodelled import STOPS, stopped_by

COMPUTED_S = 400.0  # Slurm computes priorities this seldom at most (PriorityCalcPeriod and a look)
Places = Sequence[tuple[int, Ranked]]  # in each of its partitions, with how many come before it


def reasons(
    snapshot: ClusterSnapshot,
    jobs: Mapping[str, SlurmJob],
    policy: SlurmTwin,
    own: ClusterSnapshot | None = None,
) -> dict[str, SlurmReason]:
    """Return why each of these waiting jobs waits, by job id.

    Args:
        policy: the policy `slurm`, after its decisions about the queue.
        own: a snapshot in which Pellucid's own policy has decided about the same queue; None: not
            asked for.
    """
    now, places = snapshot.now, _places(policy, jobs)
    accounts, found = Accounts(policy, now), {}
    for job_id, job in jobs.items():
        pending = policy.evidence(job_id, now)
        never = pending.hit if pending is not None else None
        if pending is not None and pending.reason != slurm_word(job.reason):
            pending = None
        at = places.get(job_id, ())
        reason = _reason(
            word=slurm_word(job.reason),
            job=job,
            policy=policy,
            pending=pending,
            places=at,
            accounts=accounts,
            never=never if never is not None and not never.ever else None,
        )
        found[job_id] = _with_place(reason, job, policy, places=at, now=now, own=own)
    found |= _in_turn(found, policy.line())
    return found | _within_limits(found, policy.line())


def _within_limits(
    found: Mapping[str, SlurmReason], line: Sequence[Ranked]
) -> dict[str, SlurmReason]:
    """Return the reasons of the jobs that wait for a limit. Each gets the number of jobs before it
    that wait for the same limit. Other jobs are left out.
    """
    before: dict[str, set[str]] = {}
    placed: dict[str, SlurmReason] = {}
    for ranked in line if any(one.limit for one in found.values()) else ():
        reason = found.get(ranked.ask.job_id)
        hit = reason.limit if reason is not None else None
        if reason is None or hit is None:
            continue
        limit = f"{hit.whose} ({hit.name}{f' {hit.tres}' if hit.tres else ''})"
        ahead = before.setdefault(limit, set())
        if ranked.ask.job_id not in ahead:
            place = PlaceInLine(ranked.partition.name, len(ahead), limit)
            placed[ranked.ask.job_id] = replace(reason, places=(place,))
            ahead.add(ranked.ask.job_id)
    return placed


def _in_turn(found: Mapping[str, SlurmReason], line: Sequence[Ranked]) -> dict[str, SlurmReason]:
    """Return the reasons of the jobs whose limit now has room. Each gets the number of jobs before
    it that wait for the same limit. Other jobs are left out.
    """
    ahead: dict[tuple[str, ...], set[str]] = {}
    counted: dict[str, SlurmReason] = {}
    for ranked in line if any(one.lapsed for one in found.values()) else ():
        ask, reason = ranked.ask, found.get(ranked.ask.job_id)
        if reason is not None and reason.lapsed:
            by_account = ask.account if reason.code.startswith("Assoc") else ask.qos
            before = ahead.setdefault((reason.code, by_account), set())
            counted[ask.job_id] = replace(reason, ahead=len(before - {ask.job_id}))
            before.add(ask.job_id)
    return counted


def expected(snapshot: ClusterSnapshot, job: SlurmJob, policy: SlurmTwin) -> SlurmReason | None:
    """Return why a job would wait that Slurm has not considered yet, by the policy `slurm`; None
    where it would not wait."""
    pending = policy.evidence(job.id, snapshot.now)
    if pending is None:
        return None
    places = _places(policy, (job.id,)).get(job.id, ())
    return _reason(
        word=pending.reason,
        job=job,
        policy=policy,
        pending=pending,
        places=places,
        accounts=Accounts(policy, snapshot.now),
    )


def briefly(job: SlurmJob) -> SlurmReason:
    """Return Slurm's own reason for a job, without an explanation by the policy `slurm`."""
    word = slurm_word(job.reason)
    if "Dependency" in word:
        return SlurmReason(word, dependency=job.dependency)
    if word == "Reservation" and job.reservation:  # backfill says so of others, too
        return SlurmReason(word, reservation=ReservationHeld(job.reservation))
    if word == "PartitionNodeLimit":
        return SlurmReason(word, nodes=job.num_nodes)
    return SlurmReason(word, begins=job.eligible if word == "BeginTime" else None)


def by_own_policy(job_id: str, own: ClusterSnapshot) -> str:
    """Return the decision of Pellucid's own policy on a job: "start" or "wait". Return "" for a job
    that it does not know.
    """
    if job_id not in own.waiting:
        return ""
    return "start" if job_id in own.core.cluster.runs else "wait"


def _places(policy: SlurmTwin, wanted: Container[str]) -> dict[str, list[tuple[int, Ranked]]]:
    """Return the positions of the jobs in `wanted`, by id: for each partition, the number of jobs
    before it and its ranked entry. Jobs that are not in line are left out.
    """
    found: dict[str, list[tuple[int, Ranked]]] = {}
    ahead: Counter[str] = Counter()
    stops = STOPS in policy.site.parameters  # then a limit keeps back all behind it
    for ranked in policy.line():
        name, job_id = ranked.partition.name, ranked.ask.job_id
        if job_id in wanted:
            found.setdefault(job_id, []).append((ahead[name], ranked))
        pending, word = policy.reasons.get(job_id), slurm_word(ranked.ask.reason)
        if word in ("", "None") and pending is not None:  # Slurm has not looked at it yet
            word = pending.reason
        ahead[name] += word in CAPACITY or (stops and is_limit(word))
    return found


def _with_place(
    reason: SlurmReason,
    job: SlurmJob,
    policy: SlurmTwin,
    places: Places,
    now: float,
    own: ClusterSnapshot | None,
) -> SlurmReason:
    """Return a reason completed by the job's places in line, its priority with terms, the start
    that Slurm plans, and what Pellucid's own policy would do."""
    shown = (terms_shown(job.priority, ranked, policy, now) for _, ranked in places)
    terms = next(filter(None, shown), ())
    in_turn, plan = reason.code in CAPACITY, None
    weighed = bool(terms) or (in_turn and policy.site.weighs)
    if job.start is not None and job.start > now and (in_turn or reason.code == LICENSES):
        plan = PlannedStart(job.start, job.planned)
    return replace(
        reason,
        places=tuple(PlaceInLine(ranked.partition.name, before) for before, ranked in places),
        priority=job.priority if weighed else None,
        terms=terms,
        plan=plan,
        own=by_own_policy(job.id, own) if in_turn and own is not None else "",
    )


def _reason(
    word: str,
    job: SlurmJob,
    policy: SlurmTwin,
    pending: PendingReason | None,
    places: Places,
    accounts: Accounts,
    never: Hit | None = None,
) -> SlurmReason:
    """Return Slurm's reason for a job, with the policy's findings that explain it, where these are
    certain.

    Args:
        word: Slurm's reason as one word.
        never: the limit that the job exceeds by its own request. Backfill says of such a job that
            it waits for nodes; only the next main pass names the limit.
    """
    ask = policy.asked(job.id)
    plain = briefly(job if job.reason == word else replace(job, reason=word))
    hit = pending.hit if pending is not None else never if word in CAPACITY else None
    if (found := _by_request(plain, job, ask, policy)) is not None:
        return found
    if word in PLAIN or plain.begins is not None:
        return plain
    if hit is not None:
        return replace(plain, limit=_limit(hit))
    if pending is not None and is_kept(word) and pending.set:
        return replace(plain, lapsed=True)
    if ask is None or not places:
        return plain
    if word == PRIORITY:
        return _by_priority(plain, ask, policy, places, now=accounts.now)
    if word in (RESOURCES, NOT_AVAILABLE):  # the latter of nodes that are down, among others
        part = places[0][1].partition
        return _by_nodes(plain, ask, pending, part=part, accounts=accounts, planned=job.planned)
    return plain


def _by_request(
    plain: SlurmReason, job: SlurmJob, ask: Ask | None, policy: SlurmTwin
) -> SlurmReason | None:
    """Return the reason completed by what the job asks for beyond what there is. Return None where
    its word is not about that.
    """
    site = policy.site
    if plain.code == "PartitionNodeLimit":
        return replace(plain, nodes_allowed=_nodes_allowed(job, site))
    if plain.code == "PartitionTimeLimit":
        return replace(plain, too_long=_too_long(job, site))
    if plain.code == "BadConstraints":
        return replace(plain, no_features=_no_features(job, ask, site))
    return replace(plain, licences=_licences(ask, policy)) if plain.code == LICENSES else None


def _no_features(job: SlurmJob, ask: Ask | None, site: Site) -> str:
    """Return a job's constraint on features if no node of its partitions satisfies it; "" if one
    does, or that is not known.
    """
    parts = (site.partitions[name] for name in job.partition.split(",") if name in site.partitions)
    nodes = [site.nodes[name] for part in parts for name in part.nodes if name in site.nodes]
    if ask is None or not ask.features or not nodes:
        return ""
    anywhere = replace(ask, exc_nodes=frozenset())
    return "" if any(suits(anywhere, node) for node in nodes) else ask.features


def _by_nodes(
    plain: SlurmReason,
    ask: Ask,
    pending: PendingReason | None,
    part: Partition,
    accounts: Accounts,
    planned: Sequence[str],
) -> SlurmReason:
    """Return the reason completed by the resources that nodes lack for the job, or by the
    reservation that keeps the nodes. `planned`: nodes on which Slurm plans to start the job."""
    policy = accounts.twin
    if plain.code == NOT_AVAILABLE and pending is not None and pending.reservation:
        one = next(r for r in policy.site.reservations if r.name == pending.reservation)
        held = ReservationHeld(one.name, NodeNames.of(one.nodes), one.start, one.end)
        return replace(plain, reservation=held, time_limit_s=ask.limit_s(None))
    shortage = accounts.shortage(ask, part)
    if plain.code == RESOURCES:
        needed = _needed(ask, part, policy, accounts.now, whole=len(planned) == 1)
        return replace(plain, needed=needed, shortage=shortage)
    return replace(plain, shortage=shortage) if shortage.shuts else plain


def _by_priority(
    plain: SlurmReason, ask: Ask, policy: SlurmTwin, places: Places, now: float
) -> SlurmReason:
    """Return a reason of lower priority, completed by how many jobs go first, or by the job ahead
    that stops all jobs behind it."""
    if stops := _stopped(ask, policy, now):
        return replace(plain, stopped=stops)
    before = min(before for before, _ in places)
    others = [] if before else policy.line()  # which is long
    wait = {one.partition.name for one in others if one.ask.job_id != ask.job_id}
    first = _goes_first(before, places[0][1].partition, policy.site, wait)
    return replace(plain, goes_first=first)


def _stopped(ask: Ask, policy: SlurmTwin, now: float) -> Stopped | None:
    """Return the limit of a job ahead that also stops this job. Return None if no job stops it."""
    if STOPS not in policy.site.parameters:
        return None
    other = stopped_by(ask, (ranked.ask for ranked in policy.line()))
    if other is None:
        return None
    pending = policy.evidence(other.job_id, now)
    hit = pending.hit if pending is not None else None
    # of a user only they may know
    shown = _limit(hit) if hit is not None and not hit.whose.startswith("user ") else None
    part = next(name for name in ask.partitions if name in other.partitions)
    return Stopped(STOPS, other.reason, part, shown)


def _limit(hit: Hit) -> LimitReached:
    name, _, tres = hit.name.partition(" ")
    used = hit.used if isfinite(hit.used) else None  # JSON knows no infinity
    return LimitReached(
        name=name,
        tres=tres,
        whose=hit.whose,
        limit=hit.limit,
        used=used,
        asked=hit.asked,
        ever=hit.ever,
    )


def _goes_first(before: int, part: Partition, site: Site, wait: Container[str]) -> GoesFirst | None:
    """Return the jobs that go before a job: their number in its partition, and the partitions of a
    higher tier that share its nodes. Return None if there are neither.

    Args:
        wait: partitions in which jobs wait.
    """
    higher = [
        one.name
        for one in site.partitions.values()
        if one.name in wait and one.tier > part.tier and one.nodes & part.nodes and not one.hidden
    ]
    known = before or higher
    return GoesFirst(before, tuple(sorted(higher)), site.backfills) if known else None


def _too_long(job: SlurmJob, site: Site) -> TimeLimitTooLong | None:
    named = [site.partitions[n] for n in job.partition.split(",") if n in site.partitions]
    allowed = {part.name: part.max_time_s for part in named if part.max_time_s is not None}
    if not allowed or job.time_limit_s is None:
        return None
    longer = [
        part.name
        for part in site.partitions.values()
        if (part.max_time_s is None or part.max_time_s >= job.time_limit_s)
        and not part.hidden
        and not closed_to_user(job, part, site)
    ]
    return TimeLimitTooLong(job.time_limit_s, allowed, tuple(sorted(longer)))


def _nodes_allowed(job: SlurmJob, site: Site) -> tuple[NodesAllowed, ...]:
    """Return the partitions that allow fewer or more nodes than a job asks for, each with its
    bounds. Return () if one of the job's partitions fits.
    """
    named = [site.partitions[n] for n in job.partition.split(",") if n in site.partitions]
    found = tuple(
        NodesAllowed(part.name, part.min_nodes, part.max_nodes, len(part.nodes)) for part in named
    )
    fits = any(
        one.least <= job.num_nodes <= min(one.there, one.there if one.most is None else one.most)
        for one in found
    )
    return () if fits else found


def _licences(ask: Ask | None, policy: SlurmTwin) -> tuple[LicenceAsked, ...]:
    used, there = policy.books().licences(), policy.site.licences
    return tuple(
        LicenceAsked(name, wanted, there.get(name, 0), used.get(name, 0))
        for name, wanted in (ask.licences if ask is not None else ())
    )


def _needed(ask: Ask, part: Partition, policy: SlurmTwin, now: float, *, whole: bool) -> Needed:
    """Return what a job needs, and which nodes of a partition would do. With `whole`, Slurm plans
    it on one node: then only nodes with all of its GPUs do, if there are any."""
    nodes, suiting = policy.site.nodes, policy.suiting(ask, part, now)
    if whole and not ask.gpus_per_node:
        suiting = [n for n in suiting if _has_gpus(nodes[n], ask.gpus)] or suiting
    closed = [] if suiting else policy.suiting(ask, part, now, closed=True)
    shut = [ClosedNode(n, nodes[n].state) for n in closed]
    return Needed(
        partition=part.name,
        gpus=tuple(GpusAsked(kind, n) for kind, n in ask.gpus if n),
        cpus=ask.cpus,
        nodes=ask.nodes,
        whole_nodes=ask.exclusive,
        per_node=ask.gpus_per_node,
        would_do=NodeNames.of(suiting),
        closed=tuple(shut[:SHOWN]),
    )


def _has_gpus(node: SiteNode, asked: Iterable[tuple[str, int]]) -> bool:
    """Return whether a node has all GPUs that are asked for, by type; "" is any type."""
    has = dict(node.gpus)
    return all((has.get(kind, 0) if kind else sum(has.values())) >= n for kind, n in asked)


def terms_shown(
    priority: int, ranked: Ranked, policy: SlurmTwin, now: float
) -> tuple[PriorityTerm, ...]:
    """Return the terms of a job's priority as `sprio` has them, the largest first. Return none
    where they do not add up to Slurm's `priority`, or the job has no age or several partitions.
    """
    terms = policy.weights.terms(ranked.ask, ranked.partition, now)
    since = ranked.ask.accrue
    if not terms.total or terms.total <= 1 or since is None or len(ranked.ask.partitions) > 1:
        return ()
    over = terms.total - priority  # Slurm computed its age some time ago
    rate = policy.weights.per_s
    if over < -2 or over > rate * COMPUTED_S + 2:
        return ()
    # of as many whole seconds as the priority takes, which is cut to a whole number
    lasted = ceil((priority - terms.exact + terms.age) / rate - 1e-6) if rate else 0
    parts = {
        "fair share": terms.fairshare,
        "age": min(terms.age, max(0.0, lasted * rate)),
        "partition": terms.partition,
        "QOS": terms.qos,
        "job size": terms.jobsize,
        "TRES": sum(terms.tres.values()),
        "association": terms.assoc,
        "site": terms.site,
        "nice": float(-terms.nice),
    }
    shown = [PriorityTerm(name, points) for name, points in parts.items() if round(points)]
    return tuple(sorted(shown, key=lambda one: -abs(one.points)))
