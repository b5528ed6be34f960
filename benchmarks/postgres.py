"""Starts a PostgreSQL, runs a command with it, and deletes it afterwards.

    python -m benchmarks.postgres --user nobody -- python -m pytest tests/scheduler/service

The command finds the database's URL in PELLUCID_TEST_DATABASE.
"""

from __future__ import annotations

import argparse
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.ending import taken_down


def found_bin() -> Path | None:
    """Return the folder of initdb and pg_ctl, or None where PostgreSQL is not installed."""
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (folder / "initdb").exists():
            return folder
    there = shutil.which("initdb")
    return Path(there).parent if there else None


@contextmanager
def private_cluster(binaries: Path, user: str = "nobody") -> Iterator[str]:
    """Run a PostgreSQL that listens only on a socket in its own folder. Yield its URL; stop and
    delete it when the block ends, also by SIGTERM or SIGHUP.
    """
    with taken_down():
        folder = Path(tempfile.mkdtemp(prefix="pellucid-pg-"))
        try:
            yield from _running(folder, binaries, user)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _running(folder: Path, binaries: Path, user: str) -> Iterator[str]:
    name, become = pwd.getpwuid(os.getuid()).pw_name, []
    if os.getuid() == 0:
        name, become = user, ["setpriv", f"--reuid={user}", "--regid=nogroup", "--clear-groups"]
        shutil.chown(folder, user)
    data, log = folder / "data", folder / "log"

    def run(tool: str, *arguments: str) -> None:
        command = [*become, str(binaries / tool), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        if done.returncode:
            sys.exit(f"{tool} failed: {done.stderr.strip() or done.stdout.strip()}")

    run("initdb", "-D", str(data), "-A", "trust", "-E", "UTF8", "--no-sync", "-U", name)
    # what is deleted afterwards need not be on a disk first: without a wait for it nothing is lost
    # by a kill, only by the host's end
    options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
    try:
        run("pg_ctl", "-D", str(data), "-l", str(log), "-w", "-o", options, "start")
        yield f"postgresql+psycopg://{name}@/postgres?host={folder}"
    finally:
        if (data / "postmaster.pid").exists():
            run("pg_ctl", "-D", str(data), "-m", "immediate", "-w", "stop")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--bin", type=Path, help="folder that holds the programs initdb and pg_ctl")
    parser.add_argument(
        "--user", default="nobody", help="system user that runs the database, if the caller is root"
    )
    parser.add_argument("command", nargs="+")
    asked = parser.parse_args()
    binaries = asked.bin if asked.bin and asked.bin.parts else found_bin()
    if binaries is None:
        sys.exit("PostgreSQL is not installed here: apt-get install postgresql, or give --bin")
    with private_cluster(binaries, asked.user) as url:
        environment = {**os.environ, "PELLUCID_TEST_DATABASE": url}
        with subprocess.Popen(asked.command, env=environment) as command:
            try:
                status = command.wait()
            finally:
                command.terminate()  # nothing where it has ended
    sys.exit(status)


if __name__ == "__main__":
    main()
