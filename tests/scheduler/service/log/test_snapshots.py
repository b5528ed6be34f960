"""Snapshots of the state: a start from one goes on as a start from the whole log does."""

from __future__ import annotations

import hashlib
import lzma
from dataclasses import asdict
from dataclasses import fields as dataclass_fields
from datetime import tzinfo
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from features.amounts import Work
from features.commands import work_of
from features.progress import Progress
from scheduler.backends.events import Event, Kind
from scheduler.core.decisions import Evidence, Fact
from scheduler.core.durations import plain
from scheduler.core.holders import HoldingMemory
from scheduler.core.nodes import ChangeMemory
from scheduler.core.profiling import KnownProfile
from scheduler.core.settings import ProfilingPartition
from scheduler.policies.pellucid import policy as pellucid
from scheduler.service.analyst import process
from scheduler.service.analyst.process import Analyst
from scheduler.service.decide.decider import Decider
from scheduler.service.log import snapshots
from scheduler.service.log.audit import audit
from scheduler.service.log.fold import State
from scheduler.service.log.graph import Migration, Reader, Writer
from scheduler.service.log.nodes import ClosedGpu
from scheduler.service.log.record import End, Phase
from scheduler.service.log.snapshots import (
    KEPT,
    MIGRATIONS,
    SCHEMA,
    VERSION,
    StateCheckpoints,
)
from scheduler.service.log.store.store import Store
from tests.scheduler.service.desk import Desk, lasting
from tests.scheduler.service.pages.bundle import small_bundle

VERSION_5 = Path(__file__).with_name("version-5.snapshot.xz")
VERSION_12 = Path(__file__).with_name("version-12.snapshot.xz")


class Kept(Desk):
    """A desk whose deciders keep their state every few events."""

    folder: Path
    whole: bytes
    every = 7
    version = "now"

    def another(self, holder: str = "one", kind: type[Decider] = Decider) -> Decider:
        decider = super().another(holder, kind)
        decider.snapshots = self.snapshots()
        return decider

    def snapshots(self) -> StateCheckpoints:
        return StateCheckpoints(
            self.folder, self.bundle_store.find, lambda: self.version, self.every
        )

    def newest(self) -> State | None:
        with self.store.reading() as connection:
            return self.snapshots().newest(connection, self.store, self.store.last_seq())

    def files(self) -> list[list[Any]]:
        """Of each file what is in it: version, code, event, the state."""
        return [msgpack.unpackb(path.read_bytes()[32:]) for path in sorted(self.folder.iterdir())]

    def rewrite(self, *content: Any) -> None:
        """Have it in every file, with the digest that belongs to it."""
        body = msgpack.packb(list(content))
        for path in self.folder.iterdir():
            path.write_bytes(hashlib.sha256(body).digest() + body)

    def goes_on(self) -> None:
        """The service starts, and nothing was lost or invented."""
        self.restart()
        self.until_idle()
        assert audit(self.store, self.bundle_store.find, decide_again=True).clean


@pytest.fixture
def desk(store: Store, tmp_path: Path) -> Kept:
    Kept.folder = tmp_path / "snapshots"
    outcomes = {f"j{i}": lasting(40.0 + 13 * i % 90) for i in range(40)}
    return Kept(
        store,
        tmp_path,
        outcomes,
        policy="pellucid",
        partition=ProfilingPartition(nodes={"vc": 1}, largest_share=1, limit_s=30.0),
        champion=small_bundle().save(tmp_path / "champion"),
    )


SAID = Progress(400.0, 390.0, 410.0, 3, 90, "epoch", 4.4, 14.0, "epoch")


def live(desk: Kept, draw: Random, jobs: range) -> None:
    """Some life: jobs of all sorts come, one is cancelled, one says how far it is, time passes."""
    for i in jobs:
        desk.submit(f"j{i}", gpus=draw.choice((1, 1, 2, 4)), owner=draw.choice("abc"))
        if i % 7 == 3:
            desk.cancel(f"j{i - 1}")
        desk.turn(draw.choice((0.0, 5.0, 20.0)))
    ledger = desk.decider.state.ledger
    runs = next(one for one in ledger.records.values() if one.phase is Phase.RUNNING)
    desk.ask(Kind.PROGRESS, runs.submission.job_id, attempt=runs.attempt, progress=asdict(SAID))
    desk.turn()


def stated(desk: Kept) -> None:
    """Some life in which commands, owners and last runs say how long jobs run; two wait so."""
    for n, epochs in enumerate((4, 5)):
        desk.submit(f"j{n}", gpus=4, owner="ann", work=epochs_of(epochs), like="train")
        desk.until_idle()
    desk.submit("j2", gpus=4, owner="ann")
    desk.turn()
    own: dict[str, Any] = {"gpus": 4, "owner": "ann", "time_limit_s": 3600.0}
    desk.submit("j3", work=epochs_of(90), like="train", **own)
    desk.submit("j4", like="train", expect="test", **own)
    desk.turn()


