"""A core that follows a log: it carries out the decisions that the log records, and takes none.

A pass is one round of decisions at one time. The following core is given the events of each pass,
as the core was that decided, so that its policy, estimator and queues remember the same. From the
recorded decisions it learns which jobs were refused, which joined a queue with which prediction,
which were given which GPUs, and why the others waited. So code of another release comes to the
state that the log describes.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from features.job import Job
from scheduler.core.cluster import Run
from scheduler.core.curves import Predicted
from scheduler.core.decisions import (
    DEPENDS,
    STARTS,
    Action,
    Decision,
    PairPrediction,
    Reason,
)
from scheduler.core.durations import Duration, Stated, seconds_of
from scheduler.core.estimates import Estimate, Estimator, Known, with_progress
from scheduler.core.nodes import Nodes
from scheduler.core.policy import Policy
from scheduler.core.queue import QueuedJob
from scheduler.core.turn import Host, Turn
from scheduler.core.waiting import Waiting

if TYPE_CHECKING:
    from scheduler.core.profiling import Stage

# Reasons to wait that come from events; a core that follows a log has them from these.
_BY_EVENTS = (Reason.HELD_BY_OWNER, Reason.HELD_BY_OPERATOR, *DEPENDS)
# What turns and the stage decide. Other decisions follow from events, as most of ENQUEUE do too.
_CARRIED_OUT = (
    *STARTS,
    Action.PROFILE,
    Action.PREEMPT,
    Action.RESERVE,
    Action.LEND,
    Action.RETURN,
    Action.ENQUEUE,
)
_BY_STAGE_ALONE = (Action.LEND, Action.RETURN, Action.ENQUEUE)
_BY_STAGE = (Action.PROFILE, *_BY_STAGE_ALONE)


class FollowingHost(Host, Protocol):
    """The part of a core that following a log uses."""

    @property
    def policy(self) -> Policy: ...
    @property
    def profiling(self) -> Stage | None: ...
    @property
    def waiting(self) -> Waiting: ...
    @property
    def nodes(self) -> Nodes: ...

    next_seq: int

    def next_dirty(self, now: float) -> str | None: ...


class Script:
    """The recorded decisions of one pass (one round of decisions), which a core is to carry out.

    Attributes:
        rest: the decisions of turns and of the profiling stage that are not carried out yet, in
            order.
    """

    def __init__(self, taken: Sequence[Decision]):
        self._set_rest(d for d in taken if _is_carried_out(d))
        self._refused = {d.job_id: d for d in taken if d.action is Action.REFUSE}
        self._enqueued: defaultdict[str, deque[Decision]] = defaultdict(deque)
        for d in taken:
            if d.action is Action.ENQUEUE:
                self._enqueued[d.job_id].append(d)
        self.next_seq = taken[-1].seq + 1 if taken else None
        self.keys = {d.job_id: d.priority for d in taken if d.priority is not None}

    def _set_rest(self, rest: Iterable[Decision]) -> None:
        self.rest = deque(rest)
        self._of_job: defaultdict[str, deque[Decision]] = defaultdict(deque)
        for d in self.rest:
            self._of_job[d.job_id].append(d)

    def pop(self) -> Decision:
        """Remove the first decision from `rest`, and return it."""
        d = self.rest.popleft()
        self._of_job[d.job_id].popleft()  # both are in the order of the log
        return d

    def drop_joined(self) -> None:
        """Drop from `rest` the decisions that jobs join their queue, except those that the
        profiling stage carries out. Called once the core was given all events of this round of
        decisions."""
        self._set_rest(d for d in self.rest if d.action is not Action.ENQUEUE or self._joins(d))

    def _joins(self, d: Decision) -> bool:
        return d in self._enqueued[d.job_id]

    def refusal(self, job_id: str) -> Reason | None:
        """Return the reason why the recorded core refused a job, or None where it did not."""
        d = self._refused.get(job_id)
        return None if d is None else d.reason

    def enqueued(self, job_id: str) -> Decision | None:
        """Return the recorded decision by which a job joins its queue next, or None if there is
        none."""
        found = self._enqueued.get(job_id)
        return found[0] if found else None

    def prepare(self, policy: Policy, queued: QueuedJob, now: float, estimator: Estimator) -> None:
        """Have a policy set the key of a job that joins its queue, with the prediction that the log
        recorded for it."""
        found = self._enqueued.get(queued.job.job_id)
        if not found:
            policy.prepare(queued, now, estimator)
            return
        d = found.popleft()
        if not isinstance(estimator, Known):  # which answers what was known of the job before
            estimator = _AsLogged(d, queued, estimator)
        policy.prepare(queued, now, estimator, logged=True)
        queued.evidence = d.evidence
        _predicted(policy, queued, d)

    def predicted_again(self, queued: QueuedJob) -> Decision | None:
        """Return the first recorded decision about a job, of those not carried out yet, that holds
        a prediction. Return None if there is none, or it is the job's present one."""
        of_job = self._of_job.get(queued.job.job_id, ())
        d = next((d for d in of_job if d.estimate_s is not None), None)
        return None if d is None or d.estimate_s == queued.predicted_s else d

    def profiles(self, job_id: str) -> bool:
        """Return whether the decisions that are left say that a job is profiled."""
        return any(d.action is Action.PROFILE for d in self._of_job.get(job_id, ()))


