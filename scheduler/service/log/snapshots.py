"""Snapshots: the service's state at one event of the log, kept in a file, so that a start need not
read months of events.

A snapshot is a shortcut and never the truth. It is used only if the log still holds the event at
which it was taken; later events are read from the log. Where anything is wrong with it, the log is
read from its start instead.

A file holds plain records with a schema, `FIELDS` (`scheduler.service.log.graph`; no pickle): what
the log says, jobs that are not over, the histories of ended jobs, and all that the core decides by
(`scheduler.core.memory.CoreMemory`). The schema has a number, and `MIGRATIONS` convert older ones,
so that a later release can read the file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
from sqlalchemy import Connection

from features.files import write_whole
from features.garbage import uncollected
from features.given import LARGEST, read_given
from features.job import COUNTERS
from features.repeats import Claim
from features.state import FAMILIES, FeatureState
from models.bundle import Bundle
from scheduler.assembly import assemble
from scheduler.backends.events import Event, canonical
from scheduler.core.core import Core
from scheduler.core.decisions import Fact, facts_in_words
from scheduler.core.estimates import LiveEstimator
from scheduler.core.memory import CoreMemory, remember, restore
from scheduler.service.log.fold import Bundles, State
from scheduler.service.log.graph import GraphError, Migration, Reader, Writer
from scheduler.service.log.header import code_version
from scheduler.service.log.present import Present
from scheduler.service.log.store.mends import Mends
from scheduler.service.log.store.store import Store


def _whose(claims: tuple[tuple[Any, ...], ...]) -> tuple[Claim, ...]:
    """Return claims of version 12 as they are now: each names who makes it, not only in words."""
    return tuple(
        Claim(low_s, high_s, share, text, by_owner=facts_in_words([text]) == (Fact.EXPECTED,))
        for low_s, high_s, share, text in claims
    )


# The schema of what the log tells. Who changes it raises VERSION and says in MIGRATIONS what became
# of each class and field since the version before.
VERSION = 13
OLDEST = 5  # of those before it a core decided with objects of its own, which no other can read
MIGRATIONS: dict[int, Migration] = {  # by the version they lead to
    13: Migration(
        computed={
            "scheduler.core.decisions:Score": {"facts": lambda was: facts_in_words(was["inputs"])},
            "features.state:_Submission": {"claims": lambda was: _whose(was["claims"])},
        }
    ),
    12: Migration(
        new={
            "scheduler.service.log.record:Record": {"waited_s": None, "waits_since": None},
            "scheduler.backends.submission:Submission": {"at_once": None},
        }
    ),
    11: Migration(
        new={"scheduler.policies.pellucid.learned:PellucidMemory": {"ordered_by": "predicted"}}
    ),
    10: Migration(
        fields={"scheduler.policies.pellucid.learned:PellucidMemory": {"patience": None}}
    ),
    9: Migration(
        new={
            "features.job:Profile": dict.fromkeys(COUNTERS),
            "scheduler.policies.pellucid.usual:_Seen": {"active_pct": 0.0, "counted": 0},
        }
    ),
    8: Migration(new={"scheduler.core.profiling:StageMemory": {"spared": ()}}),
    7: Migration(
        new={
            "scheduler.core.cluster:NodeMemory": {"closed": 0},
            "scheduler.service.log.nodes:NodeRecord": {"closed_gpus": ()},
            "scheduler.service.log.record:Record": {"silent": ""},
        },
    ),
    6: Migration(
        classes={"scheduler.service.log.record:Phase": "scheduler.core.phase:Phase"},
        new={
            "features.job:Job": {"expect": "", "like": ""},
            "features.state:FeatureState": dict.fromkeys(
                ("_commands", "_names", "_repeats", "_statements")
            ),
            "features.state:_Submission": {
                "claims": (),
                "command": None,
                "made": (),
                "named": None,
            },
            "scheduler.service.log.record:Record": {"unread": ""},
            "scheduler.backends.submission:Submission": {"expect": "", "like": ""},
        },
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
        "after after_any cpus expect gpu_type gpus job_id like memory_mib name profile share "
        "submit_time time_limit_s user vc work"
    ),
    "features.job:Profile": (
        "amp dram_pct gpu_mem_mib gpu_mem_util_pct gpu_util_pct power_w sm_active_pct "
        "sm_occupancy_pct tensor_pct"
    ),
    "features.queue:VcQueue": "queued queued_gpus running running_gpus",
    "features.state:FeatureState": (  # which features there are is for the code to say
        "_now _users _user_gpus _templates _vcs _queues _bursts _lives _everyone _vc_gpus _live "
        "_ran _commands _names _repeats _statements"
    ),
    "features.state:_Submission": (
        "began burst calendar claims command hazards job keys made named outlived_s phase profile "
        "queue since_submit survival"
    ),
    "features.progress:Progress": ("at_s done doubts high_s low_s of source total_s unit unit_s"),
    "features.survival:Hazard": "_ended _keep _reached sayers",
    "features.survival:Lives": "_groups _bin _run _due _runs _stated",
    "features.repeats:Repeats": "_held",
    "features.repeats:Statements": "_of _all",
    "features.templates:CommandBook": "_owners",
    "features.templates:NameBook": "_owners",
    "features.templates:TemplateBook": "_owners",
    "scheduler.backends.events:Event": "actor at body cause job_id kind seq",
    "scheduler.backends.submission:Submission": (
        "after after_any at_once command comment cpus environment expect gpu_type gpus job_id like "
        "memory_mib name notify owner priority profile progress sealed share submitted_at "
        "time_limit_s user vc work workdir"
    ),
    "scheduler.core.cluster:Node": "gpu_memory_mib gpu_type gpus vc",
    "scheduler.core.cluster:ClusterMemory": "nodes pools profiling runs starts",
    "scheduler.core.cluster:NodeMemory": "closed has kept node open",
    "scheduler.core.cluster:RunMemory": (
        "alone gpus job_id nodes order partner profiling start_time vc"
    ),
    "scheduler.core.memory:CoreMemory": (
        "arrivals cluster decided dirty holding jobs nodes policy queues stage waiting"
    ),
    "scheduler.core.memory:QueueMemory": "fresh jobs resorted",
    "scheduler.core.decisions:PairPrediction": "path scores speed_path speeds",
    "scheduler.core.decisions:Score": "bundle facts inputs intercept terms value",
    "scheduler.core.dependencies:EndMemory": "at job_id success",
    "scheduler.core.findings:Hold": "gpus kept_out longer_s of",
    "scheduler.core.findings:Partner": "at gain_s hold job_id refused speeds",
    "scheduler.core.holders:HoldingMemory": "at gone_in_s gpus jobs nodes vc",
    "scheduler.core.nodes:ChangeMemory": "node opens to",
    "scheduler.core.nodes:NodesMemory": "changing lent",
    "scheduler.core.profiling:KnownProfile": "at gpus profile template user",
    "scheduler.core.profiling:StageMemory": "arrivals extra known look_at queue room spared",
    "scheduler.core.queue:JobMemory": (
        "considered estimate_s evidence held_since job key obstacle outlived_s "
        "pair_prediction predicted_mib priority profile profiled progress reason score seq "
        "submit_time type_costs usual"
    ),
    "scheduler.core.waiting:DependentMemory": "by job_id joined never since",
    "scheduler.core.waiting:WaitingMemory": "dependent ends held recheck set_aside",
    "scheduler.service.log.ledger:Ledger": "keep records nodes holding _changed",
    "scheduler.service.log.nodes:ClosedGpu": "gpu since why",
    "scheduler.service.log.nodes:NodeRecord": (
        "actor becomes closed_gpus has leaves name node open opens profiling reason since"
    ),
    "scheduler.service.log.nodes:NodeTable": "records next _changed",
    "scheduler.service.log.present:SettingsChange": "actor at reason seq settings",
    "scheduler.service.log.record:Depends": "failed since",
    "scheduler.service.log.record:End": "at detail exit_code state",
    "scheduler.service.log.record:Grant": "at begun gpus nodes partner purpose",
    "scheduler.service.log.record:Hold": "actor by since",
    "scheduler.service.log.record:Record": (
        "attempt cancel_asked changed depends end estimate_s grant granted held_s hold key phase "
        "priority profile profiled progress queued_at reason seq silent started_at steps "
        "submission unread updated_seq waited_s waits_since"
    ),
}
SCHEMA = {kind: tuple(names.split()) for kind, names in FIELDS.items()}

KEPT = 2  # files
EVERY = 50_000  # events between two snapshots
SUFFIX = ".snapshot"


# of a state, as they are
_PLAIN = ("now", "seen", "covered", "wake_at", "keys", "bundle", "ledger", "_pending")


class StateCheckpoints:
    """The snapshots of one service.

    Args:
        folder: holds `SEQ.snapshot`, the newest few.
        bundles: returns the models that a state decides with; they are not in its file.
        version: returns the version of the code.
        every: events between two snapshots.
    """

    def __init__(
        self,
        folder: Path,
        bundles: Bundles,
        version: Callable[[], str] = code_version,
        every: int = EVERY,
    ):
        self.folder = folder
        self._bundles = bundles
        self.version = version
        self.every = every

    def save(self, state: State, passed: Event) -> Path:
        """Write the state as it is after a decision pass to a file, and return its path. `passed`
        is the pass's DECIDED event in the log. Delete all but the newest `KEPT` files.
        """
        recorded = msgpack.packb(Writer(_named(state), SCHEMA).part(_recorded(state)))
        at = passed.seq, _digest(passed)
        body = msgpack.packb([VERSION, self.version(), at, recorded])
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.folder / f"{passed.seq:012d}{SUFFIX}"
        write_whole(path, hashlib.sha256(body).digest() + body, mode=0o600)
        for old in self._paths()[KEPT:]:
            old.unlink(missing_ok=True)
        return path

    @uncollected()  # all that is read stays: collections would only look through it again
    def newest(self, connection: Connection, store: Store, upto: int) -> State | None:
        """Return the state of the newest usable snapshot, whatever release wrote it. Snapshots
        taken after event `upto` are ignored. Return None where none is usable.
        """
        for version, recorded in self._sound(connection, store, upto):
            try:
                first = store.first_in(connection)
                assert first is not None
                header = Mends.of(connection).mended(first)
                state = self._restored(self._read(recorded, version), header)
                if state.seen > 0:
                    return state
            except Exception:  # whatever is wrong with it, the log has it all
                continue
        return None

    def _paths(self) -> list[Path]:
        """Return the paths of the snapshots, the newest first."""
        return sorted(self.folder.glob(f"*{SUFFIX}"), reverse=True)

    def _sound(
        self, connection: Connection, store: Store, upto: int
    ) -> Iterator[tuple[int, bytes]]:
        """Yield version and content of each usable file, the newest first. A usable file belongs to
        this user, is whole, has a schema of `OLDEST` or later, and was taken of this log at event
        `upto` or before.
        """
        for path in self._paths():
            try:
                if path.stat().st_uid != os.geteuid():
                    continue
                whole = read_given(path, LARGEST, within=self.folder)
                digest, body = whole[:32], whole[32:]
                if hashlib.sha256(body).digest() != digest:
                    continue
                version, _, (seq, of), recorded = msgpack.unpackb(body)
                if seq > upto or version < OLDEST:
                    continue
                there = store.each_in(connection, seq - 1, upto=seq)
                if any(_digest(event) == of for event in there):
                    yield version, recorded
            except Exception:  # likewise
                continue

    def _read(self, recorded: bytes, version: int) -> dict[str, Any]:
        """Return the content of a file by name, with the estimator restored. `version`: number of
        the file's schema. Raise GraphError where it is later than this code's.
        """
        steps = [MIGRATIONS[number] for number in range(version + 1, VERSION + 1)]
        if version > VERSION:
            raise GraphError("of a later version")
        reader = Reader(lambda digest: self._bundles({"digest": digest}), SCHEMA, steps)
        values = reader.part(msgpack.unpackb(recorded))
        features = values["features"]
        known = {name: value for name, value in vars(features).items() if value is not None}
        features.__dict__ = FeatureState(FAMILIES).__dict__ | known
        estimator = LiveEstimator()
        estimator.state = features
        for digest in values["bundles"]:
            estimator.use(self._bundles({"digest": digest}))
        if values["bundle"]:
            estimator.use(self._bundles({"digest": values["bundle"]}))
        return {**values, "estimator": estimator}

    def _restored(self, values: dict[str, Any], header: Event) -> State:
        """Return the state that a snapshot file holds. `values`: the file's content by name;
        `header`: the log's first event.
        """
        state = State(self._bundles)
        state.note(header)
        present, estimator = state.present, values["estimator"]
        present.changes, present.coming = values["changes"], values["coming"]
        present.nodes = values["ledger"].nodes
        state.core = core_of(present, estimator, values["core"])
        vars(state).update({name: values[name] for name in _PLAIN})
        return state


def core_of(present: Present, estimator: LiveEstimator, memory: CoreMemory) -> Core:
    """Return a new core that continues from the memory of another."""
    policy = present.policy_for(present.nodes.spec())
    core = assemble(present.spec, estimator, policy=policy)
    core.keeps_receipts = True
    restore(core, memory, estimator.bundle)
    return core


def _recorded(state: State) -> dict[str, Any]:
    """Return what is written to a snapshot file of a state, by name."""
    estimator = state.core.estimator
    assert isinstance(estimator, LiveEstimator)
    return {
        **{name: getattr(state, name) for name in _PLAIN},
        "changes": state.present.changes,
        "coming": state.present.coming,
        "features": estimator.state,
        "bundles": list(estimator.bundles),
        "core": remember(state.core),
    }


def _named(state: State) -> Callable[[Any], str | None]:
    """Return a function that gives names to objects which are not written to a file: the digest for
    a bundle of models, and None for any other object.
    """

    def name(value: Any) -> str | None:
        return value.digest if isinstance(value, Bundle) else None

    return name


def _digest(event: Event) -> str:
    """Return a digest of an event, by which a snapshot of another log is recognised."""
    content = [event.seq, event.at, event.kind.value, event.cause, dict(event.body)]
    return hashlib.sha256(canonical(content).encode()).hexdigest()
