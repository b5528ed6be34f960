"""Answers about a site's own Slurm without a service, from one poll with the rights of the calling
user. It reads no database and writes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property

from features.clock import Clock
from scheduler.core.capacity import nodes_of
from scheduler.core.phase import Phase
from scheduler.core.receipts import Receipt
from scheduler.explain.causes import Causes, Other, causes_of, of_slurm
from scheduler.explain.dossier import Dossier, Recorded, Stands, facts_of, needs_nodes
from scheduler.explain.effect import ByNode, Eta, Sooner
from scheduler.explain.explanation import Explanation, Standing, StartForecastRow
from scheduler.explain.job import JobRow
from scheduler.explain.share import Shares
from scheduler.explain.stories import names_of_terms
from scheduler.explain.whatif.forecasts import SOON_S, StartForecast, roughly, too_late, unfinished
from scheduler.explain.why import explain
from scheduler.slurm.follow.checks import Verdict, against_slurm, against_trial
from scheduler.slurm.follow.histories import Histories
from scheduler.slurm.follow.planner import LINE, Planner, TwinAlone, nearby
from scheduler.slurm.follow.promises import Promises
from scheduler.slurm.follow.shortages import Accounts
from scheduler.slurm.follow.standing import SeenRows, ranked
from scheduler.slurm.follow.trials import Means, Refused, Trials
from scheduler.slurm.read.client import Slurm, SlurmDown, SlurmError
from scheduler.slurm.read.parse import SlurmJob
from scheduler.slurm.read.past import past
from scheduler.slurm.read.shape import Shape
from scheduler.slurm.read.site import read_site
from scheduler.slurm.read.snapshot import without_start
from scheduler.slurm.read.table import Table, on_gpus
from scheduler.slurm.read.versions import NEWEST, Release, release_in
from scheduler.slurm.reason import SlurmReason
from scheduler.slurm.shares import of_site
from scheduler.slurm.twin.site import Site
from scheduler.slurm.twin.twin import twin_in

SAMPLES, BUDGET_S = 24, 0.6  # futures, and processor seconds for them
TRIAL_S, QUESTION_S = 0.3, 0.8  # of one trial; after which none begins
UNSEEN = "other users' jobs are hidden from you (PrivateData=jobs)"
PAST_DAYS = 30  # of the user's own ended jobs
HIDDEN: Mapping[str, str] = {
    "jobs": f"{UNSEEN}: no place in the order and no start can be estimated",
    "usage": "usage of others: fair shares, and so priorities, may differ",
    "accounts": "accounts that are not yours: their limits are not known",
    "users": "users that are not you: their limits are not known",
    "nodes": "nodes of partitions that you may not use",
    "partitions": "partitions that you may not use",
    "reservations": "reservations that you may not use",
}


class NotThere(ValueError):
    """Raised if a job does not exist, or Slurm does not show it to this user."""


class Direct:
    """The answers that follow from one poll of Slurm.

    Raise SlurmDown or SlurmError where Slurm does not answer, fails, or has a release that is newer
    than the known ones, and ParseError where its output cannot be read.

    Args:
        user: the user who asks.

    Attributes:
        hidden: what Slurm does not show this user, as lines.
    """

    def __init__(self, slurm: Slurm, user: str, clock: Clock | None = None) -> None:
        _check_known(slurm.release())
        self.user, self._clock, self._slurm = user, clock or Clock(), slurm
        nodes = slurm.nodes()
        shape = Shape.followed(nodes)
        self._planner = planner = Planner(TwinAlone(), shape)
        planner.nodes, planner.site = nodes, read_site(slurm, nodes)
        self.site: Site = planner.site
        _check_known(release_in(self.site.config.get("SLURM_VERSION", "")))  # the controller's
        # on which GPUs each job runs would be a question for each
        jobs = on_gpus(Table(slurm, numbered=False).jobs(), nodes)
        planner.reshape(jobs)
        self.now = self._clock.now()
        mine = [job for job in jobs if planner.shape.vc_of(job.partition)]
        over, unread = self._over(slurm, {job.id for job in jobs})
        Histories(planner.memory, lambda names: planner.shape.vc_of(names)).update(
            [*over, *_remembered(mine)], self.now
        )
        self._promises = Promises()
        planner.asking.turn()
        self._snapshot = planner.draw(mine, self.now, {})
        self._first = planner.first(self._snapshot)
        self.hidden = [*_hidden(self.site, slurm, user), *unread]
        self._alone = any(UNSEEN in line for line in self.hidden)
        # which of several jobs has which GPUs is a guess, and the own policy places by them
        reasons = planner.reasons(self._snapshot, self._first, own=False)
        if self._alone:  # what it would take the whole queue to know
            reasons = {
                job_id: replace(one, places=(), goes_first=None) for job_id, one in reasons.items()
            }
        self._rows = SeenRows(self._snapshot, reasons)
        self._decisions = {d.job_id: d for d in self._snapshot.decisions}
        self._made: dict[str, StartForecast] = {}

    def _over(self, slurm: Slurm, shown: set[str]) -> tuple[list[SlurmJob], list[str]]:
        """Return the user's ended jobs that squeue has dropped, and a note where they could not be
        read. Without slurmdbd, both are empty."""
        if "slurmdbd" not in self.site.config.get("AccountingStorageType", ""):
            return [], []
        try:
            found = past(slurm, self.user, PAST_DAYS)
        except (SlurmDown, SlurmError) as error:
            why = " ".join(str(error).split())
            return [], [f"Not read: your ended jobs (sacct: {why}): starts are less certain."]
        shape = self._planner.shape
        return [one for one in found if one.id not in shown and shape.vc_of(one.partition)], []

    # --- answers ------------------------------------------------------------------------------

    def why(self, job_id: str) -> Explanation:
        """Return why a job is in its present state. For an array, return that of its first waiting
        task, otherwise of a running one; for a heterogeneous job, that of its first component.
        Raise NotThere where Slurm shows no such job."""
        job_id = self._task(job_id)
        self._foresee([job_id])
        return explain(self.dossier(job_id))

    def parts(self, job_id: str) -> list[str]:
        """Return the ids of a heterogeneous job's components; [] for any other job."""
        found = (j for j in self._rows if j.partition("+")[0] == job_id and j != job_id)
        return sorted(found, key=lambda j: int(j.partition("+")[2]))

    def sooner(self, job_id: str) -> Sooner:
        """Return the changes with which a waiting job would start sooner, each tried on a copy of
        the queue. `unavailable` says why where the job is another user's, or others' jobs are
        hidden."""
        if self._alone:
            return Sooner(unavailable=UNSEEN)
        if self._rows[job_id].owner != self.user and self.user != "root":
            return Sooner(unavailable="it is another user's, and not yours to change")
        return self._trials().what_if(job_id)

    def by_node(self, job_id: str) -> ByNode:
        """Return what keeps a waiting job from each node; no nodes for a running job. Raise
        NotThere where Slurm shows no such job."""
        job_id = self._task(job_id)
        if self._alone:
            return ByNode(job_id, unavailable=UNSEEN)
        twin = twin_in(self._snapshot.core.policy)
        waits = twin is not None and job_id not in self._snapshot.running
        return Accounts(twin, self.now).by_node(job_id) if twin and waits else ByNode(job_id)

    def eta(self, options: Sequence[str]) -> Eta:
        """Return when a job with the given options of sbatch would start. Raise SlurmError where
        Slurm would refuse it."""
        if self._alone:
            return Eta(unavailable=UNSEEN)
        trials = self._trials()
        try:
            found = trials.eta(options, self.user)
        except Refused as error:
            raise SlurmError(str(error)) from None
        return against_trial(found, Verdict.of(self._slurm.tried(options)), trials.put_back_s)

    def queue(self, *, everybody: bool = False) -> list[JobRow]:
        """Return the user's jobs that have not ended, latest first; with `everybody`, all jobs that
        Slurm shows the user."""
        own = [j for j, row in self._rows.items() if everybody or row.owner == self.user]
        self._foresee(own)
        found = sorted(map(self.job, own), key=lambda job: -job.submitted_at)
        return [job for job in found if not Phase(job.phase).over]

    def causes(self, *, everybody: bool = False) -> Causes:
        """Return the user's waiting jobs (with `everybody`, all that Slurm shows) grouped by the
        reason for their wait, and the jobs whose end would free most of them."""
        every = [self.job(job_id) for job_id in self._rows]
        waits = []
        for job in every:
            if not Phase(job.phase).waits or not (everybody or job.owner == self.user):
                continue
            decided = self._decisions.get(job.job_id)
            named = {*decided.held_by, *filter(None, [decided.blocker])} if decided else set()
            one = of_slurm(job.job_id, job.gpus, job.submitted_at, job.slurm or SlurmReason())
            waits.append(replace(one, waits_for=one.waits_for | named))
        others = {job.job_id: Other(job.job_id, job.owner, job.phase) for job in every}
        return causes_of(waits, others, self.now)

    def shares(self) -> Shares:
        """Return what the user has used lately, and what is due to the user, by account."""
        return of_site(self.site, self.user)

    def _trials(self) -> Trials:
        planner = self._planner
        means = Means(
            draw=planner.trial,
            own=None,
            between=lambda: None,
            put_off=self._promises.put_off,
            budget_s=TRIAL_S,
            question_s=QUESTION_S,
            against=against_slurm(self._snapshot, self._first),
            asks=self._slurm.tried,
        )
        jobs = nearby(self._snapshot, self._first)
        return Trials(
            site=self.site,
            jobs=jobs,
            memory=planner.memory,
            now=self.now,
            clock=self._clock,
            means=means,
        )

    def _foresee(self, job_ids: Sequence[str]) -> None:
        for job_id in self._snapshot.aside.keys() - self._made.keys():
            self._made[job_id] = StartForecast(self.now, why_not=self._snapshot.left_out[job_id])
        waiting = [j for j in self._first if j in set(job_ids) - self._made.keys()]
        if not waiting or self._alone:
            return
        futures = self._planner.futures(self._snapshot, self._first, {}, 1)
        found = futures.forecast(waiting, samples=SAMPLES, budget_s=BUDGET_S)
        self._made |= {job_id: self._promises.put_off(one) for job_id, one in found.items()}
        late = [job_id for job_id, one in found.items() if unfinished(one)]
        memory, soon = self._planner.memory, self.now + SOON_S
        self._made |= (
            roughly(self._snapshot.core, memory, self.now, job_ids=late, soon=soon) if late else {}
        )
        withheld = too_late(self._snapshot.core, {j: self._made[j] for j in waiting})
        withheld |= against_slurm(self._snapshot, waiting)
        withheld |= without_start(self._snapshot, waiting)
        self._made |= {j: StartForecast(self.now, why_not=why) for j, why in withheld.items()}

    def _task(self, job_id: str) -> str:
        if job_id in self._rows:
            return job_id
        if parts := self.parts(job_id):
            return parts[0]
        array = job_id.partition("_[")[0]
        tasks = [j for j in self._rows if array.isdecimal() and j.startswith(f"{array}_")]
        order = [(not Phase(self._rows[j].phase).waits, int(j.partition("_")[2]), j) for j in tasks]
        if not order:
            raise NotThere(f"job {job_id[:64]!r}: Slurm shows you no such job that waits or runs")
        return min(order)[2]

    # --- read ---------------------------------------------------------------------------------

    def dossier(self, job_id: str) -> Dossier:
        """Return all that one poll shows of a job. For a job that Slurm has started, decisions of
        the copied queue are left out, since they had no effect."""
        row, decided = self.job(job_id), self._decisions.get(job_id)
        started = row.slurm is not None and row.slurm.started
        own = [] if decided is None or started else [decided]
        nodes = nodes_of(self._snapshot.core.cluster) if needs_nodes(row, own) else ()
        stands = Stands(
            row=row,
            now=self.now,
            standing=self.standing(job_id),
            nodes=nodes,
            forecast=self._forecast(job_id),
            receipt=self._receipt(row),
        )
        beside = Recorded(bundles=names_of_terms({}))
        return Dossier(facts=facts_of(row), own=own, beside=beside, stands=stands)

    def job(self, job_id: str) -> JobRow:
        made = self._rows[job_id]
        forecast = self._made.get(job_id)
        if forecast is None:
            return made
        p10, p50, p90 = forecast.start_p10, forecast.start_p50, forecast.start_p90
        return replace(made, start_p10=p10, start_p50=p50, start_p90=p90, why_not=forecast.why_not)

    def partition_of(self, job_id: str) -> str:
        """Return a job's partition as squeue shows it; several partitions are joined by commas."""
        of = self._snapshot
        found = of.running.get(job_id) or of.waiting.get(job_id) or of.aside.get(job_id)
        return found.partition if found is not None else self._rows[job_id].vc

    def standing(self, job_id: str) -> Standing | None:
        row = self._rows[job_id]
        if self._alone or row.phase != Phase.QUEUED:
            return None
        places = self._places[row.vc]
        return Standing(places[job_id], len(places))

    @cached_property
    def _places(self) -> Mapping[str, Mapping[str, int]]:
        """The place in line, from 1, of each waiting job: maps each virtual cluster to places by
        job id."""
        lines: dict[str, list[tuple[float, float, int, str]]] = {}
        of = self._snapshot
        ranks = ranked(of.waiting)
        for job_id, job in of.waiting.items():
            place = (-ranks[job_id], of.core.jobs[job_id].key or 0.0, int(job.submit), job_id)
            lines.setdefault(of.shape.vc_of(job.partition), []).append(place)
        return {
            vc: {place[-1]: n for n, place in enumerate(sorted(line), 1)}
            for vc, line in lines.items()
        }

    def _receipt(self, row: JobRow) -> Receipt | None:
        made = self._made.get(row.job_id)
        return Receipt.read(made.receipt) if made and row.phase == Phase.RUNNING else None

    def _forecast(self, job_id: str) -> StartForecastRow | None:
        made = self._made.get(job_id)
        if self._alone and Phase(self._rows[job_id].phase).waits:
            return StartForecastRow(
                made_at=self.now,
                start_p50=None,
                start_p90=None,
                end_p50=None,
                end_p90=None,
                why_not=UNSEEN,
            )
        if made is None and job_id in self._snapshot.order and job_id not in self._first:
            why_not = f"starts are estimated of the first {LINE} in line"
            return StartForecastRow(
                made_at=self.now,
                start_p50=None,
                start_p90=None,
                end_p50=None,
                end_p90=None,
                why_not=why_not,
            )
        if made is None:
            return None
        figures = asdict(made)
        names = StartForecastRow.__dataclass_fields__.keys() & figures.keys()
        return StartForecastRow(**{name: figures[name] for name in names})


