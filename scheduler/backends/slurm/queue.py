"""The jobs that users submit to Slurm themselves, and its nodes, as events of the service's log.

The plugin holds a job and writes down how many GPUs it asked for (`parse.ask`); that is the rule
by which one is adopted. Every other job is seen and left alone.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

import structlog

from scheduler.backends.events import Event, Kind
from scheduler.backends.slurm import parse
from scheduler.backends.slurm.client import Slurm, SlurmDown, SlurmError, quoted
from scheduler.backends.slurm.journal import Journal
from scheduler.backends.slurm.parse import ParseError, Row, SlurmJob
from scheduler.backends.slurm.shape import Shape
from scheduler.backends.submission import Submission
from scheduler.core.decisions import Action, Decision, Reason

ALONE = "pellucid:alone"  # in a job's comment: never share its GPUs
NODES_S = 3.0  # between two polls of the nodes
AGAIN_S = 10.0  # jobs that could not be adopted are tried again
SHOW_S = 1.0  # reasons are written in batches, this often
BATCH = 100
_SLURM_ID = re.compile(r"\d{1,10}(_\d{1,7})?")  # the service's own ids are longer


def is_slurm_id(job_id: str) -> bool:
    """Whether a job of the service is one that was submitted to Slurm, under Slurm's id."""
    return _SLURM_ID.fullmatch(job_id) is not None


def submission(job: SlurmJob, vc: str) -> Submission:
    """A job of Slurm as one of the service. It is not profiled: that would run it twice."""
    return Submission(
        job_id=job.id,
        command=("sbatch", job.name[:200] or "batch"),
        owner=job.user[:128],
        vc=vc,
        gpus=job.gpus,
        submitted_at=job.submit,
        name=job.name[:256],
        user=job.user,
        cpus=float(job.cpus),
        memory_mib=job.memory_mib,
        gpu_type=job.gpu_type or None,
        time_limit_s=job.time_limit_s,
        share=ALONE not in job.comment.split(),
        profile=False,
    )


