"""`pellucid serve` and its processes: started, refused, stopped, killed."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from features.files import write_whole
from pipeline.app import app
from pipeline.commands import serve as serve_command
from pipeline.errors import UserError
from profiler import procs
from scheduler.assembly import CoreSpec
from scheduler.backends.events import Kind
from scheduler.backends.local.host import HostError
from scheduler.core.cluster import ClusterSpec
from scheduler.service import logs
from scheduler.service.backends import open_backend
from scheduler.service.decide import begin as begins
from scheduler.service.decide import supervisor
from scheduler.service.decide.begin import begin, listen
from scheduler.service.decide.decider import Decider
from scheduler.service.decide.processes import run_decider
from scheduler.service.decide.supervisor import Silence, Supervisor
from scheduler.service.decide.systemd import notify
from scheduler.service.log.bundles import BundleStore
from scheduler.service.log.cluster_changes import ClusterChanges, Wanted
from scheduler.service.log.header import FOLLOWED, LogHeader, LogHeaderError, runnable
from scheduler.service.log.present import Present
from scheduler.service.log.restart import FileDiffers
from scheduler.service.log.store.line import Turn
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import Store
from scheduler.service.settings import Settings, SettingsError, read_settings
from tests.waiting import until

CLUSTER = "name: tiny\ngpus_per_node: 4\nvcs: {vc: 1}\n"


def given(tmp_path: Path, **more: object) -> Settings:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(CLUSTER)
    (tmp_path / "champion").mkdir(exist_ok=True)
    settings: dict[str, object] = {
        "database": f"sqlite:///{tmp_path / 'pellucid.db'}",
        "cluster": cluster,
        "policy": "fifo",
        "state_dir": tmp_path / "state",
        "bundle": tmp_path / "champion",
        "backend": "simulated",
        "pace": 100.0,
    }
    return Settings(**{**settings, **more})  # type: ignore[arg-type]


class TestSettings:
    def test_the_command_line_wins_over_the_environment_over_the_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "service.yaml"
        file.write_text("port: 1\npolicy: fifo\nlease_s: 3\n")
        monkeypatch.setenv("PELLUCID_POLICY", "lucid")
        monkeypatch.setenv("PELLUCID_PORT", "2")
        settings = read_settings(file, port=3, host=None)
        assert (settings.port, settings.policy, settings.lease_s) == (3, "lucid", 3.0)
        assert settings.host == "127.0.0.1"

    @pytest.mark.parametrize(
        ("file", "names"),
        [
            ("port: 99999", "port is 99999"),
            ("color: red", "color"),
            ("database: mysql://x", "give sqlite:///PATH or postgresql://"),
            ("a: [", "not YAML"),
            ("- 1", "not YAML of `name: value` lines"),
            ("bundle: none", r"bundle .*none: no such folder"),
            (
                "{backend: slurm, slurm_mode: order, lease_s: 21}",  # a unit has the time to stop
                "lease_s is 21: with slurm_mode order at most 20",
            ),
        ],
    )
    def test_a_wrong_one_is_named(self, tmp_path: Path, file: str, names: str) -> None:
        path = tmp_path / "service.yaml"
        path.write_text(file)
        with pytest.raises(SettingsError, match=names) as raised:
            read_settings(path)
        assert "\n" not in str(raised.value)

    def test_the_help_names_the_policies_a_service_can_run(self) -> None:
        told = CliRunner().invoke(app, ["serve", "--help"], catch_exceptions=False).output
        for name in runnable():
            assert re.search(rf"\b{name}\b", told), name
        demo = CliRunner().invoke(app, ["serve-demo", "--help"], catch_exceptions=False).output
        assert f"Policies: {', '.join(runnable())}," in " ".join(demo.split())
        with pytest.raises(
            LogHeaderError, match="stops running jobs; a service cannot run it, but: fifo, "
        ):
            LogHeader(CoreSpec.of(ClusterSpec({"vc": 1}, 4), "tiresias"), 0.0)

    def test_a_service_that_decides_does_not_decide_as_slurm_would(self) -> None:
        """That knows of no node that is drained, and of no job that is changed."""
        spec = CoreSpec.of(ClusterSpec({"vc": 1}, 4), "slurm")
        with pytest.raises(LogHeaderError, match="another scheduler decides; a service cannot run"):
            LogHeader(spec, 0.0)
        assert LogHeader(spec, 0.0, backend=FOLLOWED).spec == spec
        assert "slurm" not in runnable()
        assert "slurm" in runnable(follows=True)

    def test_tokens_are_asked_for_on_anything_but_loopback(self) -> None:
        assert not Settings().needs_token
        assert Settings(host="0.0.0.0").needs_token
        assert Settings(auth="on").needs_token
        assert Settings(database="postgresql://a@b/c").database == "postgresql+psycopg://a@b/c"

    @pytest.mark.parametrize("said", ["on", "off", "auto"])
    def test_auth_is_as_it_is_written(self, tmp_path: Path, said: str) -> None:
        """YAML reads `on` and `off` as truth values."""
        path = tmp_path / "service.yaml"
        path.write_text(f"auth: {said}\n")
        assert read_settings(path).auth == said


@pytest.fixture
def begins_only(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """`serve` begins and no more: with the settings that are told here."""
    begun: list[Settings] = []
    monkeypatch.setattr(Supervisor, "run", lambda self: begun.append(self.settings))
    monkeypatch.setattr(logs, "configure", lambda level: None)  # or it stays so
    return begun


def serve(*options: str, answer: str | None = None) -> tuple[str, str]:
    """What `pellucid serve` prints, and why it does not begin."""
    done = CliRunner().invoke(app, ["serve", *options], input=answer)
    error = done.exception
    assert error is None or isinstance(error, UserError), error  # which `main` shows
    return done.output, str(error or "")


TINY = CoreSpec.of(ClusterSpec({"vc": 1}, 4, name="tiny"), "fifo")


class TestBeginning:
    def test_a_state_folder_that_others_can_write_is_refused(self, tmp_path: Path) -> None:
        settings = given(tmp_path)
        settings.state_dir.mkdir()
        settings.state_dir.chmod(0o1777)
        with pytest.raises(SettingsError, match=r"state_dir: .*state can be written by others"):
            begin(settings, TINY)
        other = given(
            tmp_path,
            database=f"sqlite:///{settings.state_dir}/pellucid.db",
            state_dir=tmp_path / "another",
        )
        with pytest.raises(SettingsError, match=r"database: .*state can be written by others"):
            begin(other, TINY)

    def test_a_host_without_gpus_is_refused(self, tmp_path: Path) -> None:
        large = CoreSpec.of(ClusterSpec({"vc": 999}, 8), "fifo")
        with pytest.raises(HostError, match="GPU"):
            begin(given(tmp_path, backend="local"), large)

    def test_a_log_that_is_kept_needs_the_host_it_began_with_and_no_larger_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def host_of(_: Settings, cluster: ClusterSpec) -> None:
            if cluster.gpus > 4:
                raise HostError("this host has 4 GPUs")

        monkeypatch.setattr(begins, "host_of", host_of)
        local = given(tmp_path, backend="local")
        small, large = (CoreSpec.of(ClusterSpec({"vc": n}, 4), "fifo") for n in (1, 2))
        begin(local, small)
        assert begin(local, large, choice="keep").spec == small
        with pytest.raises(FileDiffers, match="nothing was changed"):
            begin(local, large, choice="apply")

    def test_a_port_that_is_taken_is_said(self, tmp_path: Path) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            with pytest.raises(SettingsError, match=f"cannot listen on 127.0.0.1:{port}"):
                listen(given(tmp_path, port=port))

    def test_another_backend_or_state_folder_is_refused(self, tmp_path: Path) -> None:
        begin(given(tmp_path), TINY)
        begin(given(tmp_path), TINY)
        for choice in (None, "apply", "keep"):
            with pytest.raises(LogHeaderError, match="backend was 'simulated'"):
                begin(given(tmp_path, backend="local", fake_gpus=True), TINY, choice=choice)  # type: ignore[arg-type]
            with pytest.raises(LogHeaderError, match="another --state-dir"):
                begin(given(tmp_path, state_dir=tmp_path / "other"), TINY, choice=choice)  # type: ignore[arg-type]

    def test_another_cluster_file_is_applied_or_ignored_as_chosen(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begins_only: list[Settings]
    ) -> None:
        def of_file(vcs: str, *options: str, answer: str | None = None) -> tuple[str, str]:
            for name, value in as_environment(given(tmp_path, port=0)).items():
                monkeypatch.setenv(name, value)
            (tmp_path / "cluster.yaml").write_text(CLUSTER.replace("{vc: 1}", vcs))
            monkeypatch.setattr(serve_command, "_asks", lambda: answer is not None)
            return serve(*options, answer=answer)

        assert "(4 GPUs)" in of_file("{vc: 1}")[0]
        told, error = of_file("{vc: 2}")
        assert told == "node node001: 4 x GPU of 24576 MiB in vc in the file, not in the log\n"
        assert "--apply-file" in error
        assert "--keep-log" in error
        assert "(4 GPUs)" in of_file("{vc: 2}", "--keep-log")[0]
        assert "(8 GPUs)" in of_file("{vc: 2}", "--apply-file")[0]
        assert of_file("{vc: 2}")[1] == ""
        assert of_file("{vc: 3}", answer="stop\n")[1] != ""
        assert "(8 GPUs)" in of_file("{vc: 3}", answer="keep\n")[0]
        assert "(12 GPUs)" in of_file("{vc: 3}", answer="apply\n")[0]
        told, _ = of_file("{other: 3}")
        assert "node node001: " in told
        assert "no decision pass has evaluated node node001 yet" in told

    def test_it_goes_on_after_changes_while_it_ran_of_what_nobody_stated(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begins_only: list[Settings]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "nodes.yaml").write_text(CLUSTER)
        (tmp_path / "aged.yaml").write_text(CLUSTER + "policy: {ageing: 0.2}\n")

        def fake(*options: str) -> tuple[str, str]:
            return serve("--fake-gpus", "--port", "0", *options)

        def change(database: str, *asks: Callable[[ClusterChanges], Wanted]) -> None:
            store = Store(database)
            with store.writing() as connection:
                present = Present.read(store, connection)
                assert present is not None
                wanted = [ask(ClusterChanges(present)) for ask in asks]
                store.append_in(connection, [one.event(time.time(), "root") for one in wanted])
            store.close()

        assert fake()[1] == ""
        change(
            "sqlite:///data/service/pellucid.db",
            lambda there: there.set_settings({"ageing": 0.5}),
            lambda there: there.add("gpu9", "research"),
        )
        told, error = fake()
        assert (error, "(248 GPUs), policy pellucid" in told) == ("", True)
        assert fake("--set", "ageing=0.1")[0] == "policy.ageing: file 0.1, log 0.5\n"
        assert "policy: file fifo, log pellucid" in fake("--policy", "fifo")[0]

        mine = ("--database", "sqlite:///mine.db", "--cluster")
        assert fake(*mine, "nodes.yaml")[1] == ""
        change(
            "sqlite:///mine.db",
            lambda there: there.set_settings({"ageing": 0.5}),
            lambda there: there.add("gpu9", "vc"),
        )
        told, _ = fake(*mine, "nodes.yaml")
        assert told.startswith("node gpu9: in the log, not in the file\n")
        assert "policy.ageing: file 0.2, log 0.5\n" in fake(*mine, "aged.yaml")[0]

    def test_the_command_says_it_in_a_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begins_only: list[Settings]
    ) -> None:
        settings = given(tmp_path)
        begin(settings, TINY)
        store = Store(settings.database)
        with store.writing() as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        store.close()
        for name, value in as_environment(settings).items():
            monkeypatch.setenv(name, value)
        for options, names in (
            ([], "which this version of pellucid does not know"),
            (["--backend", "slurm"], "backend slurm: "),
            (["--cluster", "none.yaml"], "cluster none.yaml: No such file"),
        ):
            _, error = serve(*options)
            assert names in error
            assert "\n" not in error

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (["--fake-gpus"], "cluster demo (240 GPUs), policy pellucid, backend local"),
            (["--fake-gpus", "4"], "cluster fake (4 GPUs)"),
            (["--fake-gpus", "16"], "cluster fake (16 GPUs)"),
            (["--fake-gpus", "12"], "give 1 to 8 (one node) or a multiple of 8"),
            (["8"], "goes with --fake-gpus"),
            (["--fake-gpus", "8", "--cluster", "x.yaml"], "without --cluster"),
        ],
    )
    def test_fake_gpus_make_a_cluster_in_any_folder(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        begins_only: list[Settings],
        words: list[str],
        says: str,
    ) -> None:
        monkeypatch.chdir(tmp_path)
        for _ in range(2):  # begun, and gone on with
            assert says in "".join(serve(*words, "--port", "0"))
        assert all(settings.fake_gpus for settings in begins_only)
        assert (tmp_path / "data/service/pellucid.db").is_file() is bool(begins_only)

    def test_a_service_without_an_api_listens_nowhere(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begins_only: list[Settings]
    ) -> None:
        settings = given(tmp_path, api_workers=0)
        assert listen(settings) is None
        names = [child.name for child in Supervisor(settings, None).children]
        assert names == ["decider", "analyst", "maintenance"]
        for name, value in as_environment(settings).items():
            monkeypatch.setenv(name, value)
        assert serve()[0].startswith("Pellucid behind no API: cluster ")


@contextmanager
def served(
    settings: Settings, log: Path, *words: str, cwd: Path | None = None, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """`pellucid serve`, which ends when asked to. What it prints is in `out` beside its log."""
    with log.open("wb") as file, log.with_name("out").open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "pipeline.cli", "serve", *words],
            env={**os.environ, **as_environment(settings), "OMP_NUM_THREADS": "1", **environment},
            cwd=cwd,
            stdout=out,
            stderr=file,
        )
    try:
        yield process
        process.terminate()
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.wait()


def as_environment(settings: Settings) -> dict[str, str]:
    names = settings.model_dump(mode="json", exclude_none=True)
    return {f"PELLUCID_{name.upper()}": str(value) for name, value in names.items()}


def test_a_second_decider_takes_over(tmp_path: Path) -> None:
    settings = given(tmp_path, lease_s=3.0)  # a busy machine may forget a process for seconds
    begin(settings, TINY)
    store = Store(settings.database)
    gc.freeze()  # a decider looks through its heap: not through that of all tests before this one
    ends = {name: threading.Event() for name in ("one", "two")}
    both = [
        threading.Thread(target=run_decider, args=(settings, end.is_set, name), daemon=True)
        for name, end in ends.items()
    ]
    for thread in both:
        thread.start()
    try:
        first = _in_charge(store, {"one", "two"})
        lasts = store.holder("decider")
        assert lasts is not None
        renewed = lasts.beat_at + 2 * settings.lease_s  # longer than a lease lasts
        until(lambda: store.holder("decider").beat_at > renewed, "the lease to be renewed")
        assert _in_charge(store, {"one", "two"}) == first
        ends[first].set()
        assert _in_charge(store, {"one", "two"} - {first}) != first
        terms = [e.body["term"] for e in store.read(kinds=[Kind.LEASE])]
        assert terms == [1, 2]
    finally:
        for end in ends.values():
            end.set()
        for thread in both:
            thread.join(120)
    assert not any(thread.is_alive() for thread in both)
    store.close()


def _in_charge(store: Store, names: set[str]) -> str:
    """Who of them holds the lease, once somebody does."""

    def holder() -> str:
        found = [e.body["holder"] for e in store.read(kinds=[Kind.LEASE])]
        return found[-1] if found and found[-1] in names else ""

    return until(holder, "one to take the lease")


def test_it_minds_its_processes_and_ends_with_them(tmp_path: Path) -> None:
    """A decider that was killed is started again, and so is one that hangs: an earlier version let
    it hang for as long as it liked, and said that it decides."""
    settings = given(tmp_path, port=0, backend="local", fake_gpus=True, pace=1.0, log_level="info")
    path, address = tmp_path / "log", str(tmp_path / "notify")

    def deciders() -> list[int]:
        began = _lines(path, "process_started")
        return [line["pid"] for line in began if line["process"] == "decider"]

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        systemd.settimeout(120)
        with served(settings, path, NOTIFY_SOCKET=address):
            assert systemd.recv(100) == b"READY=1\nWATCHDOG=1"
            _wait_for(path, "decides", 1)
            [port] = {e["port"] for e in _lines(path, "listening")}
            url = f"http://127.0.0.1:{port}"
            os.kill(deciders()[0], signal.SIGSTOP)
            said = until(lambda: _not_ready(url), "it to be not ready while nobody decides")
            assert said == "nobody decides: no decider holds the lease"
            _wait_for(path, "decides", 2)
            [hung] = _lines(path, "process_hangs")
            assert hung["process"] == "decider"
            assert hung["silent_s"] >= 15.0
            os.kill(deciders()[1], signal.SIGKILL)
            _wait_for(path, "decides", 3)  # at once: nobody else can hold its lease
            died = _lines(path, "process_died")[-1]
            assert (died["process"], died["exit_code"]) == ("decider", -signal.SIGKILL)
            with urlopen(f"{url}/metrics") as answer:
                deaths = 'pellucid_process_deaths_total{process="decider"} 2.0'
                assert deaths in answer.read().decode()
            assert not _lines(path, "process_failed")
    assert _lines(path)[-1]["event"] == "stopped"
    assert not _lines(path, "process_killed")
    assert len(_lines(path, "lets_go")) == 1
    for started in _lines(path, "process_started"):
        with pytest.raises(ProcessLookupError):
            os.kill(started["pid"], 0)


def _not_ready(url: str) -> str:
    """Why a service is not ready; nothing where it is."""
    try:
        urlopen(f"{url}/ready").close()
    except HTTPError as error:
        return str(json.load(error)["detail"])
    return ""


@pytest.fixture
def minding(tmp_path: Path) -> Iterator[Supervisor]:
    """A supervisor that has started nothing."""
    with socket.socket() as listening:
        made = Supervisor(given(tmp_path, backend="local"), listening)
        made.log = mock.Mock()
        yield made


def _decider_of(minding: Supervisor) -> supervisor.Child:
    decider = next(child for child in minding.children if child.name == "decider")
    decider.process = mock.Mock()
    return decider


def test_a_decider_hangs_when_nobody_heard_of_it_for_fifteen_seconds(minding: Supervisor) -> None:
    decider = _decider_of(minding)
    minding.counts.beats["decider"].at = 1000.0
    minding._kill_if_it_hangs(decider, 1014.0)
    assert not decider.process.kill.called
    minding._kill_if_it_hangs(decider, 1016.0)
    assert decider.process.kill.called


def test_one_that_computes_is_not_killed_before_it_had_its_seconds_of_the_processor(
    minding: Supervisor,
) -> None:
    """Nor one that gets little of it on a busy machine; the next has twice as long."""
    used, decider = [0.0], _decider_of(minding)
    minding._cpu_s = lambda _: used[0]

    def killed_at(began: float, share: float) -> float:
        decider.process, decider.silence = mock.Mock(), None
        minding.counts.beats["decider"].at, now = began, began
        while not decider.process.kill.called:
            now += 0.5
            used[0] += 0.5 * share
            minding._kill_if_it_hangs(decider, now)
        return now - began

    minding._ready = lambda _: False
    decider.killed_at = time.monotonic()
    assert killed_at(1000.0, share=0.25) == pytest.approx(60.0, abs=1.0)
    assert killed_at(2000.0, share=0.0) == pytest.approx(30.0, abs=1.0)
    minding._ready = lambda _: True  # and is given none: for twenty times as long
    assert killed_at(4000.0, share=0.0) == pytest.approx(20 * 60.0, abs=1.0)
    minding._ready = mock.Mock(return_value=True)
    minding.counts.beats["decider"].at = 9000.0
    minding._kill_if_it_hangs(decider, 9001.5)
    assert not minding._ready.called, "one that was just heard of"
    why = [one.kwargs["why"] for one in minding.log.error.call_args_list]
    assert why == ["computes and does not go on", "waits", "computes little"]


def test_one_that_is_never_heard_of_is_killed_for_it_though_it_was_ready_at_its_start(
    minding: Supervisor,
) -> None:
    """The minute in which it need not be heard of is not given to it twice."""
    decider, now = _decider_of(minding), 1000.0
    decider.started, minding._cpu_s = now, lambda _: 0.0
    minding.counts.beats["decider"].at = 0.0
    while not decider.process.kill.called:
        minding._ready = lambda _: now < 1030.0
        minding._kill_if_it_hangs(decider, now := now + 0.25)
    assert now - 1000.0 == pytest.approx(60.0 + 15.0, abs=0.5)


def test_time_without_the_processor_is_counted_since_the_last_look() -> None:
    """Of ten seconds in which it was ready and got none, ten are taken off, and no more."""
    silent = Silence(since=1000.0, moved=1000.0, cpu_s=5.0, looked=1000.0)
    silent.look(1010.0, 5.0, ready=True)
    assert silent.starved_s == 10.0
    silent.look(1014.0, 5.0, ready=False)  # it waits for something else
    assert silent.starved_s == 10.0
    silent.look(1020.0, 5.0, ready=True)
    assert silent.starved_s == 16.0
    assert not silent.hangs(1014.0, 15.0)
    assert silent.hangs(1032.0, 15.0) == "waits", "32 seconds, less 16"
    silent.look(1022.0, 8.0, ready=True)
    assert (silent.moved, silent.used_s, silent.starved_s) == (1022.0, 3.0, 0.0)


def test_whose_processor_time_is_looked_at_is_the_process_that_is_minded(
    minding: Supervisor,
) -> None:
    decider = _decider_of(minding)
    decider.process.pid = 4242
    minding._cpu_s, minding._ready = mock.Mock(return_value=0.0), mock.Mock(return_value=True)
    minding.counts.beats["decider"].at = 1000.0
    minding._kill_if_it_hangs(decider, 1014.0)
    assert {one.args for one in minding._cpu_s.call_args_list} == {(4242,)}
    assert {one.args for one in minding._ready.call_args_list} == {(4242,)}


def test_one_that_hangs_is_killed_in_a_stop_as_soon_as_else(minding: Supervisor) -> None:
    """An earlier version gave it the ten seconds of a stop, and others waited for what it had."""
    process = _decider_of(minding).process
    process.exitcode = None
    process.kill.side_effect = lambda: process.is_alive.configure_mock(return_value=False)
    minding.counts.beats["decider"].at = time.monotonic() - 15.5
    minding._stop()
    assert [one.args[0] for one in minding.log.error.call_args_list] == ["process_hangs"]


def test_of_an_abstract_address_the_first_sign_alone_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = f"pellucid-{os.getpid()}@host"
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"\0{name}")
        notify("READY=1")
        assert systemd.recv(100, socket.MSG_DONTWAIT) == b"READY=1"


def _until_state(pid: int, states: str) -> None:
    """Wait for a process to be in one of these states; one that is gone is a zombie."""
    until(lambda: (procs.parent_and_state(pid) or (0, "Z"))[1] in states, f"{pid} to be {states}")


def test_one_that_hangs_while_all_wait_for_it_to_have_written_is_killed(tmp_path: Path) -> None:
    settings = given(tmp_path)
    prepare(store := Store(settings.database))

    def hangs(settings: Settings, stopping: Callable[[], bool]) -> None:
        with Store(settings.database).writing():
            os.kill(os.getpid(), signal.SIGSTOP)

    with socket.socket() as listening:
        minding = Supervisor(settings, listening)
        child = supervisor.Child("maintenance", hangs)
        minding.children = [child]
        minding._start(child, time.monotonic())
        assert child.process is not None
        assert child.process.pid is not None
        _until_state(child.process.pid, "T")
        minding._kill_who_holds_up()
        assert child.process.is_alive()  # not yet
        silent_s = minding._most_s(child, time.monotonic())
        with mock.patch.object(supervisor, "WRITES_MS", 0):
            minding._kill_who_holds_up()
        assert not child.process.is_alive()
        # only who was killed for its silence may be silent for longer: seed 960143 of chaos
        assert minding._most_s(child, time.monotonic()) == silent_s
    assert store.take("decider", "another", 1.0)
    store.close()


@pytest.mark.parametrize(
    ("ready", "share", "after_s"),
    [
        (False, 0.0, 10.0),  # waits for something
        (True, 1.0, 10.0),  # computes all the time
        (True, 0.25, 40.0),  # computes, and gets a quarter of a processor
        (True, 0.0, 200.0),  # gets nothing of it, for so long that nobody waits any longer
    ],
)
@pytest.mark.parametrize("name", ["follower", "api-1"])
def test_one_that_writes_and_gets_no_processor_is_not_taken_for_one_that_hangs(
    tmp_path: Path, name: str, ready: bool, share: float, after_s: float
) -> None:
    """An earlier version killed a follower on a busy host, again and again: nobody was answered."""
    with socket.socket() as listening:
        minding = Supervisor(given(tmp_path, backend="slurm", slurm_mode="advise"), listening)
    minding.log, used = mock.Mock(), 0.0
    child = next(one for one in minding.children if one.name == name)
    child.process = process = mock.Mock(pid=4242)
    minding._line = mock.Mock()
    minding._line.head.return_value = Turn(4242, now := 1000.0)
    minding._cpu_s, minding._ready = lambda _: used, lambda _: ready
    while not process.kill.called and now < 1500.0:
        with mock.patch.object(supervisor.time, "monotonic", return_value=now):
            minding._kill_who_holds_up()
        now, used = now + 0.25, used + 0.25 * share
    assert now - 1000.0 == pytest.approx(after_s, abs=0.5)
    assert minding.log.error.call_args.kwargs["why"] == "writes, and others wait"


def test_another_turn_of_the_same_process_begins_anew(minding: Supervisor) -> None:
    [maintenance] = [one for one in minding.children if one.name == "maintenance"]
    maintenance.process = mock.Mock(pid=4242)
    minding._line = mock.Mock()
    for now in range(1000, 1100, 8):
        minding._line.head.return_value = Turn(4242, float(now))
        for later in (0.0, 8.0):
            with mock.patch.object(supervisor.time, "monotonic", return_value=now + later):
                minding._kill_who_holds_up()
    assert not maintenance.process.kill.called


def test_who_waits_for_the_processor_is_ready_and_who_waits_for_else_is_not() -> None:
    busy = "import threading, time; threading.Thread(target=lambda: exec('while 1: 0')).start()"
    both = [f"{busy}; time.sleep(60)", "import time; time.sleep(60)"]
    computes, sleeps = (subprocess.Popen(["nice", "-n19", sys.executable, "-c", c]) for c in both)
    try:
        until(lambda: procs.ready(computes.pid), "a thread of it to be ready")
        until(lambda: not procs.ready(sleeps.pid), "it to sleep")
        computes.send_signal(signal.SIGSTOP)
        until(lambda: not procs.ready(computes.pid), "it to be stopped")
    finally:
        for one in (computes, sleeps):
            one.kill()
            one.wait()
    assert not procs.ready(sleeps.pid)


@pytest.mark.parametrize(
    ("more", "code", "left"),
    [
        ({}, 0, False),
        ({}, -signal.SIGKILL, True),
        ({}, None, True),  # between two
        ({"dry_run": True}, -signal.SIGKILL, False),
        ({"slurm_mode": "advise"}, -signal.SIGKILL, False),
    ],
)
def test_an_order_that_nobody_took_back_is_said_at_a_stop(
    tmp_path: Path, more: dict[str, Any], code: int | None, left: bool
) -> None:
    asked = {"backend": "slurm", "slurm_mode": "order", **more}
    with socket.socket() as listening:
        minding = Supervisor(given(tmp_path, **asked), listening)
    minding.log = mock.Mock()
    [follower] = [one for one in minding.children if one.name == "follower"]
    if code is not None:
        follower.process = mock.Mock(exitcode=code, is_alive=lambda: False)
    minding._stop()
    said = [one.args[0] for one in minding.log.error.call_args_list]
    assert said == ["order_left"] * left


def test_one_that_hangs_ends_with_its_supervisor(tmp_path: Path) -> None:
    """An earlier version left it there: nobody else got the backend, or could write."""
    settings = given(tmp_path)

    def hangs(settings: Settings, stopping: Callable[[], bool]) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def minds(told: Any) -> None:
        with socket.socket() as listening:
            minding, child = Supervisor(settings, listening), supervisor.Child("maintenance", hangs)
            minding._start(child, 0.0)
            assert child.process is not None
            told.send(child.process.pid)
            time.sleep(60)

    fork = get_context("fork")
    hears, told = fork.Pipe(duplex=False)
    minds_it = fork.Process(target=minds, args=(told,))
    minds_it.start()
    pid = hears.recv()
    try:
        _until_state(pid, "T")
        minds_it.kill()
        minds_it.join()
        _until_state(pid, "ZX")
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_who_stands_by_takes_no_lease_that_it_could_not_use(tmp_path: Path) -> None:
    """While another service has the spool, an earlier version took the lease and died, over and
    over, and was said to decide in between."""
    settings = given(tmp_path, backend="local", fake_gpus=True, lease_s=0.5)
    begin(settings, TINY)
    store = Store(settings.database)
    header = LogHeader.from_body(store.read(limit=1)[0].body)
    hung = open_backend(settings, header)  # its decider is not heard of, and has not let go
    assert store.take("decider", "hung", 0.5)
    until(lambda: not store.held("decider"), "its lease to end")
    decider = Decider(
        store, lambda: open_backend(settings, header), BundleStore(tmp_path), holder="stands by"
    )
    looks = iter([False, True])
    with mock.patch("scheduler.backends.local.backend.LOCK_PATIENCE_S", 0.1):
        decider.run(lambda: next(looks), 0.0)
        holder = store.holder("decider")
        assert holder is not None
        assert holder.holder == "hung"
        assert not store.read(kinds=[Kind.LEASE])
        hung.close()  # it was killed
        assert decider.take_over()
    decider.let_go()
    store.close()


SITE_BACKEND = """
from pathlib import Path
from scheduler.backends.simulated import SimulatedBackend, World