class Following:
    """Carries out passes (rounds of decisions) that this or another core decided before; part of a
    core.

    Attributes:
        script: recorded decisions of the pass whose events the core is given now; None: the core
            decides by itself.
    """

    def __init__(self, core: FollowingHost):
        self._core = core
        self.script: Script | None = None

    def begin(self, taken: Sequence[Decision]) -> None:
        """Start following a pass (one round of recorded decisions). Call it before the core is
        given the events of the pass, and `end` after them.

        Args:
            taken: all recorded decisions of the pass, in order.
        """
        self.script = Script(taken)

    def end(self, now: float) -> None:
        """Carry out the recorded decisions of the followed pass (one round of decisions). Called in
        place of `Core.decide`."""
        core, script = self._core, self.script
        assert script is not None
        if core.nodes.changing:
            core.nodes.change_idle(now)
        if core.waiting.recheck:
            core.waiting.review(now)
        script.drop_joined()
        _carry_out_all(core, script, now)
        if script.next_seq is not None:
            core.next_seq = script.next_seq
        self.script = None

    def rekey(self, keys: Mapping[str, float]) -> None:
        """Set the keys of waiting jobs to those that the log records. `keys` maps job ids to
        keys."""
        _rekey(self._core, keys)


class _AsLogged(Estimator):
    """An estimator for a job that joins its queue: it answers with the prediction that the log
    records."""

    def __init__(self, d: Decision, queued: QueuedJob, estimator: Estimator):
        super().__init__()
        self.of_requests = estimator.of_requests
        self._decision, self._queued, self._estimator = d, queued, estimator

    def decided_with(self, job_id: str, estimate: Estimate) -> None:
        self._estimator.decided_with(job_id, estimate)

    def enqueued(self, job: Job, now: float) -> Estimate:
        found = with_progress(self._estimator.enqueued(job, now), self._queued.progress)
        return as_logged(self._decision, found)


def as_logged(d: Decision, found: Estimate) -> Estimate:
    """Return the prediction that decision `d` records; `found` is what this core predicts.

    The two are equal unless other code or another model made the first. Parts of a prediction that
    a decision does not record are taken from `found`.
    """
    if d.estimate_s is None or d.estimate_s == seconds_of(found.seconds):
        return found
    return Estimate(moved_to(found.seconds, d.estimate_s), d.score, found.outlived_s)


