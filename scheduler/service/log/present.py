"""Nodes and settings as they are now, and which changes of them can be made.

`fold.State` keeps a `Present` and asks it which events can be carried out. The API and a restart
read a `Present` from the tables, with events that no decision pass covers yet, and ask it the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, select

from scheduler.assembly import CoreSpec, policy_of, recorded_settings
from scheduler.backends.events import ABOUT_NODES, Event, Kind, canonical
from scheduler.core.cluster import ClusterSpec
from scheduler.core.policy import Policy
from scheduler.core.settings import InvalidSettings, describe, flat
from scheduler.service.log.header import FOLLOWED, LogHeader, LogHeaderError, servable
from scheduler.service.log.nodes import NodeRecord, NodeTable, node_of, well_formed
from scheduler.service.log.store.rows import Setting
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import Columns, nodes, settings

CHANGES = (*sorted(ABOUT_NODES), Kind.SETTINGS_SET)


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """A change of settings that was accepted. `settings` holds all settings of the policy, also
    those that stayed the same.
    """

    seq: int
    at: float
    actor: str
    reason: str
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, event: Event) -> SettingsChange:
        """Return the change from a SETTINGS_SET event."""
        body = event.body
        return cls(
            seq=event.seq,
            at=event.at,
            actor=event.actor,
            reason=body.get("reason", ""),
            settings=body["settings"],
        )

    def row(self) -> Columns:
        """Return the change as a row of the table `settings`."""
        return {
            "seq": self.seq,
            "at": self.at,
            "actor": self.actor,
            "reason": self.reason,
            "settings": canonical(dict(self.settings)),
        }


@dataclass
class Present:
    """The nodes and settings to which the events of a log have led.

    Attributes:
        header: the first event of the log, with nodes and settings as they were then; of a service
            that follows a Slurm, the last HEADER.
        changes: accepted changes of settings, in order.
        coming: names of nodes that no decision pass has evaluated yet, so that they have no number.
    """

    header: LogHeader
    nodes: NodeTable
    changes: list[SettingsChange] = field(default_factory=list)
    coming: set[str] = field(default_factory=set)

    @classmethod
    def begun(cls, header: LogHeader) -> Present:
        """Return the nodes and settings with which a log begins."""
        return cls(header, NodeTable(header.nodes()))

    @classmethod
    def read(cls, store: Store, connection: Connection) -> Present | None:
        """Return the present nodes and settings from the tables, together with changes that were
        asked for since the last decision pass. Return None where the log is empty.
        """
        first = store.first_in(connection)
        if first is None:
            return None
        header = LogHeader.from_body(first.body)
        if header.backend == FOLLOWED:  # what it is drawn with may be otherwise since
            header = LogHeader.from_body((store.last_in(connection, Kind.HEADER) or first).body)
        rows = connection.execute(select(nodes).order_by(nodes.c.node)).mappings()
        taken = connection.execute(select(settings).order_by(settings.c.seq)).mappings()
        changes = [
            SettingsChange(**{**row, "settings": json.loads(row["settings"])}) for row in taken
        ]
        changes = [change for change in changes if _has(header.spec.policy, change.settings)]
        found = cls(header, NodeTable(NodeRecord.of_row(dict(row)) for row in rows), changes)
        passed = store.last_in(connection, Kind.DECIDED)
        upto = passed.body["upto"] if passed is not None else 0
        for event in store.of_kinds_in(connection, CHANGES, upto):
            if well_formed(event) and found.matters(event) and found.admits(event):
                found.take(event)
        return found

    # --- what decides -----------------------------------------------------------------------

    @property
    def settings(self) -> Mapping[str, Any] | None:
        """Return the policy's present settings, where they changed since the log began; else
        None.
        """
        return self.changes[-1].settings if self.changes else None

    @property
    def spec(self) -> CoreSpec:
        """Return the specification from which the core was built, with the present settings."""
        return self.header.spec.with_settings(self.settings)

    def policy_for(self, cluster: ClusterSpec) -> Policy:
        """Return the policy with the present settings for a cluster. Raise InvalidSettings where
        the settings do not fit the cluster.
        """
        return policy_of(replace(self.spec, cluster=cluster))

    # --- events about nodes and settings ----------------------------------------------------

    def matters(self, event: Event) -> bool:
        """Return whether an event about nodes or settings changes anything. False where its node
        was removed, or where a node of that name exists already and is to be added.
        """
        return event.kind is Kind.SETTINGS_SET or self.nodes.matters(event)

    def admits(self, event: Event) -> bool:
        """Return whether a well-formed event can be carried out. `refuses` gives the reason where
        not.
        """
        return not self.refuses(event)

    def refuses(self, event: Event) -> str:
        """Return why an event cannot be carried out, or "" when it can. The reasons are settings
        that the policy does not have or a service cannot run, a node that would mix types of GPU
        where the policy cannot place on several, and a job in a virtual cluster that does not
        exist.
        """
        try:
            if event.kind is Kind.SETTINGS_SET:
                chosen = recorded_settings(self.header.spec.policy, event.body["settings"])
                spec = replace(self.spec, settings=chosen, cluster=self.nodes.spec())
                servable(spec, follows=self.header.backend == FOLLOWED)
            elif event.kind in (Kind.NODE_ADDED, Kind.NODE_CHANGED):
                policy = self.policy_for(self.nodes.spec(node_of(event.body)))
                if not policy.capabilities.mixes_types and self.nodes.mixed_by(event):
                    name = self.header.spec.policy
                    return f"{name} needs GPUs of one type; there would be several"
            elif event.kind is Kind.CHANGED and "vc" in event.body:
                vc = event.body["vc"]
                if all(vc not in record.vcs for record in self.nodes.records.values()):
                    return f"there is no virtual cluster {vc!r}"
        except (InvalidSettings, LogHeaderError) as error:
            return str(error)
        return ""

    def take(self, event: Event) -> None:
        """Apply an event about nodes or settings, for which `matters` and `admits` are True."""
        if event.kind is Kind.SETTINGS_SET:
            self.changes.append(SettingsChange.of(event))
        else:
            if event.kind is Kind.NODE_ADDED:
                self.coming.add(event.body["name"])
            self.nodes.take(event)

    # --- for people -------------------------------------------------------------------------

    def settings_in_force(self) -> list[Setting]:
        """Return every setting of the policy, with the change that gave it its value."""
        policy = self.header.spec.policy
        values = flat(self.header.spec.settings)
        by: dict[str, SettingsChange] = {}
        for change in self.changes:
            before, values = values, flat(recorded_settings(policy, change.settings))
            by |= {name: change for name in values if values[name] != before.get(name)}
        return [
            Setting(
                one.name,
                values[one.name],
                one.default,
                one.unit,
                one.accepts,
                one.description,
                *(
                    (by[one.name].at, by[one.name].actor, by[one.name].reason)
                    if one.name in by
                    else ()
                ),
            )
            for one in describe(type(self.header.spec.settings))
            if one.name in values
        ]


def _has(policy: str, settings: Mapping[str, Any]) -> bool:
    """Return whether a policy accepts `settings`. The table of an older database may also hold
    changes of settings that were refused.
    """
    try:
        recorded_settings(policy, settings)
    except InvalidSettings:
        return False
    return True
