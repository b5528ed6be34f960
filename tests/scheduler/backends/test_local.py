"""The local backend keeps the contract with real processes, and what only it can get wrong."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import platform
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.clock import Clock, boot_id
from features.schema import State
from profiler import procs
from profiler.guardian import Guardian
from profiler.progress.apart import Reading
from scheduler.backends.base import Happened, Launch, Report
from scheduler.backends.local import shim as shim_module
from scheduler.backends.local import spool as spool_module
from scheduler.backends.local.backend import Bounds, LocalBackend
from scheduler.backends.local.host import Host, HostError
from scheduler.backends.local.spool import CLAIM, Acks, Spool, SpoolError, name_of, start_ticks
from scheduler.backends.local.zygote import Zygote
from scheduler.testing.backend import (
    BackendContract,
    Does,
    Site,
    a_launch,
    await_start,
    could_begin,
    hear,
    last,
)
from tests.waiting import until

ROOT = Path(__file__).parents[3]
SESSION_KEYRING = -3
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")


class ThisHost:
    """A spool on this host. Commands write to `marks` when they really begin."""

    short_s, step_s = 0.4, 0.1

    def __init__(self, folder: Path, host: Host | None = None, nvml: Any = None) -> None:
        self.folder, self.marks = folder, folder / "marks"
        self.host, self.nvml = host or Host.with_fake([4, 4]), nvml
        self.marks.touch()
        self.backend: LocalBackend | None = None

    def open(self, **bounds: float) -> LocalBackend:
        if self.backend is not None:
            crash(self.backend)
        bound = Bounds(**{"grace_s": 0.5, "check_s": 0.2, **bounds})
        self.backend = LocalBackend.__new__(LocalBackend)  # it may die while it is opened
        self.backend.__init__(  # type: ignore[misc]
            self.folder / "spool", self.host, bounds=bound, nvml_module=self.nvml
        )
        return self.backend

    def command(self, does: Does) -> tuple[str, ...]:
        if does is Does.IS_NOT:
            return ("/no/such/command",)
        grow = "import time; x = bytes(range(256)) * 800_000; time.sleep(999)"
        then = {
            Does.ENDS: "exit 0",
            Does.FAILS: "echo it went wrong >&2; exit 3",
            Does.DIES: "kill -SEGV $$",
            Does.STAYS: "exec sleep 1000",
            Does.GROWS: f"exec {sys.executable} -S -c '{grow}'",
        }[does]
        return sh(f'echo "$PELLUCID_JOB_ID" >> {self.marks}; {then}')

    def begins(self, job_id: str) -> int:
        return self.marks.read_text().split().count(job_id)

    def lose(self, job_id: str) -> None:
        os.kill(self.claim(job_id)["pid"], signal.SIGKILL)

    def claim(self, job_id: str) -> dict[str, int]:
        assert self.backend is not None
        claim = self.backend.spool.read(name_of(job_id, 1), CLAIM)
        assert claim is not None
        return claim

    def close(self) -> None:
        if self.backend is None:
            return
        for job_id, attempt in self.backend.begun():
            self.backend.stop(job_id, attempt)
        for _ in range(100):  # nothing of a test outlives it
            if all(attempt.over for attempt in self.backend._attempts.values()):
                break
            self.backend.acknowledge(self.backend.reports(0.1))
        crash(self.backend)


def sh(script: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", script)


def crash(backend: LocalBackend) -> None:
    """As the death of the service looks from outside: descriptors closed, nothing said."""
    had = vars(backend)
    if "_zygote" in had:
        backend._zygote.dismiss()
    if "_acked" in had:
        backend._acked.close()
    if "_hearing" in had:
        backend._hearing.close()
    for file in (had[name] for name in ("_bell", "_lock") if name in had):
        os.close(file)
    had.clear()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ThisHost]:
    site = ThisHost(tmp_path)
    yield site
    site.close()


def run(site: ThisHost, script: str, **more: object) -> tuple[str, Launch]:
    """Run a script to its end; its output."""
    backend = site.open()
    launch = replace(a_launch(sh(script)), **more)  # type: ignore[arg-type]
    backend.launch(launch)
    hear(backend, site)
    return backend.output("a", 1).read_text(), launch


class TestLocal(BackendContract):
    @pytest.fixture
    def site(self, site: ThisHost) -> Site:
        return site


# --- what a command sees --------------------------------------------------------------------------


def test_it_sees_its_gpus_whatever_it_asks_and_nothing_of_the_services_secrets(
    site: ThisHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    monkeypatch.setenv("PELLUCID_DATABASE", "postgresql://u:hidden@db/x")
    own = {"MINE": "a\nb", "LANG": "xx", "CUDA_VISIBLE_DEVICES": "0,1"}
    text, _ = run(site, "env", nodes=(0, 1), gpus=((1, 3), (0,)), environment=own)
    assert "hidden" not in text
    seen = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    assert seen["CUDA_VISIBLE_DEVICES"] == "1,3,4"  # four GPUs a node, numbered through
    assert (seen["PELLUCID_JOB_ID"], seen["PELLUCID_ATTEMPT"]) == ("a", "1")
    assert (seen["LANG"], seen["MINE"]) == ("xx", "a")


def test_words_of_a_command_are_never_read_by_a_shell(site: ThisHost) -> None:
    backend = site.open()
    words = ("a b", "$(touch owned)", "; touch owned", "`id`", "*", "'\"")
    backend.launch(a_launch(("/usr/bin/printf", "%s\\n", *words)))
    hear(backend, site)
    assert backend.output("a", 1).read_text().splitlines() == list(words)


def test_it_runs_in_a_session_of_its_own_with_no_open_files_but_three(site: ThisHost) -> None:
    text, _ = run(site, "cut -d' ' -f1,6 /proc/$$/stat; ls /proc/$$/fd | wc -w; cat", workdir="/")
    pid, session, files = text.split()
    assert pid == session
    assert files == "3"


def test_the_working_directory_is_entered_or_named_in_the_refusal(
    site: ThisHost, tmp_path: Path
) -> None:
    text, launch = run(site, "pwd", workdir=str(tmp_path))
    assert text.strip() == str(tmp_path)
    backend = site.open()
    backend.acknowledge(backend.reports(0))
    for attempt, workdir in ((2, "/no/such/folder"), (3, "relative")):
        backend.launch(replace(launch, attempt=attempt, workdir=workdir))
        (report,) = (reports := hear(backend, site))
        assert report.what is Happened.NOT_STARTED
        assert workdir in report.detail
        backend.acknowledge(reports)


@pytest.mark.parametrize(
    ("change", "word"), [({"nodes": (9,)}, "node 9"), ({"gpus": ((7,),)}, "GPU 7")]
)
def test_gpus_that_a_host_has_not_may_be_declared_later(
    change: dict[str, object], word: str
) -> None:
    launch = replace(a_launch(("true",)), **change)  # type: ignore[arg-type]
    host = Host.with_fake([4, 4])
    with pytest.raises(HostError, match=word):
        replace(host, fake=False).chosen(launch)
    (later,) = host.chosen(launch)
    assert later not in {gpu for node in host.devices for gpu in node}


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"command": ()}, "empty"),
        ({"command": ("",)}, "empty"),
        ({"command": ("true", "a\0b")}, "NUL"),
        ({"environment": {"A=B": "c"}}, "A=B"),
        ({"environment": {"A": "c\0"}}, "NUL"),
        ({"user": "no-such-user"}, "no-such-user"),
        ({"command": ("/etc/passwd",)}, "Permission denied"),
        ({"command": ("no-such-command-anywhere",)}, "no-such-command-anywhere"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(
    site: ThisHost, change: dict[str, object], word: str
) -> None:
    backend = site.open()
    backend.launch(replace(a_launch(("true",)), **change))  # type: ignore[arg-type]
    (report,) = hear(backend, site)
    assert report.what is Happened.NOT_STARTED
    assert word in report.detail
    assert "\n" not in report.detail


def test_ones_own_name_changes_nothing(site: ThisHost) -> None:
    me = pwd.getpwuid(os.geteuid()).pw_name
    text, _ = run(site, "echo $PATH $HOME", user=me)
    assert text.split() == [os.environ["PATH"], os.environ["HOME"]]


with_keys = pytest.mark.skipif(
    platform.machine() not in procs.SYS_KEYCTL or not Path("/proc/keys").exists(),
    reason="needs a kernel that keeps keys, and the number of keyctl(2) on this machine",
)


def add_key(name: str) -> bool:
    """Into the session keyring; whether there was room for it."""
    key = (b"user", name.encode(), b"secret", 6, SESSION_KEYRING)
    added: int = ctypes.CDLL(None).syscall(procs.SYS_KEYCTL[platform.machine()] - 2, *key)
    return added > 0


@as_root
@with_keys
@pytest.mark.parametrize("others", ["none", "all that it may have"])
def test_another_user_does_not_have_the_keys_of_who_started_the_service(
    site: ThisHost, others: str
) -> None:
    """Kerberos tickets lie in session keyrings, which are inherited whoever one becomes; it kept
    them where its account had so many keys that it could make no keyring."""
    procs.leave_session_keyring()  # of this test, for one of its own
    assert add_key("canary-key")
    assert "canary-key" in Path("/proc/keys").read_text()
    with nobody_with_all_its_keys() if others != "none" else contextlib.nullcontext():
        text, _ = run(site, "cat /proc/keys; echo read", user="nobody", workdir="/")
    assert text.endswith("read\n")
    assert "canary-key" not in text


def test_a_job_that_can_have_no_keyring_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "session keyring")

    monkeypatch.setattr(procs, "leave_session_keyring", full)
    with pytest.raises(shim_module.Refused, match="a session keyring of its own: Disk quota"):
        shim_module._leave_keyring()


@contextlib.contextmanager
def nobody_with_all_its_keys() -> Iterator[None]:
    """A process of user nobody that has as many keys as it may, and can make no keyring."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        told = b"not full"
        try:
            os.setuid(pwd.getpwnam("nobody").pw_uid)
            procs.leave_session_keyring()
            most = int(Path("/proc/sys/kernel/keys/maxkeys").read_text())
            if any(not add_key(f"filler-{number}") for number in range(most + 1)):
                procs.leave_session_keyring()
        except OSError as error:
            told = str(error).encode()
        os.write(write, told)
        signal.pause()
    try:
        assert os.read(read, 100).decode() == "[Errno 122] Disk quota exceeded: 'session keyring'"
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(read)
        os.close(write)


