"""Messages to owners who asked for them (`notify`) when a job starts or ends.

They are sent by the site's own program, called as Slurm calls its MailProg: `PROGRAM -s SUBJECT
OWNER`, the text on standard input. /usr/bin/mail sends e-mail; a script of a few lines a webhook.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import structlog
from sqlalchemy import RowMapping, select
from sqlalchemy.exc import DBAPIError

from features.files import write_whole
from scheduler.backends.events import Kind
from scheduler.service.log.record import Phase
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import events, jobs

POLL_S = 2.0
LONGEST_S = 30.0  # that the program may take
BATCH = 500
KINDS = (Kind.STARTED, Kind.ENDED, Kind.LOST)


class Notice(NamedTuple):
    """A message. `seq`: of the event it is about."""

    seq: int
    owner: str
    subject: str
    text: str


def keep_notifying(
    database: str, program: str, cursor: Path, stopping: Callable[[float], bool]
) -> None:
    """Send what is due every two seconds, until stopped; of events before the first call nothing.

    Each is sent once, or twice if this process dies between sending and noting it. One that the
    program fails to send is logged, and not sent again.

    Args:
        cursor: file with the number of the last event that was looked at.
        stopping: waits for so many seconds at most; True: stop.
    """
    store, log = Store(database), structlog.get_logger("notices")
    try:
        while not stopping(POLL_S):
            try:
                if not cursor.exists():
                    write_whole(cursor, str(store.last_seq()), durable=True)
                after = int(cursor.read_text("ascii"))
                upto = store.last_seq()
                for notice in due(store, after, upto):
                    if why := _sent(program, notice):
                        log.warning("notice_not_sent", owner=notice.owner, why=why)
                    write_whole(cursor, str(notice.seq), durable=True)
                if upto > after:
                    write_whole(cursor, str(upto))
            except (DBAPIError, OSError, ValueError) as error:  # tried again the next time
                log.warning("notices_failed", why=str(error).splitlines()[0])
    finally:
        store.close()


def due(store: Store, after: int, upto: int) -> Iterator[Notice]:
    """Messages about the events `after` < seq <= `upto`, in their order."""
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


def _notice(row: RowMapping, what: str) -> Notice:
    name = f"{row['name']} ({row['job_id']})" if row["name"] else row["job_id"]
    lines = [f"Job {name} {what}.", f"GPUs: {row['gpus']} in {row['vc']}."]
    if row["ended_at"] == row["at"]:
        if row["exit_code"] is not None:
            lines.append(f"Exit code: {row['exit_code']}.")
        lines.append(f"pellucid logs {row['job_id']} prints its output.")
    return Notice(row["seq"], row["owner"], f"Pellucid job {name} {what}", "\n".join(lines) + "\n")


def _sent(program: str, notice: Notice) -> str:
    """Why it could not be sent; "" = it was."""
    argv = [program, "-s", notice.subject, notice.owner]
    if notice.owner.startswith("-"):
        return "the owner's name would be read as an option"
    try:
        done = subprocess.run(
            argv, input=notice.text.encode(), capture_output=True, timeout=LONGEST_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else f"{program} ended with {done.returncode}"
