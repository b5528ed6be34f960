"""Kills a real service, or moves it, while a client submits: to the present code, or to another
machine.

    python -m benchmarks.moves --json
    python -m benchmarks.moves --only upgrade --older COMMIT

| move | what is done |
|---|---|
| kill | SIGKILL to all its processes at any moment, again and again (`--kills`) |
| upgrade | a service with the code and schema of an older version is stopped; today's goes on |
| restore | a backup is taken; its machine is gone, jobs and all; it is restored on another |
| restore-postgres | the same, by `pg_dump` and `pg_restore` |

As docs/service.md says under "Operations", while the service decides, jobs run and a client
submits. `upgrade` needs the history of this checkout; the others root, as another machine is a
namespace here: other host name, start of the machine, folders, database and account.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import create_engine, make_url

from benchmarks.calibration import program
from benchmarks.life import Life
from benchmarks.postgres import found_bin, private_cluster
from features.folders import temporary_folder
from scheduler.backends.events import Kind
from scheduler.service.api import tokens
from scheduler.service.log.record import Phase
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role

HERE = Path(__file__).parents[1]
MIGRATIONS = "scheduler/service/log/store/migrations/versions"
NOBODY = 65_534
# Another host name, another start of the machine; what the account may not enter on its way to
# the interpreter is made anew, with only that in it.
MACHINE = """set -e
mount --make-rprivate /
hostname another-machine
mount --bind "$1" /proc/sys/kernel/random/boot_id
if [ -n "$2" ]; then
  mkdir -p "$1.home"
  mount --bind "$3" "$1.home"
  mount -t tmpfs -o mode=755 tmpfs "$2"
  mkdir -p "$3"
  mount --bind "$1.home" "$3"
