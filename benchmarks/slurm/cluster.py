"""`SlurmCluster`: munged, slurmctld and a few slurmd on this host, in a folder of their own.

    with SlurmCluster() as slurm:
        slurm.run("sbatch", "--gpus=2", "--wrap", "sleep 5", user="games")

Needs root (the daemons run jobs as other users) and the packages `make slurm-test` installs.
Nothing of it is left when the block ends: processes are looked for, not assumed gone.
"""

from __future__ import annotations

import json
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.slurm import accounting
from benchmarks.slurm.config import SLURM_USER, UNIVERSITY, Own, Ports, Shape, write
from benchmarks.slurm.processes import (
    PATIENCE_S,
    Processes,
    SlurmError,
    as_user,
    free_ports,
    until,
)
from scheduler.slurm.read.versions import job_as_first, release_of

PREFIX = "pellucid-slurm-"  # of the folder's name; the process id follows
NEEDED = ("munged", "slurmctld", "slurmd", "sbatch")
NEEDED_ACCOUNTING = ("slurmdbd", "mariadbd", "mariadb-install-db")


class SlurmCluster:
    """Real Slurm daemons with fake GPUs. A context manager: the daemons end with the block.

    Attributes:
        folder: folder with all of the cluster's files: configuration, state, spools, logs.
        environment: variables that a client needs to reach the cluster (SLURM_CONF).
        nodes: names of the cluster's nodes.
    """

    def __init__(
        self,
        nodes: int = 4,
        gpus: int = 8,
        accounting: bool = False,
        university: bool = False,
        own: Own | None = None,
    ) -> None:
        own = UNIVERSITY if university else own
        nodes = own.nodes if own is not None else nodes
        self.shape = Shape(nodes, gpus, accounting, own)
        self.nodes = tuple(f"n{index + 1}" for index in range(nodes))

    def __enter__(self) -> SlurmCluster:
        _check(self.shape.accounting)
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        self.folder.chmod(0o755)
        self.name = self.folder.name.replace("-", "").replace("_", "0").lower()
        self.environment = {"SLURM_CONF": str(self.folder / "slurm.conf")}
        self._processes = Processes(self.folder, self.name)
        controller, database, *nodes = free_ports(2 + self.shape.nodes)
        self.ports = Ports(controller, tuple(nodes), database)
        try:
            self._bring_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in reversed(self._processes.names()):
            self._processes.end(name, signal.SIGTERM, timeout_s=5.0)
        left = self._processes.sweep()
        if left:
            raise SlurmError("processes outlived the cluster:\n" + "\n".join(left))
        shutil.rmtree(self.folder, ignore_errors=True)

    def _bring_up(self) -> None:
        for name, owner in (("state", SLURM_USER), ("spool", "root"), ("munge", "munge")):
            path = self.folder / name
            path.mkdir(mode=0o755)
            shutil.chown(path, owner)
        write(self.folder, self.name, self.shape, self.ports)
        self._start_munge()
        if self.shape.accounting:
            accounting.start_database(self.folder, self._processes, self._until_up)
            accounting.start_slurmdbd(self.folder, self._processes, self.ports, self._until_up)
        self.start_controller()
        for node in self.nodes:
            self.start_node(node)
        self.wait_idle()

    def _start_munge(self) -> None:
        folder = self.folder / "munge"
        key = folder / "key"
        key.touch(mode=0o600)
        shutil.chown(key, "munge")
        key.write_bytes(secrets.token_bytes(128))
        files = {name: f"--{name}-file={folder}/{name}" for name in ("pid", "log", "seed", "key")}
        self._processes.start(
            "munged",
            ["munged", "--foreground", f"--socket={folder}/socket", *files.values()],
            user="munge",
        )
        self._until_up("munged", (folder / "socket").exists)

    def _until_up(self, name: str, holds: Callable[[], bool]) -> None:
        def ready() -> bool:
            if not self._processes.alive(name):
                said = (self.folder / f"{name}.out").read_text(errors="replace")[-2000:]
                raise SlurmError(f"{name} ended at once: {said.strip()}")
            return holds()

        until(ready, f"{name} to be up")

    def run(
        self,
        *command: str,
        user: str | None = None,
        check: bool = True,
        timeout_s: float = PATIENCE_S,
        stdin: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a Slurm command against this cluster, as `user`; None means this process's user.
        Return the ended process.

        Raises:
            SlurmError: the command failed, and `check` is true.
        """
        words, env = self._command(command, user, environment)
        done = subprocess.run(
            words,
            env=env,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            input=stdin,
            cwd="/tmp",
            check=False,
        )
        if check and done.returncode:
            raise SlurmError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
        return done

    def account(self, *lines: str) -> None:
        """Run `sacctmgr -i` with each line, and wait until slurmctld knows the users added.
        Slurm 26.05 tells slurmctld only after sacctmgr has ended.
        """
        for line in lines:
            self.run("sacctmgr", "-i", *line.split())
        users = {line.split()[2] for line in lines if line.startswith("add user")}

        def known() -> bool:
            said = self.run("scontrol", "show", "assoc_mgr", "flags=assoc").stdout
            return all(f" UserName={user}(" in said for user in users)

        until(known, "slurmctld to know its users")

    def shared(self, users: Collection[str]) -> None:
        """Wait until Slurm has computed the fair shares of these users for the first time; until
        then, new users have none.
        """

        def known() -> bool:
            text = self.run("sshare", "-h", "-P", "-a", "-o", "User,FairShare").stdout
            shares = [line.split("|") for line in text.splitlines()]
            return all(float(share or 0) > 0 for user, share in shares if user.strip() in users)

        until(known, "fair shares", 150.0)

    def start(self, *command: str, user: str | None = None) -> subprocess.Popen[str]:
        """Start a command that stays in the foreground (srun, salloc). Return its process."""
        words, env = self._command(command, user, None)
        return subprocess.Popen(
            words,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd="/tmp",
        )

    def _command(
        self, command: Sequence[str], user: str | None, environment: Mapping[str, str] | None
    ) -> tuple[list[str], dict[str, str]]:
        become = [] if user is None else as_user(user)
        home = {} if user is None else {"HOME": "/", "USER": user, "LOGNAME": user}
        plain = {key: value for key, value in os.environ.items() if not _of_slurm(key)}
        return [*become, *command], {**plain, **home, **self.environment, **(environment or {})}

    def jobs(self) -> dict[int, dict[str, Any]]:
        """Return every job that Slurm still knows, by job id, each in the form that `squeue --json`
        of release 22.05 prints.
        """
        told = json.loads(self.run("squeue", "--json", "--states=all").stdout)
        of = release_of(told)
        return {job["job_id"]: job_as_first(job, of) for job in told["jobs"]}

    def node_states(self) -> dict[str, str]:
        """Return the state of each node, by name, as `sinfo` prints it."""
        lines = self.run("sinfo", "-h", "-N", "-o", "%N %T", check=False).stdout.splitlines()
        return dict(line.split() for line in lines)

    def wait_idle(self, timeout_s: float = PATIENCE_S) -> None:
        """Wait until every node is idle."""
        want = dict.fromkeys(self.nodes, "idle")
        until(lambda: self.node_states() == want, "idle nodes", timeout_s)

    def start_controller(self) -> None:
        """Start slurmctld (again). Wait until it answers and its nodes have registered."""
        command = ["slurmctld", "-D", "-f", self.environment["SLURM_CONF"]]
        state = self.folder / "state"
        if (state / "clustername").exists() and not (state / "assoc_usage").exists():
            command.append("-i")  # killed before it saved usage: 26.05 would not start again
        self._processes.start("slurmctld", command)
        answers = ("scontrol", "ping")
        self._until_up("slurmctld", lambda: not self.run(*answers, check=False).returncode)
        # A drain of a node it has not heard of would be forgotten when it does.
        expected = {node for node in self.nodes if self._processes.alive(node)}
        until(lambda: not expected & self._unknown(), "the nodes to be heard of")

    def _unknown(self) -> set[str]:
        return {node for node, state in self.node_states().items() if "unk" in state}

    def stop_controller(self) -> None:
        """Stop slurmctld in good order: its state is saved, and jobs keep running."""
        self._processes.end("slurmctld", signal.SIGTERM)

    def kill_controller(self) -> None:
        """Kill slurmctld (SIGKILL); jobs keep running.

        slurmctld saves its state every few seconds and forgets what happened after the last save.
        When it is back, a job that began after that save is killed on its node and begun again.
        """
        self._processes.end("slurmctld", signal.SIGKILL)

    def kill_database(self) -> None:
        """Kill slurmdbd (SIGKILL). slurmctld keeps running, and keeps its events until slurmdbd is
        back.
        """
        self._processes.end("slurmdbd", signal.SIGKILL)

    def start_database(self) -> None:
        """Start slurmdbd again."""
        accounting.start_slurmdbd(self.folder, self._processes, self.ports, self._until_up)

    def start_node(self, node: str) -> None:
        """Start the slurmd of a node (again)."""
        conf = self.environment["SLURM_CONF"]
        self._processes.start(node, ["slurmd", "-D", "-N", node, "-f", conf])

    def kill_node(self, node: str) -> None:
        """Kill the slurmd of a node (SIGKILL). Slurm marks the node down after SlurmdTimeout (10
        s).
        """
        self._processes.end(node, signal.SIGKILL)

    def mark(self, node: str, state: str, reason: str = "test") -> None:
        """Set a node's state (down, drain or resume) with `scontrol update`."""
        change = ["scontrol", "update", f"nodename={node}", f"state={state}"]
        if state != "resume":
            self.run(*change, f"reason={reason}")
        else:  # refused while the node is being cleared, and when it came back by itself
            until(lambda: self._resumed(node, change), f"{node} to resume")

    def _resumed(self, node: str, change: list[str]) -> bool:
        resumed = self.run(*change, check=False).returncode == 0
        return resumed or not self.node_states()[node].startswith(("down", "drain"))

    def log(self, name: str = "slurmctld") -> str:
        """Return the log of slurmctld, or of a node's slurmd."""
        path = "state/slurmctld.log" if name == "slurmctld" else f"spool/{name}.log"
        return (self.folder / path).read_text(errors="replace")


def _of_slurm(variable: str) -> bool:
    return variable.startswith(("SLURM_", "SBATCH_", "SALLOC_", "SQUEUE_", "SINFO_"))


def _check(accounting: bool) -> None:
    needed = NEEDED + (NEEDED_ACCOUNTING if accounting else ())
    missing = [name for name in needed if shutil.which(name) is None]
    if missing:
        raise SlurmError(f"not installed: {', '.join(missing)} (make slurm-test installs them)")
    if os.geteuid() != 0:
        raise SlurmError("Slurm's daemons need root to run jobs as other users")
    for user in (SLURM_USER, "munge"):
        try:
            pwd.getpwnam(user)
        except KeyError as error:
            raise SlurmError(f"there is no user {user}, which Slurm's packages make") from error
