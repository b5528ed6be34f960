"""The tables of the database. `events` is the truth. Every other table but `tokens`, `links`,
`leases`, `payloads`, `questions`, `claims` and `idempotency` can be rebuilt from the events, and
`pellucid audit` does so to compare. `chain` and `seals` show alterations of rows that cannot be
rebuilt; see `store.chain`.
"""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    case,
    false,
    func,
    literal_column,
    text,
    true,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction

from scheduler.service.log.record import HOLDS, WAITS

metadata = MetaData()
Columns = dict[str, str | int | float | bool | None]  # a row that is written

events = Table(
    "events",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("at", Float(53), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("job_id", String(64), nullable=False, server_default=""),
    Column("actor", String(128), nullable=False, server_default=""),
    Column("cause", BigInteger, nullable=False, server_default="0"),
    Column("body", Text, nullable=False),  # canonical JSON
    Index("events_by_job", "job_id", "seq"),
    Index("events_by_kind", "kind", "seq"),
)

# Every decision, as the core took it.
decisions = Table(
    "decisions",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),  # the core's own numbering
    Column("event", BigInteger, nullable=False),  # seq of the DECIDED event
    Column("at", Float(53), nullable=False),
    Column("job_id", String(64), nullable=False),
    Column("vc", String(128), nullable=False),
    Column("action", String(16), nullable=False),
    Column("reason", String(48), nullable=False),
    Column("body", Text, nullable=False),  # canonical JSON of the whole decision
    Index("decisions_by_job", "job_id", "seq"),
    Index("decisions_by_event", "event"),
    Index("decisions_by_action", "action", "event"),
)

# Bodies of old events and decisions, compressed; see `store.archive`.
archive = Table(
    "archive",
    metadata,
    Column("name", String(16), primary_key=True),  # of their table
    Column("first", BigInteger, primary_key=True, autoincrement=False),  # their `seq`
    Column("last", BigInteger, nullable=False),
    Column("content", LargeBinary, nullable=False),  # zlib of JSON: {seq: body}
)