def moved_to(known: Duration | None, seconds: float) -> Duration:
    """Return a predicted duration of `seconds`, with the other fields (error, distribution) of the
    prediction `known`."""
    if isinstance(known, Stated):
        return replace(known, seconds=seconds)
    return known.moved(seconds) if isinstance(known, Predicted) else seconds


class FollowedTurn(Turn):
    """A turn (one round on a virtual cluster) that carries out recorded decisions, and takes none
    itself."""

    def __init__(self, core: Host, vc: str, now: float, script: Script):
        super().__init__(core, vc, now)
        self._script = script

    def predict_again(
        self, queued: QueuedJob, within: float, alike: Iterable[QueuedJob] = ()
    ) -> bool:
        script, estimator = self._script, self._core.estimator
        group = (queued, *alike)
        d = next(filter(None, map(script.predicted_again, group)), None)
        if d is None and any(script.profiles(one.job.job_id) for one in group):
            return super().predict_again(queued, within, group[1:])  # no decision tells
        estimator.changed(queued.job, self.now)
        if d is None:
            return False
        found = with_progress(estimator.enqueued(queued.job, self.now), queued.progress)
        estimate = as_logged(d, found)
        for one in group:
            if one is not queued:
                estimator.decided_with(one.job.job_id, estimate)
            one.believe(estimate)
            one.reason = None
        return True


def _carry_out_all(core: FollowingHost, script: Script, now: float) -> None:
    """Carry out the recorded decisions of a pass (one round of decisions), after the core was given
    its events."""
    stage = core.profiling
    if stage is not None and not stage.overlaps_waiting:
        _by_stage(core, stage, script, now)
        if core.waiting.recheck:
            core.waiting.review(now)
            _waiting_aside(core, script)
    while stage is not None and script.rest and stage.reclaims(script.rest[0]):
        stage.follow(core, script.pop())
    _take_turns(core, script, now)
    if stage is not None and stage.overlaps_waiting:
        _by_stage(core, stage, script, now)
        _take_turns(core, script, now)
    while script.rest:  # of turns that are not due here: code of another release took them
        first = script.rest[0]
        if first.vc not in core.queues or first.action in _BY_STAGE_ALONE:
            script.pop()
            continue
        turn = FollowedTurn(core, first.vc, now, script)
        _carry_out(core, turn, script)
        core.policy.learned.followed(turn)
    _rekey(core, script.keys)


def _rekey(core: FollowingHost, keys: Mapping[str, float]) -> None:
    """Set waiting jobs' keys to those that the log records, and sort their queues. `keys` maps job
    ids to keys."""
    moved: dict[str, None] = {}
    for job_id, key in keys.items():
        queued = core.jobs.get(job_id)
        if queued is None or queued.key == key:
            continue
        vc = queued.job.vc
        if queued in core.queues[vc] or vc in moved:
            moved[vc] = None
            queued.key = key
    for vc in moved:
        core.queues[vc].replace(list(core.queues[vc]))


def _is_carried_out(d: Decision) -> bool:
    if d.action is Action.WAIT:
        return d.reason not in _BY_EVENTS
    return d.action in _CARRIED_OUT


def _take_turns(core: FollowingHost, script: Script, now: float) -> None:
    while (vc := core.next_dirty(now)) is not None:
        turn = FollowedTurn(core, vc, now, script)
        core.policy.learned.begin(turn)
        _carry_out(core, turn, script)
        core.policy.learned.followed(turn)
        stage = core.profiling
        turn.pass_fresh(stage.add if stage and stage.overlaps_waiting else None)


