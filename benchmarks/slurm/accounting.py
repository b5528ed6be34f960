"""Starts the accounting of a private cluster before slurmctld: MariaDB on a socket, and slurmdbd,
which uses it.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from benchmarks.slurm.config import SLURM_USER, Ports
from benchmarks.slurm.processes import Processes, SlurmError, as_user, listening

DATABASE_USER = "mysql"
_SMALL = (
    "--innodb-buffer-pool-size=64M",
    "--innodb-log-file-size=16M",
    "--innodb-lock-wait-timeout=900",
    "--innodb-flush-log-at-trx-commit=0",
    "--skip-log-bin",
)

Ready = Callable[[str, Callable[[], bool]], None]


def start_database(folder: Path, processes: Processes, ready: Ready) -> None:
    """Start MariaDB with its data in the folder. The system account of slurmdbd may log in without
    a password.
    """
    home = folder / "mariadb"
    home.mkdir(mode=0o755)
    shutil.chown(home, DATABASE_USER)
    arguments = ["--no-defaults", f"--datadir={home}/data", f"--tmpdir={home}"]
    made = subprocess.run(
        [
            *as_user(DATABASE_USER),
            "mariadb-install-db",
            *arguments,
            "--auth-root-authentication-method=socket",
            "--skip-test-db",
            "--skip-name-resolve",
            *_SMALL[:2],
        ],
        capture_output=True,
        text=True,
        cwd=home,
        check=False,
    )
    if made.returncode:
        raise SlurmError(f"mariadb-install-db: {made.stderr.strip() or made.stdout.strip()}")
    first = home / "first.sql"
    first.write_text(
        f"CREATE USER IF NOT EXISTS {SLURM_USER}@localhost IDENTIFIED VIA unix_socket;\n"
        f"GRANT ALL ON slurm_acct_db.* TO {SLURM_USER}@localhost;\n"
    )
    processes.start(
        "mariadbd",
        [
            "mariadbd",
            *arguments,
            f"--socket={home}/socket",
            f"--pid-file={home}/pid",
            f"--init-file={first}",
            "--plugin-load-add=auth_socket",
            "--skip-networking",
            *_SMALL,
        ],
        user=DATABASE_USER,
    )
    ready("mariadbd", (home / "socket").exists)


def start_slurmdbd(folder: Path, processes: Processes, ports: Ports, ready: Ready) -> None:
    """Start slurmdbd, which reaches its database through a socket in the folder."""
    state, conf = folder / "state", folder / "slurmdbd.conf"
    conf.touch(mode=0o600)
    conf.write_text(
        f"AuthType=auth/munge\nAuthInfo=socket={folder}/munge/socket\n"
        f"DbdHost=localhost\nDbdAddr=127.0.0.1\nDbdPort={ports.database}\n"
        f"SlurmUser={SLURM_USER}\nLogFile={state}/slurmdbd.log\nPidFile={state}/slurmdbd.pid\n"
        "StorageType=accounting_storage/mysql\nStorageHost=localhost\n"
        f"StorageUser={SLURM_USER}\nStorageLoc=slurm_acct_db\n"
    )
    shutil.chown(conf, SLURM_USER)
    # The database client finds the socket by this; slurmdbd.conf has no word for it.
    environment = {
        "SLURM_CONF": str(folder / "slurm.conf"),
        "MYSQL_UNIX_PORT": str(folder / "mariadb" / "socket"),
    }
    processes.start("slurmdbd", ["slurmdbd", "-D"], user=SLURM_USER, environment=environment)
    # Asking by sacctmgr would cost ten seconds when it is too early: it tries again that late.
    ready("slurmdbd", lambda: listening(ports.database))


def remember(folder: Path, cluster: str, rows: Iterable[Mapping[str, str | int]]) -> None:
    """Write ended jobs into slurmdbd's table, as if they had run, each under the user in its field
    `user`.
    """
    assoc = f"SELECT id_assoc FROM {cluster}_assoc_table WHERE user='{{}}' AND deleted=0 LIMIT 1"
    lines = ["SET sql_mode='';"]
    for row in rows:
        said = {name: f"'{value}'" for name, value in row.items() if name != "user"}
        said["id_assoc"] = f"({assoc.format(row['user'])})"
        names, values = "`,`".join(said), ",".join(said.values())
        lines.append(f"INSERT INTO {cluster}_job_table (`{names}`) VALUES ({values});")
    command = ["mariadb", "--no-defaults", f"--socket={folder}/mariadb/socket", "slurm_acct_db"]
    done = subprocess.run(
        command, input="\n".join(lines), text=True, capture_output=True, check=False
    )
    if done.returncode:
        raise SlurmError(f"mariadb: {done.stderr.strip()}")