class Queue:
    """What others do in Slurm; see the top.

    Args:
        stray: called with every held job that no plugin holds, whenever it is read.
    """

    def __init__(
        self,
        shape: Shape,
        slurm: Slurm,
        journal: Journal,
        stray: Callable[[SlurmJob], None] = lambda _: None,
    ) -> None:
        self._shape, self._slurm, self._journal, self._stray = shape, slurm, journal, stray
        self._adopted = journal.adopted()  # waiting here, by id: submit time and ask
        self._closed = set(journal.closed())
        self._arrived: dict[str, Event] = {}
        self._left: dict[str, Event] = {}
        self._turned: dict[str, Event] = {}
        self._refused: dict[str, float] = {}  # examined, and not to be adopted: when
        self._gone: dict[str, float] = {}
        self._words: dict[str, str] = {}
        self._unshown: dict[str, str] = {}
        self._uncancelled: set[str] = set()
        self._seen: set[str] = set()  # of these, seen since they were to be cancelled
        self._show_at = self._nodes_at = self._read_at = 0.0
        self._rows: Mapping[str, Row] = {}
        self.log = structlog.get_logger("slurm")

    # --- events -------------------------------------------------------------------------------

    def news(self, now: float) -> list[Event]:
        """What happened, again until it is heard."""
        self._watch_nodes(now)
        return [*self._turned.values(), *self._arrived.values(), *self._left.values()]

    def heard(self, events: Iterable[Event]) -> None:
        """These are in the log, or of no news to it."""
        adopted = []
        for event in events:
            if event.kind is Kind.NODE_SET:
                name = self._shape.names[event.body["node"]]
                self._journal.set_closed(name, not event.body["open"])
                (self._closed.discard if event.body["open"] else self._closed.add)(name)
                self._turned.pop(name, None)
            elif event.kind is Kind.SUBMITTED:
                del self._arrived[event.job_id]
                asked = f"gpus={event.body['gpus']}"
                kind = event.body["gpu_type"]
                ask = f"{asked} type={kind}" if kind else asked
                adopted.append((event.job_id, event.body["submitted_at"], ask))
            elif self._left.pop(event.job_id, None) is not None:
                self._forget(event.job_id)
        self._journal.adopt(adopted)
        self._adopted |= {job_id: (at, ask) for job_id, at, ask in adopted}

    def _forget(self, job_id: str) -> None:
        self._journal.disown(job_id)
        self._adopted.pop(job_id, None)
        for by_id in (self._words, self._unshown, self._gone):
            by_id.pop(job_id, None)

    # --- looking ------------------------------------------------------------------------------

    def look(self, rows: Mapping[str, Row], launched: Set[str]) -> None:
        """See who came and who left; `launched` jobs are the backend's to watch."""
        now, self._rows = time.monotonic(), rows
        self._seen = set(self._uncancelled)
        for job_id in [j for j in self._adopted if j not in launched and j not in self._left]:
            self._watch(job_id, rows.get(job_id), now)
        held = {r.id for r in rows.values() if r.state == "PENDING" and r.priority == 0}
        for job_id in [j for j in self._refused if j not in held]:
            del self._refused[job_id]
        new = [
            job_id
            for job_id in held
            if job_id not in self._adopted
            and job_id not in self._arrived
            and job_id not in launched
            and now >= self._refused.get(job_id, 0.0) + AGAIN_S
        ]
        if new and now >= self._read_at:
            self._adopt(set(new), now)

    def _watch(self, job_id: str, row: Row | None, now: float) -> None:
        """A job that waits for a decision: it may leave by another door."""
        submitted, _ = self._adopted[job_id]
        if row is None or row.submit != submitted:
            if now - self._gone.setdefault(job_id, now) < AGAIN_S / 2:
                return
            why = "gone from Slurm"
        elif row.state in ("PENDING",) and row.priority == 0:
            self._gone.pop(job_id, None)
            return
        elif self._journal.knows((job_id, 1)):  # it had its turn, and is over
            self._forget(job_id)
            return
        elif row.state == "CANCELLED":
            why = "cancelled in Slurm"
        else:
            why = "released in Slurm by hand; it runs outside Pellucid"
            self.log.warning("slurm_released_by_hand", job=job_id)
        event = Event(Kind.CANCEL_ASKED, time.time(), job_id, "slurm", body={"why": why})
        self._left[job_id] = event

    def _adopt(self, new: Set[str], now: float) -> None:
        began = time.monotonic()
        jobs = [job for job in self._slurm.jobs() if job.id in new]
        self._read_at = now + max(0.2, 5 * (time.monotonic() - began))
        for job in jobs:
            vc = job.partition
            why = self._objection(job)
            if why is not None:
                self._refused[job.id] = now
                if job.held and parse.ask(job.admin_comment) is None:
                    self._stray(job)
                text = f"gpus={job.gpus}; left alone: {why}"
                if why and text not in job.admin_comment:
                    self.log.info("slurm_left_alone", job=job.id, why=why)
                    self._unshown[job.id] = text
                continue
            body = submission(job, vc).body()
            self._arrived[job.id] = Event(
                Kind.SUBMITTED, job.submit, job.id, job.user[:128], body=body
            )

    def _objection(self, job: SlurmJob) -> str | None:
        """Why a held job is not adopted; "" when it is none of ours; None when it is."""
        if not job.held or parse.ask(job.admin_comment) is None:
            return ""
        if job.partition not in self._shape.spec.vcs:
            return ""
        if job.dependency:
            return ""  # later
        if job.reservation:
            return "it asks for a reservation"
        fewest = -(-job.gpus // self._shape.spec.gpus_per_node)
        if job.num_nodes > fewest or (job.max_nodes and job.max_nodes < fewest):
            asked = job.max_nodes or job.num_nodes
            return f"asks for nodes={asked}, its {job.gpus} GPUs are given on {fewest}"
        return None

    def _watch_nodes(self, now: float) -> None:
        if time.monotonic() < self._nodes_at:
            return
        self._nodes_at = time.monotonic() + NODES_S
        try:
            nodes = self._slurm.nodes()
        except (SlurmDown, SlurmError, ParseError) as error:
            self.log.warning("slurm_nodes_unread", why=str(error))
            return
        for node in nodes:
            number = self._shape.node(node.name)
            if number is not None and node.open == (node.name in self._closed):
                body = {"node": number, "open": node.open}
                self._turned[node.name] = Event(Kind.NODE_SET, now, actor="slurm", body=body)
            else:
                self._turned.pop(node.name, None)

    # --- reasons ------------------------------------------------------------------------------

    def decided(self, decisions: Sequence[Decision]) -> None:
        """Remember what is to be shown to those whose jobs were decided about."""
        for d in decisions:
            if not is_slurm_id(d.job_id):
                continue
            # everybody may read an AdminComment: no other job is named there
            words = self._words[d.job_id] = f"{d.reason}: {d.sentence(visible=())}"
            if d.action is Action.CANCEL and d.reason is Reason.CANCELLED:
                self._uncancelled.add(d.job_id)
            elif d.action in (Action.WAIT, Action.ENQUEUE, Action.REFUSE, Action.RESERVE):
                self._unshown[d.job_id] = f"{self.ask(d.job_id)}; {words}"
            else:  # it is placed, with the reason, or has left
                self._unshown.pop(d.job_id, None)

    def words(self, job_id: str) -> str:
        """The reason of the latest decision about a job; "" when there was none."""
        return self._words.get(job_id, "")

    def ask(self, job_id: str) -> str:
        """What the plugin wrote down for a job: it stands first, whatever else is written."""
        return self._adopted.get(job_id, (0.0, ""))[1]

    def _cancel(self) -> None:
        """Cancel what waits as of a poll later than the last attempt. Raises SlurmDown."""
        for job_id in sorted(self._seen):
            row = self._rows.get(job_id)
            self._seen.discard(job_id)  # an answer that is lost leaves it to the next look
            if row is not None and row.state == "PENDING" and row.priority == 0:
                try:
                    self._slurm.cancel(job_id)
                except SlurmError as error:  # over, or gone
                    self.log.info("slurm_cancel", job=job_id, why=str(error))
            self._uncancelled.discard(job_id)

    def show(self) -> None:
        """Write reasons into AdminComment; cancel what was cancelled through the service while it
        was held. Raises SlurmDown."""
        now = time.monotonic()
        if now < self._show_at:
            return
        self._show_at = now + SHOW_S
        self._cancel()
        batch = dict(list(self._unshown.items())[:BATCH])
        if batch:
            self._slurm.write(
                [f"update jobid={j} AdminComment={quoted(text)}" for j, text in batch.items()]
            )
        for job_id, text in batch.items():
            if self._unshown.get(job_id) == text:
                del self._unshown[job_id]
