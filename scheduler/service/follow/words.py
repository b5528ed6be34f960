"""Why a job of a followed Slurm waits: Slurm's own reason first, explained by the policy `slurm`.

Nothing is said that Slurm contradicts: evidence of the policy is told only where its reason is
Slurm's. Everybody with the right to see a job may read its lines, so no other job is named.
"""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.backends.slurm.parse import SlurmJob
from scheduler.backends.slurm.site import slurm_word
from scheduler.backends.slurm.snapshot import ClusterSnapshot
from scheduler.core.plural import count
from scheduler.explain.words import SAYS, clock_time, duration
from scheduler.policies.slurm.limits import Hit, is_kept
from scheduler.policies.slurm.passes import CAPACITY, PRIORITY, RESOURCES, PendingReason, Ranked
from scheduler.policies.slurm.policy import Slurm
from scheduler.policies.slurm.site import Ask, Partition, Site

COMPUTED_S = 400.0  # Slurm computes priorities this seldom at most (PriorityCalcPeriod and a look)

_PLAIN = {
    "None": "it was not looked at yet",
    "JobHeldUser": "it is held by its user; `scontrol release {job}` lets it go",
    "JobHeldAdmin": "it is held by an administrator, who alone can release it",
    "Dependency": "it waits for {dependency}",
    "DependencyNeverSatisfied": "what it waits for ({dependency}) can never be; cancel it",
    "JobArrayTaskLimit": "as many tasks of its array run as it allows at once",
    "PartitionDown": "its partition is down: jobs wait until an administrator opens it",
    "PartitionNodeLimit": "it asks for {nodes}, which its partition does not give",
    "Reservation": "it waits for reservation {reservation} to begin, or for room in it",
    "InvalidAccount": "its account or user is not known to Slurm's accounting",
    "InvalidQOS": "its QOS is not one that it may use",
}


def told(
    snapshot: ClusterSnapshot,
    jobs: Mapping[str, SlurmJob],
    policy: Slurm,
    own: ClusterSnapshot | None = None,
) -> dict[str, str]:
    """Lines about each of these waiting jobs, ``Label: text`` from the second on.

    Args:
        own: what Pellucid's own policy decides of the same queue.
    """
    line = policy.line()
    places: dict[str, list[tuple[int, Ranked]]] = {}
    ahead: dict[str, int] = {}
    for ranked in line:
        name, job_id = ranked.partition.name, ranked.ask.job_id
        if job_id in jobs:
            places.setdefault(job_id, []).append((ahead.get(name, 0), ranked))
        pending = policy.reasons.get(job_id)
        if pending is not None and pending.reason in CAPACITY:  # no limit keeps it from going first
            ahead[name] = ahead.get(name, 0) + 1
    return {
        job_id: "\n".join(
            [*_lines(snapshot.now, job, policy, places.get(job_id, [])), *_by_ours(job, own)]
        )
        for job_id, job in jobs.items()
    }


def expected(snapshot: ClusterSnapshot, job: SlurmJob, policy: Slurm) -> tuple[str, str]:
    """Slurm's word for why a job would wait that Slurm has not seen so, and that in a sentence."""
    pending = policy.evidence(job.id, snapshot.now)
    if pending is None:
        return "", ""
    places: list[tuple[int, Ranked]] = []
    ahead: dict[str, int] = {}
    for ranked in policy.line():
        name = ranked.partition.name
        if ranked.ask.job_id == job.id:
            places.append((ahead.get(name, 0), ranked))
        other = policy.reasons.get(ranked.ask.job_id)
        ahead[name] = ahead.get(name, 0) + (other is not None and other.reason in CAPACITY)
    return pending.reason, _reason(pending.reason, job, policy, pending, places, snapshot.now)


def _by_ours(job: SlurmJob, own: ClusterSnapshot | None) -> list[str]:
    """What Pellucid's own policy would do with a job that waits for no limit."""
    if own is None or slurm_word(job.reason) not in CAPACITY or job.id not in own.waiting:
        return []
    return [f"Pellucid: {by_ours(job.id, own)}"]


def by_ours(job_id: str, own: ClusterSnapshot) -> str:
    """What Pellucid's own policy does with a job; "" where it can say nothing of it."""
    if job_id not in own.waiting:
        return ""
    does = "start it now" if job_id in own.core.cluster.runs else "have it wait"
    return f"its own policy, which counts GPUs and no CPUs or memory, would {does}."


