"""Lucid (ASPLOS'23): profiles jobs first, orders them by predicted GPU-time, and packs by sharing
score without search.

Known defects of its artifact are not copied here. `reproductions.published` switches on those on
which the published figures depend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import floor
from typing import Any

from models.bundle import Bundle
from reproductions.baselines.coming import Coming, Models
from scheduler.core.arrivals import BIN_S, ArrivalForecaster
from scheduler.core.capabilities import Capabilities
from scheduler.core.cluster import GPU_SHARING_CAPACITY, ClusterSpec, Run
from scheduler.core.decisions import PairPrediction, Reason
from scheduler.core.estimates import Estimator
from scheduler.core.findings import Findings, NotExamined, Partner
from scheduler.core.pairs import PairPredictor, believed, pair_predictor_of
from scheduler.core.policy import NO_CLUSTER, NO_PREDICTORS, Learned, Policy, Predictors, in_order
from scheduler.core.queue import QueuedJob
from scheduler.core.settings import PolicySettings, SharingRules, setting
from scheduler.core.turn import Turn


class LucidSettings(PolicySettings):
    """Settings of `lucid`."""

    quiet_jobs: float | None = setting(
        None,
        "jobs share GPUs only while more jobs than this are forecast to be submitted; null: always",
        unit="jobs per 10 min",
        ge=0,
    )
    sharing_limit: int = setting(
        2,
        "two jobs may share GPUs if their sharing scores (how much of a GPU each needs: 0 little, "
        "1 medium, 2 all) sum to at most this",
        ge=0,
        le=4,
    )
    priority_factor: float = setting(
        2.0,
        "a waiting job may share with a running one if its predicted GPU-time (GPUs times "
        "duration) is at most this many times that of the running one",
        gt=0,
    )
    sharing: SharingRules = setting(
        SharingRules(), "which jobs may share GPUs, by the settings of this section"
    )


@dataclass(slots=True, kw_only=True)
class LucidMemory:
    """The state of the policy `lucid` as a plain record, for saving.

    Attributes:
        arrivals: the arrivals from which it forecasts; see `ArrivalForecaster.remember`.
        quiet: virtual clusters in which packing is off.
    """

    arrivals: list[tuple[float, int]]
    quiet: list[str]


class LucidLearned(Learned):
    """What `lucid` keeps between its turns (calls of the policy for one virtual cluster)."""

    Memory = LucidMemory

    def __init__(self, policy: Lucid):
        self._policy = policy

    def begin(self, turn: Turn) -> None:
        policy = self._policy
        if policy.packing_on(turn.now):
            policy.quiet.discard(turn.vc)
        else:
            policy.quiet.add(turn.vc)

    def remember(self) -> LucidMemory:
        policy = self._policy
        forecast = policy.forecast
        return LucidMemory(
            arrivals=[] if forecast is None else forecast.remember(),
            quiet=sorted(policy.quiet),
        )

    def restore(self, memory: Any, jobs: Mapping[str, QueuedJob]) -> None:
        assert isinstance(memory, LucidMemory)
        policy = self._policy
        policy.quiet = set(memory.quiet)
        if policy.forecast is not None:
            policy.forecast.restore(memory.arrivals)


class Lucid(Policy):
    """The policy `lucid`. Without a pair predictor no job shares."""

    Settings = LucidSettings
    settings: LucidSettings
    name = "lucid"
    first_partner = False  # a defect of the published one: the oldest that will do, not the best
    capabilities = Capabilities(profiles=True, packs=True, estimates=True)

    def __init__(
        self,
        settings: LucidSettings | None = None,
        cluster: ClusterSpec = NO_CLUSTER,
        predictors: Predictors = NO_PREDICTORS,
    ):
        self.settings = chosen = settings or LucidSettings()
        self._sharing = chosen.sharing
        self._believe(predictors.pair_predictor)
        self.quiet_jobs = self.settings.quiet_jobs
        self.forecast: ArrivalForecaster | None = None
        self._models = Models(predictors.arrival_model, predictors.arrived)
        self._recent = predictors.arrivals
        if self.quiet_jobs is not None:
            self.forecast = self.forecaster(predictors.arrivals)
        self.sharing_limit = self.settings.sharing_limit
        self.priority_factor = self.settings.priority_factor
        self.capabilities = replace(
            self.capabilities, memory_margin_mib=chosen.sharing.memory_margin_mib
        )
        self.max_gpus = self.settings.sharing.max_gpus
        self.learned = LucidLearned(self)
        self.quiet: set[str] = set()  # virtual clusters in which nobody was packed of late

    def forecaster(
        self, otherwise: Callable[[], ArrivalForecaster] | None
    ) -> ArrivalForecaster | None:
        return None if otherwise is None else Coming(self._models, otherwise())

    def prepare(
        self, queued: QueuedJob, now: float, estimator: Estimator, *, logged: bool = False
    ) -> None:
        super().prepare(queued, now, estimator, logged=logged)
        if self.forecast is not None:
            self.forecast.submitted(queued.job.gpus, now)

    def key(self, queued: QueuedJob, now: float) -> float:
        assert queued.predicted_s is not None
        return queued.predicted_s * queued.job.gpus

    def take_over(
        self, before: Policy, jobs: Iterable[QueuedJob], runs: Iterable[Run], now: float
    ) -> bool:
        """Continue with what another `lucid` policy, `before`, has learned; any other policy leaves
        nothing to continue with. Return True. A forecast that is switched on only now starts from
        later arrivals.
        """
        if isinstance(before, Lucid):
            self.quiet = before.quiet
            self._models = before._models
            if self.forecast is not None:
                self.forecast = before.forecast or self.forecaster(self._recent)
        return True

    def _believe(self, pair_predictor: PairPredictor | None) -> None:
        self.pair_predictor, self._unpaired = believed(pair_predictor, self._sharing)

    def use(self, bundle: Bundle) -> None:
        self._believe(pair_predictor_of(bundle))
        self._models.arrivals = bundle.arrivals if "arrivals" in bundle.parts else None

    def next_wake(self, now: float) -> float | None:
        """Return the start of the next interval of the forecast, when packing may be switched on or
        off; None without a forecast.
        """
        return None if self.forecast is None else (floor(now / BIN_S) + 1) * BIN_S

    def packing_on(self, now: float) -> bool:
        """Return whether jobs may be packed now: without a forecast always, otherwise only
        while more than `quiet_jobs` jobs are forecast to be submitted in ten minutes.
        """
        if self.forecast is None or self.quiet_jobs is None:
            return True
        return self.forecast.jobs(now) > self.quiet_jobs

    def serve(self, turn: Turn) -> None:
        if turn.vc in self.quiet:
            in_order(turn)
            return
        shares = self.pair_predictor is not None
        too_many: set[int] = set()  # GPU counts that did not fit; nothing is freed during a turn
        for queued in list(turn.queue):
            gpus = queued.job.gpus
            guard: Reason | None = None
            if not shares or gpus > self.max_gpus:
                pass  # on GPUs of its own; who fits passes who does not, as beside partners
            elif not queued.job.share:
                guard = Reason.SHARING_OPTED_OUT if turn.alone(gpus) else None
            elif queued.profile is not None:
                partner, guard = self._partner(turn, queued)
                if partner is not None:
                    turn.pack(queued, partner)
                    continue
            placement = None if gpus in too_many else turn.pool.place(gpus)
            if placement is not None:
                turn.start(queued, placement)
            else:
                too_many.add(gpus)
                turn.wait(queued, guard or turn.capacity_reason(queued))

    def _partner(self, turn: Turn, queued: QueuedJob) -> tuple[Run | None, Reason | None]:
        """Return (running job to share with, None). If there is none, return (None, rule) where the
        memory or the interference rule refused a candidate, otherwise (None, None). Record the
        prediction, or the closest refusal, on `queued`.
        """
        best: tuple[float, Run, PairPrediction] | None = None
        closest: tuple[Reason, Run, PairPrediction | None] | None = None  # of those refused
        guards = set()
        queued.considered = None
        for run in turn.alone(queued.job.gpus):
            refused, prediction = self._try(turn, queued, run)
            if refused is not None:
                guards.add(refused)
                if closest is None or _how_far(refused) > _how_far(closest[0]):
                    closest = refused, run, prediction
                continue
            assert prediction is not None
            speed = sum(prediction.speeds) if prediction.speeds else float(GPU_SHARING_CAPACITY)
            if best is None or speed > best[0]:
                best = speed, run, prediction
                if self.first_partner:
                    break
        if best is not None:
            queued.pair_prediction = best[2]
            return best[1], None
        if closest is not None:
            rule, run, prediction = closest
            speeds = prediction.speeds if prediction is not None else None
            queued.considered = Partner(turn.now, run.job.job_id, rule, speeds)
        return None, next((guard for guard in _GUARDS if guard in guards), None)

    def _try(
        self, turn: Turn, queued: QueuedJob, run: Run
    ) -> tuple[Reason | None, PairPrediction | None]:
        """Return the rule that forbids two jobs to share GPUs, and the predicted effect of sharing.
        The rule is None if sharing is allowed. The prediction is None if it was not computed.
        """
        assert self.pair_predictor is not None
        other = turn.known(run)
        if queued.key > self.priority_factor * other.key:
            return Reason.PRIORITY_RATIO, None
        rule = turn.may_share(queued, run)
        if rule is not None:
            return rule, None
        prediction = self.pair_predictor.predict_pair(queued, other)
        if prediction is None or sum(prediction.scores) > self.sharing_limit:
            return Reason.INTERFERENCE_GUARD, prediction
        return None, prediction

    def findings(self, queued: QueuedJob) -> Findings:
        return Findings(queued.considered, not_examined=tuple(self._not_examined(queued)))

    def _not_examined(self, queued: QueuedJob) -> Iterator[NotExamined]:
        if not queued.job.share:
            return  # nothing was left out: its owner said no
        if self.pair_predictor is None:
            yield self._unpaired
        elif queued.job.vc in self.quiet:
            yield NotExamined.PACKING_OFF
        elif queued.job.gpus > self.max_gpus:
            yield NotExamined.TOO_LARGE
        elif queued.profile is None:
            yield NotExamined.NO_PROFILE


_GUARDS = (Reason.MEMORY_GUARD, Reason.INTERFERENCE_GUARD)  # told of a job that waits, if any
_HOW_FAR = (Reason.PRIORITY_RATIO, Reason.MEMORY_GUARD, Reason.INTERFERENCE_GUARD)


def _how_far(refused: Reason) -> int:
    """Return the position in `_HOW_FAR` of the rule that refused a pair of jobs; -1 for any other
    rule. A higher number means that more rules were passed.
    """
    return _HOW_FAR.index(refused) if refused in _HOW_FAR else -1
