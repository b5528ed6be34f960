"""Replacements for the operating system's clocks, threads and signals in a simulated process.

Everything here replaces a function of the standard library, and behaves like the original where no
simulation runs. `installed` puts the replacements in place, wherever the service has a name for the
original.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import fcntl
import functools
import gc
import multiprocessing.heap
import os
import random
import secrets
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from types import FunctionType, SimpleNamespace
from typing import Any

import anyio.to_thread

from benchmarks.chaos.kernel import EPOCH, Fiber, Kernel, active

OURS = ("scheduler", "features", "profiler", "models", "reproductions")
_ids, _words, _uuids = random.Random(), random.Random(), random.Random()


def seed_names(seed: int) -> None:
    """Draw random ids and secrets from this seed from now on."""
    for i, one in enumerate((_ids, _words, _uuids)):  # apart: modules draw as they are loaded
        one.seed(f"names {seed} {i}")


# --- clocks -------------------------------------------------------------------------------------

_time, _monotonic, _sleep = time.time, time.monotonic, time.sleep


def wall() -> float:
    kernel = active()
    return _time() if kernel is None else EPOCH + kernel.clock + kernel.me.host.wall_s


def _steady(real: Callable[[], float]) -> Callable[[], float]:
    def read() -> float:
        kernel = active()
        return real() if kernel is None else kernel.clock - kernel.me.host.booted_at

    return read


def sleep(seconds: float) -> None:
    kernel = active()
    if kernel is None:
        _sleep(seconds)
    else:
        kernel.sleep(seconds)


# --- threads ------------------------------------------------------------------------------------


class Thread:
    """Stands in for `threading.Thread` in a simulated process."""

    def __init__(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        name: str = "",
        daemon: bool | None = None,
    ):
        self._run, self._name = functools.partial(target, *args), name
        self._fiber: Fiber | None = None

    def start(self) -> None:
        kernel = _running()
        self._fiber = kernel.spawn(kernel.me, self._run, self._name)

    def is_alive(self) -> bool:
        return self._fiber is not None and not self._fiber.done

    def join(self, timeout: float | None = None) -> None:
        _running().wait(lambda: not self.is_alive(), 1e9 if timeout is None else timeout)


class Event:
    """Stands in for `threading.Event`."""

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        return _running().wait(self.is_set, 1e9 if timeout is None else timeout)


class SimpleQueue:
    """Stands in for `queue.SimpleQueue`."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)

    def empty(self) -> bool:
        return not self._items

    def get(self) -> Any:
        _running().wait(lambda: bool(self._items))
        return self._items.popleft()


def _running() -> Kernel:
    kernel = active()
    assert kernel is not None, "only within a simulation"
    return kernel


_real_wait_for = asyncio.wait_for
_result = concurrent.futures.Future.result


def _future_result(self: concurrent.futures.Future[Any], timeout: float | None = None) -> Any:
    kernel = active()
    if kernel is not None and not self.done():
        kernel.wait(self.done)
    return _result(self, timeout)


async def _run_sync(function: Callable[..., Any], *args: Any, **_: Any) -> Any:
    return function(*args)


async def _wrap_future(future: concurrent.futures.Future[Any], **_: Any) -> Any:
    return future.result()


async def _wait_for(coroutine: Any, timeout: float | None) -> Any:
    if active() is None:
        return await _real_wait_for(coroutine, timeout)
    return await coroutine


async def _async_sleep(seconds: float) -> None:
    sleep(seconds)


def flock(file: Any, how: int) -> None:
    """Take a lock on a file as `fcntl.flock` does; while it waits, other simulated threads run."""
    kernel = active()
    if kernel is None or how & fcntl.LOCK_NB or not how & fcntl.LOCK_EX:
        fcntl.flock(file, how)
        return
    pause = 0.001
    while True:
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            kernel.sleep(pause)
            pause = min(0.1, pause * 1.5)


# --- processes ----------------------------------------------------------------------------------


class Child:
    """Stands in for `multiprocessing.Process`, with the parts that the service's supervisor
    uses.
    """

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...], name: str):
        self._run, self.name = functools.partial(target, *args), name
        self.pid: int | None = None

    def start(self) -> None:
        kernel = _running()
        kernel.point("a fork")
        parent = kernel.me
        role = self.name.removeprefix("pellucid-")
        process = self._process = kernel.process(f"{parent.name}/{role}", parent.host, parent)
        process.name += f".{process.pid}"
        process.role = role.split("-")[0]
        kernel.on_start(process)
        self.pid = process.pid

        def live() -> None:
            code = 1
            try:
                self._run()
                code = 0
            except SystemExit as error:
                code = error.code if isinstance(error.code, int) else 1
                process.why = repr(error.__context__)
            finally:
                kernel.exits(process, code)

        kernel.spawn(process, live)

    def is_alive(self) -> bool:
        return not self._process.dead

    @property
    def exitcode(self) -> int | None:
        return self._process.exit_code

    def terminate(self) -> None:
        _running().point("a signal")
        self._process.told.append(15)

    def kill(self) -> None:
        kernel = _running()
        kernel.point("a signal")
        kernel.kill(self._process, "")

    def join(self, timeout: float | None = None) -> None:
        _running().wait(lambda: self._process.dead, 1e9 if timeout is None else timeout)


