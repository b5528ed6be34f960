"""Changes of nodes and settings that operators ask for: checked against the present state, then
made into events.

The API and a restart with another cluster file both use these checks, so both refuse the same
changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, select

from features.codec import Json
from scheduler.assembly import settings_of
from scheduler.backends.events import Event, Kind
from scheduler.core.cluster import Node
from scheduler.core.settings import InvalidSettings
from scheduler.service.log.nodes import NodeRecord, node_of
from scheduler.service.log.present import Present
from scheduler.service.log.record import Phase
from scheduler.service.log.store.tables import jobs


class ChangeRefused(ValueError):
    """Raised for a change that cannot be made. The message is one line.

    Attributes:
        kind: why, as a code for programs: not-found, not-yet, node-exists, not-ours, unknown-vc,
            policy-cannot or invalid-request.
    """

    def __init__(self, kind: str, why: str):
        super().__init__(why)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Wanted:
    """A change that can be made. `kind` and `body` are those of its event; `node` is the affected
    node as it is now; `needed` is False where the change would change nothing.
    """

    kind: Kind
    body: Json
    node: NodeRecord | None = None
    needed: bool = True

    @property
    def name(self) -> str:
        """Return the name of the node that the change is about; "" for settings."""
        return self.node.name if self.node is not None else str(self.body.get("name", ""))

    def event(self, at: float, actor: str) -> Event:
        """Return the change as an event for the log. `at`: seconds since the epoch; `actor`: who
        asks.
        """
        return Event(self.kind, at, actor=actor, body=self.body)


class ClusterChanges:
    """Checks changes of nodes and settings against the present ones, and returns them as `Wanted`.

    Args:
        fixed: why nodes cannot be added, nor get other GPUs (`fixed_nodes`); "": they can.
    """

    def __init__(self, present: Present, fixed: str = ""):
        self.present = present
        self.fixed = fixed

    def node(self, named: str) -> NodeRecord:
        """Return a node by its name, or else by its number. Raise ChangeRefused where there is
        none, or where no decision pass has evaluated it yet.
        """
        for key in ("name", "node"):
            for record in self.present.nodes.records.values():
                if str(getattr(record, key)) != named:
                    continue
                if record.name in self.present.coming:  # and has no number
                    why = f"no decision pass has evaluated node {record.name} yet: ask again"
                    raise ChangeRefused("not-yet", why)
                return record
        raise ChangeRefused("not-found", f"there is no node {named!r}")

    def each(self, names: str, is_open: bool, reason: str = "") -> list[Wanted]:
        """Return the changes that drain or open nodes, given by names with commas between them."""
        wanted = [self.set_open(name.strip(), is_open, reason) for name in names.split(",")]
        return list({one.body["node"]: one for one in wanted}.values())  # each of them once

    def set_open(self, named: str, is_open: bool, reason: str = "") -> Wanted:
        """Return the change that opens a node (`is_open`) or drains it."""
        record = self.node(named)
        waits = record.leaves or record.becomes is not None
        same = record.open is is_open and record.reason == reason
        body = {"node": record.node, "open": is_open, "reason": reason}
        return Wanted(Kind.NODE_SET, body, record, not same or (is_open and waits))

    def add(
        self,
        name: str,
        vc: str,
        gpus: int | None = None,
        gpu_type: str | None = None,
        gpu_memory_mib: float | None = None,
        new_vc: bool = False,
    ) -> Wanted:
        """Return the change that adds a node. Omitted values are taken from a node of its virtual
        cluster, else from any node. With `new_vc`, the virtual cluster may be new.
        """
        self._must_be_ours()
        self._must_know(vc, new_vc)
        records = list(self.present.nodes.records.values())
        like = next((r.has for r in records if r.has.vc == vc), records[0].has if records else None)
        like = like or Node(vc, 8)
        has = Node(
            vc,
            gpus or like.gpus,
            like.gpu_type if gpu_type is None else gpu_type,
            gpu_memory_mib or like.gpu_memory_mib,
        )
        there = self.present.nodes.named(name)
        if there is not None and there.has != has:
            raise ChangeRefused("node-exists", f"a node named {name!r} is there, and is other")
        body = {"name": name, **asdict(has)}
        return self._possible(Wanted(Kind.NODE_ADDED, body, there, there is None))

    def change(
        self, named: str, to: Mapping[str, Any], reason: str = "", new_vc: bool = False
    ) -> Wanted:
        """Return the change that moves a node to another virtual cluster (`vc`), or gives it other
        GPUs (`gpus`, `gpu_type`, `gpu_memory_mib`). With `new_vc`, the virtual cluster may be one
        that does not exist yet.
        """
        record = self.node(named)
        if to.keys() - {"vc"}:
            self._must_be_ours()
        if "vc" in to:
            self._must_know(to["vc"], new_vc)
        has = {**asdict(record.becomes or record.has), **to}
        needed = record.intended != node_of(has)
        body = {"node": record.node, **has, "reason": reason}
        return self._possible(Wanted(Kind.NODE_CHANGED, body, record, needed))

    def remove(self, named: str, reason: str = "") -> Wanted:
        """Return the change that removes a node."""
        record = self.node(named)
        body = {"node": record.node, "reason": reason}
        return Wanted(Kind.NODE_REMOVED, body, record, not record.leaves)

    def set_settings(self, values: Mapping[str, Any], reason: str = "") -> Wanted:
        """Return the change of some settings of the policy, given by dotted name. The other
        settings stay.
        """
        spec = self.present.spec
        plain = spec.settings.plain()
        for name, value in values.items():
            *sections, last = name.split(".")
            place = plain
            for section in sections:
                if not isinstance(place.get(section), dict):
                    place[section] = {}
                place = place[section]
            place[last] = value
        return self.set_all_settings(plain, reason)

    def set_all_settings(self, values: Mapping[str, Any], reason: str = "") -> Wanted:
        """Return the change of all settings of the policy. A setting that is left out of `values`
        gets its default.
        """
        spec = self.present.spec
        try:
            plain = settings_of(spec.policy, values).plain()
        except InvalidSettings as error:
            raise ChangeRefused("invalid-request", str(error)) from None
        body = {"settings": plain, "reason": reason}
        needed = plain != spec.settings.plain()
        return self._possible(Wanted(Kind.SETTINGS_SET, body, None, needed))

    def _must_be_ours(self) -> None:
        if self.fixed:
            raise ChangeRefused("not-ours", self.fixed)

    def _must_know(self, vc: str, new_vc: bool) -> None:
        there = {known for record in self.present.nodes.records.values() for known in record.vcs}
        if not new_vc and vc not in there:
            known = ", ".join(sorted(there)) or "none"
            why = f"there is no virtual cluster {vc!r}; there are: {known}"
            raise ChangeRefused("unknown-vc", f"{why}. To make it: --new-vc (API: new_vc)")

    def _possible(self, wanted: Wanted) -> Wanted:
        if why := self.present.refuses(wanted.event(0.0, "")):
            kind = "invalid-request" if wanted.kind is Kind.SETTINGS_SET else "policy-cannot"
            raise ChangeRefused(kind, why)
        return wanted

    # --- what comes of it -------------------------------------------------------------------

    def never(self, connection: Connection, *wanted: Wanted) -> list[str]:
        """Return the ids of the waiting jobs that would ask for more GPUs than their virtual
        cluster has once the changes are made, and do not yet. The changes are made in
        `self.present`, not in the log.
        """
        before = set(too_large(connection, self.present))
        for one in wanted:
            if one.needed:
                self.present.take(one.event(0.0, ""))
        return [job for job in too_large(connection, self.present) if job not in before]


def too_large(connection: Connection, present: Present) -> list[str]:
    """Return the ids of waiting jobs that ask for more GPUs than their virtual cluster will have
    once all pending changes are made.
    """
    gpus: dict[str, int] = {}
    for has in present.nodes.for_jobs():
        gpus[has.vc] = gpus.get(has.vc, 0) + has.gpus
    waits = [phase.value for phase in Phase if phase.waits]
    query = select(jobs.c.job_id, jobs.c.vc, jobs.c.gpus).where(jobs.c.phase.in_(waits))
    found = connection.execute(query.order_by(jobs.c.submitted_seq)).all()
    return [row.job_id for row in found if row.gpus > gpus.get(row.vc, 0)]


def fixed_nodes(backend: str, fake_gpus: bool) -> str:
    """Return why nodes cannot be added or changed with this backend, which finds them itself; ""
    where they can.
    """
    if backend == "slurm":
        return "nodes are Slurm's here: change them in slurm.conf"
    if backend == "local" and not fake_gpus:
        return "the nodes of this service are the GPUs of its host"
    return ""
