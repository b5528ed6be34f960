"""Starts the demo's service, submits jobs to it, and stops it without leaving processes behind."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from features.given import LARGE, read_text
from pipeline.console import bar
from pipeline.demo.plan import CLUSTER, USERS, Sent, declared
from pipeline.errors import UserError
from pipeline.serving import usable
from scheduler.service.api import tokens
from scheduler.service.client import Client, ServiceError
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role

OPERATOR = "olga"
START_S = 300.0  # longest time a service may take to be ready, on a busy host too
END_S = 20.0  # jobs and service may take so long to end
BUNDLES = Path("data/bundle"), Path("data/prebuilt/bundle")  # the first that is there


@dataclass(frozen=True)
class Running:
    """A running demo service, with its address and tokens.

    Attributes:
        address: URL of its pages and API.
        secrets: token of each user, and of the operator, by name.
        log: file with the service's output.
    """

    address: str
    secrets: Mapping[str, str]
    process: subprocess.Popen[bytes]
    log: Path

    def client(self, who: str = OPERATOR) -> Client:
        return Client(self.address, self.secrets[who])


@contextmanager
def service(folder: Path, port: int, policy: str | None = None) -> Iterator[Running]:
    """Start a service with fake GPUs in the folder `folder`, which is emptied first, and yield the
    running service.

    At the end its jobs are cancelled and it is stopped. Raises UserError if it does not start.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    settings = _settings(folder, port, policy)
    secrets = _people(settings["database"])
    log = folder / "service.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "pipeline.cli", "serve", "--config", folder / "service.yaml"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,  # a Ctrl-C is ours to pass on, once its jobs are stopped
        )
    running = Running(f"http://127.0.0.1:{port}", secrets, process, log)
    try:
        _await_ready(running)
        yield running
    finally:
        _stop(running)


def feed(running: Running, plan: list[Sent], stopping: Callable[[], bool]) -> int:
    """Submit the planned jobs, each as its user and at its time, until `stopping` returns true.
    Return the number of jobs submitted. Raises UserError if the service has ended."""
    start, sent = time.monotonic(), 0
    with ExitStack() as stack, bar("submitted", len(plan), quiet=False) as shown:
        clients = {user: stack.enter_context(running.client(user)) for user in USERS}
        for planned in plan:
            while (left := start + planned.after_s - time.monotonic()) > 0:
                if stopping():
                    return sent
                time.sleep(min(left, 0.2))
            if running.process.poll() is not None:
                raise UserError(f"the service ended by itself; see {running.log}")
            clients[planned.user].submit(**planned.asked, key=f"demo-{sent}")
            sent += 1
            shown(sent)
    return sent


def unfinished(client: Client) -> list[str]:
    """Return the ids of the jobs that wait or run, without those that are held."""
    live = ("submitted", "profiling", "queued", "starting", "running")
    return [job["job_id"] for phase in live for job in client.jobs(phase=phase)]


def outcome(client: Client) -> dict[str, int]:
    """Return the number of jobs by the state in which they ended, or by their phase if they have
    not."""
    counts: dict[str, int] = {}
    for job in client.jobs():
        state = job["state"] or job["phase"]
        counts[state] = counts.get(state, 0) + 1
    return dict(sorted(counts.items()))


# --- parts ---------------------------------------------------------------------------------------


def _settings(folder: Path, port: int, policy: str | None) -> dict[str, str]:
    """Write the cluster file and the declared profiles into `folder`. Return the settings of the
    service."""
    (folder / "cluster.yaml").write_text(yaml.safe_dump(CLUSTER, sort_keys=False))
    (folder / "profiles.json").write_text(json.dumps(list(declared()), indent=1))
    bundle, _ = usable(BUNDLES)
    settings = {
        "database": f"sqlite:///{folder.resolve() / 'pellucid.db'}",
        "cluster": str(folder / "cluster.yaml"),
        "state_dir": str(folder.resolve() / "state"),
        "backend": "local",
        "fake_gpus": True,
        "single_tenant": True,  # the four people are one
        "fake_profiles": str(folder / "profiles.json"),
        "auth": "on",
        "port": port,
        "bundle": str(bundle.resolve()) if bundle else None,
        **({"policy": policy} if policy else {}),
    }
    (folder / "service.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
    return {name: str(value) for name, value in settings.items()}


def _people(database: str) -> dict[str, str]:
    """Create access tokens in a new database: one for each user, and one for an operator. Return
    the tokens by user name."""
    me = pwd.getpwuid(os.geteuid()).pw_name
    store = Store(database)
    try:
        prepare(store)
        now = time.time()
        made = {
            user: tokens.create(store, user, Role.SUBMITTER, vcs=vcs, os_user=me, now=now)[1]
            for user, vcs in USERS.items()
        }
        made[OPERATOR] = tokens.create(store, OPERATOR, Role.OPERATOR, os_user=me, now=now)[1]
    finally:
        store.close()
    return made


def _await_ready(running: Running) -> None:
    """Wait until the service answers a question about the cluster. Raises UserError if it ends,
    or does not answer within `START_S`."""
    until = time.monotonic() + START_S
    with running.client() as client:
        while time.monotonic() < until:
            if running.process.poll() is not None:
                log = read_text(running.log, LARGE, errors="replace").strip().splitlines()
                raise UserError(f"the service did not start: {log[-1] if log else running.log}")
            try:
                client.cluster()
                return
            except ServiceError:
                time.sleep(0.2)
    raise UserError(f"the service was not ready within {START_S:g} s; see {running.log}")


def _stop(running: Running) -> None:
    """Cancel every job that `unfinished` names, wait for them to end (at most `END_S`), then
    stop the service. Kill it if it has not stopped after `END_S` more."""
    process = running.process
    until = time.monotonic() + END_S
    with running.client() as client:
        try:
            for job_id in unfinished(client):
                client.cancel(job_id)
            while unfinished(client) and time.monotonic() < until:
                time.sleep(0.2)
        except ServiceError:
            pass  # it is gone, or never was there
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
