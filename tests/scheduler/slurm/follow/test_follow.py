"""The follower on a queue that is told by the test: no daemons."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest
from sqlalchemy import Connection, insert, select
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs
from typer.testing import CliRunner

from features.clock import Clock
from pipeline.app import app
from scheduler.assembly import CoreSpec
from scheduler.backends.events import Event, Kind
from scheduler.core.decisions import Decision, Reason
from scheduler.core.rules import PolicyViolation
from scheduler.explain.reasons import sentence
from scheduler.explain.render import first_words
from scheduler.explain.stories import story_of
from scheduler.explain.whatif.forecasts import WhyNot
from scheduler.explain.words import clock_time, duration
from scheduler.service.log.header import FOLLOWED, LogHeader, establish
from scheduler.service.log.questions import LEASE
from scheduler.service.log.store import archive, tables
from scheduler.service.log.store.dossiers import dossier_of, explained
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import decisions, questions
from scheduler.service.log.store.tables import jobs as job_rows
from scheduler.service.log.store.tables import nodes as node_rows
from scheduler.service.log.store.visibility import Role, Viewer
from scheduler.service.pages.board import board
from scheduler.service.pages.queries import PageQueries
from scheduler.service.pages.story import page_of
from scheduler.service.settings import Settings
from scheduler.slurm.entry import notes
from scheduler.slurm.follow.erase import erase
from scheduler.slurm.follow.follower import NODES_EVERY, Follower, Following
from scheduler.slurm.follow.orders import AGAIN_S, COMMENT_S, OURS, release_all
from scheduler.slurm.follow.reasons import terms_shown
from scheduler.slurm.follow.standing import MOST
from scheduler.slurm.follow.tables import promises_of
from scheduler.slurm.read.client import Slurm, SlurmDown, SlurmError
from scheduler.slurm.read.parse import Node, ParseError, SlurmJob
from scheduler.slurm.read.shape import Shape
from scheduler.slurm.reason import rows
from scheduler.slurm.twin import passes
from scheduler.slurm.twin import policy as twin_policy
from scheduler.slurm.twin.passes import Ranked
from scheduler.slurm.twin.priority import Multifactor
from scheduler.slurm.twin.site import Ask, Partition, Site, SiteNode
from scheduler.slurm.twin.twin import SlurmTwin

NOW = 1_790_000_000.5
EVERYTHING = {"nodes": ("n1", "n2"), "held_gpus": ((0, 1, 2, 3), (0, 1, 2, 3))}


SAYS = {
    "scontrol show config": "ClusterName = c\nAccountingStorageType = accounting_storage/slurmdbd\n"
    "PriorityType = priority/basic",
    "scontrol -a show partition": "PartitionName=main Nodes=n[1-2] State=UP",
}


ODD = "odd|0||||||||||cpu=100||1-00:00:00||||||||||||"  # GrpTRESMins, GrpWall
NOT_MODELLED = [
    "Not modelled by the policy slurm: QOS odd: GrpTRESMins=cpu=100 (1 job).",
    "Not modelled by the policy slurm: QOS odd: GrpWall=1-00:00:00 (1 job).",
]


class Told:
    """A Slurm of two nodes with four GPUs; `answer` is what it says against each command."""

    def __init__(self) -> None:
        self.queue: list[SlurmJob] = []
        self.lines: list[str] = []
        self.answer, self.dry, self.down = "", False, False
        self.database = True  # slurmdbd answers
        self.says = dict(SAYS)  # what commands print
        self.asked: list[tuple[str, list[str]]] = []  # of whom `sbatch --test-only` was asked
        self.judge: Callable[[Sequence[str]], str] = lambda _: ""  # what it says then
        self.paths: dict[str, str] = {}  # of the output of running jobs
        self.has = [Node(name, 4, "", ("main",), True, "IDLE") for name in ("n1", "n2")]

    def nodes(self) -> list[Node]:
        return self.has

    def jobs(self) -> list[SlurmJob]:
        return self.queue

    def outputs(self, job_ids: Sequence[str]) -> dict[str, tuple[str, str]]:
        return {job_id: (job_id, self.paths.get(job_id, "")) for job_id in job_ids}

    def tried(self, options: Sequence[str], user: str = "", patience_s: float = 3.0) -> str:
        self.asked += [(user, list(options))] * bool(user)
        return self.judge(options) if user else self.says.get(f"sbatch {' '.join(options)}", "")

    def script(self, job_id: str) -> str:
        return self.says.get(f"script {job_id}", "")

    def submit_lines(self, job_ids: Sequence[str]) -> dict[str, str]:
        found = {job_id: self.says.get(f"submitted {job_id}", "") for job_id in job_ids}
        return {job_id: line for job_id, line in found.items() if line}

    def read(self, *command: str) -> str:
        plain = command[0] in ("scontrol", "sdiag")
        if command[0] in ("sacctmgr", "sshare") and not self.database:
            raise SlurmError(f"{command[0]}: Connection refused")
        line = " ".join(command).removesuffix(" -o")
        said = self.says.get(line if plain else command[-2], "")
        between = [one.partition("=")[2] for one in command if one.startswith("--delimiter=")]
        return said.replace("|", between[0]) if between else said

    def write(self, lines: Sequence[str]) -> list[str]:
        self.lines += lines
        if self.down:
            raise SlurmDown("scontrol: no answer")
        return [self.answer] * len(lines)

    def ping(self) -> None:
        if self.down:
            raise SlurmDown("Slurmctld(primary) is DOWN")

    def ping_database(self) -> None:
        if not self.database:
            raise SlurmError("sacctmgr: Connection refused")

    def close(self) -> None:
        self.lines.clear()

    def written(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines


class Scene:
    """A follower, its Slurm and its clock."""

    def __init__(self, store: Store | None, policy: str = "fifo", *, order: bool = True) -> None:
        self.slurm, self.store, self.now, self._policy = Told(), store, NOW, policy
        self.order = order
        self.restart()

    def restart(self) -> None:
        self.now += 100.0
        shape = Shape.followed(self.slurm.nodes())
        header = LogHeader(
            CoreSpec.of(shape.spec, self._policy), NOW, backend=FOLLOWED, names=shape.names
        )
        self.follower = Follower(
            header,
            shape,
            cast(Slurm, self.slurm),
            self.store,
            Following(order=self.order),
            clock=Clock.by(lambda: self.now),
        )
        if self.store is not None:
            self.store.clock = self.follower.clock
            establish(self.store, header)
            assert self.follower.take_over(f"at {self.now}", 10.0)

    def job(self, number: int | str, state: str = "PENDING", **more: Any) -> SlurmJob:
        said: dict[str, Any] = {"user": f"u{number}", "name": "a", "partition": "main", "gpus": 8}
        said |= {"submit": NOW - 100, "eligible": NOW - 100, "priority": 1000} | more
        return SlurmJob(str(number), state, **said)

    def look(self, *queue: SlurmJob, after_s: float = 1.0) -> list[str]:
        """The commands of one look."""
        self.now += after_s
        self.slurm.queue = list(queue)
        self.follower.look()
        return self.slurm.written()

    def ordered(self) -> int:
        assert self.store is not None
        return len(self.store.read(kinds=[Kind.ORDERED]))

    def pages(self) -> PageQueries:
        """What an operator sees."""
        assert self.store is not None
        return PageQueries(self.store, Viewer("root", Role.OPERATOR))


def twin(store: Store | None) -> Scene:
    """A scene of Slurm's own policy, on nodes of eight CPUs."""
    scene = Scene(store, "slurm", order=False)
    scene.slurm.has = [replace(node, cpus=8, types=(("", 4),)) for node in scene.slurm.has]
    return scene


