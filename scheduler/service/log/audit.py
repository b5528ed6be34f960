"""Checks whether a database still follows from its log, and whether its rows are as they were
written.

An audit replays the decisions that the log holds. The decisions of each pass (one round of
decisions) must have the digest that the log holds for them, and every derived table must hold what
events and decisions lead to. On request, an audit also decides again, with the present code and
models, up to the first pass that comes out otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, select
from sqlalchemy.exc import DBAPIError

from features.codec import Json
from models.bundle import BundleError
from scheduler.backends.events import Event, Kind, canonical
from scheduler.backends.submission import Submission
from scheduler.core.settings import UnknownPolicy
from scheduler.service.log.fold import Bundles, Diverged, State, digest_of, encoded
from scheduler.service.log.followed import decisions_of, follow_texts, followed, texts_of
from scheduler.service.log.header import FOLLOWED, code_version
from scheduler.service.log.store.mends import Mends
from scheduler.service.log.store.soundness import Soundness, is_damage
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import jobs, nodes, settings
from scheduler.service.log.tamper import Head, Tampered, Verified, damage


class CannotCheck(ValueError):
    """Raised where an audit cannot run because something is missing here, such as the service's
    policy. The database may be sound all the same. The message is one line.
    """


@dataclass(frozen=True, slots=True)
class Divergence:
    """A difference between the database and the state that follows from its log.

    Attributes:
        seq: number of the event: that of a decision pass, or the last event that changed a row.
        where: "decisions", "jobs", "nodes", "settings"; "log" for an event that makes no sense;
            "pass" for a decision pass that comes out otherwise when it is decided again.
        what: the first difference: a decision, or a column of a row.
        logged, found: the value in the database, and the value that follows from the log.
        bundle: digest of the models that were in use at that event.
    """

    seq: int
    where: str
    what: str
    logged: Any
    found: Any
    bundle: str

    def sentence(self) -> str:
        """Return this difference between database and log in words, for a person."""
        models = f"bundle {self.bundle[:12]}" if self.bundle else "no bundle"
        return (
            f"event {self.seq}: {self.where}: {self.what} is {self.logged!r} in the database and "
            f"{self.found!r} by the log; decided with {models}"
        )


@dataclass(slots=True)
class Audit:
    """The result of an audit: what was checked, and what was found.

    Attributes:
        code: version of the code that checked.
        decided_again: decision passes that were decided again, with the same result.
        links: how many links the chain has. checked_by: name of the database's own check.
        divergences: where the database and its log differ, in the order of the log.
        tampered: rows that are not as they were written. damage: what the database's own check
            finds.
    """

    code: str
    events: int = 0
    passes: int = 0
    decisions: int = 0
    decided_again: int = 0
    jobs: int = 0
    links: int = 0
    checked_by: str = ""
    divergences: list[Divergence] = field(default_factory=list)
    tampered: list[Tampered] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not (self.divergences or self.tampered or self.damage)


def audit(
    store: Store,
    bundles: Bundles,
    progress: Callable[[int], None] = lambda _: None,
    *,
    head: Head | None = None,
    decide_again: bool = False,
) -> Audit:
    """Check a database against its log as of one moment, while the service may run. Return what was
    checked and which differences and damage were found.

    Args:
        progress: function called now and then with the number of events read.
        decide_again: also decide every decision pass again, up to the first that comes out
            otherwise.
        head: an exported head of the chain, which the database's chain must extend.

    Raise BundleError where a bundle of models that made decisions of the log is missing, and
    CannotCheck where the service's policy cannot be imported.
    """
    try:
        with store.reading() as connection:
            auditor = _Auditor(connection, store, bundles, progress, decide_again=decide_again)
            found = auditor.run()
            began = auditor.state.header
            followed = began is not None and began.backend == FOLLOWED
            chained = Verified(connection, followed, head)
            found.links, found.tampered = chained.links, chained.found
            found.damage, found.checked_by = damage(connection)
            return found
    except DBAPIError as error:
        if not is_damage(error):
            raise
        lines = [f"{one.where}: {one.what}" for one in Soundness(store.engine.url).look()]
        return Audit(
            code_version(), damage=lines or [str(error.orig)], checked_by="SQLite's quick_check"
        )
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
        *,
        decide_again: bool,
    ):
        self.connection, self.store, self.bundles = connection, store, bundles
        self.progress = progress
        self.decides = decide_again
        self.mends = Mends.of(connection)
        self.state = State(bundles, keep=True)
        self.found = Audit(code_version())
        self.at = 0  # the event checked

    def run(self) -> Audit:
        try:
            self._walk()
            self._compare_rows()
        except (BundleError, UnknownPolicy, DBAPIError):
            raise
        except Exception as error:  # whatever comes of events and decisions that are none of ours
            why = str(error).partition("\n")[0]
            self._diverged(
                seq=self.at, where="log", what="what the event means", was=why, is_now="nothing"
            )
        self.found.divergences.sort(key=lambda d: (d.seq, d.where not in ("pass", "decisions")))
        return self.found

    def _walk(self) -> None:
        found, upto = self.found, self.store.last_seq_in(self.connection)
        for event in self.store.each_in(self.connection, upto=upto):
            self.at = event.seq
            found.events += 1
            if found.events % 1000 == 0:
                self.progress(found.events)
            texts: list[str] = []
            if event.kind is Kind.DECIDED:
                texts = texts_of(self.connection, event.seq)
                found.passes += 1
                found.decisions += event.body["count"]
            if self.decides:
                self._decide_again(event, texts)
                continue
            if event.kind is Kind.DECIDED:
                self._check_digest(event, texts)
            follow_texts(self.state, event, texts, self.mends)

    def _check_digest(self, event: Event, texts: list[str]) -> None:
        """Note a divergence where the decisions of a decision pass (`texts`) do not have the digest
        that the log holds for it.
        """
        logged = event.body["digest"]
        if (digest := digest_of(texts)) != logged:
            self._diverged(
                seq=event.seq, where="decisions", what="digest", was=digest, is_now=logged
            )

    def _decide_again(self, event: Event, texts: list[str]) -> None:
        """Apply one event to the state. Decide a decision pass again with the present code and
        models, and note a divergence where the result differs from `texts`, the recorded decisions.
        """
        state = self.state
        if event.kind is Kind.CLOCK_MENDED:  # from here on all that came before has other times
            self.state = self._followed(event.seq, Mends.of(self.connection, event.seq))
        elif event.kind is not Kind.DECIDED:
            state.note(event)
        else:
            taken = [d.body() for d in decisions_of(texts)]
            try:
                state.apply(event)
            except Diverged as diverged:
                if not self._worded_before(diverged, taken):
                    self._part(diverged, taken)
                    return
                state.ledger.changes(event.seq)
            self.found.decided_again += 1
            if digest_of(texts) != event.body["digest"]:
                now = [d.body() for d in state.last]
                self._diverged(event.seq, "decisions", *_first_difference(taken, now))

    def _worded_before(self, diverged: Diverged, taken: list[Json]) -> bool:
        """Return whether a pass comes out as recorded (`taken`), and only its digest differs: an
        earlier release wrote the same decisions with other fields.
        """
        again = self.state.passed(encoded(diverged.decisions))
        same = {**again, "digest": ""} == {**diverged.event.body, "digest": ""}
        return same and taken == [d.body() for d in diverged.decisions]

    def _part(self, diverged: Diverged, taken: list[Json]) -> None:
        """Note a divergence for a decision pass that is now decided otherwise. From this event on,
        apply the recorded decisions and decide nothing again.
        """
        event = diverged.event
        what, was, is_now = _first_difference(taken, [d.body() for d in diverged.decisions])
        if not what:
            texts = encoded(diverged.decisions)
            what, was, is_now = "body", dict(event.body), self.state.passed(texts)
        self._diverged(seq=event.seq, where="pass", what=what, was=was, is_now=is_now)
        self.state, self.decides = self._followed(event.seq), False

    def _followed(self, upto: int, mends: Mends | None = None) -> State:
        connection, store = self.connection, self.store
        return followed(connection, store, self.bundles, upto, keep=True, mends=mends)

    def _diverged(self, seq: int, where: str, what: str, was: Any, is_now: Any) -> None:
        divergence = Divergence(
            seq=seq, where=where, what=what, logged=was, found=is_now, bundle=self.state.bundle
        )
        self.found.divergences.append(divergence)

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
            if job_id in expected and row["waited_s"] is None:  # of before 0021
                expected[job_id] |= {"waited_s": None, "waits_since": row["waits_since"]}
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
                self._diverged(
                    seq=seq,
                    where=where,
                    what=f"{name}",
                    was=has and "a row",
                    is_now=wants and "a row",
                )
                continue
            column = next(c for c in wants if has[c] != wants[c])
            seq = max(row.get("updated_seq", self.state.seen) for row in (has, wants))
            self._diverged(
                seq=seq, where=where, what=f"{name}.{column}", was=has[column], is_now=wants[column]
            )


def _as_read(spec: str) -> str:
    """Return a stored submission (JSON) without fields that this version does not know. Return it
    unchanged if it cannot be read.
    """
    try:
        return canonical(Submission.from_body(json.loads(spec)).body())
    except (LookupError, TypeError, ValueError):
        return spec


def _first_difference(was: list[Any], now: list[Any]) -> tuple[str, Any, Any]:
    """Return the first difference between two lists of decisions, as (description, old value, new
    value). Return ("", None, None) if they are equal.
    """
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
