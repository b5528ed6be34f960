"""The state at one moment of the log, kept in a file, so that a start need not fold months.

A snapshot is a shortcut and never the truth: it is used only by the code that wrote it, if the log
still holds the event it was taken at, and what follows in the log is folded and compared as ever.
Whatever is wrong with one, the log is folded from its start instead. `pellucid audit` uses none
unless asked to.

The files are pickles that may hold values of the types below and nothing else: one that names
anything more is not read, so a planted file runs no code. A policy that is not Pellucid's own keeps
no snapshots for that reason; its log is folded whole.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from features.files import write_whole
from models.bundle import Bundle
from scheduler.backends.events import Event, canonical
from scheduler.service.log.fold import Bundles, State
from scheduler.service.log.header import code_version
from scheduler.service.log.store.store import Store

# What a state is made of: any class of these packages, these functions, these types of others.
STATE = ("fold", "header", "ledger", "nodes", "present", "record")
OURS = (
    "features.", "models.bundle.", "scheduler.assembly", "scheduler.backends.base",
    "scheduler.backends.events", "scheduler.backends.submission", "scheduler.core.",
    "scheduler.policies.", *(f"scheduler.service.log.{name}" for name in STATE),
)  # fmt: skip
FUNCTIONS = ("features.state",)  # each computes a feature
OTHERS = frozenset({
    ("array", "_array_reconstructor"), ("array", "array"), ("builtins", "frozenset"),
    ("builtins", "list"), ("builtins", "set"), ("collections", "Counter"),
    ("collections", "OrderedDict"), ("collections", "defaultdict"), ("collections", "deque"),
    ("datetime", "timedelta"), ("datetime", "timezone"), ("functools", "partial"),
})  # fmt: skip

KEPT = 2  # files
EVERY = 50_000  # events between two snapshots
SUFFIX = ".state"


class StateCheckpoints:
    """The snapshots of one service.

    Args:
        folder: holds `SEQ.state`, the newest few.
        bundles: finds the models a state decides with; they are not in its file.
        version: of the code; a snapshot of other code is not used.
        every: events between two snapshots.
    """

    def __init__(
        self,
        folder: Path,
        bundles: Bundles,
        version: Callable[[], str] = code_version,
        every: int = EVERY,
    ):
        self.folder = folder
        self._bundles = bundles
        self._version = version
        self.every = every

    def save(self, state: State, passed: Event) -> Path:
        """Keep the state as it is after a pass, whose DECIDED event in the log is given."""
        content = io.BytesIO()
        at = passed.seq, _digest(passed)
        _Pickler(content, state).dump((self._version(), at, state))
        body = content.getvalue()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.folder / f"{passed.seq:012d}{SUFFIX}"
        write_whole(path, hashlib.sha256(body).digest() + body, mode=0o600)
        for old in self._paths()[KEPT:]:
            old.unlink(missing_ok=True)
        return path

    def newest(self, connection: Connection, store: Store, upto: int) -> State | None:
        """The state of the newest snapshot that can be gone on from; None: there is none.

        Args:
            upto: the log is to be folded up to this event: no snapshot may be beyond it.
        """
        for path in self._paths():
            state = self._read(path, connection, store)
            if state is not None and state.seen <= upto:
                return state
        return None

    def _paths(self) -> list[Path]:
        """Newest first."""
        return sorted(self.folder.glob(f"*{SUFFIX}"), reverse=True)

    def _read(self, path: Path, connection: Connection, store: Store) -> State | None:
        try:
            if path.stat().st_uid != os.geteuid():
                return None
            whole = path.read_bytes()
            digest, body = whole[:32], whole[32:]
            if hashlib.sha256(body).digest() != digest:
                return None
            version, (seq, told), state = _Unpickler(io.BytesIO(body), self._bundles).load()
        except Exception:  # whatever is wrong with it, the log has it all
            return None
        if version != self._version() or not isinstance(state, State):
            return None
        there = store.each_in(connection, seq - 1, upto=seq)
        return state if any(_digest(event) == told for event in there) else None


def _digest(event: Event) -> str:
    """Of what an event says: tells logs apart."""
    told = [event.seq, event.at, event.kind.value, event.cause, dict(event.body)]
    return hashlib.sha256(canonical(told).encode()).hexdigest()


class _Pickler(pickle.Pickler):
    """Leaves out models, which have files of their own, and what finds them."""

    def __init__(self, file: io.BytesIO, state: State):
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._finder = state.bundles

    def persistent_id(self, obj: Any) -> str | None:
        if isinstance(obj, Bundle):
            return obj.digest
        return "" if obj is self._finder or obj == self._finder else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, bundles: Bundles):
        super().__init__(file)
        self._bundles = bundles

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in OTHERS:
            return super().find_class(module, name)
        if module.startswith(OURS) and name.isidentifier():
            found = super().find_class(module, name)
            ours = getattr(found, "__module__", "") == module  # not what the module imports
            if ours and (isinstance(found, type) or module in FUNCTIONS):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is not part of a state")

    def persistent_load(self, pid: str) -> Any:
        return self._bundles({"digest": pid}) if pid else self._bundles