def test_decisions_are_numbered_on_after_a_restart(store: Store) -> None:
    scene = Scene(store)
    for _ in range(3):
        scene.look(scene.job(5))
        scene.restart()
    with store.reading() as connection:
        assert list(connection.execute(select(decisions.c.seq)).scalars()) == [0, 1, 2]


def test_a_job_that_was_held_waits_for_what_it_waited_for_before(store: Store) -> None:
    """It was shown without a reason once it was let go."""
    scene = Scene(store, order=False)
    runs = scene.job(7, "RUNNING", start=NOW, **EVERYTHING)
    shown = []
    for more in ({}, {"priority": 0, "reason": "JobHeldUser"}, {}):
        scene.look(runs, scene.job(5, **more))
        with store.reading() as connection:
            reason = select(job_rows.c.reason).where(job_rows.c.job_id == "5")
            shown.append(connection.execute(reason).scalar())
    assert shown == ["GpusBusy", "", "GpusBusy"]


def test_a_job_that_slurm_started_waited_until_then_and_for_what_slurm_said(store: Store) -> None:
    scene = Scene(store, "slurm", order=False)
    scene.look(scene.job(5, reason="Priority"), scene.job(7, "RUNNING", start=NOW, **EVERYTHING))
    scene.look(scene.job(7, "RUNNING", start=NOW, **EVERYTHING), scene.job(5, reason="Priority"))
    began = scene.now
    runs = scene.job(5, "RUNNING", start=began, **EVERYTHING)
    for after_s in (30.0, 30.0):
        scene.look(scene.job(7, "COMPLETED", start=NOW, end=began), runs, after_s=after_s)
    queries = scene.pages()
    told = explained(queries, "5", scene.now)
    assert first_words(told).startswith("Slurm started it; its last reason to wait was Priority")
    assert told.waits == []
    assert told.waited_s == pytest.approx(began - (NOW - 100))
    assert page_of(queries, "5").followed
    assert [span.phase.value for span in story_of(dossier_of(queries, "5", scene.now)).spans] == [
        "waiting", "running"
    ]  # fmt: skip
    scene.look(scene.job(5, "COMPLETED", start=began, end=began + 60.0), after_s=40.0)
    over = explained(queries, "5", scene.now)
    assert first_words(over).startswith("completed after 60 s on GPUs; it had waited ")
    assert duration(began - (NOW - 100)) in first_words(over)
    seen_to_run = explained(queries, "7", scene.now)
    assert f"it had waited {duration(100.0)}" in first_words(seen_to_run)


def test_of_a_job_that_is_over_nothing_is_said_as_if_it_waited(store: Store) -> None:
    scene = Scene(store, order=False)
    runs = scene.job(7, "RUNNING", start=NOW, **EVERYTHING)
    scene.look(runs, scene.job(5, reason="Dependency"))
    assert page_of(scene.pages(), "5").slurm[0][1].startswith("Slurm says Dependency")
    scene.look(runs, scene.job(5, "CANCELLED", end=scene.now + 50.0), after_s=60.0)
    scene.look(runs, after_s=60.0)
    over = explained(scene.pages(), "5", scene.now)
    assert [one.reason for one in over.principal] == ["cancelled"]