def _carry_out(core: FollowingHost, turn: Turn, script: Script) -> None:
    """Carry out the recorded decisions of one turn (one virtual cluster at one time), up to the
    first one that only the profiling stage makes."""
    rest = script.rest
    while rest and (rest[0].vc == turn.vc or rest[0].action is Action.PREEMPT):
        if rest[0].action in _BY_STAGE_ALONE:
            return
        d = script.pop()
        queued = core.jobs.get(d.job_id)
        if queued is None:
            continue
        core.policy.learned.follow(turn, d)
        run = core.cluster.runs.get(d.job_id)
        if d.action is Action.WAIT:
            if queued in turn.queue:
                turn.wait(queued, d.reason, blocker=d.blocker)
                _predicted(core.policy, queued, d)
        elif d.action is Action.PREEMPT and run is not None:
            turn.preempt(run, d.priority or 0.0, reason=d.reason)
        elif d.action is Action.PROFILE and run is None:
            _profile(core, queued, d, turn.now)
        elif d.action in STARTS and run is None:
            _start(core, queued, d, turn.now)


def _predicted(policy: Policy, queued: QueuedJob, d: Decision) -> None:
    """Set the predicted duration of a job to that of a recorded decision."""
    if d.estimate_s is not None and d.estimate_s != queued.predicted_s:
        queued.estimate_s = moved_to(queued.estimate_s, d.estimate_s)
        queued.score = d.score
        policy.learned.predicted(queued)


def _start(core: FollowingHost, queued: QueuedJob, d: Decision, now: float) -> None:
    _leaves(core, queued)
    other = core.cluster.runs.get(d.partner or "")
    run: Run
    if d.action is Action.PACK and other is not None:
        if d.speeds is not None or d.tree_path:
            queued.pair_prediction = PairPrediction((0, 0), d.speeds, d.tree_path)
        run = core.cluster.pack(queued.job, other, now)
    else:
        placement = list(zip(d.nodes, d.gpus, strict=True))
        run = core.cluster.start(queued.job, d.vc, placement, now)
    core.started(run, queued)


def _profile(core: FollowingHost, queued: QueuedJob, d: Decision, now: float) -> None:
    _leaves(core, queued)
    core.profile(queued, list(zip(d.nodes, d.gpus, strict=True)), now)
    stage = core.profiling
    if stage is not None and stage.overlaps_waiting:
        core.touch(queued.job.vc)


def _leaves(core: FollowingHost, queued: QueuedJob) -> None:
    """Remove a waiting job from its queue. Remove one that is in no queue from the profiling stage,
    and from the jobs set aside because they cannot start on the cluster as it is."""
    queue = core.queues[queued.job.vc]
    if queued in queue:
        queue.remove(queued)
    else:
        core.waiting.forget(queued)


def _waits_aside(core: FollowingHost, d: Decision) -> bool:
    """Return whether a decision records why a job waits that is in no queue (held, or waiting for
    other jobs)."""
    queued = core.jobs.get(d.job_id)
    aside = queued is not None and queued not in core.queues[queued.job.vc]
    return d.action is Action.WAIT and aside


def _waiting_aside(core: FollowingHost, script: Script) -> None:
    """Carry out the next recorded decisions about jobs that are in no queue: set the reason why
    each waits."""
    while script.rest and _waits_aside(core, script.rest[0]):
        d = script.pop()
        core.jobs[d.job_id].reason = d.reason


def _by_stage(core: FollowingHost, stage: Stage, script: Script, now: float) -> None:
    """Carry out the next recorded decisions of the profiling stage. Then have the stage remember
    what it would have if it had decided itself."""
    rest = script.rest
    while rest and (rest[0].action in _BY_STAGE or _waits_aside(core, rest[0])):
        d = script.pop()
        queued = core.jobs.get(d.job_id)
        if d.action is not Action.ENQUEUE and d.action in _BY_STAGE_ALONE:
            stage.follow(core, d)
        elif queued is None or d.job_id in core.cluster.runs:
            continue
        elif d.action is Action.PROFILE:
            stage.remove(queued)
            _profile(core, queued, d, now)
        elif d.action is Action.ENQUEUE:
            if script.enqueued(d.job_id) is not None:
                stage.remove(queued)
                core.enqueue(queued, now, d.reason)
        else:
            queued.reason = d.reason
    stage.followed(core, now)