def _check_known(release: Release | None) -> None:
    if release is not None and release > NEWEST:
        (year, month), (last, minor) = release, NEWEST
        raise SlurmError(
            f"Slurm {year}.{month:02d} is newer than any that is known ({last}.{minor:02d})"
        )


def _remembered(jobs: Sequence[SlurmJob]) -> list[SlurmJob]:
    """Return the jobs from which durations are learned and for which they are forecast: all jobs
    except waiting ones that are far behind in line."""
    waiting = sorted((job for job in jobs if job.state == "PENDING"), key=lambda j: -j.priority)
    return [*(job for job in jobs if job.state != "PENDING"), *waiting[: 2 * LINE]]


def _hidden(site: Site, slurm: Slurm, user: str) -> list[str]:
    """Return what Slurm does not show a user, as lines."""
    config, found = site.config, []
    private = config.get("PrivateData", "none").lower().split(",")
    if private != ["none"] and not _is_trusted(config, slurm, user):
        found += [f"Hidden: {HIDDEN[one]}." for one in private if one in HIDDEN]
    if "slurmdbd" in config.get("AccountingStorageType", "") and not site.assocs:
        found.append("Hidden: accounts and QOS could not be read: limits are not known.")
    return [*found, *(f"Not read: {one}." for one in site.faults)]


def _is_trusted(config: Mapping[str, str], slurm: Slurm, user: str) -> bool:
    """Return whether a user is root, SlurmUser, an operator or an administrator, from whom
    PrivateData hides nothing. Return False where that cannot be read."""
    if user in ("root", config.get("SlurmUser", "").partition("(")[0]):
        return True
    try:
        level = slurm.read("sacctmgr", "-n", "-P", "show", "user", user, "format=AdminLevel")
    except (SlurmDown, SlurmError):
        return False
    return level.strip() in ("Operator", "Administrator")