def test_a_priority_whose_terms_are_not_known_is_shown_as_slurms() -> None:
    """The line was left out."""
    scene = Scene(None, "slurm", order=False)
    scene.slurm.says["scontrol show config"] = "PriorityType = priority/multifactor"

    def shown(**more: Any) -> list[str]:
        scene.look(scene.job("5_1", **more))
        lines = rows(scene.follower.reasons["5_1"], "5_1", scene.now)
        return [text for label, text in lines if label == "Priority"]

    assert shown(reason="Priority", priority=4242) == ["4242 by Slurm (`sprio -j 5 -l`)."]
    assert shown(reason="Dependency", priority=4242) == []
    scene.slurm.says["scontrol show config"] = "PriorityType = priority/basic"
    scene.restart()
    assert shown(reason="Priority", priority=4242) == []


def test_a_job_that_came_in_the_second_of_the_last_look_is_heard_of(store: Store) -> None:
    scene = Scene(store, order=False)
    scene.look(scene.job(5), scene.job(6))
    scene.look(scene.job(6))
    before = scene.now
    scene.look(scene.job(6), scene.job(7, submit=float(int(before)), eligible=before))
    scene.look(scene.job(6), scene.job(7, "RUNNING", start=before, **EVERYTHING))
    assert scene.follower.memory.of("5") is None
    past = scene.follower.memory.of("7")
    assert past is not None
    assert past.started is not None
    assert past.started >= past.job.submit_time >= before


def test_a_clock_that_is_set_back_goes_on_when_it_has_caught_up(store: Store) -> None:
    scene = Scene(store, order=False)
    scene.look(scene.job(5))
    last = scene.follower.look().now
    scene.look(scene.job(6), after_s=-50.0)
    assert scene.follower.look().now == last


def test_who_takes_over_goes_on_from_the_last_look_of_the_other_host(store: Store) -> None:
    """An earlier version went on from when the lease was renewed last, which is before that."""
    scene, steady = Scene(store, order=False), [0.0]
    scene.look(scene.job(5), after_s=3.0)
    behind = Clock(lambda: NOW - 3600.0, lambda: steady[0], lambda _: None, "another host")
    store.clock = scene.follower.clock = behind
    assert not scene.follower.take_over("another", 10.0)
    steady[0] += 11.0
    assert scene.follower.take_over("another", 10.0)
    scene.look(scene.job(5))
    first, then = (event.at for event in store.read(kinds=[Kind.ADVISED]))
    assert first <= then


@pytest.mark.parametrize("ahead_s", [0.5, 1.5, 3600.0])
def test_a_job_may_start_and_end_by_a_clock_that_is_ahead(ahead_s: float) -> None:
    scene = Scene(None, order=False)
    start = scene.now + ahead_s
    scene.look(scene.job(5, "RUNNING", start=start, **EVERYTHING), scene.job(6))
    scene.look(scene.job(5, "COMPLETED", start=start, end=start - 1), scene.job(6))
    assert scene.follower.memory.of("5") is None


def test_forecasts_that_take_long_do_not_lose_the_lease(store: Store) -> None:
    scene = twin(store)
    renewed: list[float] = []
    renew = scene.follower._renew

    def slowly() -> None:
        scene.now += 4.0
        renewed.append(scene.now)
        renew()

    scene.follower._renew = slowly  # type: ignore[method-assign]
    runs = scene.job(1, "RUNNING", cpus=8, nodes=("n1", "n2"), num_nodes=2, start=NOW - 50)
    scene.look(runs, *[scene.job(n, cpus=8, time_limit_s=60.0) for n in (2, 3)])
    assert len(renewed) > 3, "longer than a lease, and no LeaseLost"


def test_a_user_is_erased_and_nobody_else(store: Store) -> None:
    scene = Scene(store)
    scene.look(*waiting(scene), scene.job(9, user="evelyn", name="secret-project"))
    with store.writing() as connection:
        connection.execute(
            insert(questions),
            [
                {"id": "a", "asked_at": NOW, "kind": "slurm_eta", "body": body, "actor": actor}
                | {"id": str(number)}
                for number, (body, actor) in enumerate(
                    [('{"user":"evelyn"}', "root"), ("{}", "evelyn"), ('{"user":"u2"}', "root")]
                )
            ],
        )
        made = {"token_id": "t", "made_at": NOW, "until": NOW}
        links = [{"id": job, "job_id": job} | made for job in ("9", "2")]
        connection.execute(insert(tables.links), links)
    body = {"what": "DELETE /api/v1/jobs/2", "why": "only-follows"}
    refused = [Event(Kind.REFUSED, NOW, actor=actor, body=body) for actor in ("evelyn", "u2")]
    store.append(refused)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive, "BATCH", 2)
        assert archive.move(store, NOW + 1e6) >= 2
    others = values_of(store) - values_of(store, "9")
    gone = erase(store, "evelyn")
    assert (gone["jobs"], gone["questions"], gone["links"]) == (1, 2, 1)
    assert gone["decisions"] >= 1
    assert values_of(store) == others
    assert store.read(kinds=[Kind.REFUSED])[-1].actor == "u2"
    with store.engine.connect() as connection:
        for table in tables.metadata.sorted_tables:
            kept = str(connection.execute(select(table)).all())
            if table is tables.archive:
                assert '"job_id":"9"' not in archived(connection).replace("\\", "")
            assert "evelyn" not in kept, table.name
            assert "secret-project" not in kept, table.name
        assert "u2" in connection.execute(select(job_rows.c.owner)).scalars().all()
    assert erase(store, "evelyn") == {"events": 0, "tokens": 0}


