"""Opens the backend that the settings name."""

from __future__ import annotations

from features.clock import Clock
from features.plugins import load
from profiler.progress import table
from scheduler.backends.base import Backend
from scheduler.backends.local.host import KNOWN, Host, read_declared
from scheduler.core.cluster import ClusterSpec
from scheduler.service.log.header import LogHeader
from scheduler.service.settings import Settings


def open_backend(
    settings: Settings,
    header: LogHeader,
    clock: Clock | None = None,
) -> Backend:
    """Return the backend that the settings name. The backend continues from the state that its
    folder holds.

    Args:
        clock: the clock of this process.
    """
    if settings.progress_formats is not None:
        table.use(settings.progress_formats)
    if settings.backend == "simulated":
        return _open_simulated(settings, header, clock or Clock())
    if ":" in settings.backend:
        opened: Backend = load(settings.backend)(settings, header)
        return opened
    from scheduler.backends.local.backend import LocalBackend

    host = host_of(settings, header.spec.cluster)
    return LocalBackend(
        settings.state_dir / "local", host, clock=clock, reads_progress=settings.read_progress
    )


def _open_simulated(settings: Settings, header: LogHeader, clock: Clock) -> Backend:
    from scheduler.backends.simulated import SimulatedBackend, World

    settings.state_dir.mkdir(parents=True, exist_ok=True)
    world = World(
        start=header.clock(clock.now()),
        pace=header.pace,
        path=settings.state_dir / "world.jsonl",
        wall=clock.now,
    )
    return SimulatedBackend(world)


def host_of(settings: Settings, cluster: ClusterSpec) -> Host:
    """Return this host with its GPUs assigned to the nodes of the cluster. Raise HostError if it
    has too few GPUs.
    """
    sizes = [has.gpus for has in cluster.nodes()]
    if not settings.fake_gpus:
        return Host.here(sizes, known=settings.state_dir / "local" / KNOWN)
    declared = read_declared(settings.fake_profiles) if settings.fake_profiles else ()
    return Host.with_fake(sizes, declared)