@as_root
def test_it_runs_as_the_user_who_asked_and_cannot_go_back(site: ThisHost) -> None:
    script = (
        "id -u; id -G; echo $HOME $USER; echo through /dev/stdout >> /dev/stdout;"
        "/usr/bin/env python3 -S -c 'import os; os.setuid(0)' 2>&1 | tail -1;"
        f"cat {site.folder}/spool/lock"
    )
    nobody, mine = pwd.getpwnam("nobody"), os.getgroups()
    os.setgroups([0, 4, 42])  # as a login as root has more groups than its own
    try:
        text, _ = run(site, script, user="nobody", workdir="/")
    finally:
        os.setgroups(mine)
    lines = text.splitlines()
    assert lines[0] == str(nobody.pw_uid)
    assert set(lines[1].split()) == {str(g) for g in os.getgrouplist("nobody", nobody.pw_gid)}
    assert lines[2] == f"{nobody.pw_dir} nobody"
    assert lines[3] == "through /dev/stdout"
    assert any("PermissionError" in line for line in lines)
    assert "Permission denied" in lines[-1], "nor read what the service keeps"


@as_root
def test_another_users_command_dies_with_its_shim_too(site: ThisHost) -> None:
    """Changing user takes back the order to die with the parent; it has to be given after."""
    backend = site.open()
    backend.launch(replace(a_launch(("sleep", "1000")), user="nobody", workdir="/"))
    pid = await_start(backend, site).pid
    assert pid is not None
    site.lose("a")
    assert last(hear(backend, site)).what is Happened.LOST
    assert not procs.alive(pid)