def archived(connection: Connection) -> str:
    """The archive, uncompressed."""
    rows = connection.execute(select(tables.archive.c.content)).scalars()
    return "".join(zlib.decompress(row).decode() for row in rows)


def values_of(store: Store, job_id: str = "") -> set[str]:
    """What was decided, of one job or of all."""
    query = select(decisions)
    if job_id:
        query = query.where(decisions.c.job_id == job_id)
    with store.reading() as connection:
        return set(archive.bodies(connection, decisions, connection.execute(query).all()))


def test_slurms_priorities_are_kept_in_order_within_the_column(store: Store) -> None:
    scene = Scene(store, "easy", order=False)
    top = 4_294_901_759
    asked = {"5": top, "6": top - 1, "7": MOST + 1, "8": MOST, "9": 1}
    scene.look(*[scene.job(job, priority=priority) for job, priority in asked.items()])
    with store.reading() as connection:
        query = select(job_rows.c.job_id, job_rows.c.priority).order_by(-job_rows.c.priority)
        found = {row.job_id: row.priority for row in connection.execute(query)}
    assert list(found) == list(asked)
    assert len(set(found.values())) == len(asked)
    assert all(-MOST - 1 <= priority <= MOST for priority in found.values())
    scene.look(scene.job(9, priority=77), scene.job(10, priority=76))
    with store.reading() as connection:
        query = select(job_rows.c.priority).where(job_rows.c.job_id == "9")
        assert connection.execute(query).scalar() == 77


def waiting(scene: Scene) -> list[SlurmJob]:
    """A job that has everything, and three whose priorities are against the order of fifo."""
    rest = [
        scene.job(n, submit=NOW - 100 + n, priority=1000 + n, eligible=NOW - 50) for n in (2, 3, 4)
    ]
    return [scene.job(1, "RUNNING", start=NOW - 5, **EVERYTHING), *rest]


def test_places_change_among_jobs_alike_that_only_lack_room() -> None:
    scene = Scene(None)
    running, *rest = waiting(scene)
    urgent = scene.job(5, priority=9000, qos="high", submit=NOW)
    limited = scene.job(6, priority=50, reason="QOSMaxJobsPerUserLimit", submit=NOW - 500)
    sites = scene.job(7, priority=40, admin_comment="the site's", submit=NOW - 500)
    held = scene.job(8, priority=0, reason="JobHeldUser", submit=NOW - 500)
    lines = scene.look(running, *rest, urgent, limited, sites, held)
    set_to = {line.split()[1]: line for line in lines if " priority=" in line}
    assert set(set_to) == {"jobid=2", "jobid=4"}
    assert 'priority=1004 AdminComment="pellucid: was=1002' in set_to["jobid=2"]
    assert 'priority=1002 AdminComment="pellucid: was=1004' in set_to["jobid=4"]


@pytest.mark.parametrize(
    ("kind", "back"), [("multifactor", "release 2"), ("basic", "update jobid=2 priority=1002")]
)
def test_when_it_stops_all_is_taken_back(kind: str, back: str) -> None:
    scene = Scene(None)
    scene.slurm.says["scontrol show config"] = f"PriorityType = priority/{kind}"
    ours = "pellucid: was=1002; BehindHigherPriority: number 2 in line"
    scene.slurm.queue = [
        scene.job(2, admin_comment=ours),
        scene.job(3, admin_comment="pellucid: GpusBusy: needs 8 GPUs"),
        scene.job(4, admin_comment=ours, priority=0),
        scene.job(5, admin_comment="the site's, not pellucid: was=5"),
        scene.job(6, "RUNNING", admin_comment=ours),
    ]
    lines: list[str] = []
    scene.slurm.close = lambda: lines.extend(scene.slurm.lines)  # type: ignore[method-assign]
    scene.follower.run(lambda: True, "here", 0.0, 60.0)
    assert lines == [back, *(f"update jobid={n} AdminComment=" for n in (2, 3, 4))]