def epochs_of(number: int) -> Work | None:
    return work_of(["python", "train.py", "--epochs", str(number)])


def test_a_start_from_a_snapshot_decides_as_one_from_the_whole_log(
    desk: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = Random(1)
    live(desk, draw, range(20))
    found = desk.newest()
    assert found is not None
    before, passes = found.seen, len(desk.store.read(kinds=[Kind.DECIDED]))
    with monkeypatch.context() as patch:
        followed = passes_followed(patch)
        desk.restart()
    assert passes > 3 * len(followed), "little is followed after a snapshot"
    live(desk, draw, range(20, 40))  # decided by a core out of a snapshot
    desk.until_idle()
    assert before > 20
    again = audit(desk.store, desk.bundle_store.find, decide_again=True)
    assert again.clean, again.divergences[:2]
    assert len(list(desk.folder.iterdir())) <= KEPT


def test_whoever_follows_the_whole_log_works_out_no_distribution(
    desk: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has it with each decision that a job joins its queue."""
    for i in range(9):
        desk.submit(f"j{i}", gpus=4, owner="ann")
    desk.turn()

    def evidence() -> dict[str, Evidence]:
        return {job_id: one.evidence for job_id, one in desk.decider.state.core.jobs.items()}

    before, worked_out = evidence(), list[object]()
    assert any("p90_s" in dict(one) for one in before.values())
    monkeypatch.setattr(desk, "snapshots", lambda: None)
    monkeypatch.setattr(pellucid, "described_by", lambda *one: worked_out.append(one))
    desk.restart()
    assert evidence() == before
    assert worked_out == []


def passes_followed(patch: pytest.MonkeyPatch) -> list[Any]:
    """The decisions of each pass that is followed."""
    followed, follow = list[Any](), State.follow

    def follows(state: State, event: Event, taken: Any) -> None:
        if event.kind is Kind.DECIDED:
            followed.append(taken)
        follow(state, event, taken)

    patch.setattr(State, "follow", follows)
    return followed


@pytest.mark.parametrize("harm", ["torn", "another log", "no snapshot", "a later release"])
def test_one_that_is_no_good_is_not_used(desk: Kept, harm: str) -> None:
    live(desk, Random(3), range(12))
    desk.decider.let_go()
    assert desk.newest()
    content = desk.files()[-1]
    for path in desk.folder.iterdir():
        if harm == "torn":
            path.write_bytes(path.read_bytes()[:-9])
        elif harm == "no snapshot":
            path.write_bytes(b"x" * 100)
    if harm == "a later release":
        desk.rewrite(VERSION + 1, *content[1:])
    if harm == "another log":
        for path in desk.folder.iterdir():
            path.unlink()
        state = desk.decider.state
        desk.snapshots().save(state, Event(Kind.DECIDED, 0.0, seq=state.seen))
    assert not desk.newest()
    desk.goes_on()


def test_another_release_follows_the_log_from_it(
    desk: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It folded the log from its start: 17 s of CPU time for 117,000 events."""
    draw = Random(5)
    live(desk, draw, range(25))
    before = desk.newest()
    assert before is not None
    desk.version = "later"
    followed = passes_followed(monkeypatch)
    desk.restart()
    assert len(followed) < desk.every
    assert desk.decider.state.seen > before.seen
    live(desk, draw, range(25, 40))
    desk.until_idle()
    again = audit(desk.store, desk.bundle_store.find, decide_again=True)
    assert again.clean, again.divergences[:2]


def test_so_does_its_analyst(desk: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    live(desk, Random(5), range(25))
    desk.version = "later"
    desk.restart()
    for i in range(40, 44):
        desk.submit(f"j{i}", gpus=4)
        desk.turn()
    followed, known = [], []
    follow = State.follow
    monkeypatch.setattr(process, "LONG", 0)
    monkeypatch.setattr(State, "follow", lambda *one: followed.append(one) or follow(*one))
    for kept in (None, desk.snapshots()):
        analyst = Analyst(desk.store, desk.bundle_store, holder="one", snapshots=kept)
        assert analyst.take_over()
        analyst._let_go()
        core = analyst.state.core
        waiting = {job: (one.estimate_s, one.key) for job, one in core.jobs.items()}
        known.append((waiting, sorted(core.cluster.runs), analyst.state.seen))
        known.append(len(followed))
        followed.clear()
    whole, all_of_it, since, rest = known
    assert since == whole
    assert whole[0]
    assert rest < all_of_it / 3


def test_the_schema_names_every_field(desk: Kept) -> None:
    live(desk, Random(7), range(30))
    desk.ask(Kind.HELD, "j29", operator=True)
    desk.ask(Kind.SETTINGS_SET, settings={"ageing": 0.0})
    desk.submit("after", after="j28", gpus=4, work=work_of(["train.py", "--epochs=9"]))
    desk.turn()
    desk.submit("pending")
    desk.decider.state.note(desk.store.read(desk.decider.state.seen)[0])
    state = desk.decider.state
    known_by_name = snapshots._named(state)

    def name(value: Any) -> str | None:
        is_code = callable(value) or isinstance(value, tzinfo)
        return "code" if is_code else known_by_name(value)

    whole = Writer(name).part(snapshots._recorded(state))
    fields = {path: set(names) for path, names in whole["classes"]}
    of_code = {"features", "_blocks", "_picks", "_whole", "_zone", "_survives"}
    fields["features.state:FeatureState"] -= of_code
    del fields["features.spec:FeatureSpec"]  # likewise
    for rare in (End, HoldingMemory, ChangeMemory, ClosedGpu, KnownProfile):  # none in this life
        fields[f"{rare.__module__}:{rare.__name__}"] = {
            field.name for field in dataclass_fields(rare)
        }
    changed = {
        path: sorted(fields.get(path, set()) ^ set(SCHEMA.get(path, ())))
        for path in fields.keys() | SCHEMA.keys()
        if fields.get(path, set()) != set(SCHEMA.get(path, ()))
    }
    assert changed == {}, (
        f"{snapshots.__name__}: say in FIELDS what a snapshot holds of {sorted(changed)}, raise "
        "VERSION and add to MIGRATIONS what an earlier snapshot has instead"
    )


def test_one_of_an_older_release_is_read_by_way_of_the_migrations(
    desk: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a release before had called a record otherwise, without `changed`, and with more."""
    live(desk, Random(8), range(20))
    desk.decider.let_go()
    now = desk.newest()
    _, _, at, told = desk.files()[-1]
    part, path = msgpack.unpackb(told), "scheduler.service.log.record:Record"
    number = next(n for n, one in enumerate(part["classes"]) if one[0] == path)
    names = list(part["classes"][number][1])
    place = names.index("changed")
    names[place] = "colour"
    names[names.index("reason")] = "why"
    part["classes"][number] = ["scheduler.service.log.record:Entry", names]
    monkeypatch.setattr(snapshots, "OLDEST", VERSION - 1)
    monkeypatch.setitem(MIGRATIONS, VERSION, Migration())
    desk.rewrite(VERSION - 1, "older", at, msgpack.packb(part))
    assert desk.newest() is None, "the code of today knows no such record"
    step = Migration(
        classes={"scheduler.service.log.record:Entry": path},
        fields={path: {"colour": None, "why": "reason"}},
        new={path: {"changed": False}},
    )
    monkeypatch.setitem(MIGRATIONS, VERSION, step)
    found = desk.newest()
    assert now
    assert found
    assert found.ledger.records == now.ledger.records
    desk.version = "later"
    desk.goes_on()


def test_one_of_version_5_is_read(desk: Kept) -> None:
    """As code of version 5 kept the same life: with predictions, and what the policy learned."""
    live(desk, Random(8), range(20))
    desk.decider.let_go()
    now = desk.newest()
    at = desk.files()[-1][2]
    version, code, _, recorded = msgpack.unpackb(lzma.decompress(VERSION_5.read_bytes())[32:])
    assert version == 5
    desk.rewrite(version, code, at, recorded)
    bundle = small_bundle()
    checkpoints = StateCheckpoints(desk.folder, lambda _: bundle, lambda: "now", desk.every)
    with desk.store.reading() as connection:
        found = checkpoints.newest(connection, desk.store, desk.store.last_seq())
    assert now
    assert found
    assert found.ledger.records.keys() == now.ledger.records.keys()
    assert {one.phase for one in found.ledger.records.values()} >= {Phase.RUNNING, Phase.QUEUED}
    assert found.core.policy.learned.remember().durations.ranges
    curves = [plain(queued.estimate_s or 0.0) for queued in found.core.jobs.values()]
    assert max(map(len, curves)) > 3, "predictions have the shape that they had"
    rows = [one.estimate_s for one in found.ledger.records.values()]
    assert {type(one) for one in rows} == {float}, "a float with fields, then, is the number alone"
    assert rows == pytest.approx([one.estimate_s for one in now.ledger.records.values()], rel=1e-6)
    ends = found.core.estimator.state.cut_off  # asks what the features have learned
    assert ends(next(iter(found.core.jobs.values())).job, found.now) == 0.0


def test_one_of_version_12_tells_facts_by_its_words(desk: Kept) -> None:
    """As code of version 12 kept the same life, when a score had no names of its last terms."""
    stated(desk)
    desk.decider.let_go()
    now = desk.newest()
    at = desk.files()[-1][2]
    version, code, _, recorded = msgpack.unpackb(lzma.decompress(VERSION_12.read_bytes())[32:])
    assert version == 12
    desk.rewrite(version, code, at, recorded)
    found = desk.newest()
    assert now
    assert found
    told = [
        {job_id: one.score.facts for job_id, one in state.core.jobs.items() if one.score}
        for state in (now, found)
    ]
    assert told[0] == told[1]
    assert set(chain.from_iterable(told[1].values())) == {*Fact} - {Fact.OUTLIVED, Fact.PROGRESS}
    features: list[Any] = [vars(state.core.estimator)["state"] for state in (now, found)]
    jobs = [one.job for one in now.core.jobs.values()]
    claims = [[one.claims(job, now.now) for job in jobs] for one in features]
    assert claims[0] == claims[1]
    whose = {claim.by_owner for claim in chain.from_iterable(claims[1])}
    assert whose == {True, False}


def test_a_field_may_follow_from_the_record_as_it_was() -> None:
    """And later releases may call it otherwise, or drop what it was computed from."""
    path = "scheduler.service.log.record:End"
    part = {"classes": [[path, ["at", "detail"]]], "types": [], "kinds": b"\0\0"}
    part["rows"] = msgpack.packb(msgpack.ExtType(0, bytes(4))) + msgpack.packb([1.0, "twice"])
    steps = [
        Migration(new={path: {"exit_code": 7}}),
        Migration(
            computed={
                path: {
                    "detail": lambda was: 2 * was["detail"],
                    "why": lambda was: (was["detail"], was["exit_code"]),
                }
            }
        ),
        Migration(fields={path: {"why": "state", "at": None}}, new={path: {"at": 2.0}}),
    ]
    end = Reader(str, {path: ["at", "detail", "state", "exit_code"]}, steps).part(part)
    assert (end.at, end.detail, end.state, end.exit_code) == (2.0, "twicetwice", ("twice", 7), 7)


def _planted(field: str = "at", path: str = "", **changed: Any) -> dict[str, Any]:
    path = path or "scheduler.service.log.record:End"
    part = {"classes": [[path, [field]]], "types": [], "kinds": b"\0\0"}
    return part | {"rows": msgpack.packb(1) + msgpack.packb([1.0])} | changed


def _deep(levels: int) -> bytes:
    value = msgpack.packb([])
    for _ in range(levels):
        value = msgpack.packb(msgpack.ExtType(2, value))
    return bytes(value)


PLANTED = [
    _planted(path="builtins:eval"),
    _planted(path="os:_wrap_close"),
    _planted(path="scheduler.service.log.store.store:Store"),
    _planted(path="scheduler.service.log.snapshots:StateCheckpoints"),
    _planted(path="scheduler.service.log.fold:Any"),
    _planted(path="scheduler.service.log.fold:canonical"),
    _planted(path="scheduler.service.log.record:End.__init__"),
    _planted("__class__"),
    _planted("__dict__"),
    _planted(kinds=b"\7\7"),
    _planted(types=["builtins:exec"]),
    _planted(rows=msgpack.packb(msgpack.ExtType(0, b"\xff" * 4))),
    _planted(rows=b"\xdd\xff\xff\xff\xff"),  # a list of four billion
    _planted(rows=_deep(5_000)),
    _planted(rows=msgpack.packb(msgpack.ExtType(14, msgpack.packb(["eval", {}])))),
    [],
    {},
]


def test_a_planted_snapshot_is_not_believed(desk: Kept) -> None:
    live(desk, Random(2), range(12))
    _, code, at, _ = desk.files()[-1]
    for part in PLANTED:
        desk.rewrite(VERSION, code, at, msgpack.packb(part))
        assert not desk.newest(), part
    desk.goes_on()


@settings(max_examples=50, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_whatever_is_in_a_file_something_is_read_or_nothing(
    desk: Kept, data: st.DataObject
) -> None:
    """Bytes changed, with the digest that belongs to them."""
    if not desk.folder.exists():
        live(desk, Random(2), range(8))
        desk.whole = max(desk.folder.iterdir()).read_bytes()[32:]
    place = data.draw(st.integers(0, len(desk.whole) - 1))
    to = data.draw(st.binary(min_size=1, max_size=5))
    changed = desk.whole[:place] + to + desk.whole[place + len(to) :]
    for path in desk.folder.iterdir():
        path.write_bytes(hashlib.sha256(changed).digest() + changed)
    found = desk.newest()
    assert found is None or found.seen > 0
