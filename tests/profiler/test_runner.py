"""Running a command: how it ends, and that nothing of it is left, whatever it does."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiler import procs, runner
from profiler.ends import memory_complaint
from profiler.errors import BadOption, CommandNotFound, NotExecutable
from profiler.runner import Limits, Outcome
from tests.waiting import until

PYTHON = sys.executable
ROOT = Path(__file__).resolve().parents[2]


def python(code: str) -> list[str]:
    return [PYTHON, "-c", textwrap.dedent(code)]


def run(command: list[str], folder: Path, **limits: float) -> runner.Ending:
    """Run to the end and check that no process carrying the run's marker survives."""
    with runner.start(command, folder, limits=Limits(**{"seconds": 120, **limits})) as started:
        ending = started.wait()
    assert procs.marked(started.run_id) == []
    assert ending.survivors == ()
    return ending


@contextlib.contextmanager
def many_open_files() -> Iterator[None]:
    """Hold so many files open that what is opened next has a descriptor above 1023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1200:
        pytest.skip("so many files may not be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    held = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while held[-1] < 1024:
            held.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for file in held:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_it_runs_alike_where_many_files_are_open(tmp_path: Path) -> None:
    with many_open_files():
        reading, writing = os.pipe()
        assert procs.readable([reading], 0.0) == set()
        os.write(writing, b"x")
        assert procs.readable([reading], 60.0) == {reading}
        os.close(writing)
        os.read(reading, 1)
        assert procs.readable([reading], 60.0) == {reading}, "its end can be read"
        os.close(reading)
        assert run(python("raise SystemExit(3)"), tmp_path).exit_code == 3


PRINTS = "import sys\nfor i in range(100): print(i)\nraise SystemExit(7)"


@pytest.mark.parametrize(
    ("code", "told", "words"),
    [
        ("print('accuracy 0.9')", (Outcome.FINISHED, 0, 0, ("accuracy 0.9",)), ""),
        (PRINTS, (Outcome.FAILED, 7, 0, tuple(str(i) for i in range(80, 100))), "exit code 7"),
        ("import os; os.kill(os.getpid(), 11)", (Outcome.FAILED, None, 11, ()), "SIGSEGV"),
        (r"print('\r1%\r50%\r100%')", (Outcome.FINISHED, 0, 0, ("100%",)), ""),
    ],
    ids=["an early end", "a crash", "a fatal signal", "a progress bar"],
)
def test_how_a_command_ends_is_told_with_its_last_lines(
    tmp_path: Path, code: str, told: tuple[object, ...], words: str
) -> None:
    ending = run(python(code), tmp_path)
    assert (ending.outcome, ending.exit_code, ending.signal, ending.last_lines) == told
    assert words in ending.detail


def test_the_limit_stops_a_healthy_command(tmp_path: Path) -> None:
    ending = run(python("import time; time.sleep(60)"), tmp_path, seconds=0.5)
    assert ending.outcome is Outcome.LIMIT
    assert ending.duration_s >= 0.5
    assert ending.killed == 0  # SIGTERM was enough


def test_children_that_ignore_sigterm_fork_and_leave_the_session_are_caught(tmp_path: Path) -> None:
    # a shell that ignores SIGTERM, a child in a session of its own, and a daemon forked twice
    code = """
        import os, signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                open("daemon", "w").write(str(os.getpid()))
                time.sleep(300)
            os._exit(0)
        for _ in range(3):
            if os.fork() == 0:
                os.setsid()
                time.sleep(300)
        time.sleep(300)
    """
    with runner.start(
        python(code), tmp_path, cwd=tmp_path, limits=Limits(seconds=600, grace_s=0.3)
    ) as started:
        until(lambda: sum(map(procs.alive, started.pids())) == 5, "five processes")
        told = tmp_path / "daemon"
        until(lambda: told.exists() and told.read_text(), "the daemon")
        daemon = int(told.read_text())
        assert daemon in started.pids()  # an orphan still belongs to the tree
        assert started.poll() is None
        ending = started.stop()
    assert started.stop() is ending
    assert ending.outcome is Outcome.INTERRUPTED
    assert ending.killed >= 5
    assert not procs.alive(daemon)
    assert procs.marked(started.run_id) == []


def test_what_a_finished_command_leaves_behind_is_ended_and_counted(tmp_path: Path) -> None:
    code = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(300)"
    ending = run(python(code), tmp_path)
    assert (ending.outcome, ending.left_behind) == (Outcome.FINISHED, 1)


def test_a_stopped_process_is_ended_too(tmp_path: Path) -> None:
    ending = run(python("import os; os.kill(os.getpid(), 19)"), tmp_path, seconds=0.5, grace_s=2)
    assert ending.outcome is Outcome.LIMIT
    assert ending.killed == 0  # woken, it took the SIGTERM


def test_memory_shared_by_forked_workers_counts_once(tmp_path: Path) -> None:
    # 120 MiB shared by six processes: 840 MiB by resident sizes, well under the limit in truth
    code = """
        import os, time
        held = bytearray(120 * 2**20)
        for i in range(0, len(held), 4096): held[i] = 1
        for _ in range(6):
            if os.fork() == 0:
                sum(held[::4096]); time.sleep(1.5); os._exit(0)
        for _ in range(6): os.wait()
    """
    ending = run(python(code), tmp_path, memory_mib=400.0)
    assert ending.outcome is Outcome.FINISHED, ending.detail


def test_filling_memory_ends_at_the_limit_and_memory_of_children_counts(tmp_path: Path) -> None:
    code = """
        import os, time
        for _ in range(4):
            if os.fork() == 0:
                held = b"x" * (80 * 2**20); time.sleep(60)
        time.sleep(60)
    """
    ending = run(python(code), tmp_path, memory_mib=250.0)
    assert ending.outcome is Outcome.OUT_OF_MEMORY
    assert "250 MiB" in ending.detail
    assert ending.peak_memory_mib > 250


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "GPU"),
        ("RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory", "host"),
        ("MemoryError", "host"),
    ],
)
def test_a_complaint_about_memory_is_understood(tmp_path: Path, line: str, where: str) -> None:
    ending = run(python(f"import sys; sys.exit({line!r})"), tmp_path)
    assert ending.outcome is Outcome.OUT_OF_MEMORY
    assert where in ending.detail


def test_speaking_of_memory_is_not_running_out_of_it(tmp_path: Path) -> None:
    ending = run(python("import sys; print('no CUDA out of memory here'); sys.exit(0)"), tmp_path)
    assert ending.outcome is Outcome.FINISHED
    assert memory_complaint(["a MemoryError was handled"]) is None


def test_output_is_bounded(tmp_path: Path) -> None:
    code = """
        import os, time
        most = 0
        while (size := os.fstat(1).st_size) >= most:  # until it is emptied
            most = size
            print("x" * 99_999, flush=True) if size < 1.5 * 2**20 else time.sleep(0.01)
        print("last")
    """
    ending = run(python(code), tmp_path, output_mib=1.0)
    assert ending.output_emptied >= 1
    assert ending.last_lines[-1] == "last"
    assert (tmp_path / runner.OUTPUT_NAME).stat().st_size < 4 * 2**20


def test_a_command_has_kernel_limits_and_no_signals_that_its_guard_ignores(tmp_path: Path) -> None:
    code = """
        import resource as r, signal as s
        print(r.getrlimit(r.RLIMIT_CORE)[0], r.getrlimit(r.RLIMIT_NOFILE)[0])
        print([n for n in (s.SIGTERM, s.SIGHUP, s.SIGQUIT) if s.getsignal(n) is s.SIG_IGN])
        try: bytearray(600 * 2**20)
        except MemoryError: print("refused")
    """
    ending = run(python(code), tmp_path, data_mib=300.0, open_files=64)
    assert ending.last_lines == ("0 64", "[]", "refused")


def test_an_exception_in_the_caller_ends_the_run(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="oops"),
        runner.start(python("import time; time.sleep(60)"), tmp_path) as started,
    ):
        raise RuntimeError("oops")
    assert procs.marked(started.run_id) == []


CALLER = """
import sys
from pathlib import Path
from profiler import runner
code = '''
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: time.sleep(300)
    os._exit(0)
time.sleep(300)
'''
run = runner.start([sys.executable, "-c", code], Path(sys.argv[1]),
                   limits=runner.Limits(seconds=120, grace_s=0.2))