_getpid, _getppid = os.getpid, os.getppid


def getpid() -> int:
    kernel = active()
    return _getpid() if kernel is None else kernel.me.pid


def getppid() -> int:
    kernel = active()
    if kernel is None:
        return _getppid()
    parent = kernel.me.parent
    return 1 if parent is None or parent.dead else parent.pid


def told_by_signal() -> list[int]:
    """Return the list of signals that the calling simulated process has received so far."""
    return _running().me.told


def notify(_: str) -> None:
    """Replaces sd_notify: record that the calling process reported that it is alive."""
    kernel = _running()
    kernel.me.heard_at = kernel.clock


def end_with_parent() -> None:
    """Replaces PR_SET_PDEATHSIG: the calling simulated process will be killed when its parent
    ends.
    """
    _running().me.ends_with_parent = True


# --- in place of what ---------------------------------------------------------------------------


def _names(real: Callable[..., Any], drawn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: real(*args) if active() is None else drawn(*args)


def _not_here(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls `real` outside of a simulation, and within one does nothing."""
    return lambda *args: real(*args) if active() is None else None


def _replacements() -> list[tuple[Any, str, Any]]:
    """Return (module, name, replacement) for everything that a simulation replaces."""
    found: list[tuple[Any, str, Any]] = [
        (time, "time", wall),
        (time, "sleep", sleep),
        (os, "getpid", getpid),
        (os, "getppid", getppid),
        (secrets, "token_hex", _names(secrets.token_hex, _token_hex)),
        (uuid, "uuid4", _names(uuid.uuid4, lambda: uuid.UUID(int=_uuids.getrandbits(128)))),
        (concurrent.futures.Future, "result", _future_result),
        (anyio.to_thread, "run_sync", _run_sync),
        (asyncio, "wait_for", _wait_for),
    ]
    for name in ("monotonic", "perf_counter", "process_time", "thread_time"):
        found.append((time, name, _steady(getattr(time, name))))
    for module, names in (
        (os, ("nice", "sched_setscheduler")),
        (gc, ("collect", "freeze", "disable", "enable", "set_threshold")),
    ):
        found += [(module, name, _not_here(getattr(module, name))) for name in names]
    return found


def _token_hex(size: int = 32) -> str:
    return f"{_words.getrandbits(8 * size):0{2 * size}x}"


class Patches:
    """Replaces attributes, and puts the original values back when the `with` block ends."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def put(self, holder: Any, name: str, value: Any) -> None:
        """Set `holder.name` to `value` until the block ends."""
        was = holder.__dict__[name]
        self._undo.append(lambda: setattr(holder, name, was))
        setattr(holder, name, value)

    def swap(self, was: Any, value: Any) -> None:
        """Replace the object `was` by `value` wherever a module of the project has a name for it,
        or uses it as a default argument.
        """
        for module in [m for n, m in sys.modules.items() if n.split(".")[0] in OURS]:
            for name, found in list(vars(module).items()):
                if found is was:
                    self.put(module, name, value)
                elif getattr(found, "__module__", None) == module.__name__:
                    for function in _functions(found):
                        self._swap_defaults(function, was, value)

    def _swap_defaults(self, function: FunctionType, was: Any, value: Any) -> None:
        plain, named = function.__defaults__, function.__kwdefaults__
        if any(one is was for one in (*(plain or ()), *(named or {}).values())):
            self._undo.append(functools.partial(_restore, function, plain, named))
            if plain:
                function.__defaults__ = tuple(value if one is was else one for one in plain)
            if named:
                function.__kwdefaults__ = {k: value if v is was else v for k, v in named.items()}

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()


def _functions(found: Any) -> Iterator[FunctionType]:
    if isinstance(found, FunctionType):
        yield found
    elif isinstance(found, type):
        for one in vars(found).values():
            plain = getattr(one, "__func__", one)
            if isinstance(plain, FunctionType):
                yield plain


def _restore(function: FunctionType, plain: Any, named: Any) -> None:
    function.__defaults__, function.__kwdefaults__ = plain, named


@contextlib.contextmanager
def installed() -> Iterator[Patches]:
    """Replace parts of the standard library inside the `with` block, so that simulated processes
    use the replacements. Yield the patches.
    """
    from scheduler.service.api import changes, jobs, questions, writer

    patches = Patches()
    try:
        # real shared memory of before may be collected during a run: the real process frees it
        patches.put(multiprocessing.heap, "os", SimpleNamespace(**vars(os)))
        for holder, name, value in _replacements():
            was = holder.__dict__[name]
            patches.put(holder, name, value)
            if holder is not concurrent.futures.Future:
                patches.swap(was, value)
        patches.put(changes, "secrets", SimpleNamespace(randbits=_ids.getrandbits))
        patches.put(jobs, "wrap_future", _wrap_future)
        loop = SimpleNamespace(time=lambda: time.monotonic())
        own = SimpleNamespace(sleep=_async_sleep, get_running_loop=lambda: loop)
        patches.put(questions, "asyncio", own)
        patches.put(writer, "Thread", Thread)
        patches.put(writer, "SimpleQueue", SimpleQueue)
        yield patches
    finally:
        patches.undo()