def test_the_whole_line_is_looked_through_no_more_often_where_more_jobs_are_explained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With 10,000 waiting, it was gone through once for each of 512 jobs."""
    asked, line = [], twin_policy.Slurm.line
    monkeypatch.setattr(twin_policy.Slurm, "line", lambda self: asked.append(1) or line(self))
    counts = []
    for jobs in (3, 30):
        scene = Scene(None, "slurm", order=False)
        scene.look(*(scene.job(n, priority=1000 - n, reason="Priority") for n in range(1, jobs)))
        assert scene.follower.reasons[str(jobs - 1)].goes_first
        counts.append(len(asked))
        asked.clear()
    assert 0 < counts[0] == counts[1]


def _without_lease(scene: Scene) -> None:
    assert scene.store is not None
    assert scene.follower.lease is not None
    scene.store.let_go(scene.follower.lease)
    scene.follower.lease = None


def test_one_that_is_stopped_before_it_had_the_lease_takes_back_what_another_left(
    store: Store,
) -> None:
    """The follower before it was killed; an earlier version left its order without a word."""
    scene = Scene(store)
    scene.slurm.queue = [scene.job(2, admin_comment="pellucid: was=1002; GpusBusy")]
    back = ["update jobid=2 priority=1002", "update jobid=2 AdminComment="]
    scene.slurm.close = lambda: None  # type: ignore[method-assign]
    _without_lease(scene)
    other = store.take(LEASE, "another", 600.0)
    assert other is not None
    with capture_logs() as log:
        scene.follower.run(lambda: True, "here", 0.0, 60.0)
    [left] = [line for line in log if line["event"] == "order_left"]
    assert left["why"] == "another process has the lease"
    assert scene.slurm.written() == []
    store.let_go(other)
    with mock.patch.object(store, "let_go", wraps=store.let_go) as let_go:
        scene.follower.run(lambda: True, "here", 0.0, 60.0)
    assert [one.args[0].ready for one in let_go.mock_calls] == [False], "it has looked at nothing"
    assert scene.slurm.written() == back
    assert store.take(LEASE, "the next", 60.0), "it lets go"


def test_one_that_cannot_have_the_lease_as_it_stops_says_what_it_left(store: Store) -> None:
    scene = Scene(store)
    scene.slurm.close = lambda: None  # type: ignore[method-assign]
    _without_lease(scene)
    full = OperationalError("", {}, Exception("database or disk is full"))
    with capture_logs() as log, mock.patch.object(store, "take", side_effect=full):
        scene.follower.run(lambda: True, "here", 0.0, 60.0)
    [left] = [line for line in log if line["event"] == "order_left"]
    assert "disk is full" in left["why"]
    assert left["take_back"] == "pellucid slurm release-all"


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ("", "no PriorityType"),
        ("\ufffd\x00=\x1b[2J", "no PriorityType"),
        ("PriorityType = priority/mul", "PriorityType is 'priority/mul'"),
        ("PriorityType = priority/of_the_site", "PriorityType is 'priority/of_the_site'"),
    ],
)
def test_nothing_is_taken_back_by_a_guess(config: str, why: str) -> None:
    """Neither by who is asked, nor at a stop, which says how to do it later."""
    scene = Scene(None)
    scene.slurm.says["scontrol show config"] = config
    scene.slurm.queue = [scene.job(2, admin_comment="pellucid: was=77; GpusBusy")]
    with pytest.raises(ParseError, match=why):
        release_all(cast(Slurm, scene.slurm))
    scene.slurm.close = lambda: None  # type: ignore[method-assign]
    with capture_logs() as log:
        scene.follower.run(lambda: True, "here", 0.0, 60.0)
    [left] = [line for line in log if line["event"] == "order_left"]
    assert why in left["why"]
    assert left["take_back"] == "pellucid slurm release-all"
    assert scene.slurm.written() == []


def test_what_cannot_be_taken_back_keeps_its_mark_and_what_is_has_its_nice_again() -> None:
    """Setting a priority sets nice to 0, and `scontrol release` leaves it there."""
    scene = Scene(None)
    why = "BehindHigherPriority: number 2 in line"
    scene.slurm.queue = [scene.job(2, admin_comment=f"pellucid: was=1002 nice=50; {why}")]
    scene.slurm.answer = "Access/permission denied"
    assert release_all(cast(Slurm, scene.slurm)) == {"2": scene.slurm.answer}
    assert scene.slurm.written()[:1] == ["update jobid=2 priority=1002"]
    scene.slurm.answer = ""
    scene.slurm.says["scontrol show config"] = "PriorityType = priority/multifactor"
    assert release_all(cast(Slurm, scene.slurm)) == {"2": ""}
    assert scene.slurm.written() == [
        "release 2", "update jobid=2 nice=50", "update jobid=2 AdminComment="
    ]  # fmt: skip


def test_what_is_refused_is_tried_less_and_less_often_and_said_once(store: Store) -> None:
    scene = Scene(store)
    scene.slurm.answer = "Access/permission denied"
    with capture_logs() as log:
        orders = len(scene.look(*waiting(scene)))
        assert orders == 3, "two priorities with what they were, and a comment"
        assert scene.look(*waiting(scene)) == []
        assert len(scene.look(*waiting(scene), after_s=AGAIN_S)) == orders
        assert scene.look(*waiting(scene), after_s=AGAIN_S) == []
        assert len(scene.look(*waiting(scene), after_s=AGAIN_S)) == orders
    assert scene.ordered() == 3 * orders
    said = [line for line in log if line["event"] == "slurm_refused"]
    assert [(line["orders"], line["why"]) for line in said] == [(orders, scene.slurm.answer)]
    scene.slurm.answer = ""
    scene.look(*waiting(scene), after_s=4 * AGAIN_S)
    scene.slurm.answer = "again"
    with capture_logs() as log:
        scene.look(*waiting(scene), after_s=4 * AGAIN_S)
    assert "slurm_refused" in [line["event"] for line in log], "it had been taken in between"


def test_what_was_not_answered_is_not_logged_at_every_look(store: Store) -> None:
    scene = Scene(store)
    scene.slurm.down = True
    with pytest.raises(SlurmDown):
        scene.look(*waiting(scene))
    orders = scene.ordered()
    scene.slurm.lines.clear()
    assert scene.look(*waiting(scene)) == []
    assert scene.ordered() == orders


def test_a_pass_that_breaks_a_rule_does_not_end_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, polls = Scene(store), list[float]()

    def look() -> None:
        polls.append(0.0)
        raise PolicyViolation("GPU 0 of node 0 is taken")

    monkeypatch.setattr(scene.follower, "look", look)
    with capture_logs() as log:
        scene.follower.run(lambda: len(polls) == 2, "here", 0.0, 60.0)
    assert [line["event"] for line in log].count("pass_refused") == 2


def test_a_dry_run_shows_an_order_once(store: Store) -> None:
    scene = Scene(store)
    scene.slurm.dry = True
    orders = len(scene.look(*waiting(scene)))
    for after_s in (1.0, COMMENT_S, 10 * COMMENT_S):
        assert scene.look(*waiting(scene), after_s=after_s) == []
    assert scene.ordered() == orders


@pytest.mark.parametrize("policy", ["easy", "pellucid"])
def test_a_comment_names_nobody_elses_job(policy: str) -> None:
    scene = Scene(None, policy)
    half: dict[str, Any] = {"nodes": ("n1",), "held_gpus": ((0, 1, 2, 3),), "gpus": 4}
    running = scene.job(111, "RUNNING", start=NOW, time_limit_s=7200.0, **half)
    long_ago: dict[str, Any] = {"submit": NOW - 5 * 86_400, "eligible": NOW - 5 * 86_400}
    first = scene.job(222, time_limit_s=3600.0, **long_ago)  # kept for at any price
    lines = scene.look(running, first, scene.job(333, gpus=4, time_limit_s=86_400.0))
    (comment,) = [x for x in lines if x.startswith("update jobid=333 ") and "AdminComment" in x]
    assert "222" not in comment
    assert "kept for a higher-priority job" in comment


def test_a_comment_follows_what_it_says_but_not_at_every_look() -> None:
    scene = Scene(None)

    def of_4(lines: list[str]) -> list[str]:
        return [x.split('"')[1] for x in lines if x.startswith("update jobid=4 AdminComment")]

    *others, fourth = [
        job if job.state == "RUNNING" else replace(job, priority=2000 - int(job.id))
        for job in waiting(scene)
    ]
    fewer = others[:-1]
    (third,) = of_4(scene.look(*others, fourth))
    assert third.startswith(f"{OURS}BehindHigherPriority: number 3 in line")
    told = replace(fourth, admin_comment=third)
    assert of_4(scene.look(*others, told, after_s=COMMENT_S)) == [], "still so"
    (second,) = of_4(scene.look(*fewer, told))
    assert "number 2 in line" in second
    told = replace(fourth, admin_comment=second)
    assert of_4(scene.look(*others, told)) == [], "not again so soon"
    assert of_4(scene.look(*others, told, after_s=COMMENT_S)) == [third]
    sites = replace(fourth, admin_comment="the site's")
    assert of_4(scene.look(*others, sites, after_s=COMMENT_S)) == []


def test_a_comment_contradicts_no_reason_of_slurms_own() -> None:
    scene = Scene(None)
    running, *_ = waiting(scene)
    limit: dict[str, Any] = {"reason": "QOSGrpGRES", "gpus": 1}
    lines = scene.look(
        running,
        scene.job(2, **limit),
        scene.job(3, admin_comment=f"{OURS}GpusBusy: needs 1 GPU", **limit),
        scene.job(4, admin_comment=f"{OURS}was=7; GpusBusy: needs 1 GPU", **limit),
        scene.job(5, admin_comment=f"{OURS}was=7", **limit),
        scene.job(6, reason="Resources"),
    )
    assert lines[:2] == [
        'update jobid=3 AdminComment=', f'update jobid=4 AdminComment="{OURS}was=7"'
    ]  # fmt: skip
    (only,) = lines[2:]
    assert only.startswith(f'update jobid=6 AdminComment="{OURS}BehindHigher')


def test_nodes_come_and_go_while_it_runs_and_between(store: Store) -> None:
    def shown() -> dict[str, int]:
        with store.reading() as connection:
            query = select(node_rows.c.name, node_rows.c.gpus)
            return {row.name: row.gpus for row in connection.execute(query)}

    scene = Scene(store, "pellucid", order=False)
    scene.look(scene.job(5))
    assert shown() == {"n1": 4, "n2": 4}
    has = [
        Node("n1", 4, "", ("main",), True, "IDLE"),
        Node("c1", 0, "", ("main",), True, ""),
    ]
    scene.slurm.has = [*has, Node("n3", 2, "2080ti", ("main", "long"), True, "IDLE")]
    for _ in range(NODES_EVERY):
        scene.look(scene.job(5), scene.job(6, gpus=1))
    assert shown() == {"n1": 4, "c1": 0, "n3": 2}
    scene.slurm.has = has
    scene.restart()
    scene.look(scene.job(6, gpus=1), scene.job(7, gpus=0))
    assert shown() == {"n1": 4, "c1": 0}
    with store.reading() as connection:
        query = select(job_rows.c.job_id, job_rows.c.slurm).where(job_rows.c.ended_at.is_(None))
        why = {row.job_id: json.loads(row.slurm) for row in connection.execute(query)}
    assert set(why) == {"6", "7"}
    assert "asks for no GPU" in why["7"]["left_out"]


def test_a_job_that_asks_for_no_gpu_does_not_wait_for_gpus_nor_is_given_any(store: Store) -> None:
    scene = twin(store)
    runs = scene.job(1, "RUNNING", gpus=0, num_nodes=2, cpus=16, nodes=("n1", "n2"), start=NOW - 50)
    waits = scene.job(2, gpus=0, cpus=4, reason="Resources")
    scene.look(runs, waits)
    with store.reading() as connection:
        reason = select(job_rows.c.reason).where(job_rows.c.job_id == "2")
        assert connection.execute(reason).scalar() == Reason.RESOURCES_BUSY
    scene.look(waits)
    with store.reading() as connection:
        body = connection.execute(select(decisions.c.body)).scalars().all()[-1]
    said = Decision.from_body({"seq": 0, **json.loads(body)})
    assert sentence(said) == "the CPUs and memory it asks for were free"


def test_what_the_policy_slurm_leaves_out_is_told_with_the_jobs_it_touches(store: Store) -> None:
    scene = Scene(store, "slurm", order=False)
    scene.slurm.says["qos"] = ODD
    with capture_logs() as logs:
        scene.look(scene.job(1, gpus=0, qos="odd"), scene.job(2, gpus=0, qos="odd"), scene.job(3))
        scene.look(scene.job(1, gpus=0, qos="odd"))
    warned = [log["what"] for log in logs if log["event"] == "not_modelled"]
    assert warned == ["QOS odd: GrpTRESMins=cpu=100", "QOS odd: GrpWall=1-00:00:00"]
    assert scene.pages().not_modelled() == board(scene.pages()).not_modelled == NOT_MODELLED
    assert PageQueries(store, Viewer("ada", Role.VIEWER)).not_modelled() == []


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Told:
    """The Slurm that a command finds."""
    told = Told()
    monkeypatch.setattr("scheduler.slurm.entry.slurm_of", lambda _: told)
    monkeypatch.setattr("scheduler.slurm.read.table.Table.jobs", lambda _: told.queue)
    return told


def test_serve_says_at_its_start_what_the_policy_slurm_leaves_out(
    found: Told, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("scheduler.service.decide.supervisor.Supervisor.run", lambda _: None)
    scene = Scene(None)
    found.queue = [scene.job(1, qos="odd"), scene.job(2, qos="odd", partition="other")]
    found.says["qos"] = ODD
    found.says["scontrol show config"] += "\nSLURM_VERSION = 27.02.1"
    words = ["serve", "--backend", "slurm", "--slurm-mode", "advise", "--slurm-partitions", "main"]
    words += ["--port", "0", "--state-dir", str(tmp_path)]
    words += ["--database", f"sqlite:///{tmp_path / 'p.db'}"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert "Slurm 27.02 is newer than any that is known; it is read as 26.05." in done.output
    assert [line for line in lines if "policy slurm" in line][1:] == NOT_MODELLED


def test_what_is_not_read_of_a_slurm_is_said_and_no_more(
    found: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(policy: str) -> list[str]:
        given: dict[str, Any] = {"backend": "slurm", "auth": "off"}
        return notes(Settings(**given), policy)

    found.says["qos"] = "odd"
    *_, line = said("slurm")
    assert "Not read, and left out by the policy slurm: sacctmgr odd: ValueError" in line

    def down(*_: str) -> str:
        raise SlurmDown("no answer")

    monkeypatch.setattr(found, "read", down)
    release, left_out = said("slurm")
    assert [release] == said("pellucid")
    for line, start in ((release, "Which release of Slurm"), (left_out, "What the policy slurm")):
        assert line.startswith(start)
        assert line.endswith("is not known: no answer")


@pytest.mark.parametrize("futures_rest", [False, True])
def test_jobs_that_something_unmodelled_touches_have_no_forecast_and_others_have(
    store: Store, futures_rest: bool
) -> None:
    """Until it touches them no more: a forecast comes back when nobody runs who makes way, and so
    does a rough one, which is made once.
    """
    scene = twin(store)
    scene.slurm.says["scontrol show config"] += "\nPreemptType = preempt/qos\nPreemptMode = SUSPEND"
    plain = f"{'|' * 24}"
    scene.slurm.says["qos"] = f"low|0{plain}\nhigh|0|||||||||low{plain[9:]}\nmins|0||||||||||cpu=1"
    scene.slurm.says["qos"] += plain[10:]
    runs = scene.job(1, "RUNNING", qos="low", start=NOW, **EVERYTHING)
    wide = {"gpus": 4, "gpu_types": (("", 4),), "reason": "Priority", "time_limit_s": 60.0}
    waiting = [
        scene.job(2, qos="low", **wide),
        scene.job(3, qos="high", **wide),
        scene.job(4, qos="mins", **wide),
        scene.job(5, odd=("--contiguous",), **wide),
    ]

    def why_not() -> list[str]:
        reads = scene.pages()
        found = [reads.forecast(str(n)) for n in (2, 3, 4, 5)]
        return [one.why_not if one.start_p50 is None else "" for one in found if one is not None]

    if futures_rest:
        scene.follower._foresee_at = inf
    scene.look(runs, *waiting)
    others = ["not modelled: QOS mins: GrpTRESMins=cpu=1", "not modelled: --contiguous"]
    assert why_not() == ["", "not modelled: it may preempt 1 running job", *others]
    scene.look(replace(runs, qos="high"), *waiting)
    assert why_not() == ["", "", *others]


@pytest.mark.parametrize("futures_rest", [False, True])
def test_of_a_job_whose_deadline_may_come_first_no_start_is_foreseen(
    store: Store, futures_rest: bool
) -> None:
    scene = twin(store)
    runs = scene.job(1, "RUNNING", start=NOW, **EVERYTHING)
    waits = scene.job(2, gpus=4, gpu_types=(("", 4),), reason="Resources", time_limit_s=60.0)
    if futures_rest:
        scene.follower._foresee_at = inf
    far, soon = NOW + 40 * 86_400, NOW + 70.0
    for deadline, said in ((far, ""), (soon, WhyNot.LATE), (None, "")):
        scene.look(runs, replace(waits, deadline=deadline))
        found = scene.pages().forecast("2")
        assert found is not None
        assert (found.start_p50 is None, found.why_not if said else "") == (bool(said), said)


def test_who_waits_for_a_limit_by_slurms_word_is_ahead_of_nobody(store: Store) -> None:
    scene = twin(store)
    waits = scene.job(2, gpus=4, gpu_types=(("", 4),), priority=2000, reason="Resources")
    last = replace(waits, id="3", priority=1000, reason="Priority")
    for reason, before in (("Resources", 1), ("QOSMaxJobsPerUserLimit", 0)):
        runs = scene.job(1, "RUNNING", start=NOW, **EVERYTHING)
        scene.look(runs, replace(waits, reason=reason), last)
        assert [place.before for place in scene.follower.reasons["3"].places] == [before]


@pytest.mark.parametrize("futures_rest", [True, False])
def test_a_forecast_stays_when_the_reason_changes_or_there_is_no_time_for_another(
    store: Store, monkeypatch: pytest.MonkeyPatch, futures_rest: bool
) -> None:
    scene = twin(store)
    runs = scene.job(1, "RUNNING", start=NOW, **EVERYTHING)
    waits = scene.job(2, gpus=4, gpu_types=(("", 4),), reason="Priority", time_limit_s=60.0)

    def forecast() -> Any:
        return scene.pages().forecast("2")

    scene.look(runs, waits, replace(waits, id="3", priority=2000, reason="Resources"))
    before = forecast()
    assert before.start_p90 is not None
    monkeypatch.setattr("scheduler.slurm.follow.follower.BUDGET_S", 0.0)
    scene.follower._foresee_at = inf if futures_rest else 0.0
    scene.look(runs, replace(waits, reason="Resources"))
    assert forecast() == before


@pytest.mark.parametrize("far", [6e15, 1e18])
def test_who_begins_beyond_any_calendar_ends_no_look_of_others(store: Store, far: float) -> None:
    """`sbatch --begin=now+9999999999weeks`: everybody was without advice."""
    scene = Scene(store, "slurm", order=False)
    scene.look(
        scene.job(5, reason="BeginTime", eligible=far, start=far),
        scene.job(6, reason="Priority"),
    )
    everybody = scene.pages()
    assert "Dec 9999" in first_words(explained(everybody, "5", scene.now))
    assert explained(everybody, "6", scene.now).reason == "Priority"


def test_a_job_that_cannot_be_planned_costs_nobody_else_an_answer(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(store, "slurm", order=False)
    monkeypatch.setattr(passes, "closed_to", lambda ask, _: "" * (1 // (ask.features != "odd")))
    runs = scene.job(7, "RUNNING", start=NOW, **EVERYTHING)
    jobs = [scene.job(5), scene.job(6, features="odd"), scene.job(8, fault="NumCPUs 'x'"), runs]
    scene.look(*jobs)
    alone = Scene(None, "slurm", order=False)
    alone.look(jobs[0], runs)
    assert scene.follower._last is not None
    assert alone.follower._last is not None
    last, other = scene.follower._last[0], alone.follower._last[0]
    assert last.order == other.order == ["5"]
    assert last.left_out["8"] == "of this job cannot be read: NumCPUs 'x'"
    assert "ZeroDivisionError" in last.left_out["6"]
    queries = scene.pages()
    assert any("ZeroDivisionError" in line for line in queries.not_modelled())


def test_a_look_that_fails_whole_ends_nothing_and_says_so(store: Store) -> None:
    scene = Scene(store, "slurm", order=False)
    queries = scene.pages()
    scene.look(scene.job(5))
    seen = scene.now
    assert queries.silent() == []
    plain, scene.slurm.jobs = scene.slurm.jobs, lambda: 1 // 0  # type: ignore[assignment, method-assign, return-value]
    for _ in range(2):
        scene.now += 2.0
        scene.follower._watch()
    shown = clock_time(seen, scene.now)
    assert queries.silent() == [f"Slurm does not answer: what is shown is of {shown}."]
    assert promises_of(store, store.engine.connect())._judged_until == seen
    scene.slurm.jobs = plain  # type: ignore[method-assign]
    scene.follower._watch()
    assert queries.silent() == []


@pytest.mark.parametrize("late_s", [0, 17, 61])
@pytest.mark.parametrize("lasted_s", [1, 192, 193, 4000])
def test_the_age_of_a_priority_is_of_whole_seconds(lasted_s: int, late_s: int) -> None:
    """It was off by one where what was cut off Slurm's sum and off ours differed."""
    at = 1_800_000_000.0
    weights = {"PriorityType": "priority/multifactor", "PriorityMaxAge": "1-0"}
    weights |= {"PriorityWeightAge": "100000", "PriorityWeightJobSize": "20000"}
    nodes = {f"n{n}": SiteNode(f"n{n}", 7, 64_000) for n in range(3)}
    part = Partition("main", frozenset(nodes))
    ask = Ask("1", partitions=("main",), submit=at, accrue=at)
    made = Multifactor(Site(nodes, {"main": part}, config=weights))
    slurm = made.terms(ask, part, at + lasted_s).total
    weighs = cast("SlurmTwin", SimpleNamespace(weights=made))
    shown = terms_shown(slurm, Ranked(ask, part, slurm), weighs, at + lasted_s + late_s)
    assert {one.name: one.points for one in shown}["age"] == pytest.approx(
        lasted_s * 100_000 / 86_400
    )