fi
shift 3
exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
"""


class Impossible(Exception):
    """Raised for a move that this machine does not allow, with a reason of one line."""


def kill(folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    life, draw = Life(folder), random.Random(0)
    life.start()
    life.attend(seconds="1", every_s=0.3)
    for _ in range(asked.kills):
        time.sleep(draw.uniform(0.0, 0.6))
        life.kill()
        life.start()
    return {"kills": asked.kills, **life.finish()}


# --- to the code of today -------------------------------------------------------------------------


def previous() -> str:
    """Return the commit before the one that added the newest migration of the database schema."""
    head = max((HERE / MIGRATIONS).glob("[0-9]*.py")).relative_to(HERE)
    added = ("log", "--diff-filter=A", "--format=%H", "-1", "--", str(head))
    return f"{git(*added).decode().strip()}~1"


def git(*words: str) -> bytes:
    try:
        return subprocess.run(
            ["git", "-C", str(HERE), *words], check=True, capture_output=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        raise Impossible("the history of this checkout is not here") from None


def upgrade(folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    older = asked.older or previous()
    code = folder / "older"
    with tarfile.open(fileobj=BytesIO(git("archive", older))) as all_of_it:
        all_of_it.extractall(code)  # of this repository; Python 3.11.2 has no filter
    life = Life(folder, begun=True)
    life.start(code=code)
    life.attend(seconds="6", every_s=0.7)
    time.sleep(asked.load_s)
    life.stop()
    running = sum(p.cmdline()[:2] == ["sleep", "6"] for p in jobs_of(folder))
    before = schema(life.settings.database)
    began = time.monotonic()
    life.start()
    again = round(time.monotonic() - began, 1)
    time.sleep(asked.load_s)
    found = life.finish()
    store = Store(life.settings.database)
    leases = len(store.read(kinds=[Kind.LEASE]))
    store.close()
    return {
        "schema": [before, schema(life.settings.database)],
        "leases_in_log": leases,
        "ran_on": running,
        "ready_again_s": again,
        **found,
    }


def schema(url: str) -> str:
    engine = create_engine(url)
    with engine.connect() as connection:
        found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one()
    engine.dispose()
    return str(found)


def jobs_of(folder: Path) -> list[psutil.Process]:
    """Return the processes of a service's jobs: the shims (which start and watch a command each)
    and the commands.
    """
    found = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and str(folder) in " ".join(process.cmdline()):
                for one in (process, *process.children(recursive=True)):
                    found[one.pid] = one
    return list(found.values())


# --- to another machine ---------------------------------------------------------------------------


def restore(folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    there = folder / "there"

    def backup(life: Life) -> None:
        source = life.settings.state_dir / "pellucid.db"
        command = ["sqlite3", str(source), f"VACUUM INTO '{there / 'pellucid.db'}'"]
        subprocess.run(command, check=True)

    if shutil.which("sqlite3") is None:
        raise Impossible("no sqlite3 here")
    return moved(folder, asked, backup, f"sqlite:///{there / 'pellucid.db'}")


def restore_postgres(folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    binaries = found_bin()
    if binaries is None:
        raise Impossible("PostgreSQL is not installed here")
    binaries = binaries if (binaries / "pg_dump").exists() else binaries.resolve()
    with private_cluster(binaries) as url:
        here = make_url(url)
        other = here.set(database="there")

        def tool(name: str, *more: str) -> None:
            asked = ["-h", str(here.query["host"]), "-U", str(here.username), *more]
            subprocess.run([str(binaries / name), *asked], check=True)

        def backup(life: Life) -> None:
            dump = str(folder / "there.dump")
            tool("pg_dump", "--format=custom", f"--file={dump}", str(here.database))
            tool("createdb", "there")
            tool("pg_restore", "--dbname=there", dump)

        urls = (one.render_as_string(hide_password=False) for one in (here, other))
        return moved(folder, asked, backup, *reversed(list(urls)))


def moved(
    folder: Path,
    asked: argparse.Namespace,
    backup: Callable[[Life], None],
    url: str,
    was: str | None = None,
) -> dict[str, Any]:
    """Take a backup of a service under load, kill its machine, restore the backup on another
    machine and go on there. Return what was found.

    Args:
        asked: the options of the command line.
        backup: takes the backup.
        url: the database of the restored service.
        was: the database of the first service; None: SQLite.
    """
    machine = another_machine(folder)
    folder.chmod(0o755)
    there = folder / "there"
    there.mkdir(mode=0o700)
    (folder / "state").mkdir(mode=0o700)
    was = was or f"sqlite:///{folder / 'state' / 'pellucid.db'}"
    secret = a_token(was)
    life = Life(folder, auth="on", database=was)
    life.headers = {"Authorization": f"Bearer {secret}"}
    life.out.touch()
    life.out.chmod(0o666)
    life.start()
    life.attend(seconds="4", every_s=0.4)
    time.sleep(asked.load_s)
    answered = dict(life.accepted)
    backup(life)
    for name in ("bundles", "site"):
        kept = life.settings.state_dir / name
        if kept.is_dir():
            shutil.copytree(kept, there / name)
        elif kept.exists():
            shutil.copy(kept, there / name)
    time.sleep(3.0)  # it goes on, which the backup does not know
    life.quiet.set()
    life.kill()
    for process in jobs_of(folder / "state"):
        with suppress(psutil.Error):
            process.kill()
    life.over.set()
    for thread in life.threads:
        thread.join()
    life.store.close()
    life.log.close()
    life.out.write_text("")
    rows = in_rows(url)
    for path in (there, *there.rglob("*")):
        os.chown(path, NOBODY, NOBODY)

    other = Life(folder, begun=True, auth="on", state_dir=there, database=url)
    other.headers, other.prefix = life.headers, "later"
    other.accepted = {name: job for name, job in life.accepted.items() if job[0] in rows}
    audited = at_once(other, machine, "audit")
    other.start(through=machine)
    other.attend(seconds="1", every_s=0.5)
    time.sleep(asked.load_s)
    missing = sorted(answered.keys() - other.accepted.keys())
    found = judged(other, {job for job, phase in rows.items() if phase == Phase.ENDED})
    if missing or audited != "clean":
        found["wrong"] |= {"answered_and_not_in_backup": missing, "audit_of_backup": audited}
    return {"answered_before_the_backup": len(answered), "in_backup": len(rows), **found}


def in_rows(url: str) -> dict[str, str]:
    """Return the phase of every job in a database, by job id."""
    engine = create_engine(url)
    with engine.connect() as connection:
        found = connection.exec_driver_sql("SELECT job_id, phase FROM jobs").all()
    engine.dispose()
    return {row.job_id: row.phase for row in found}


def a_token(url: str) -> str:
    """Create a database at `url` with one submitter, whose jobs run as the system user `nobody`.
    Return the secret of that submitter's token.
    """
    store = Store(url)
    prepare(store)
    _, secret = tokens.create(
        store, "ann", Role.SUBMITTER, vcs=("vc",), os_user="nobody", now=time.time()
    )
    store.close()
    return secret


def at_once(life: Life, machine: list[str], *words: str) -> str:
    """Run a `pellucid` command on the machine that a command prefix stands for, as
    `another_machine` returns it. Return the last line that the command prints."""
    names = {"PELLUCID_DATABASE": life.settings.database}
    names["PELLUCID_STATE_DIR"] = str(life.settings.state_dir)
    done = subprocess.run(
        [*machine, sys.executable, "-m", "pipeline.cli", *words],
        env={**os.environ, **names},
        capture_output=True,
        text=True,
    )
    return (done.stdout.strip().splitlines() or [done.stderr.strip()])[-1]


def judged(life: Life, ended: set[str]) -> dict[str, Any]:
    """Return the verdict on a move. Only jobs that ran when the backup was taken may be lost.

    Args:
        ended: jobs that had ended on the old machine before the backup was taken.
    """
    store = Store(life.settings.database)
    lost = {event.job_id for event in store.read(kinds=[Kind.LOST])}
    store.close()
    gone = {name for name, (job, _) in life.accepted.items() if job in lost}
    for name in gone:
        del life.accepted[name]
    found = life.finish()
    wrong: dict[str, list[str]] = found["wrong"]
    over = {name for name, (job, _) in life.accepted.items() if job in ended}
    wrong["unrun"] = sorted(set(wrong.get("unrun", [])) - over)
    again = {line.split()[0] for line in life.out.read_text().splitlines()}
    wrong["lost_and_run_again"] = sorted(gone & again)
    found["wrong"] = {name: what for name, what in wrong.items() if what}
    return {"ran_when_it_was_taken": len(gone), **found}


def another_machine(folder: Path) -> list[str]:
    """Return a command prefix that runs a command as user nobody, with another host name and boot
    id. Raise Impossible where this needs rights that the caller lacks.
    """
    if os.geteuid() != 0:
        raise Impossible("needs root for another host name and account")
    boot = folder / "boot"
    boot.write_text("11111111-2222-3333-4444-555555555555\n")
    home = Path(os.path.realpath(sys.base_prefix))
    closed = next((str(at) for at in reversed(home.parents) if not at.stat().st_mode & 1), "")
    words = [str(boot), closed, str(home)]
    command = ["unshare", "--mount", "--uts", "sh", "-c", MACHINE, "sh", *words]
    tried = subprocess.run([*command, sys.executable, "-c", ""], capture_output=True, text=True)
    if tried.returncode:
        raise Impossible(f"no other machine here: {tried.stderr.strip()[-200:]}")
    return command


ALL: dict[str, Callable[[Path, argparse.Namespace], dict[str, Any]]] = {
    "kill": kill,
    "upgrade": upgrade,
    "restore": restore,
    "restore-postgres": restore_postgres,
}


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """Make the moves of a service that are asked for, one after another, and return the findings of
    each. `holds` is true if no finding is wrong and `/ready` never answered yes while no process
    decided.
    """
    found: dict[str, Any] = {}
    for name in asked.only.split(","):
        with temporary_folder(f"pellucid-{name}-") as folder:
            try:
                found[name] = ALL[name](folder, asked)
            except Impossible as why:
                found[name] = {"left_out": str(why)}
    bad = [o for o in found.values() if o.get("wrong") or o.get("ready_while_nobody_decides")]
    return {**found, "holds": not bad}


if __name__ == "__main__":
    program(
        __doc__,
        None,
        measure,
        only={"default": ",".join(ALL), "help": "some, comma-separated"},
        older={"help": "commit to upgrade from (that before the schema of today)"},
        kills={"type": int, "default": 150},
        load_s={"type": float, "default": 12.0, "help": "before and after each move"},
    )
