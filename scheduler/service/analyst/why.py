"""Why a job waits: what stands in its way now, each claim tried on a copy of the core.

A job is said to block only if without it the core starts the waiting job at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from scheduler.core.cluster import Run
from scheduler.core.core import Core, QueuedJob
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.pairs import Judge
from scheduler.explain.whatif.forecasts import Futures
from scheduler.policies.lucid import Lucid
from scheduler.policies.pellucid.pairing import gain_s
from scheduler.policies.pellucid.policy import Pellucid
from scheduler.service.log.store.visibility import in_line

PRINCIPAL = 4
TRIES = 48  # copies of the core that are tried in search of what blocks
ANOTHER = "a higher-priority job"


@dataclass(frozen=True, slots=True)
class Ground:
    """One reason in words, with its numbers by name."""

    reason: str
    text: str
    numbers: dict[str, float] = field(default_factory=dict)
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """The best partner the packing models know for it now, and whether it is good enough.

    Attributes:
        speeds: predicted relative speed of this job and of the partner while they share.
        gain_s: seconds of total completion time won, where the policy reckons so.
        guard: what stands in the way; "" when the pair would be made.
    """

    partner: str
    speeds: tuple[float, float] | None
    gain_s: float | None
    guard: str


@dataclass(frozen=True, slots=True)
class Blocker:
    """Jobs without which it would start at once: tried, and so.

    Attributes:
        job_ids: the fewest found; several only when no single one does.
        running: they hold GPUs; otherwise they stand in line before it.
    """

    job_ids: tuple[str, ...]
    running: bool


@dataclass(frozen=True, slots=True)
class Why:
    """Why a job waits.

    Attributes:
        grounds: at most four; the first is the dominant one.
        position, waiting: place in line, from 1, and how many stand in it.
        bound_s: seconds until it goes before all others; None: the policy has no such bound.
        not_examined: what was left out, in words.
    """

    job_id: str
    vc: str
    grounds: tuple[Ground, ...]
    position: int | None
    waiting: int
    blockers: tuple[Blocker, ...]
    pair: Pair | None
    bound_s: float | None
    not_examined: tuple[str, ...]


def why(futures: Futures, job_id: str) -> Why:
    """Explain a job that waits. LookupError when it does not."""
    core, now = futures.still, futures.now
    queued = core.known(job_id)
    run = core.cluster.runs.get(job_id)
    if run is not None:
        raise LookupError(f"job {job_id} has its GPUs" + (", to be looked at" * run.profiling))
    vc = queued.job.vc
    queue = core.queues[vc]
    waits = queued in queue
    pair = _pair(core, queued, now) if waits else None
    blockers, left_out = find_blockers(futures, job_id) if waits else ([], [])
    grounds = [_dominant(core, queued, blockers)]
    for ground in (_order(core, queued), _reserved(core, queued), _sharing(queued, pair)):
        if ground is not None and ground.reason not in {g.reason for g in grounds}:
            grounds.append(ground)
    return Why(
        job_id,
        vc,
        tuple(grounds[:PRINCIPAL]),
        queue.position(queued) if waits else None,
        len(queue),
        tuple(blockers),
        pair,
        _bound(core, queued, now),
        tuple(left_out),
    )


# --- what blocks --------------------------------------------------------------------------------


def starts_without(futures: Futures, job_id: str, gone: Iterable[str]) -> bool:
    """Whether the core starts a waiting job at once when some others leave."""
    core = futures.copy()
    for other in gone:
        core.withdrawn(other, futures.now)
    return any(
        d.job_id == job_id and d.action in (Action.START, Action.PACK)
        for d in core.decide(futures.now)
    )


def find_blockers(futures: Futures, job_id: str) -> tuple[list[Blocker], list[str]]:
    """Single jobs whose leaving starts it, soonest to end first; else the fewest found together.

    Also what was not tried, in words.
    """
    core = futures.still
    queued = core.known(job_id)
    ahead, running = _ahead(core, queued), _running(futures, queued)
    left_out: list[str] = []
    tries = TRIES
    singles = []
    for others, runs in ((ahead, False), (running, True)):
        tried = others[: max(0, tries)]
        tries -= len(tried)
        if len(others) > len(tried):
            kind = "running jobs" if runs else "jobs ahead in line"
            left_out.append(f"{len(others) - len(tried)} {kind} were not tried as the cause")
        singles += [
            Blocker((other,), runs) for other in tried if starts_without(futures, job_id, [other])
        ]
    if singles:
        return singles, left_out
    for others, runs in ((ahead, False), (running, True)):
        few = _fewest(futures, job_id, others)
        if few:
            return [Blocker(tuple(few), runs)], left_out
    return [], [*left_out, "no group of jobs was found without which it would start at once"]


def _ahead(core: Core, queued: QueuedJob) -> list[str]:
    queue = core.queues[queued.job.vc]
    return [other.job.job_id for other in queue if other < queued]


def _running(futures: Futures, queued: QueuedJob) -> list[str]:
    """Runs that may hold its GPUs, those expected to end first in front."""
    core = futures.still
    vc = None if core.policy.borrows else queued.job.vc
    runs = [r for r in core.cluster.runs.values() if not r.profiling and vc in (None, r.vc)]

    def end(run: Run) -> float:
        quantiles = futures.beliefs.quantiles[run.job.job_id]
        return run.start_time + quantiles[len(quantiles) // 2]

    return [run.job.job_id for run in sorted(runs, key=end)]


def _fewest(futures: Futures, job_id: str, others: Sequence[str]) -> list[str]:
    """A group without which it starts, none of whom could be left out of it; [] if there is none.

    The shortest head of the list that does, by bisection, then thinned out.
    """
    if not others or not starts_without(futures, job_id, others):
        return []
    low, high = 0, len(others)  # a head of `low` does not do, one of `high` does
    while high - low > 1:
        middle = (low + high) // 2
        if starts_without(futures, job_id, others[:middle]):
            high = middle
        else:
            low = middle
    group = list(others[:high])
    for other in list(group[:-1])[:TRIES]:
        rest = [o for o in group if o != other]
        if starts_without(futures, job_id, rest):
            group = rest
    return group


# --- in words -----------------------------------------------------------------------------------


def _dominant(core: Core, queued: QueuedJob, blockers: Sequence[Blocker]) -> Ground:
    """The reason the policy gives, with the numbers of now."""
    job, vc = queued.job, queued.job.vc
    pool, queue = core.cluster.pools[vc], core.queues[vc]
    reason = queued.reason or Reason.NOT_YET_EVALUATED
    position = queue.position(queued) if queued in queue else None
    if reason is Reason.AWAITING_PROFILE:
        pool = core.cluster.profiling
    numbers = {"need": float(job.gpus), "free": float(pool.free), "limit": float(pool.gpus)}
    text = reason.summary(
        Decision(
            0,
            0.0,
            Action.WAIT,
            reason,
            job.job_id,
            vc,
            need=job.gpus,
            free=pool.free,
            limit=pool.gpus,
            position=position,
            blocker="\0",
        )
    ).replace("job \0", ANOTHER)
    step = reason.next_step()
    if reason is Reason.BEHIND_HIGHER_PRIORITY and position is not None:
        text = in_line(position)
    if blockers and len(blockers[0].job_ids) > 1:
        count, kind = len(blockers[0].job_ids), "running" if blockers[0].running else "waiting"
        numbers["in_the_way"] = float(count)
        step = step or f"{count} {kind} jobs are in its way together"
    return Ground(reason.value, text, numbers, step)


def _order(core: Core, queued: QueuedJob) -> Ground | None:
    """Its place in line, and what the policy puts it there for."""
    queue = core.queues[queued.job.vc]
    if queued not in queue:
        return None
    position = queue.position(queued)
    if position == 1:
        return None
    ahead = [other for other in queue if other < queued]
    gpus = sum(other.job.gpus for other in ahead)
    numbers = {"position": float(position), "key": queued.key}
    text = in_line(position)
    if len(ahead) > 1:  # of a single one it would be told what it asks for
        numbers["gpus_ahead"] = float(gpus)
        text += f"; those ahead ask for {gpus} GPUs"
    if queued.priority:
        numbers["priority"] = float(queued.priority)
    if queued.estimate_s is not None:
        numbers["predicted_s"] = queued.estimate_s
        text += f"; it is expected to run {queued.estimate_s / 60:.0f} min"
    return Ground(Reason.BEHIND_HIGHER_PRIORITY.value, text, numbers)


def _reserved(core: Core, queued: QueuedJob) -> Ground | None:
    """The reservation in its virtual cluster, whose GPUs nobody else may take."""
    policy, pool = core.policy, core.cluster.pools[queued.job.vc]
    if not isinstance(policy, Pellucid):
        return None
    held = policy.reservation(queued.job.vc)
    if held is None:
        return None
    holder, placement = held
    gpus = sum(mask.bit_count() for _, mask in placement)
    free = sum((mask & pool.free_on(node)).bit_count() for node, mask in placement if node in pool)
    numbers = {"reserved": float(gpus), "reserved_free": float(free)}
    if holder == queued.job.job_id:
        text = f"{gpus} GPUs are kept for it; {free} of them are free already"
        return Ground(Reason.WAITED_TOO_LONG.value, text, numbers)
    text = f"{gpus} GPUs are kept for {ANOTHER} that waited longer than the bound, {free} are free"
    return Ground(Reason.RESERVED_FOR_STARVING_JOB.value, text, numbers)


def _sharing(queued: QueuedJob, pair: Pair | None) -> Ground | None:
    if not queued.job.share:
        text = "it may not share GPUs, as its owner asked"
        return Ground(Reason.SHARING_OPTED_OUT.value, text, {}, "allow it to share")
    if pair is None or pair.speeds is None:
        return None
    own, other = pair.speeds
    text = f"beside the best partner it would run at {own:.0%}, the partner at {other:.0%} of alone"
    numbers = {"speed": own, "partner_speed": other}
    if pair.gain_s is not None:
        numbers["gain_s"] = pair.gain_s
        if pair.gain_s <= 0:
            text += "; sharing would cost more time than it saves"
    return Ground(pair.guard or Reason.NOT_YET_EVALUATED.value, text, numbers)


def _bound(core: Core, queued: QueuedJob, now: float) -> float | None:
    """Seconds until it goes before all others."""
    if not isinstance(core.policy, Pellucid):
        return None
    return core.policy.late.left_s(queued, now)


def _pair(core: Core, queued: QueuedJob, now: float) -> Pair | None:
    """The pair with the greatest predicted speed among the runs it might join."""
    policy, profile = core.policy, queued.profile
    if not isinstance(policy, Pellucid | Lucid) or profile is None or not queued.job.share:
        return None
    judge: Judge | None = policy.judge
    runs = core.cluster.alone.get((queued.job.vc, queued.job.gpus), {})
    if judge is None or queued.job.gpus > policy.max_gpus:
        return None
    best: Pair | None = None
    for run in runs.values():
        other = core.known(run.job.job_id)
        if other.profile is None:
            continue
        guard = ""
        if profile.gpu_mem_mib + other.profile.gpu_mem_mib >= core.cluster.spec.gpu_memory_mib:
            guard = Reason.MEMORY_GUARD.value
        verdict = judge.verdict(queued, other)
        if verdict is None:
            continue
        gain = None
        if isinstance(policy, Pellucid) and verdict.speeds is not None:
            lasted = now - run.start_time
            mine = policy.outlook.expected_s(queued.estimate_s or 0.0)
            theirs = policy.outlook.expected_s(other.estimate_s or 0.0, lasted)
            gain = gain_s(mine, theirs, verdict.speeds)
        if not guard and (gain is None or gain <= 0):
            guard = Reason.INTERFERENCE_GUARD.value
        pair = Pair(run.job.job_id, verdict.speeds, gain, guard)
        if best is None or _merit(pair) > _merit(best):
            best = pair
    return best


def _merit(pair: Pair) -> tuple[bool, float, float]:
    return (
        pair.guard != Reason.MEMORY_GUARD.value,
        pair.gain_s if pair.gain_s is not None else 0.0,
        sum(pair.speeds) if pair.speeds else 0.0,
    )


def told(answer: Why, owner: str, futures: Futures, *, names: bool = False) -> dict[str, Any]:
    """The answer as plain values for the owner of the job; others' jobs are not named.

    Args:
        names: name the jobs of others too (operators).
    """

    def shown(job_id: str) -> str:
        mine = futures.beliefs.jobs[job_id].job.user == owner
        return job_id if mine or names else ANOTHER

    plain = asdict(answer)
    plain["dominant"] = plain["grounds"][0]
    plain["blockers"] = [
        {"jobs": [shown(j) for j in b.job_ids], "count": len(b.job_ids), "running": b.running}
        for b in answer.blockers
    ]
    if answer.pair is not None:
        plain["pair"]["partner"] = shown(answer.pair.partner)
    return plain


def words(answer: Why) -> str:
    """The answer in a few lines, naming nobody."""
    first, *rest = answer.grounds
    lines = [f"It waits: {first.text}."]
    if first.next_step:
        lines.append(f"What helps: {first.next_step}.")
    if answer.position is not None:
        lines.append(f"It is number {answer.position} of {answer.waiting} in line.")
    if answer.blockers:
        count = len(answer.blockers[0].job_ids)
        kind = "running" if answer.blockers[0].running else "waiting"
        if count == 1:
            lines.append(f"Without one {kind} job it would start at once (tried).")
        else:
            lines.append(f"Without {count} {kind} jobs it would start at once (tried).")
    lines += [f"Also: {ground.text}." for ground in rest]
    if answer.bound_s is not None and answer.bound_s > 0:
        lines.append(f"In {answer.bound_s / 3600:.1f} h at the latest it goes before all others.")
    lines += [f"Not examined: {text}." for text in answer.not_examined]
    return "\n".join(lines)
