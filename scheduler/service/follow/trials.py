"""What is tried on a copy of a followed Slurm: a job that is not submitted yet, in every partition
that takes it; and a waiting job asked for otherwise, with the command that would ask so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from features.clock import Clock
from scheduler.backends.slurm.parse import SlurmJob
from scheduler.backends.slurm.request import RequestError, refusal, request
from scheduler.backends.slurm.site import asks_of, defaults_of, takes
from scheduler.backends.slurm.snapshot import ClusterSnapshot, without_start
from scheduler.backends.slurm.versions import gpus_word, release_in
from scheduler.core.decisions import Action
from scheduler.core.plural import count
from scheduler.explain.effect import ClosedPartition, Eta, Sooner, Tried
from scheduler.explain.slurm import own_policy, sentence
from scheduler.explain.whatif.forecasts import Futures, StartForecast, WhyNot, too_late
from scheduler.explain.whatif.memory import Memory
from scheduler.explain.words import duration
from scheduler.policies.slurm.capacity import Capacity, choose, suits
from scheduler.policies.slurm.passes import closed_to
from scheduler.policies.slurm.site import Partition, Site
from scheduler.policies.slurm.twin import twin_in
from scheduler.service.follow.reasons import by_own_policy, expected

NEW = "1000000000"  # the id of a job that is not submitted: none of Slurm's, and last in line
SAMPLES, BUDGET_S = 16, 5.0  # futures of one trial, processor seconds
QUESTION_S = 8.0  # after which no other trial of a question begins: jobs wait for this process
AT_ONCE = "it would start at once"
SOONER_S, SOONER = 60.0, 0.9  # what is sooner by less is not shown


class Refused(ValueError):
    """Slurm would not take the job, or its options cannot be tried; a sentence."""


@dataclass(frozen=True, slots=True)
class Change:
    """A job asked for otherwise. `command`: that would ask so."""

    words: str
    command: str
    job: SlurmJob


Draw = Callable[[Iterable[SlurmJob], float], ClusterSnapshot]


@dataclass(frozen=True, slots=True)
class Means:
    """What a follower does for trials.

    Attributes:
        draw: makes a core of jobs and lets it decide.
        own: has Pellucid's own policy decide about them.
        between: called between two futures.
        put_off: a forecast as users get it.
        budget_s, question_s: processor seconds of one trial, seconds after which none begins.
    """

    draw: Draw
    own: Draw
    between: Callable[[], object]
    put_off: Callable[[StartForecast], StartForecast]
    budget_s: float = BUDGET_S
    question_s: float = QUESTION_S


class Trials:
    """Tries on copies of one look.

    Args:
        jobs: that run, and those first in line.
        clock: that the time of a question is taken by.
    """

    def __init__(
        self,
        site: Site,
        jobs: Sequence[SlurmJob],
        memory: Memory,
        now: float,
        clock: Clock,
        means: Means,
    ) -> None:
        self.site, self.jobs, self.memory, self.now = site, jobs, memory, now
        self._means = means
        self._clock, self._until = clock, clock.monotonic() + means.question_s

    @property
    def _late(self) -> bool:
        return self._clock.monotonic() >= self._until

    # --- before submission --------------------------------------------------------------------

    def eta(self, options: Sequence[str], user: str) -> Eta:
        """When a job with these options of sbatch would start, in each partition that takes it.
        Raises Refused."""
        try:
            if why := refusal(options, self.site, user):
                raise Refused(f"Slurm refuses this job: {why}")
            job = request(options, self.site, user, NEW, self.now)
        except RequestError as error:
            raise Refused(f"these options cannot be tried: {error}") from None
        named = [name for name in job.partition.split(",") if name]
        shown = (part.name for part in self.site.partitions.values() if not part.hidden)
        others = [name for name in shown if name not in named]
        tried, closed, not_tried = list[Tried](), list[ClosedPartition](), list[str]()
        for name in [*named, *others]:
            here = request(options, self.site, user, NEW, self.now, partition=name)
            why = self._refused(here, self.site.partitions[name])
            if why:
                closed.append(ClosedPartition(name, why))
            elif self._late:
                not_tried.append(name)
            else:
                tried.append(replace(self.forecast(here), partition=name))
        now = self._clock.now()
        tried = [_not_before(now, one) for one in tried]
        own = own_policy(by_own_policy(NEW, self._means.own([*self.jobs, job], self.now)))
        return Eta(now, tried, closed, named, not_tried, own)

    def _refused(self, job: SlurmJob, part: Partition) -> str:
        """Why a job cannot run in a partition however empty it is; "": it can."""
        ask = asks_of([replace(job, partition=part.name)], self.site)[job.id]
        if word := closed_to(ask, part):
            return {
                "PartitionTimeLimit": f"allows {duration(part.max_time_s or 0.0)} at most",
                "PartitionDown": "is down",
                "PartitionNodeLimit": f"does not give {count(ask.nodes, 'node')}",
                "AccountNotAllowed": f"does not take account {ask.account}",
                "QOSNotAllowed": f"does not take QOS {ask.qos}",
            }.get(word, word)
        if part.root_only and ask.user != "root":
            return "takes jobs of root only"
        if part.in_reservations and not ask.reservation:
            return "takes jobs in a reservation only (--reservation)"
        if not takes(ask.user, part.groups):
            return f"takes no user of the groups that {ask.user} is in"
        if why := self._beyond(job, part):
            return why
        there = (n for n in part.nodes if n in self.site.nodes)  # down ones come back
        names = sorted(there, key=self.site.order.__getitem__)
        names = [n for n in names if suits(ask, self.site.nodes[n])]
        fits = choose(ask, Capacity.of(self.site), names, self.site)
        return "" if fits is not None else "has no nodes that suit, were they empty"

    def _beyond(self, job: SlurmJob, part: Partition) -> str:
        """Whom a partition does not take for what it asks for, or for what it has."""
        site, all_known = self.site, ("root", "") in self.site.assocs
        enforced = all_known and site.enforced & {"associations", "limits", "safe", "qos"}
        if enforced and site.key(job.account, job.user, part.name) not in site.assocs:
            return f"takes no jobs of {job.user} in account {job.account}"
        most = part.defaults.get("MaxMemPerNode", defaults_of(site.config).get("MaxMemPerNode"))
        each = (job.memory_mib or 0.0) / max(1, job.num_nodes)
        return f"gives {most:g} MiB of a node at most" if most and each > most else ""

    # --- otherwise ----------------------------------------------------------------------------

    def what_if(self, job_id: str) -> Sooner:
        """What would have a waiting job start sooner, each thing tried by itself."""
        job = next((j for j in self.jobs if j.id == job_id and j.state == "PENDING"), None)
        if job is None or job.held:
            why = "it runs or is over, is held, waits for other jobs, or is too far behind"
            return Sooner(unavailable=why)
        as_it_is = self.forecast(job)
        found, not_tried = list[Tried](), list[str]()
        for change in self._changes(job):
            if self._late:
                not_tried.append(change.words)
                continue
            # a priority is computed again, or stays the place in line
            priority = 1 if self.site.weighs else job.priority
            made = self.forecast(replace(change.job, priority=priority, reason=""))
            found.append(replace(made, words=change.words, command=change.command))
        now = self._clock.now()
        as_it_is = _not_before(now, as_it_is)
        found = [one for one in (_not_before(now, f) for f in found) if _sooner(one, as_it_is, now)]
        found.sort(key=lambda one: one.start_p50 or 0.0)
        return Sooner(now, as_it_is, found, not_tried)

    def _changes(self, job: SlurmJob) -> Iterator[Change]:
        update = f"scontrol update jobid={job.id}"
        limit = job.time_limit_s or 0.0
        for part in (2, 4):
            minutes = int(limit // 60 // part)
            if minutes and minutes * 60 < limit:
                shorter = replace(job, time_limit_s=minutes * 60.0)
                words = f"with a time limit of {duration(shorter.time_limit_s)}"
                yield Change(words, f"{update} timelimit={minutes}", shorter)
        for name, partition in self.site.partitions.items():
            there = partition.hidden or name in job.partition.split(",")
            if not there and not self._refused(job, partition):
                changed = replace(job, partition=name)
                yield Change(f"in partition {name}", f"{update} partition={name}", changed)
        yield from self._fewer(job, update)
        assoc = self.site.assocs.get((job.account, job.user))
        for name in sorted(assoc.qos if assoc is not None else ()):
            if name != job.qos and name in self.site.qos:
                yield Change(f"with QOS {name}", f"{update} qos={name}", replace(job, qos=name))

    def _fewer(self, job: SlurmJob, update: str) -> Iterator[Change]:
        """Half the GPUs, where all are of one type."""
        if len(job.gpu_types) != 1 or job.gpu_types[0][1] < 2:
            return
        ((kind, many),) = job.gpu_types
        half = many // 2
        gres = gpus_word(release_in(self.site.config.get("SLURM_VERSION", "")), kind, half)
        gpus = job.gpus * half // many
        per_node = job.gpus_per_node
        tres = tuple((n, gpus if n.startswith("gres/gpu") else v) for n, v in job.tres)
        changed = replace(job, gpus=gpus, gpu_types=((kind, half),), tres=tres)
        where = " on each node" if per_node and job.num_nodes > 1 else ""
        option = "trespernode" if per_node else "tresperjob"
        yield Change(f"with {count(half, 'GPU')}{where}", f"{update} {option}={gres}", changed)

    # --- one trial ----------------------------------------------------------------------------

    def forecast(self, job: SlurmJob) -> Tried:
        """When a job would start among the others, p50 and p90, and why it would wait."""
        others = [other for other in self.jobs if other.id != job.id]
        snapshot = self._means.draw([*others, job], self.now)
        policy = twin_in(snapshot.core.policy)
        assert policy is not None
        if job.id in snapshot.left_out:
            return Tried(why=snapshot.left_out[job.id])
        if why_not := without_start(snapshot, [job.id]).get(job.id):
            return Tried(reason=job.reason, why=why_not)
        if job.id in snapshot.aside:
            why = "it is held, or waits for other jobs or a moment"
            return Tried(reason=job.reason or "Dependency", why=why)
        if (asked := policy.asked(job.id)) is not None and asked.latest < self.now:
            return Tried(reason=job.reason, why=WhyNot.LATE)
        started = {d.job_id for d in snapshot.decisions if d.action is Action.START}
        if job.id in started:
            return Tried(self.now, self.now, 1, why=AT_ONCE)
        futures = Futures(snapshot.core, self.memory, self.now)
        made = futures.forecast(
            [job.id], samples=SAMPLES, budget_s=self._means.budget_s, between=self._means.between
        )[job.id]
        made = self._means.put_off(made)
        if why_not := too_late(snapshot.core, {job.id: made}).get(job.id):
            return Tried(reason=job.reason, why=why_not)
        found = expected(snapshot, job, policy)
        why = sentence(found, job.id, self.now) if found is not None else ""
        word = found.code if found is not None else ""
        return Tried(made.start_p50, made.start_p90, made.samples, word, why or made.why_not, found)


def _not_before(now: float, made: Tried) -> Tried:
    """As it is now: the look that it rests on was some time ago."""
    if made.start_p50 is None or made.start_p50 > now:
        return made
    p90 = None if made.start_p90 is None else max(made.start_p90, now)
    return replace(made, start_p50=now, start_p90=p90, reason="", why=AT_ONCE, slurm=None)


def _sooner(made: Tried, before: Tried, now: float) -> bool:
    """Half of its futures by a good part, and nine in ten by any: no median is bought by a risk."""
    if made.start_p50 is None or made.start_p90 is None:
        return False
    if made.start_p90 >= (before.start_p90 if before.start_p90 is not None else inf):
        return False
    wait = (before.start_p50 if before.start_p50 is not None else inf) - now
    then = made.start_p50 - now
    return then <= wait * SOONER and wait - then >= min(SOONER_S, wait)