def _lines(now: float, job: SlurmJob, policy: Slurm, places: list[tuple[int, Ranked]]) -> list[str]:
    word = slurm_word(job.reason)
    pending = policy.evidence(job.id, now)
    if pending is not None and pending.reason != word:
        pending = None
    text = _reason(word, job, policy, pending, places, now)
    lines = [f"{SAYS}{word}" + (f": {text}" if text else "")]
    for before, ranked in places:
        name = ranked.partition.name
        place = f"{count(before, 'waiting job')} before it" if before else "first"
        lines.append(f"Place: {place} in partition {name} by priority.")
    shown = [text for _, ranked in places if (text := _terms(job, ranked, policy, now))]
    if not shown and word in CAPACITY and policy.site.weighs:
        shown = [f"{job.priority} by Slurm (`sprio -j {job.id.partition('_')[0]} -l`)."]
    lines += [f"Priority: {text}" for text in shown]
    if job.start is not None and job.start > now and word in (RESOURCES, PRIORITY, "Licenses"):
        where = f" on {', '.join(job.planned)}" if job.planned else ""
        at = clock_time(job.start, now)
        lines.append(f"Slurm plans: {at}{where}, if running jobs take all of their time limits.")
    return lines


def _reason(
    word: str,
    job: SlurmJob,
    policy: Slurm,
    pending: PendingReason | None,
    places: list[tuple[int, Ranked]],
    now: float,
) -> str:
    """Slurm's reason explained; "" where there is nothing sure to say."""
    site, ask = policy.site, policy.asked(job.id)
    if plain := _plainly(word, job, now):
        return plain
    if word == "PartitionTimeLimit":
        return _too_long(job, site)
    if word == "Licenses":
        return _licences(ask, policy)
    if pending is not None and pending.hit is not None:
        return _limit(pending.hit)
    if pending is not None and is_kept(word):
        return (
            "that was so when the job last had its turn. There is room in that limit now; Slurm "
            "keeps the word until the job has its turn again."
        )
    if word == PRIORITY and places:
        return _behind(min(before for before, _ in places), places[0][1].partition, site)
    if word == RESOURCES and ask is not None and places:
        return _lacking(ask, places[0][1].partition, policy, now)
    if word == "ReqNodeNotAvail" and pending is not None and pending.reservation:
        one = next(r for r in site.reservations if r.name == pending.reservation)
        begins, ends = clock_time(one.start, now), clock_time(one.end, now)
        return (
            f"reservation {one.name} has {_names(one.nodes)} from {begins} to {ends}, and it would "
            f"run into that with a time limit of {duration(ask.limit_s(None) if ask else None)}."
        )
    return ""


def _plainly(word: str, job: SlurmJob, now: float) -> str:
    """A reason that the job by itself explains; "" for others."""
    if word in _PLAIN:
        asked = {"job": job.id, "dependency": job.dependency, "reservation": job.reservation}
        return _PLAIN[word].format(nodes=count(job.num_nodes, "node"), **asked) + "."
    if word == "BeginTime" and job.eligible is not None:
        return f"it may not begin before {clock_time(job.eligible, now)}."
    return ""


def briefly(job: SlurmJob, now: float) -> str:
    """Slurm's reason, where the policy `slurm` is not asked."""
    word = slurm_word(job.reason)
    text = _plainly(word, job, now)
    return f"{SAYS}{word}" + (f": {text}" if text else "")


def _behind(before: int, part: Partition, site: Site) -> str:
    """Who goes first."""
    if before:
        go = "goes" if before == 1 else "go"
        text = f"{count(before, 'job')} of higher priority in its partition {go} first"
    else:
        higher = [
            one.name
            for one in site.partitions.values()
            if one.tier > part.tier and one.nodes & part.nodes
        ]
        if not higher:
            return ""
        text = f"jobs of partition {', '.join(sorted(higher))} go first on its nodes"
    if not site.backfills:
        return f"{text}."
    return f"{text}; it may start before them only where that delays none, by time limits."


