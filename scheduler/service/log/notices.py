"""Messages to the owners of jobs who asked for them (`notify`) when a job starts or ends.

They are sent by a program of the site, called as Slurm calls its MailProg: `PROGRAM -s SUBJECT
OWNER`, with the text on standard input. /usr/bin/mail sends e-mail; a script of a few lines can
call a webhook.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import structlog
from sqlalchemy import RowMapping, select
from sqlalchemy.exc import DBAPIError

from features.files import write_whole
from features.given import read_text
from features.plain import first_line
from scheduler.backends.events import Kind
from scheduler.service.log.record import Phase
from scheduler.service.log.store.leases import Lease, LeaseLost
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import events, jobs

POLL_S = 2.0
LONGEST_S = 30.0  # that the program may take
BATCH = 500
LEASE, LEASE_S = "notices", 5 * POLL_S  # of services on one database, one sends
LAG = int(2 * LONGEST_S / POLL_S) + 5  # looks after which another has sent it, or lost the lease
LOG = "notices"
# A job may go on after a CANCEL_ASKED: it is a message only where the job is over by it.
KINDS = (Kind.STARTED, Kind.ENDED, Kind.LOST, Kind.NOT_STARTED, Kind.CANCEL_ASKED)


class Notice(NamedTuple):
    """A message to an owner. `seq`: number of the event it is about."""

    seq: int
    owner: str
    subject: str
    text: str


def keep_notifying(
    database: str, program: str, cursor: Path, stopping: Callable[[float], bool]
) -> None:
    """Every two seconds, until stopped, send the messages that are due. The first call sends
    nothing about events that are in the log already.

    Each message is sent once; or twice, if this process dies between sending and noting it, or
    another service on the database takes over. A message that the program fails to send is logged,
    and not sent again.

    Args:
        program: path of the program that sends messages.
        cursor: file with the number of the last event that was handled.
        stopping: waits for so many seconds at most; returns True to stop.
    """
    store, log, lease = Store(database), structlog.get_logger(LOG), None
    holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
    behind: deque[int] = deque(maxlen=LAG + 1)  # what another had to send, at the last looks
    try:
        while not stopping(POLL_S):
            try:
                upto = _decided(store)
                mark(store, cursor)
                after = int(read_text(cursor))
                lease = store.take(LEASE, holder, LEASE_S)
                if lease is None:
                    behind.append(upto)
                    upto = behind[0] if len(behind) > LAG else after
                else:
                    behind.clear()
                    lease = _send(
                        store=store,
                        program=program,
                        cursor=cursor,
                        lease=lease,
                        notices=due(store, after, upto),
                    )
                if upto > after:
                    write_whole(cursor, str(upto))
            except LeaseLost:
                lease = None
            except (DBAPIError, OSError, ValueError) as error:  # tried again the next time
                log.warning("notices_failed", why=first_line(error))
        if lease is not None:
            store.let_go(lease)
    finally:
        store.close()


def mark(store: Store, cursor: Path) -> None:
    """Create the file `cursor` with the number of the last event covered by a decision pass, if it
    is not there yet, so that messages are sent about later events only.
    """
    if not cursor.exists():
        write_whole(cursor, str(_decided(store)), durable=True)


def _decided(store: Store) -> int:
    """Return the number of the last event that a decision pass covers, or 0 before the first pass.
    The table of jobs does not show later events yet.
    """
    query = select(events.c.cause).where(events.c.kind == Kind.DECIDED.value)
    with store.engine.connect() as connection:
        return connection.execute(query.order_by(events.c.seq.desc()).limit(1)).scalar() or 0


def due(store: Store, after: int, upto: int) -> Iterator[Notice]:
    """Yield messages to owners who asked for them, about the events `after` < seq <= `upto`, in
    their order.
    """
    columns = (events.c.seq, events.c.kind, events.c.at, *jobs.c)
    query = (
        select(*columns)
        .join(jobs, jobs.c.job_id == events.c.job_id)
        .where(events.c.kind.in_([kind.value for kind in KINDS]), events.c.seq <= upto)
        .order_by(events.c.seq)
        .limit(BATCH)
    )
    while True:
        with store.reading() as connection:
            rows = connection.execute(query.where(events.c.seq > after)).mappings().all()
        if not rows:
            return
        for row in rows:
            after = row["seq"]
            if not json.loads(row["spec"]).get("notify"):
                continue
            if row["kind"] == Kind.STARTED and row["started_at"] == row["at"]:
                yield _notice(row, "has started")
            elif row["kind"] != Kind.STARTED and row["ended_at"] == row["at"]:
                state = row["state"] or Phase(row["phase"]).value
                yield _notice(row, f"has ended: {state}")


def _send(
    store: Store, program: str, cursor: Path, lease: Lease, notices: Iterable[Notice]
) -> Lease:
    """Send messages, and write the number of each to `cursor`, whether it could be sent or not.
    Renew the lease meanwhile, and return it. Raise LeaseLost where another process has taken it.
    """

    def keep() -> None:
        nonlocal lease
        lease = store.keep(lease)

    for notice in notices:
        keep()
        if why := _sent(program, notice, keep):
            structlog.get_logger(LOG).warning("notice_not_sent", owner=notice.owner, why=why)
        write_whole(cursor, str(notice.seq), durable=True)
    return lease


def _notice(row: RowMapping, what: str) -> Notice:
    name = f"{row['name']} ({row['job_id']})" if row["name"] else row["job_id"]
    lines = [f"Job {name} {what}.", f"GPUs: {row['gpus']} in {row['vc']}."]
    if row["ended_at"] == row["at"]:
        if row["detail"]:
            lines.append(f"Why: {row['detail']}.")
        if row["exit_code"] is not None:
            lines.append(f"Exit code: {row['exit_code']}.")
        if row["started_at"] is not None:
            lines.append(f"pellucid logs {row['job_id']} prints its output.")
    return Notice(row["seq"], row["owner"], f"Pellucid job {name} {what}", "\n".join(lines) + "\n")


def _sent(program: str, notice: Notice, meanwhile: Callable[[], object] = lambda: None) -> str:
    """Send one message. Return why it could not be sent, or "" where it was. `meanwhile` is called
    every two seconds while the program runs.
    """
    argv = [program, "-s", notice.subject, notice.owner]
    if not notice.owner[:1].isalnum():  # of mail: -option, |command, /file, +folder
        return "the owner's name would be read as an option, a command or a file"
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return str(error)
    text: bytes | None = notice.text.encode()
    try:
        for _ in range(int(LONGEST_S / POLL_S)):
            with suppress(subprocess.TimeoutExpired):
                process.communicate(text, timeout=POLL_S)
                return (
                    "" if process.returncode == 0 else f"{program} ended with {process.returncode}"
                )
            text = None
            meanwhile()
        return f"{program} took longer than {LONGEST_S:g} s"
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)  # what it began, too
            process.wait()