# What jobs that are not over run, and their environments; see `store.payloads`.
payloads = Table(
    "payloads",
    metadata,
    Column("job_id", String(64), primary_key=True),
    Column("owner", String(128), nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("command", Text, nullable=False),  # canonical JSON
    Column("environment", Text, nullable=False),
    Column("salt", String(32)),  # random: the digest in `chain` says nothing once the row is gone
    Index("payloads_by_owner", "owner", "bytes"),
)

# One row per job: where it stands.
jobs = Table(
    "jobs",
    metadata,
    Column("job_id", String(64), primary_key=True),
    Column("submitted_seq", BigInteger, nullable=False),
    Column("owner", String(128), nullable=False),
    Column("vc", String(128), nullable=False),
    Column("name", String(256), nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("spec", Text, nullable=False),  # canonical JSON of the submission
    Column("phase", String(16), nullable=False),  # see `service.state.Phase`
    Column("reason", String(48), nullable=False, server_default=""),  # of its latest decision
    Column("priority", Integer, nullable=False, server_default="0"),  # asked for; higher first
    Column("key", Float(53)),  # the policy's order within its VC, smaller first; NULL before
    Column("estimate_s", Float(53)),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("nodes", Text, nullable=False, server_default="[]"),  # [[node, [gpu, ...]], ...]
    Column("partner", String(64)),
    Column("submitted_at", Float(53), nullable=False),
    Column("queued_at", Float(53)),
    Column("started_at", Float(53)),
    Column("ended_at", Float(53)),
    Column("state", String(16)),  # features.schema.State, once it has ended
    Column("exit_code", Integer),
    Column("detail", Text, nullable=False, server_default=""),
    Column("slurm", Text),  # of a followed one: JSON of an `slurm.reason.SlurmReason`
    Column("cancel_asked", Boolean, nullable=False, server_default="0"),
    Column("hold", String(16), nullable=False, server_default=""),  # who may release it,
    Column("held_by", String(128), nullable=False, server_default=""),  # who held it,
    Column("held_at", Float(53)),  # and when
    Column("waited_s", Float(53)),  # before `waits_since`; NULL: not counted when it was written
    Column("waits_since", Float(53)),  # NULL: it does not wait
    Column("updated_seq", BigInteger, nullable=False),  # of the last event that changed the row
    Index("jobs_by_phase", "phase", "vc", "submitted_at", "gpus"),
    # its place in line (`store.reads`): as it stands there, for it is found by the same expression
    Index(
        "jobs_by_place",
        "phase",
        "vc",
        text("(-priority)"),
        text("coalesce(key, 1e300)"),
        "submitted_seq",
    ),
    Index("jobs_by_owner", "owner", "submitted_seq"),
    Index("jobs_by_owner_phase", "owner", "phase"),
    Index("jobs_by_seq", "submitted_seq"),
    Index(
        "jobs_begun",
        "started_at",
        sqlite_where=text("started_at IS NOT NULL AND ended_at IS NULL"),
        postgresql_where=text("started_at IS NOT NULL AND ended_at IS NULL"),
    ),
    Index(
        "jobs_by_end",
        "ended_at",
        sqlite_where=text("ended_at IS NOT NULL"),
        postgresql_where=text("ended_at IS NOT NULL"),
    ),
)


class in_bytes(GenericFunction[str]):
    """An SQL function: a text, ordered by its code points whatever the database's language."""

    type = String()
    inherit_cache = True


@compiles(in_bytes)
def _plain(element: in_bytes, compiler: Any, **given: Any) -> str:
    return str(compiler.process(element.clauses, **given))


@compiles(in_bytes, "postgresql")
def _collated(element: in_bytes, compiler: Any, **given: Any) -> str:
    return f'({compiler.process(element.clauses, **given)} COLLATE "C")'


def _by_id() -> tuple[ColumnElement[Any], ColumnElement[str]]:
    one: ColumnElement[int] = literal_column("1")
    job_id = jobs.c.job_id
    rest = func.ltrim(job_id, literal_column("'0123456789'"))
    ends = func.substr(rest, one, one).in_([literal_column("''"), literal_column("'_'")])
    starts = func.substr(job_id, one, one).in_([literal_column(f"'{n}'") for n in range(1, 10)])
    digits = case((starts & ends, func.length(job_id) - func.length(rest)))
    return func.coalesce(digits, literal_column("65")), in_bytes(job_id)


def digits_of(job_id: str) -> int:
    """Return how many digits the number of a job id has: 3 for "123" and for "123_4". Return 65,
    more than any number has, for an id of another form. `by_id` sorts by this first.
    """
    number = re.match(r"([1-9][0-9]*)(?:_|\Z)", job_id)
    return len(number[1]) if number else 65


# The order of a table of jobs: numbers before words, and 99 before 123456, by how many digits they
# have. An index has the same expressions, without parameters, else no database would use it.
by_id = _by_id()
not_over = jobs.c.ended_at.is_(None)
Index("jobs_by_id", *by_id, jobs.c.gpus, sqlite_where=not_over, postgresql_where=not_over)
# Those that are not over, and of them those on GPUs: by their phase, of which there is an index.
live = jobs.c.phase.in_([phase.value for phase in (*WAITS, *HOLDS)])
on_gpus = jobs.c.phase.in_([phase.value for phase in HOLDS]) & (jobs.c.nodes != "[]")
# When the wait of a job would have begun that waits now, had it waited without a pause; NULL: it
# does not wait.
waiting_from = case(
    (jobs.c.waited_s.is_not(None), jobs.c.waits_since - jobs.c.waited_s),
    (jobs.c.slurm.is_not(None), jobs.c.queued_at),
    else_=jobs.c.submitted_at,
)
# Seconds that a job waited which has started, as `JobRow.waited` says. Of a row of before 0021 the
# time counts, too, for which other jobs had to end first.
waited = func.coalesce(
    jobs.c.waited_s,
    jobs.c.started_at
    - case(
        (jobs.c.slurm.is_not(None), func.coalesce(jobs.c.queued_at, jobs.c.submitted_at)),
        else_=jobs.c.submitted_at,
    ),
)

# Forecasts: the one made at submission is kept and scored, the latest is replaced.
forecasts = Table(
    "forecasts",
    metadata,
    Column("job_id", String(64), primary_key=True),
    Column("basis", String(16), primary_key=True),  # "submission" or "latest"
    Column("made_at", Float(53), nullable=False),
    Column("start_p50", Float(53)),  # seconds since the epoch; all NULL: estimate unavailable
    Column("start_p90", Float(53)),
    Column("end_p50", Float(53)),
    Column("end_p90", Float(53)),
    Column("why_not", String(256), nullable=False, server_default=""),
    Column("start_p10", Float(53)),
    Column("estimate", String(16)),  # an `explain.words.ForecastKind`; NULL: neither
    Column("receipt", Text),  # of a job that runs: JSON; see `scheduler.core.receipts`
)

# What was claimed, and whether it held; see `explain.claims`.
claims = Table(
    "claims",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("kind", String(24), nullable=False),
    Column("job_id", String(64), nullable=False),
    Column("made_at", Float(53), nullable=False),
    Column("seq", BigInteger, nullable=False),  # the last event that was known then
    Column("change", Text, nullable=False, server_default="{}"),  # of an offer: canonical JSON
    Column("due", Float(53)),  # by when it must have happened; once it is taken: from then
    Column("figure", Float(53)),
    Column("taken_at", Float(53)),  # of an offer: when its owner made the change
    Column("taken_by", String(64)),  # the job that is it now: itself, or submitted in its place
    Column("judged_at", Float(53)),
    Column("held", Boolean),
    Column("came", Float(53)),  # what came: a start, an end, a speed
    Index("claims_open", "judged_at", "job_id"),
    Index("claims_by_kind", "kind", "held"),
)

nodes = Table(
    "nodes",
    metadata,
    Column("node", Integer, primary_key=True, autoincrement=False),
    Column("name", String(128), nullable=False),
    Column("vc", String(128), nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("gpu_type", String(64), nullable=False, server_default=""),
    Column("open", Boolean, nullable=False, server_default="1"),
    Column("gpu_memory_mib", Float(53), nullable=False, server_default="24576"),
    # lent to the profiling partition for good
    Column("profiling", Boolean, nullable=False, server_default=false()),
    # once nothing runs there: "{}" it goes, or what it is then (canonical JSON); "" = nothing
    Column("change", Text, nullable=False, server_default=""),
    Column("reason", Text, nullable=False, server_default=""),  # why it is drained,
    Column("actor", String(128), nullable=False, server_default=""),  # by whom,
    Column("since", Float(53)),  # and since when
    # [index, since, why] of its GPUs that do not answer (canonical JSON); NULL = all do
    Column("closed_gpus", Text),
)

# Changes of the policy's settings that were taken: the last is in force, or how the log began.
settings = Table(
    "settings",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),  # of its SETTINGS_SET event
    Column("at", Float(53), nullable=False),
    Column("actor", String(128), nullable=False, server_default=""),
    Column("reason", Text, nullable=False, server_default=""),
    Column("settings", Text, nullable=False),  # canonical JSON: every setting of the policy
)

# Questions to the analyst (forecast now, what-if); answered and then forgotten after a while.
questions = Table(
    "questions",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("asked_at", Float(53), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("body", Text, nullable=False),
    Column("answer", Text),  # canonical JSON; NULL until answered
    Column("answered_at", Float(53)),
    Column("actor", String(128), nullable=False, server_default=""),  # who asks
    Index("questions_open", "answered_at", "asked_at"),
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("actor", String(128), primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("digest", String(64), nullable=False),  # of the request: another body is a conflict
    Column("job_id", String(64), nullable=False),
    Column("at", Float(53), nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("name", String(128), nullable=False),
    Column("hash", String(128), nullable=False),  # of the secret; the secret is shown once
    Column("role", String(16), nullable=False),  # viewer, submitter, operator
    Column("vcs", Text, nullable=False, server_default="[]"),  # JSON list; [] = none
    Column("os_user", String(64), nullable=False, server_default=""),
    Column("created_at", Float(53), nullable=False),
    Column("expires_at", Float(53)),
    Column("revoked_at", Float(53)),
    UniqueConstraint("hash"),
)

links = Table(  # that show one job without a token; one that is not here does not hold
    "links",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("job_id", String(64), nullable=False),
    Column("token_id", String(36), nullable=False),  # that signed it
    Column("made_at", Float(53), nullable=False),
    Column("until", Float(53), nullable=False),
)

leases = Table(
    "leases",
    metadata,
    Column("name", String(32), primary_key=True),  # "decider", "analyst"
    Column("holder", String(128), nullable=False),
    Column("term", BigInteger, nullable=False),  # goes up with every change of holder
    # time of day at which it runs out unless it is renewed; for people, nothing is decided by it
    Column("expires_at", Float(53), nullable=False),
    Column("for_s", Float(53), nullable=False, server_default="0"),  # see `leases.Lease`
    Column("beats", BigInteger, nullable=False, server_default="0"),
    Column("beat_at", Float(53), nullable=False, server_default="0"),
    Column("boot", String(64), nullable=False, server_default=""),
    Column("ready", Boolean, nullable=False, server_default=true()),
    Column("doing", String(200), nullable=False, server_default=""),
)

# One row for each transaction that wrote what pages show; see `store.chain`.
chain = Table(
    "chain",
    metadata,
    Column(
        "seq",
        BigInteger().with_variant(Integer, "sqlite"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("content", Text, nullable=False),  # canonical JSON: [[table, key, digest], ...]
    Column("head", String(64), nullable=False),  # covers the head before, and `content`
)

# Digests of rows that are replaced all the time.
seals = Table(
    "seals",
    metadata,
    Column("name", String(16), primary_key=True),  # of their table
    Column("key", String(128), primary_key=True),
    Column("digest", String(43), nullable=False),
)