def _too_long(job: SlurmJob, site: Site) -> str:
    allowed = {
        name: site.partitions[name].max_time_s
        for name in job.partition.split(",")
        if name in site.partitions
    }
    parts = [
        f"{name} allows {duration(most)}" for name, most in allowed.items() if most is not None
    ]
    if not parts or job.time_limit_s is None:
        return ""
    longest = max(most for most in allowed.values() if most is not None)
    longer = [
        part.name
        for part in site.partitions.values()
        if part.max_time_s is None or part.max_time_s >= job.time_limit_s
    ]
    could = f", or another partition ({', '.join(sorted(longer))})" if longer else ""
    minutes = int(longest // 60)
    return (
        f"it asks for {duration(job.time_limit_s)}, and partition {', '.join(parts)}. It never "
        f"starts so: give it less (`scontrol update jobid={job.id} timelimit={minutes}`){could}."
    )


def _licences(ask: Ask | None, policy: Slurm) -> str:
    if ask is None or not ask.licences:
        return ""
    used = policy.licences_used()
    parts = [
        f"{wanted} of {name}, of which {policy.site.licences.get(name, 0)} exist and running jobs "
        f"have {used.get(name, 0)}"
        for name, wanted in ask.licences
    ]
    return f"it asks for {'; '.join(parts)}."


def _limit(hit: Hit) -> str:
    if hit.name == "MaxWall":
        asked, most = duration(hit.asked), duration(hit.limit)
        return f"{hit.whose} may ask for {most} at most, and it asks for {asked}."
    name, _, tres = hit.name.partition(" ")
    if not tres:
        most, used = count(int(hit.limit), "running job"), int(hit.used)
        return f"{hit.whose} may have {most} at once ({name}), and has {used}."
    has = f"{hit.whose} may have {hit.limit:g} {tres} at once ({name})"
    if not hit.ever:
        return f"{has}, and it asks for {hit.asked:g} by itself: it cannot start so."
    return f"{has}, has {hit.used:g}, and it asks for {hit.asked:g} more."


def _lacking(ask: Ask, part: Partition, policy: Slurm, now: float) -> str:
    """What it needs, and what the nodes that suit it have free."""
    site = policy.site
    need = [count(n, f"GPU of type {kind}" if kind else "GPU") for kind, n in ask.gpus if n]
    need += [count(ask.cpus, "CPU"), *(["whole nodes"] if ask.exclusive else [])]
    per = " on each node" if ask.gpus_per_node and ask.nodes > 1 else ""
    names = policy.suiting(ask, part, now)
    text = f"it needs {', '.join(need)}{per}" + (f" on {ask.nodes} nodes" if ask.nodes > 1 else "")
    if not names:
        shut = [
            f"{n} ({site.nodes[n].state})" for n in sorted(part.nodes) if not site.nodes[n].open
        ]
        return f"{text}; no node of partition {part.name} that suits is open" + (
            f": {', '.join(shut[:6])}." if shut else "."
        )
    return f"{text}; {_names(frozenset(names))} would do, and not enough is free there now."


def _names(nodes: frozenset[str]) -> str:
    shown = sorted(nodes)
    if len(shown) > 6:
        return f"{', '.join(shown[:5])} and {len(shown) - 5} more nodes"
    return ", ".join(shown)


def _terms(job: SlurmJob, ranked: Ranked, policy: Slurm, now: float) -> str:
    """The terms of its priority as `sprio` has them; "" where they do not add up to Slurm's."""
    terms = policy.weights.terms(ranked.ask, ranked.partition, now)
    since = ranked.ask.accrue
    if not terms.total or terms.total <= 1 or since is None or len(ranked.ask.partitions) > 1:
        return ""
    over = terms.total - job.priority  # Slurm computed its age some time ago
    rate = terms.age / (now - since) if now > since else 0.0
    if over < -2 or over > rate * COMPUTED_S + 2:
        return ""
    parts = {
        "fair share": terms.fairshare,
        "age": max(0.0, terms.age - max(0, over)),
        "partition": terms.partition,
        "QOS": terms.qos,
        "job size": terms.jobsize,
        "TRES": sum(terms.tres.values()),
        "association": terms.assoc,
        "site": terms.site,
        "nice": float(-terms.nice),
    }
    shown = sorted(((v, k) for k, v in parts.items() if round(v)), key=lambda one: -abs(one[0]))
    return f"{job.priority} = " + " + ".join(f"{name} {value:.0f}" for value, name in shown) + "."