def opened(settings, header):
    if not Path("key").exists():
        raise OSError("no key to the machine room")
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    return SimulatedBackend(World(start=header.start, pace=1.0, path=settings.state_dir / "w"))
"""


def test_a_backend_of_the_site_that_does_not_open_is_said_and_tried_again(tmp_path: Path) -> None:
    (tmp_path / "site_backend.py").write_text(SITE_BACKEND)
    settings = given(tmp_path, port=0, log_level="info")
    path = tmp_path / "log"
    with served(settings, path, "--backend", "site_backend:opened", cwd=tmp_path):
        _wait_for(path, "process_died", 2)
        assert {line["why"] for line in _lines(path, "backend_not_opened")} == {
            "OSError: no key to the machine room"
        }
        [port] = {e["port"] for e in _lines(path, "listening")}
        url = f"http://127.0.0.1:{port}"
        said = _not_ready(url)
        assert re.search(r"nobody decides: .* died \d times?, and is started again", said)
        (tmp_path / "key").touch()
        _wait_for(path, "decides", 1)
        assert not _not_ready(url)


def _lines(path: Path, event: str = "") -> list[dict[str, Any]]:
    """The lines of a log, of one event if given."""
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
    return [line for line in lines if event in ("", line["event"])]


def _wait_for(path: Path, event: str, times: int) -> None:
    def happened() -> bool:
        return len(_lines(path, event)) >= times

    assert happened() or until(happened, f"{times} lines {event} in {path}")


def test_services_that_begin_at_once_give_their_state_folder_one_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first: list[str] = []

    def slowly(path: Path, content: str, **more: Any) -> None:
        """Another service begins, and is done, before this one has written the name."""
        monkeypatch.setattr(begins, "write_whole", write_whole)
        first.append(begins._site(tmp_path))
        write_whole(path, content, **more)

    monkeypatch.setattr(begins, "write_whole", slowly)
    assert [begins._site(tmp_path)] == first
    assert [path.name for path in tmp_path.iterdir()] == ["site"]
