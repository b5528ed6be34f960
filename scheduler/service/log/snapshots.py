"""The state at one moment of the log, kept in a file, so that a start need not fold months.

A snapshot is a shortcut and never the truth: it is used only if the log still holds the event it
was taken at; what follows in the log is folded and compared as ever. Whatever is wrong with one,
the log is folded from its start instead. `pellucid audit` uses none unless asked to.

A file has two parts (`scheduler.service.log.graph`; no pickle). What the log tells, jobs that are
not over and the histories of those that are, has a schema, `FIELDS`, with a number, so that
another release reads it, too: an older one by way of `MIGRATIONS`. What the core decides with is
for the code that wrote it: other code builds a core of its own from the first part, as it does
where it would have decided otherwise (`scheduler.service.log.epochs`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any

import msgpack
from sqlalchemy import Connection

from features.files import write_whole
from features.state import FAMILIES, FeatureState
from models.bundle import Bundle
from scheduler.backends.events import Event, canonical
from scheduler.core.estimates import LiveEstimator
from scheduler.service.log.fold import Bundles, State
from scheduler.service.log.graph import GraphError, Migration, Reader, Writer
from scheduler.service.log.header import code_version
from scheduler.service.log.store.store import Store

# The schema of what the log tells. Who changes it raises VERSION and says in MIGRATIONS what became
# of each class and field since the version before.
VERSION = 4
MIGRATIONS: dict[int, Migration] = {  # by the version they lead to
    4: Migration(
        new={
            "features.progress:Progress": {"doubts": ""},
            "features.state:_Submission": {"began": nan, "hazards": (), "outlived_s": 0.0},
        }
    ),
}
FIELDS = {
    "features.amounts:Work": "amount batch rest script unit words",
    "features.history:KeyHistory": (
        "_cancelled _ended _ewma _ewma_log _failed _last _past _ring _sorted hazard last_end "
        "last_submit queued running"
    ),
    "features.history:Running": "_base _starts _sum",
    "features.job:Job": (
        "after after_any cpus gpu_type gpus job_id memory_mib name profile share submit_time "
        "time_limit_s user vc work"
    ),
    "features.job:Profile": "amp gpu_mem_mib gpu_mem_util_pct gpu_util_pct",
    "features.queue:VcQueue": "queued queued_gpus running running_gpus",
    "features.state:FeatureState": (  # which features there are is for the code to say
        "_now _users _user_gpus _templates _vcs _queues _bursts _lives _everyone _vc_gpus _live "
        "_ran"
    ),
    "features.state:_Submission": (
        "began burst calendar hazards job keys outlived_s phase profile queue since_submit survival"
    ),
    "features.progress:Progress": ("at_s done doubts high_s low_s of source total_s unit unit_s"),
    "features.survival:Hazard": "_ended _keep _reached sayers",
    "features.survival:Lives": "_groups _bin _run _due _runs _stated",
    "features.templates:TemplateBook": "_owners",
    "scheduler.backends.events:Event": "actor at body cause job_id kind seq",
    "scheduler.backends.submission:Submission": (
        "after after_any command comment cpus environment gpu_type gpus job_id memory_mib name "
        "notify owner priority profile progress sealed share submitted_at time_limit_s user vc "
        "work workdir"
    ),
    "scheduler.core.cluster:Node": "gpu_memory_mib gpu_type gpus vc",
    "scheduler.service.log.ledger:Ledger": "keep records nodes holding _changed",
    "scheduler.service.log.nodes:NodeRecord": (
        "actor becomes has leaves name node open opens profiling reason since"
    ),
    "scheduler.service.log.nodes:NodeTable": "records next _changed",
    "scheduler.service.log.present:SettingsChange": "actor at reason seq settings",
    "scheduler.service.log.record:Depends": "failed since",
    "scheduler.service.log.record:End": "at detail exit_code state",
    "scheduler.service.log.record:Grant": "at begun gpus nodes partner purpose",
    "scheduler.service.log.record:Hold": "actor by since",
    "scheduler.service.log.record:Record": (
        "attempt cancel_asked changed depends end estimate_s grant granted held_s hold key phase "
        "priority profile profiled progress queued_at reason seq started_at steps submission "
        "updated_seq"
    ),
}
SCHEMA = {kind: tuple(names.split()) for kind, names in FIELDS.items()}

KEPT = 2  # files
EVERY = 50_000  # events between two snapshots
# A log of no more events is folded whole by other code, which goes on with all that was learned
# where it decides the same.
SHORT = 20_000
SUFFIX = ".snapshot"


@dataclass(slots=True)
class Recorded:
    """What the log tells up to an event, whoever decided.

    Attributes:
        code: that kept it.
        values: of the state, by name: `seen`, `ledger`, ...; `estimator`; `jobs`: ids of those
            that are in the core, `decided`: how many decisions there were.
    """

    code: str
    values: dict[str, Any]

    @property
    def seen(self) -> int:
        return int(self.values["seen"])


# of a state, as they are
_PLAIN = ("now", "seen", "covered", "wake_at", "keys", "version", "bundle", "ledger", "_pending")


class StateCheckpoints:
    """The snapshots of one service.

    Args:
        folder: holds `SEQ.snapshot`, the newest few.
        bundles: finds the models a state decides with; they are not in its file.
        version: of the code.
        every: events between two snapshots.
        short: a log of so many events is folded whole by other code.
    """

    def __init__(
        self,
        folder: Path,
        bundles: Bundles,
        version: Callable[[], str] = code_version,
        every: int = EVERY,
        short: int = SHORT,
    ):
        self.folder = folder
        self._bundles = bundles
        self.version = version
        self.every = every
        self.short = short

    def save(self, state: State, passed: Event) -> Path:
        """Keep the state as it is after a pass, whose DECIDED event in the log is given."""
        writer, core = Writer(_named(state), SCHEMA), None
        recorded = msgpack.packb(writer.part(_recorded(state)))
        with suppress(GraphError):  # of a policy that is none of ours: its core is built again
            core = msgpack.packb(writer.part(state))
        at = passed.seq, _digest(passed)
        body = msgpack.packb([VERSION, self.version(), at, recorded, core])
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.folder / f"{passed.seq:012d}{SUFFIX}"
        write_whole(path, hashlib.sha256(body).digest() + body, mode=0o600)
        for old in self._paths()[KEPT:]:
            old.unlink(missing_ok=True)
        return path

    def newest(self, connection: Connection, store: Store, upto: int) -> State | None:
        """The state of the newest snapshot of this code that can be gone on from; None: there is
        none.

        Args:
            upto: the log is to be folded up to this event: no snapshot may be beyond it.
        """
        for version, code, recorded, core in self._sound(connection, store, upto):
            if code != self.version() or core is None:
                continue
            try:
                reader, _ = self._read(recorded, version)
                state = reader.part(msgpack.unpackb(core))
            except Exception:  # whatever is wrong with it, the log has it all
                continue
            if isinstance(state, State):
                return state
        return None

    def recorded(self, connection: Connection, store: Store, upto: int) -> Recorded | None:
        """What the log tells up to the newest snapshot, of whatever release; None: there is none
        that can be read."""
        for version, code, recorded, _ in self._sound(connection, store, upto):
            try:
                found = Recorded(code, self._read(recorded, version)[1])
                if found.seen > 0:
                    return found
            except Exception:  # likewise
                continue
        return None

    def _paths(self) -> list[Path]:
        """Newest first."""
        return sorted(self.folder.glob(f"*{SUFFIX}"), reverse=True)

    def _sound(
        self, connection: Connection, store: Store, upto: int
    ) -> Iterator[tuple[int, str, bytes, bytes | None]]:
        """Version, code and parts of the files that are ours, whole, and of this log."""
        for path in self._paths():
            try:
                if path.stat().st_uid != os.geteuid():
                    continue
                whole = path.read_bytes()
                digest, body = whole[:32], whole[32:]
                if hashlib.sha256(body).digest() != digest:
                    continue
                version, code, (seq, of), recorded, core = msgpack.unpackb(body)
                if seq > upto:
                    continue
                there = store.each_in(connection, seq - 1, upto=seq)
                if any(_digest(event) == of for event in there):
                    yield version, code, recorded, core
            except Exception:  # likewise
                continue

    def _read(self, recorded: bytes, version: int) -> tuple[Reader, dict[str, Any]]:
        """The first part, and what reads the second."""
        estimator = LiveEstimator()
        steps = [MIGRATIONS[number] for number in range(version + 1, VERSION + 1)]
        if version > VERSION:
            raise GraphError("of a later version")

        def named(name: str) -> Any:
            return {"": self._bundles, "estimator": estimator}.get(name) or self._bundles(
                {"digest": name}
            )

        reader = Reader(named, SCHEMA, steps)
        values = reader.part(msgpack.unpackb(recorded))
        features = values["features"]
        features.__dict__ = FeatureState(FAMILIES).__dict__ | features.__dict__
        estimator.state = features
        for digest in values["bundles"]:
            estimator.use(self._bundles({"digest": digest}))
        if values["bundle"]:
            estimator.use(self._bundles({"digest": values["bundle"]}))
        return reader, {**values, "estimator": estimator}


def _recorded(state: State) -> dict[str, Any]:
    """What a state knows from the log."""
    estimator = state.core.estimator
    assert isinstance(estimator, LiveEstimator)
    return {
        **{name: getattr(state, name) for name in _PLAIN},
        "changes": state.present.changes,
        "coming": state.present.coming,
        "features": estimator.state,
        "bundles": list(estimator.bundles),
        "jobs": list(state.core.jobs),
        "decided": state.core.next_decision,
    }


def _named(state: State) -> Callable[[Any], str | None]:
    """Models, and what finds them, are not in a file."""

    def name(value: Any) -> str | None:
        if isinstance(value, Bundle):
            return value.digest
        if value is state.core.estimator:
            return "estimator"
        return "" if value is state.bundles or value == state.bundles else None

    return name


def _digest(event: Event) -> str:
    """Of what an event says: tells logs apart."""
    content = [event.seq, event.at, event.kind.value, event.cause, dict(event.body)]
    return hashlib.sha256(canonical(content).encode()).hexdigest()
