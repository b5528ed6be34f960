"""The analyst's answers to questions, by kind of question."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Protocol

from features.codec import Json
from features.job import Job
from features.state import FeatureError
from scheduler.backends.events import Event, Kind
from scheduler.backends.submission import Submission
from scheduler.core.estimates import FeatureEstimator
from scheduler.core.queue import QueuedJob
from scheduler.explain.answer import MovedStart, OrderTerm, ShutNode, SilentGpu
from scheduler.explain.claims import Claim, late_by, of_offer, put_off, start_kind
from scheduler.explain.claims import Kind as Claimed
from scheduler.explain.effect import Effect, NewJob, WhatIfAnswer
from scheduler.explain.explanation import Compared, HeldRow, Order, OrderRow
from scheduler.explain.findings import analysis, compared
from scheduler.explain.histories import rests_on
from scheduler.explain.share import Shares, of_policy
from scheduler.explain.whatif.changes import Change, NotPossible
from scheduler.explain.whatif.counterfactuals import Outcome, WhatIf, answer_of
from scheduler.explain.whatif.forecasts import Futures, WhyNot, crude
from scheduler.explain.whatif.moved import moved
from scheduler.explain.whatif.near import near
from scheduler.explain.whatif.submission import tried
from scheduler.explain.words import NoAnswer, no_vc
from scheduler.service.log.forecasts import body_of
from scheduler.service.log.record import Phase
from scheduler.service.log.store.visibility import SOMEBODY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from features.survival import History
    from scheduler.core.core import Core
    from scheduler.explain.whatif.forecasts import StartForecast
    from scheduler.explain.whatif.memory import Memory
    from scheduler.explain.whatif.waits import Waits
    from scheduler.service.log.fold import State


class Follower(Protocol):
    """What the answers need of the analyst, which follows the log and forecasts."""

    state: State
    memory: Memory
    waits: Waits
    samples: int
    budget_s: float
    search_s: float
    helps_s: float
    promised: dict[str, StartForecast]
    latest: dict[str, StartForecast]

    def now(self) -> float: ...
    def futures(self) -> Futures: ...
    def forecast(self, job_ids: Iterable[str]) -> dict[str, StartForecast]: ...
    def as_shown(self, job_id: str, made: StartForecast) -> StartForecast: ...
    def read_on(self) -> bool: ...
    def record(self, kind: Claimed) -> tuple[int, int]: ...
    def lately(self, kind: Claimed) -> list[bool]: ...


class Answers:
    """Answers from copies of the core that an analyst follows. The core itself is not changed.

    Attributes:
        claimed: the claims (predictions that can be checked later) in the last answer.
    """

    def __init__(self, analyst: Follower):
        self._of = analyst
        self.claimed: list[Claim] = []
        self._general: Mapping[str, Callable[[Mapping[str, Any]], Json]] = {
            "cluster": lambda body: asdict(self._cluster(body["events"])),
            "order": lambda body: asdict(
                self._order(str(body["vc"]), body.get("owner"), int(body["limit"]))
            ),
            "histories": self._histories,
            "new": lambda body: asdict(self._new(body)),
            "shares": lambda body: asdict(self._shares(str(body["user"]))),
        }

    def reply(self, kind: str, body: Mapping[str, Any]) -> Json:
        """Return the answer to a question; `{"unavailable": why}` when there is none.

        Args:
            kind: the kind of question, with its fields in `body`: `cluster` (kind and body of
                events about nodes or settings), `order` (vc, owner: None for all, limit), `whatif`
                (job_id, changes, others), `suggest` (job_id, vcs), `why` (job_id; with `helps` also
                what `suggest` gives, of the same moment), `after` (job_id, other), `forecast`
                (job_id), `histories` (job_id, or owner, vc, gpus, name), `new` (submission: a job
                that is not submitted), `shares` (user). `names` in a question about a job: name
                other users' jobs, too.
        """
        self.claimed = []
        if kind in self._general:
            return self._general[kind](body)
        job_id = str(body.get("job_id", ""))
        if why_not := self._unanswerable(kind, job_id):
            return {"unavailable": why_not}
        owner = self._of.state.ledger.records[job_id].submission.owner
        names = bool(body.get("names"))
        try:
            if kind == "forecast":
                return body_of(self._of.forecast([job_id])[job_id])
            if kind == "why":
                futures = self._of.futures()
                closed = self._closed(names)
                made = analysis(
                    futures,
                    job_id,
                    owner,
                    names=names,
                    closed=closed,
                    budget_s=self._of.search_s,
                )
                made = replace(
                    made,
                    moved=self._moved(futures, job_id),
                    history=rests_on(self._known_of(self._of.state.core.jobs[job_id].job)),
                    seq=self._of.state.seen,
                )
                helps = self._suggested(body, owner) if body.get("helps") else {}
                return asdict(made) | helps
            if kind == "after":
                return asdict(self._after(job_id, str(body["other"])))
            if kind == "whatif":
                change = Change.from_body(body.get("changes") or {})
                others = change.first or "priority" in change.to or bool(body.get("others"))
                outcome = self._trying(job_id).ask(job_id, change, others=others)
                return asdict(self._offered(answer_of(outcome, job_id, owner, names=names)))
            if kind == "suggest":
                return self._suggested(body, owner)
        except (NotPossible, LookupError) as error:
            return {"unavailable": str(error).strip("'\"")}
        return {"unavailable": f"no such question: {kind}"}

    def _shares(self, user: str) -> Shares:
        """Return what a user has used of each virtual cluster, beside the user's fair share."""
        core = self._of.state.core
        return of_policy(core.policy, user, list(core.queues), self._of.now())

    def _new(self, body: Mapping[str, Any]) -> NewJob:
        """Return when a job that is not submitted would start, and how long it should run."""
        submission = Submission.from_body(body["submission"])
        return tried(
            near(self._of.futures()),
            submission.job(),
            priority=submission.priority,
            samples=self._of.samples,
            budget_s=self._of.budget_s,
            corrected=self._corrected,
        )

    def _corrected(self, core: Core, job_id: str, made: StartForecast) -> StartForecast:
        """Return the forecast `made` of a job in a copy of the core, corrected by how long earlier
        jobs waited beyond their forecasts, as all shown forecasts are.
        """
        memory, now = self._of.memory, self._of.futures().now
        roughly = crude(core, memory, now)
        return self._of.waits.corrected(core, {job_id: made}, roughly, now)[job_id]

    def _trying(self, job_id: str, budget_s: float | None = None) -> WhatIf:
        return WhatIf(
            near(self._of.futures(), [job_id]),
            lambda job: self._of.memory.predicted(job, self._of.now()),
            samples=self._of.samples,
            budget_s=self._of.budget_s if budget_s is None else budget_s,
            as_shown=self._of.as_shown,
        )

    def _suggested(self, body: Mapping[str, Any], owner: str) -> Json:
        """Return changes that would let a job start sooner. Effects on other jobs are not computed,
        so the answer names no other job.
        """
        job_id = str(body["job_id"])
        outcomes = self._trying(job_id, self._of.helps_s).suggestions(
            job_id, [str(vc) for vc in body.get("vcs") or ()]
        )
        outcomes = self._still(job_id, outcomes)
        shown = [self._offered(answer_of(one, job_id, owner)) for one in outcomes]
        return {"suggestions": [asdict(one) for one in shown]}

    def _still(self, job_id: str, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """Return the outcomes that still hold after reading new events of the log. An outcome in
        which the job starts at once is left out if it would no longer start now.
        """
        state, covered = self._of.state, self._of.state.covered
        found = list(outcomes)
        if not any(one.starts_now for one in found):
            return found
        self._of.read_on()
        if self._of.state is state and state.covered == covered:
            return found
        core = self._of.state.core
        waits = job_id in core.jobs and job_id not in core.cluster.runs
        trying = self._trying(job_id)
        return [
            one
            for one in found
            if not one.starts_now or (waits and self._starts(trying, one, job_id))
        ]

    @staticmethod
    def _starts(trying: WhatIf, one: Outcome, job_id: str) -> bool:
        try:
            return trying.starts(job_id, one.change)
        except NotPossible:
            return False

    def _offered(self, answer: WhatIfAnswer) -> WhatIfAnswer:
        """Return a suggestion with its start moved later by the typical error of earlier
        suggestions of its kind, and with how often these came true. Append its claims to `claimed`,
        to be checked later.
        """
        answer = put_off(answer, self._of.now(), late_by(self._of.lately(Claimed.OFFER_P90)))
        self.claimed += of_offer(answer, self._of.now())
        held, judged = self._of.record(start_kind(starts_now=answer.starts_now))
        return replace(answer, held=held, judged=judged)

    def _histories(self, body: Mapping[str, Any]) -> Json:
        """Return the histories (groups of earlier jobs) on which the prediction of a job rests, and
        how long the job has run, in seconds. `body` names the job by `job_id`, or describes one
        that the log does not have. Return `{"unavailable": why}` where there are no histories.

        For a job that ended long ago, the histories are those of now.
        """
        job_id, core = str(body.get("job_id", "")), self._of.state.core
        record = self._of.state.ledger.records.get(job_id)
        job = (
            record.submission.job()
            if record is not None
            else Job(
                job_id or "?",
                self._of.now(),
                int(body["gpus"]),
                user=str(body.get("owner", "")),
                vc=str(body["vc"]),
                name=str(body.get("name", "")),
            )
        )
        found = self._known_of(job)
        if not found:
            return {"unavailable": NoAnswer.NO_HISTORIES}
        run = core.cluster.runs.get(job_id)
        outlived_s = 0.0 if run is None else max(0.0, self._of.now() - run.start_time)
        return {"histories": [one.plain() for one in found], "outlived_s": outlived_s}

    def _known_of(self, job: Job) -> Sequence[History]:
        """Return the histories of jobs like this one, the widest group first. Return () where the
        estimator keeps none, or cannot compute the job's features.
        """
        learns = self._of.memory.inner
        if not isinstance(learns, FeatureEstimator):
            return ()
        try:
            return learns.state.histories(job, self._of.now())
        except FeatureError:
            return ()

    def _cluster(self, changes: Sequence[Json]) -> Effect:
        """Return what changes of nodes or settings would do to waiting jobs. The changes are tried
        on a copy of the core.
        """
        now = self._of.now()
        events = [Event(Kind(one["kind"]), now, body=one["body"]) for one in changes]

        def alter(core: Core, _: float) -> None:
            for event in events:
                self._of.state.apply_to(core, event, now)

        asked = WhatIf(
            near(self._of.futures()), samples=self._of.samples, budget_s=self._of.budget_s
        )
        return asked.effect(alter)

    def _moved(self, futures: Futures, job_id: str) -> MovedStart | None:
        """Return how much a job's forecast start has changed since its submission, with causes.
        Return None if it has not changed, or one of the forecasts is unknown.
        """
        promised, latest = self._of.promised.get(job_id), self._of.latest.get(job_id)
        if promised is None or latest is None:
            return None
        records = self._of.state.ledger.nodes.records.items()
        closed = {n: since for n, record in records if (since := record.closed_since) is not None}
        return moved(
            futures=futures, job_id=job_id, promised=promised, latest=latest, closed=closed
        )

    def _closed(self, names: bool) -> dict[int, ShutNode]:
        """Return the nodes that are drained or have GPUs that do not answer, by number. `names`:
        include the name of the person who drained a node.
        """
        return {
            node: ShutNode(
                name=record.name,
                drained=not record.open,
                actor=record.actor if names or not record.actor else SOMEBODY,
                why=record.reason,
                gpus=record.has.gpus,
                silent=tuple(
                    SilentGpu(gpu=one.gpu, since=one.since, why=one.why)
                    for one in record.closed_gpus
                ),
            )
            for node, record in self._of.state.ledger.nodes.records.items()
            if record.closed_gpus or not record.open
        }

    def _unanswerable(self, kind: str, job_id: str) -> str:
        """Return why a question about a job cannot be answered (the job is over or was not
        evaluated yet; for some kinds of question also: it is held, or waits for others to end); ""
        when it may be answered.
        """
        core, record = self._of.state.core, self._of.state.ledger.records.get(job_id)
        if job_id not in core.jobs or record is None:
            over = record is not None and record.phase.over
            return NoAnswer.OVER if over else NoAnswer.NOT_LOOKED_AT
        if kind not in ("why", "suggest", "after"):
            return ""
        if core.waiting.is_held(job_id):
            return WhyNot.HELD
        blocked = core.waiting.blocked(job_id)
        return "" if blocked is None else WhyNot.UNMET if blocked.never else WhyNot.DEPENDS

    def _after(self, job_id: str, other: str) -> Compared:
        """Return why another job (`other`) went before this job, or goes before it. Raise
        LookupError if both are the same job, stand in different queues, or the other job was in no
        queue or is not remembered any more.
        """
        core, record = self._of.state.core, self._of.state.ledger.records.get(other)
        if other == job_id:
            raise LookupError("it is the same job; name another")
        if other in core.jobs:
            beside = core.jobs[other]
        elif record is not None and record.key is not None:
            early = record.seq < self._of.state.ledger.records[job_id].seq
            seq = -1 if early else core.jobs[job_id].seq + 1
            beside = QueuedJob(record.submission.job(), seq, record.priority)
            beside.key, beside.estimate_s = record.key, record.estimate_s
        else:
            raise LookupError(f"job {other} was in no queue, or is long over")
        vcs = core.jobs[job_id].job.vc, beside.job.vc
        if vcs[0] != vcs[1]:
            raise LookupError(f"they stand in different lines, of {vcs[0]} and of {vcs[1]}")
        return compared(core, job_id, beside, self._of.now())

    def _order(self, vc: str, owner: str | None, limit: int) -> Order:
        """Return the queue of a virtual cluster in order, with the terms of each job's place, and
        its held jobs. Each list has at most `limit` entries. `owner`: only jobs of this user; None:
        all. For an unknown virtual cluster, only `unavailable` is set.
        """
        core, now = self._of.state.core, self._of.now()
        queue = core.queues.get(vc)
        if queue is None:
            return Order(vc, unavailable=no_vc(vc))
        rows = []
        for position, queued in enumerate(queue, 1):
            if owner is not None and queued.job.user != owner:
                continue
            job, terms = queued.job, core.policy.order_terms(queued, now)
            of_place = [OrderTerm(what, seconds) for what, seconds in terms]
            rows.append(
                OrderRow(
                    position=position,
                    job_id=job.job_id,
                    gpus=job.gpus,
                    priority=queued.priority,
                    terms=of_place,
                )
            )
            if len(rows) == limit:
                break
        records = self._of.state.ledger.records
        held = [
            HeldRow(r.job_id, r.submission.gpus, r.priority)
            for r in sorted((records[one] for one in core.waiting.held()), key=lambda r: r.seq)
            if r.phase is Phase.HELD and r.submission.vc == vc
            if owner is None or r.submission.owner == owner
        ]
        return Order(vc, len(queue), rows, held[:limit])
