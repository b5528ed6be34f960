"""Whether a database still follows from its log, and its rows are as they were written.

The log is folded again: every pass must take the decisions it took then, to the byte, and every
derived table must hold what the fold says. From where code of another version decided otherwise
the log is followed: its decisions must still be those that it has the digest of.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, select
from sqlalchemy.exc import NoResultFound

from models.bundle import BundleError
from scheduler.backends.events import Event, Kind, canonical
from scheduler.backends.submission import Submission
from scheduler.core.settings import UnknownPolicy
from scheduler.service.log.fold import Bundles, Diverged, State, digest_of, encoded
from scheduler.service.log.followed import followed, logged, texts_of
from scheduler.service.log.header import FOLLOWED, code_version
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import jobs, nodes, settings
from scheduler.service.log.tamper import Head, Tampered, Verified, damage

# what folding makes of an event that is none of ours
_NO_EVENT = (AttributeError, LookupError, TypeError, ValueError, NoResultFound)


class CannotCheck(ValueError):
    """The log needs what is not here; that says nothing of the database. One line."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """One place where the database is not what its log makes it.

    Attributes:
        seq: the event it concerns: a pass, or the last that changed a row.
        where: "pass", "decisions", "jobs", "nodes"; "log" when an event makes no sense.
        what: the first thing that differs: a decision, or a column of a row.
        logged, found: what the database says, and what the fold says.
        version, bundle: code and models in charge at the time.
    """

    seq: int
    where: str
    what: str
    logged: Any
    found: Any
    version: str
    bundle: str

    def sentence(self) -> str:
        """In words, for a person."""
        models = f"bundle {self.bundle[:12]}" if self.bundle else "no bundle"
        return (
            f"event {self.seq}: {self.where}: {self.what} is {self.logged!r} in the database and "
            f"{self.found!r} by the log; decided by code {self.version}, {models}"
        )


@dataclass(slots=True)
class Audit:
    """What was checked, and what was found.

    Attributes:
        code: version of the code that checked.
        new_epochs: how often a clock was mended, or an older release began a new core.
        links: transactions in the chain. checked_by: the database's own check.
        divergences: in the order of the log.
        tampered: rows that are not as they were written. damage: what the database's own check
            finds.
        otherwise: the first pass of other code which this code would have taken otherwise; no
            divergence.
    """

    code: str
    events: int = 0
    passes: int = 0
    decisions: int = 0
    new_epochs: int = 0
    jobs: int = 0
    links: int = 0
    checked_by: str = ""
    divergences: list[Divergence] = field(default_factory=list)
    tampered: list[Tampered] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    otherwise: list[Divergence] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not (self.divergences or self.tampered or self.damage)


def audit(
    store: Store,
    bundles: Bundles,
    progress: Callable[[int], None] = lambda _: None,
    *,
    head: Head | None = None,
) -> Audit:
    """Check a database, live or not, as of one moment.

    Args:
        head: one exported earlier, which the database's chain must extend.

    Raises BundleError when a bundle that was decided with is not to be found, CannotCheck when the
    policy is not.
    """
    try:
        with store.reading() as connection:
            auditor = _Auditor(connection, store, bundles, progress)
            found = auditor.run()
            began = auditor.state.header
            followed = began is not None and began.backend == FOLLOWED
            chained = Verified(connection, followed, head)
            found.links, found.tampered = chained.links, chained.found
            found.damage, found.checked_by = damage(connection)
            return found
    except UnknownPolicy as error:
        raise CannotCheck(
            f"the log was not checked: {error}; run the audit where the service's policy can be "
            "imported: installed, or in the current folder"
        ) from None


class _Auditor:
    def __init__(
        self,
        connection: Connection,
        store: Store,
        bundles: Bundles,
        progress: Callable[[int], None],
    ):
        self.connection, self.store, self.bundles = connection, store, bundles
        self.progress = progress
        self.state = State(bundles, keep=True)
        self.found = Audit(code_version())
        self.reigns: list[tuple[int, str, str]] = []  # from which pass on, code, bundle
        self.at = 0  # the event checked
        self.off = False  # folding stopped at a divergence, until a new epoch
        self.otherwise: Divergence | None = None  # there, by code of another version

    def run(self) -> Audit:
        try:
            self._walk()
            self._compare_rows()
        except (BundleError, UnknownPolicy):
            raise
        except (
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
            NoResultFound,
        ) as error:
            self._diverged(self.at, "log", "what the event means", str(error), "nothing")
        self.found.divergences.sort(key=lambda d: (d.seq, d.where not in ("pass", "decisions")))
        return self.found

    def _walk(self) -> None:
        found, upto = self.found, self.store.last_seq_in(self.connection)
        for event in self.store.each_in(self.connection, upto=upto):
            self.at = event.seq
            found.events += 1
            if found.events % 1000 == 0:
                self.progress(found.events)
            if event.kind is Kind.EPOCH:
                found.new_epochs += 1
                if self.otherwise is not None:
                    found.otherwise.append(self.otherwise)
                self.state, self.off, self.otherwise = self._followed(event.seq), False, None
            elif not self.off:
                self._fold(event)
            elif event.kind is Kind.DECIDED:
                self._follow(event)
            if event.kind is Kind.DECIDED:
                found.passes += 1
                found.decisions += event.body["count"]
        if self.otherwise is not None:
            found.otherwise.append(self.otherwise)
        if self.off:
            self.state = self._followed(upto)

    def _follow(self, event: Event) -> None:
        """A pass that is not taken again: its decisions are those that the log tells of."""
        kept = texts_of(self.connection, event.seq)
        logged = event.body["digest"]
        if digest_of(kept) != logged:
            self._diverged(event.seq, "decisions", "digest", digest_of(kept), logged)

    def _followed(self, upto: int) -> State:
        return followed(self.connection, self.store, self.bundles, upto, keep=True)

    def _fold(self, event: Event) -> None:
        state = self.state
        if event.kind is not Kind.DECIDED:
            state.note(event)
            return
        taken = logged(self.connection, event.seq)
        logged_bodies = [d.body() for d in taken]
        try:
            try:
                state.apply(event)
            finally:
                self._reigns(event.seq)
        except Diverged as diverged:
            self._part(diverged, logged_bodies)
            return
        if digest_of(encoded(taken)) != event.body["digest"]:
            now = [d.body() for d in state.last]
            self._diverged(event.seq, "decisions", *_first_difference(logged_bodies, now))

    def _part(self, diverged: Diverged, logged_bodies: list[Any]) -> None:
        """From a pass on the log is not what this code makes of it."""
        self.off, event = True, diverged.event
        now = [d.body() for d in diverged.decisions]
        what, was, is_now = _first_difference(logged_bodies, now)
        if not what:
            texts = encoded(diverged.decisions)
            what, was, is_now = "body", dict(event.body), self.state.passed(texts)
        self._diverged(event.seq, "pass", what, was, is_now)
        if self.state.version != self.found.code:
            self.otherwise = self.found.divergences.pop()
            self._follow(event)

    def _reigns(self, seq: int) -> None:
        in_charge = self.state.version, self.state.bundle
        if not self.reigns or self.reigns[-1][1:] != in_charge:
            self.reigns.append((seq, *in_charge))

    def _diverged(self, seq: int, where: str, what: str, was: Any, is_now: Any) -> None:
        reigned = [reign for reign in self.reigns if reign[0] <= seq]
        version, bundle = reigned[-1][1:] if reigned else (self.state.version, self.state.bundle)
        self.found.divergences.append(Divergence(seq, where, what, was, is_now, version, bundle))

    # --- tables -------------------------------------------------------------------------------

    def _compare_rows(self) -> None:
        state = self.state
        if state.header is not None and state.header.backend == FOLLOWED:
            return  # its rows are read off Slurm, not off the log
        expected = {job_id: r.row() for job_id, r in state.ledger.records.items()}
        expected |= {row["job_id"]: row for row in state.unseen_rows()}
        self.found.jobs = len(expected)
        rows = self.connection.execute(select(jobs)).mappings()
        there = {row["job_id"]: dict(row) for row in rows}
        for job_id, row in there.items():
            if job_id in expected and row["spec"] != expected[job_id]["spec"]:
                row["spec"] = _as_read(row["spec"])
        self._compare("jobs", there, expected)
        if state.header is None:
            return
        known = {node: record.row() for node, record in state.ledger.nodes.records.items()}
        rows = self.connection.execute(select(nodes)).mappings()
        self._compare("nodes", {row["node"]: dict(row) for row in rows}, known)
        taken = {change.seq: change.row() for change in state.present.changes}
        rows = self.connection.execute(select(settings)).mappings()
        self._compare("settings", {row["seq"]: dict(row) for row in rows}, taken)

    def _compare(self, where: str, there: Mapping[Any, Any], expected: Mapping[Any, Any]) -> None:
        for name in sorted({*there, *expected}):
            has, wants = there.get(name), expected.get(name)
            if has == wants:
                continue
            if has is None or wants is None:
                seq = (has or wants or {}).get("updated_seq", self.state.seen)
                self._diverged(seq, where, f"{name}", has and "a row", wants and "a row")
                continue
            column = next(c for c in wants if has[c] != wants[c])
            seq = max(row.get("updated_seq", self.state.seen) for row in (has, wants))
            self._diverged(seq, where, f"{name}.{column}", has[column], wants[column])


def _as_read(spec: str) -> str:
    """What was asked for, without what only an older version kept of it."""
    try:
        return canonical(Submission.from_body(json.loads(spec)).body())
    except (LookupError, TypeError, ValueError):
        return spec


def _first_difference(was: list[Any], now: list[Any]) -> tuple[str, Any, Any]:
    """Where two lists of decisions part; an empty name when they do not."""
    for old, new in zip(was, now, strict=False):
        if old != new:
            name = next(n for n in {**old, **new} if old.get(n) != new.get(n))
            return (
                f"decision {old['seq']} on job {old['job_id']}: {name}",
                old.get(name),
                new.get(name),
            )
    if len(was) != len(now):
        return "number of decisions", len(was), len(now)
    return "", None, None