print(run.run_id, run.guardian.pid, flush=True)
FORK
run.wait()
"""


# a plain fork of the profiler inherits the pipe whose closing would tell of its death
SIBLING = "import os\nif os.fork() == 0:\n    os.read(0, 1)\n    os._exit(0)"


@pytest.mark.parametrize(
    ("sig", "fork"), [(signal.SIGKILL, ""), (signal.SIGTERM, ""), (signal.SIGKILL, SIBLING)]
)
def test_killing_the_profiler_leaves_nothing(
    tmp_path: Path, sig: signal.Signals, fork: str
) -> None:
    with subprocess.Popen(
        [PYTHON, "-c", CALLER.replace("FORK", fork), str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        run_id, guardian = process.stdout.readline().split()
        until(lambda: len(procs.marked(run_id)) >= 2, "the command and its child")
        os.kill(process.pid, sig)
        process.wait()
        until(lambda: procs.marked(run_id) == [], "nothing to be left")
        until(lambda: not procs.alive(int(guardian)), "the guard to end")


def test_killing_the_guard_is_noticed_and_swept_up(tmp_path: Path) -> None:
    code = """
        import os, time
        if os.fork() == 0:
            os.setsid(); time.sleep(300)
        time.sleep(300)
    """
    with runner.start(python(code), tmp_path) as started:
        until(lambda: len(started.pids()) == 2, "the command and its child")
        os.kill(started.guardian.pid, signal.SIGKILL)
        ending = started.wait()
    assert ending.outcome is Outcome.FAILED
    assert "guard" in ending.detail
    assert procs.marked(started.run_id) == []


def test_what_cannot_be_executed_is_refused_before_anything_starts(tmp_path: Path) -> None:
    plain = tmp_path / "script"
    plain.write_text("echo hi\n")
    headless = tmp_path / "headless"
    headless.write_text("#!/no/such/interpreter\n")
    headless.chmod(0o755)
    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"\x00\x01\x02")
    garbage.chmod(0o755)
    for command, error, words in [
        (["no-such-command-at-all"], CommandNotFound, "not found: no-such"),
        ([str(tmp_path / "missing")], CommandNotFound, "not found"),
        ([str(plain)], NotExecutable, "no permission"),
        (["script"], NotExecutable, "no permission"),
        ([str(tmp_path)], NotExecutable, "directory"),
        ([str(headless)], CommandNotFound, "interpreter"),
        ([str(garbage)], NotExecutable, "cannot execute"),
        ([], BadOption, "no command"),
        ([""], BadOption, "no command"),
        (["a\0b"], BadOption, "NUL"),
    ]:
        with pytest.raises(error, match=words) as caught:
            runner.start(command, tmp_path / "run", env={"PATH": str(tmp_path)})
        assert "\n" not in str(caught.value)


def test_a_relative_command_is_found_from_its_working_directory(tmp_path: Path) -> None:
    script = tmp_path / "go"
    script.write_text("#!/bin/sh\npwd\n")
    script.chmod(0o755)
    with runner.start(["./go"], tmp_path / "run", cwd=tmp_path) as started:
        assert started.wait().last_lines == (str(tmp_path.resolve()),)


def test_a_missing_working_directory(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="does not exist"):
        runner.start(["true"], tmp_path, cwd=tmp_path / "nowhere")


@pytest.mark.parametrize(
    "options",
    [
        {"seconds": 0},
        {"seconds": -1},
        {"seconds": float("nan")},
        {"seconds": float("inf")},
        {"grace_s": -1},
        {"memory_mib": 0},
        {"data_mib": float("nan")},
        {"output_mib": -5},
        {"open_files": 3},
    ],
)
def test_impossible_limits(options: dict[str, float]) -> None:
    with pytest.raises(BadOption):
        Limits(**options)  # type: ignore[arg-type]