@pytest.mark.skipif(shutil.which("fallocate") is None, reason="needs fallocate(1)")
@pytest.mark.parametrize("how", ["-l", "-n -l"], ids=["a large file", "space beyond its end"])
@pytest.mark.parametrize("lives_s", [0, 1])
def test_a_job_keeps_no_disk_by_what_it_sets_aside(site: ThisHost, how: str, lives_s: int) -> None:
    """It did for good where it ended at once, and where its size did not say so."""
    backend = site.open(output_mib=1.0)
    script = f"fallocate {how} {2**26} /proc/self/fd/1; echo the end; sleep {lives_s}; exit 5"
    backend.launch(replace(a_launch(sh(script)), memory_mib=500.0))  # watched often
    ended = last(hear(backend, site))
    assert ended.exit_code == 5, ended.detail
    found = backend.output("a", 1).stat()
    assert max(found.st_size, 512 * found.st_blocks) <= 2**20
    if how != "-l":
        assert ended.detail == "exit code 5: the end"


@pytest.mark.skipif(shutil.which("fallocate") is None, reason="needs fallocate(1)")
def test_what_a_job_writes_while_its_output_is_looked_at_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was cut off at every look where the file had more space than its size (XFS, which sets
    space aside beyond the end of a file that grows, or fallocate)."""
    path = tmp_path / "output"
    guardian = Guardian(-1, -1, {"output": str(path), "output_mib": 1.0})
    try:
        os.write(guardian.output, b"before ")
        subprocess.run(["fallocate", "-n", "-l", str(2**22), str(path)], check=True)
        look = os.fstat

        def written_after(file: int) -> os.stat_result:
            found = look(file)
            os.write(file, b"meanwhile")
            return found

        monkeypatch.setattr(os, "fstat", written_after)
        guardian.bound_output()
    finally:
        os.close(guardian.output)
    assert path.read_bytes() == b"before meanwhile"


# --- ends -----------------------------------------------------------------------------------------


def test_what_a_command_leaves_behind_ends_with_it(site: ThisHost) -> None:
    text, _ = run(site, "sleep 1000 & echo $!")
    assert not procs.alive(int(text))


def test_a_complaint_about_memory_is_an_end_for_lack_of_memory(site: ThisHost) -> None:
    backend = site.open()
    backend.launch(a_launch(sh("echo 'torch.OutOfMemoryError: CUDA out of memory.'; exit 1")))
    ended = last(hear(backend, site))
    assert (ended.state, ended.exit_code) == (State.OUT_OF_MEMORY, 1)


# --- crashes --------------------------------------------------------------------------------------


def test_a_zygote_that_was_killed_is_replaced_and_asked_again(site: ThisHost) -> None:
    backend = site.open()
    backend.launch(a_launch(site.command(Does.ENDS), "a"))
    hear(backend, site)
    pid = backend._zygote.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    backend.launch(a_launch(site.command(Does.ENDS), "b"))
    backend.acknowledge(backend.reports(0))
    hear(backend, site)
    assert (site.begins("a"), site.begins("b")) == (1, 1)


NO_PROCESS = """
import os
import platform
really, calls = os.fork, 0
def fork():
    global calls
    calls += 1
    if calls in {fails}:
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return really()
os.fork = fork
"""


@pytest.mark.parametrize(
    ("fails", "what", "begins"),
    [((1, 2), Happened.ENDED, 1), ((2,), Happened.NOT_STARTED, 0)],
    ids=["for a shim", "for the command"],
)
def test_where_no_process_is_to_be_had_the_zygote_lives(
    site: ThisHost,
    monkeypatch: pytest.MonkeyPatch,
    fails: tuple[int, ...],
    what: Happened,
    begins: int,
) -> None:
    zygotes, really = [], subprocess.Popen

    def popen(args: list[str], **more: Any) -> subprocess.Popen[bytes]:
        args = [*args[:4], NO_PROCESS.format(fails=fails) + args[4], *args[5:]]
        zygotes.append(really(args, **more))
        return zygotes[-1]

    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(Reading, "warm", lambda _: None)
    monkeypatch.setattr("scheduler.backends.local.backend.RESEND_S", 0.1)
    backend = site.open()
    backend.launch(a_launch(site.command(Does.ENDS)))
    told = last(hear(backend, site))
    assert (told.what, site.begins("a"), len(zygotes)) == (what, begins, 1)


def test_a_zygote_that_cannot_be_called_is_called_again(
    site: ThisHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals, really = [errno.EAGAIN, errno.ENOMEM, errno.EAGAIN], subprocess.Popen

    def popen(args: list[str], **more: Any) -> subprocess.Popen[bytes]:
        if refusals:
            raise OSError(refusals.pop(), "no process")
        return really(args, **more)

    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(Reading, "warm", lambda _: None)
    backend = site.open()
    files = {*os.listdir("/proc/self/fd")}  # some of other tests may be closed meanwhile
    backend.launch(a_launch(site.command(Does.ENDS)))
    assert {*os.listdir("/proc/self/fd")} <= files, "no pipe is left open"
    assert last(hear(backend, site)).what is Happened.ENDED
    assert (refusals, site.begins("a")) == ([], 1)


def a_claim(spool: Spool, **more: object) -> None:
    """An attempt whose shim has claimed it and nothing more."""
    claim = {
        "job_id": "a", "attempt": 1, "purpose": "run", "command": ["x"], "nodes": [0],
        "gpus": [[0]], "partner": None, "memory_mib": None, "time_limit_s": None,
        "limit_s": None, "watch_s": None, "held_mib": {}, "devices": ["0"],
        "run_id": "0" * 16, "at": time.time(), "ticks": 1,
        "boot": boot_id(), "pid": 2**22 + 1,
    }  # fmt: skip
    assert spool.claim(name_of("a", 1), {CLAIM: {**claim, **more}})


def test_one_whose_shim_is_gone_is_swept_up_and_lost_and_not_run_again(site: ThisHost) -> None:
    """What has its marker, and what hides and is found by where its output goes: a job that killed
    who stood by it, and went on without its marker, kept its GPU."""
    spool = Spool(site.folder / "spool")
    a_claim(spool, run_id="1" * 16)
    log = spool.log(name_of("a", 1))
    left = [subprocess.Popen(["sleep", "1000"], env={procs.MARKER: "1" * 16})]
    with log.open("ab") as output:
        hidden = ["env", "-i", "sleep", "1000"]
        left.append(subprocess.Popen(hidden, stdout=output, stderr=output, start_new_session=True))
    reader = subprocess.Popen(["tail", "-f", str(log)], stdout=subprocess.DEVNULL)
    try:
        backend = site.open()
        backend.launch(a_launch(site.command(Does.ENDS)))
        assert [r.what for r in hear(backend, site)] == [Happened.LOST]
        assert site.begins("a") == 0
        assert [one.wait(120) for one in left] == [-signal.SIGKILL] * 2
        assert reader.poll() is None, "who reads it is nobody's job"
    finally:
        reader.kill()
        reader.wait()


@pytest.mark.parametrize("change", [{"ticks": 1}, {"boot": "an earlier one"}])
def test_a_process_id_given_anew_is_not_taken_for_the_shim(
    site: ThisHost, change: dict[str, object]
) -> None:
    bystander = subprocess.Popen(["sleep", "1000"])
    try:
        told = {"pid": bystander.pid, "ticks": start_ticks(bystander.pid), **change}
        a_claim(Spool(site.folder / "spool"), **told)
        backend = site.open()
        backend.stop("a", 1)
        assert last(hear(backend, site)).what is Happened.LOST
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_times_of_another_boot_are_those_that_were_written_down(tmp_path: Path) -> None:
    """Seconds since a boot count from another moment after the next."""
    backend, spool = LocalBackend(tmp_path, Host.with_fake([4])), Spool(tmp_path)
    backend.launch(a_launch(sh("true"), "job"))
    name = name_of("job", 1)
    until(lambda: spool.read(name, "over"), "it to end")
    crash(backend)
    for what, change in (("claim", {"boot": "an earlier one"}), ("over", {"at": 1.5e9})):
        record = spool.read(name, what)
        assert record is not None
        spool.record(name, what, {**record, **change}, durable=False)
    backend = LocalBackend(tmp_path, Host.with_fake([4]), clock=Clock(lambda: 1.6e9))
    [ended] = [r for r in backend.reports(0) if r.what is Happened.ENDED]
    backend.close()
    assert ended.at == 1.5e9


def test_what_ended_while_the_service_was_away_is_told_as_it_was(tmp_path: Path) -> None:
    """Its clock was set back meanwhile: a job of four seconds was told to have run for none. Of
    several, one that ended first was told to have ended with the last."""
    off, was = [0.0], [0.0]

    def opened() -> LocalBackend:
        clock = Clock(lambda: time.time() + off[0])
        clock.not_before(was[0])  # as it goes on from what the last holder of the lease wrote
        return LocalBackend(tmp_path, Host.with_fake([4]), clock=clock)

    began, backend = time.time(), opened()
    for number, seconds in enumerate((2.0, 1.0)):
        backend.launch(a_launch(sh(f"sleep {seconds}"), f"job{number}", gpu=number))
    started: dict[str, float] = {}
    while len(started) < 2:
        reports = [r for r in backend.reports(0.1) if r.what is Happened.STARTED]
        backend.acknowledge(reports)
        started |= {r.job_id: r.at for r in reports}
    told = time.time()
    crash(backend)
    names = [name_of(f"job{number}", 1) for number in range(2)]
    spool = Spool(tmp_path)
    until(lambda: all(spool.read(name, "over") for name in names), "both to end")
    off[0], was[0] = -3600.0, time.time()
    backend = opened()
    ended = {r.job_id: r for r in backend.reports(0) if r.what is Happened.ENDED}
    backend.close()
    assert began - 0.1 < started["job0"] < told + 0.1
    assert set(ended) == set(started)
    for job_id, report in ended.items():
        assert report.ran_s is not None
        assert abs(report.at - started[job_id] - report.ran_s) < 0.6, report


def test_only_one_of_many_that_claim_an_attempt_gets_it(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    with ThreadPoolExecutor(8) as pool:
        for i in range(20):
            got = pool.map(lambda n, i=i: spool.claim(f"x@{i}", {CLAIM: {"by": n}}), range(8))
            assert sum(got) == 1
    assert len(spool.names()) == 20
    assert not [name for name in os.listdir(spool.attempts) if name.startswith(".")]


STOPPED_ZYGOTE = """
import os, signal, sys
from pathlib import Path
from scheduler.backends.local.spool import Spool
from scheduler.backends.local.zygote import Zygote
spool = Spool(Path(sys.argv[1]))
zygote = Zygote(spool.root, spool.lock(1.0))
zygote.ask(b"")
os.kill(zygote.pid, signal.SIGSTOP)
print(zygote.pid, flush=True)
sys.stdin.readline()
os._exit(0)
"""


def test_what_hangs_of_a_service_that_is_gone_keeps_nobody_out(
    site: ThisHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.backends.local.backend.LOCK_PATIENCE_S", 0.1)
    spool = site.folder / "spool"
    with subprocess.Popen(
        [sys.executable, "-c", STOPPED_ZYGOTE, str(spool)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
    ) as service:  # fmt: skip
        assert service.stdout is not None
        zygote = int(service.stdout.readline())
        with pytest.raises(SpoolError, match="in use by another service"):
            LocalBackend(spool, Host.with_fake([1]))  # it lives, whatever became of its zygote
        assert start_ticks(zygote) is not None
    monkeypatch.setattr("scheduler.backends.local.backend.LOCK_PATIENCE_S", 1.0)
    LocalBackend(spool, Host.with_fake([1])).close()
    assert start_ticks(zygote) is None


def test_the_spool_is_nobody_elses(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o770)
    with pytest.raises(SpoolError, match="somebody else"):
        Spool(folder)
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(SpoolError, match="file"):
        Spool(file / "below")


def test_reports_are_waited_for_no_longer_than_is_asked(
    site: ThisHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, waited_s = site.open(), list[float]()

    def nothing(_: Sequence[int], timeout_s: float) -> set[int]:
        waited_s.append(timeout_s)
        return set()

    monkeypatch.setattr(procs, "readable", nothing)
    assert not backend.reports(0.0)
    assert waited_s == [0.0]


def test_what_was_acknowledged_leaves_nothing_but_its_output(site: ThisHost) -> None:
    backend, launch = site.open(), a_launch(site.command(Does.FAILS))
    backend.launch(launch)
    reports = hear(backend, site)
    assert os.listdir(backend.spool.attempts)
    backend.acknowledge(reports)
    assert os.listdir(backend.spool.attempts) == []
    backend.launch(launch)
    assert not backend._attempts, "what is over is not run again"
    assert backend.output("a", 1).read_text() == "it went wrong\n"


def test_a_folder_that_was_being_removed_is_removed(site: ThisHost) -> None:
    backend = site.open()
    backend.launch(a_launch(site.command(Does.ENDS)))
    hear(backend, site)
    (backend.spool.attempts / name_of("a", 1) / CLAIM).unlink()
    assert site.open().spool.names() == []


def test_the_oldest_outputs_go_as_soon_as_new_ones_have_made_them_too_large(site: ThisHost) -> None:
    """They went after every thousandth job only: 64 GB of them could be there by then."""
    backend = site.open()
    for i in range(4):
        backend.spool.log(f"old@{i}").write_bytes(b"x" * 400_000)
        os.utime(backend.spool.log(f"old@{i}"), (i, i))
    backend = site.open(kept_output_mib=1.0)
    assert sorted(path.stem for path in backend.spool.output.iterdir()) == ["old@2", "old@3"]
    for name in "abcd":
        backend.launch(replace(a_launch(sh("head -c 600000 /dev/zero")), job_id=name))
        ended = hear(backend, site)
        assert last(ended).exit_code == 0
        backend.acknowledge(ended)
    assert [path.stem for path in backend.spool.output.iterdir()] == ["d@1"]


def test_the_log_of_acks_outlives_a_line_cut_short_and_grows_no_further_than_it_must(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "KEPT", 10)
    path = tmp_path / "told.log"
    acked = Acks(path)
    acked.add([("running", 1, "started", False, 5.0), ("running", 1, "observed", False, 6.0)])
    for i in range(100):
        acked.add([(f"job{i}", 1, "started", False, 7.0), (f"job{i}", 1, "ended", True, 8.0)])
    acked.add([("prevented", 1, "not_started", True, 9.0)])
    assert len(path.read_text().splitlines()) < 40
    acked.close()
    with path.open("a") as file:
        file.write('["job7", 1, "en')
    again = Acks(path)
    again.add([("last", 1, "ended", True, 10.0)])
    again.close()
    final = Acks(path)
    assert final.partly == {("running", 1): {"started", "observed"}}
    assert ("job99", 1) in final.done
    assert ("job1", 1) not in final.done
    assert ("prevented", 1) in final.done
    assert ("prevented", 1) not in final.begun()
    assert final.begun() >= {("job99", 1), ("last", 1)}
    final.close()


def test_a_shim_that_comes_late_finds_the_folder_though_all_was_acknowledged(
    site: ThisHost,
) -> None:
    """A request is under way when the attempt is prevented, or is made twice."""
    backend = site.open()
    prevented, twice = (a_launch(site.command(Does.ENDS), job) for job in ("prevented", "twice"))
    backend._zygote.ask(b"")  # it is there, and
    assert backend._zygote.pid is not None
    os.kill(backend._zygote.pid, signal.SIGSTOP)  # slow
    backend.launch(prevented)
    backend.launch(twice)
    backend._send(backend._attempts[name_of("twice", 1)])
    backend.stop("prevented", 1)
    backend.acknowledge(hear(backend, site))
    os.kill(backend._zygote.pid, signal.SIGCONT)
    backend.acknowledge(hear(backend, site))
    backend._zygote.ask(b"")
    zygote = backend._zygote.pid
    until(lambda: not procs.descendants(zygote), "the end of both shims")
    assert (site.begins("prevented"), site.begins("twice")) == (0, 1)
    assert len(backend.spool.names()) == 2
    assert site.open().begun() == {("twice", 1)}
    assert site.backend is not None
    assert site.backend.spool.names() == []


def test_an_end_is_written_down_when_the_disk_has_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, full = Spool(tmp_path / "spool"), [True, True, False]
    really = Spool.record

    def record(self: Spool, *args: Any, **more: Any) -> None:
        if full.pop(0):
            raise OSError(errno.ENOSPC, "No space left on device")
        really(self, *args, **more)

    monkeypatch.setattr(Spool, "record", record)
    monkeypatch.setattr(shim_module, "RETRY_S", 0.0)
    assert spool.claim("x@1", {CLAIM: {}})
    shim_module.write_down(spool, "x@1", {"reason": "exited"})
    assert spool.read("x@1", "over") == {"reason": "exited"}


def test_no_output_file_is_a_refusal(site: ThisHost) -> None:
    backend = site.open()
    backend.output("a", 1).mkdir()
    backend.launch(a_launch(("true",)))
    (report,) = hear(backend, site)
    assert report.what is Happened.NOT_STARTED
    assert "Is a directory" in report.detail
    backend.output("a", 1).rmdir()


class Died(BaseException):
    """The service is killed here."""


class Doom:
    """Kills the service before or after the n-th thing it does outside its own memory."""

    def __init__(self, patch: pytest.MonkeyPatch):
        self.left = 0
        for owner, name in (
            (Spool, "claim"),
            (Spool, "record"),
            (Spool, "remove"),
            (Acks, "add"),
            (Zygote, "ask"),
        ):
            patch.setattr(owner, name, self._doomed(getattr(owner, name)))

    def _doomed(self, really: Callable[..., Any]) -> Callable[..., Any]:
        def act(*args: Any, **more: Any) -> Any:
            self._count()
            found = really(*args, **more)
            self._count()
            return found

        return act

    def _count(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Died


def test_the_service_may_die_before_and_after_everything_it_does(
    site: ThisHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    doom, deaths, step = Doom(monkeypatch), 0, 0
    while True:
        step += 1
        does = {f"{step}{d.value}": d for d in (Does.ENDS, Does.STAYS, Does.IS_NOT, Does.FAILS)}
        stopped = {f"{step}{Does.STAYS.value}", f"{step}{Does.FAILS.value}"}
        logged: dict[str, Report] = {}
        doom.left, alive = step, True
        while alive:  # each time round is a service, begun anew
            try:
                backend = site.open()
                for job in does.keys() - logged.keys():
                    backend.launch(a_launch(site.command(does[job]), job))
                for job in stopped - logged.keys():
                    backend.stop(job, 1)
                while logged.keys() != does.keys():
                    reports = backend.reports(0.1)  # maybe also what was not acknowledged before
                    logged |= {r.job_id: r for r in reports if r.what.final and r.job_id in does}
                    backend.acknowledge(reports)
                alive = False
            except Died:
                deaths, alive = deaths + 1, True
        for job, report in logged.items():
            assert site.begins(job) in could_begin(report), report
            assert report.what is not Happened.LOST
        if doom.left > 0:
            break  # the service did not live to see that step
    assert deaths == step - 1
    assert deaths >= 16  # how many steps there are hangs on how many reports come at once


# --- names ----------------------------------------------------------------------------------------

EVIL = ["../../etc/passwd", "/etc/passwd", "..", ".", "", "a/b", "a\\b", "a\0b", "~root", "a\nb",
        "-rf", "x" * 5000, "é" * 300, "\udcff", "CON", "a@1", "%2e%2e", ".hidden"]  # fmt: skip


@settings(max_examples=200)
@given(st.text() | st.sampled_from(EVIL), st.text() | st.sampled_from(EVIL), st.integers(1, 10**9))
def test_an_id_of_a_job_never_becomes_a_path(one: str, other: str, attempt: int) -> None:
    name = name_of(one, attempt)
    assert len(name) <= 200
    assert not set(name) & set("/\\\0\n.")
    assert name.isascii()
    assert name.isprintable()
    assert (name == name_of(other, attempt)) == (one == other)
    assert name_of(one, 1) != name_of(f"{one}@1", 1)


def test_jobs_with_any_id_run_and_stay_in_the_spool(site: ThisHost) -> None:
    backend = site.open()
    before = {path for path in site.folder.rglob("*") if "spool" not in path.parts}
    for job_id in EVIL:
        backend.launch(a_launch(("true",), job_id))
    found: dict[str, State | None] = {}
    while len(found) < len(EVIL):
        reports = hear(backend, site)
        found |= {r.job_id: r.state for r in reports if r.what.final}
        backend.acknowledge(reports)
    assert found == dict.fromkeys(EVIL, State.COMPLETED)
    assert all(backend.output(job_id, 1).parent == backend.spool.output for job_id in EVIL)
    assert {path for path in site.folder.rglob("*") if "spool" not in path.parts} == before
    assert site.open().begun() == {(job_id, 1) for job_id in EVIL}


STANDARD_ONLY = {"features", "features.files", "features.given", "features.clock"}


def test_the_zygote_needs_no_package_but_the_standard_library() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[3])!r}); "
        "import scheduler.backends.local.shim, json; print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], check=True, capture_output=True, text=True
    )
    loaded = set(json.loads(done.stdout)) - STANDARD_ONLY
    ours = {name.split(".")[0] for name in loaded}
    assert not ours & {"numpy", "pyarrow", "psutil", "features", "models", "pydantic"}
