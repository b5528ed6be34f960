"""The backend that the settings name: what they mean for it, and how it is opened."""

from __future__ import annotations

import os
from collections.abc import Callable

from features.clock import Clock
from features.plugins import load
from scheduler.backends.base import Backend
from scheduler.backends.local.host import Host, own_user, read_declared
from scheduler.backends.slurm.client import (
    READ_PATIENCE_S,
    Slurm,
    SlurmDown,
    SlurmError,
    to_stdout,
)
from scheduler.backends.slurm.parse import ParseError
from scheduler.backends.slurm.shape import Shape
from scheduler.core.cluster import ClusterSpec
from scheduler.core.settings import ProfilingPartition
from scheduler.service.log.header import LogHeader
from scheduler.service.settings import Settings, SettingsError


def slurm_of(settings: Settings) -> Slurm:
    """How Slurm is reached: through SLURM_CONF, as its own commands are, and through slurmrestd.

    Raises SettingsError: there is no token for that, or no such address.
    """
    show = to_stdout if settings.dry_run else None
    if not settings.slurm_rest or settings.slurm_mode != "place":
        return Slurm(show=show)
    from scheduler.backends.slurm.rest import RestSlurm, token_of, word_of

    file = settings.slurm_rest_token

    def read() -> str:
        return token_of(file) if file is not None else os.environ.get("SLURM_JWT", "")

    try:
        word_of(read())
    except ValueError as error:
        how = "slurm_rest_token FILE" if file is not None else "slurm_rest_token FILE, or SLURM_JWT"
        raise SettingsError(f"slurm_rest: give it a token ({how}): {error}") from None
    try:
        return RestSlurm(settings.slurm_rest, own_user(), read, show=show)
    except ValueError as error:
        raise SettingsError(f"slurm_rest: {settings.slurm_rest!r}: {error}") from None


def read_shape(settings: Settings) -> tuple[Shape, ProfilingPartition | None]:
    """The cluster as Slurm has it now. Raises SettingsError."""
    slurm = slurm_of(settings)
    try:
        nodes = slurm.nodes()
        partitions = [name for name in settings.slurm_partitions.split(",") if name]
        memory = settings.slurm_gpu_memory_mib
        if settings.follows:
            return Shape.followed(nodes, partitions=partitions, gpu_memory_mib=memory), None
        shape = Shape.of(
            nodes,
            partitions=partitions,
            profiling=settings.slurm_profiling,
            gpu_memory_mib=memory,
        )
    except SlurmDown as down:
        raise SettingsError(f"backend slurm: no controller answers ({down})") from None
    except (SlurmError, ParseError) as error:
        raise SettingsError(f"backend slurm: {error}") from None
    if not shape.lent:
        return shape, None
    return shape, ProfilingPartition(
        nodes=dict(shape.lent), limit_s=settings.slurm_look_s, max_gpus=shape.spec.gpus_per_node
    )


def not_modelled(settings: Settings) -> list[str]:
    """What of the site's QOS and associations the policy `slurm` leaves out, a line each."""
    from scheduler.backends.slurm.site import read_site
    from scheduler.backends.slurm.table import Table
    from scheduler.policies.slurm.limits import unmodelled, unmodelled_words

    slurm, parts = slurm_of(settings), set(filter(None, settings.slurm_partitions.split(",")))
    try:
        jobs = Table(slurm).jobs()
        mine = [job for job in jobs if not parts or parts & set(job.partition.split(","))]
        found = unmodelled(read_site(slurm, slurm.nodes()), mine)
    except (SlurmDown, SlurmError, ParseError) as error:
        return [f"What the policy slurm leaves out of QOS and associations is not known: {error}"]
    return [unmodelled_words(*one) for one in found.items()]


def longest_command_s(settings: Settings) -> float:
    """So long the backend may wait for one command, in which nobody hears of the decider."""
    return READ_PATIENCE_S if settings.backend == "slurm" else 0.0


def open_backend(
    settings: Settings,
    header: LogHeader,
    clock: Clock | None = None,
    beat: Callable[[], object] | None = None,
) -> Backend:
    """The backend of the settings, as its last user left it.

    Args:
        clock: that of this process.
        beat: called before each command that may take long.
    """
    if settings.backend == "simulated":
        return _open_simulated(settings, header, clock or Clock())
    if settings.backend == "slurm":
        return _open_slurm(settings, header, clock, beat)
    if ":" in settings.backend:
        opened: Backend = load(settings.backend)(settings, header)
        return opened
    from scheduler.backends.local.backend import LocalBackend

    host = host_of(settings, header.spec.cluster)
    return LocalBackend(settings.state_dir / "local", host, clock=clock)


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


def _open_slurm(
    settings: Settings,
    header: LogHeader,
    clock: Clock | None,
    beat: Callable[[], object] | None,
) -> Backend:
    """In mode `place`; the others only follow."""
    from scheduler.backends.slurm.backend import SlurmBackend

    spec = header.spec
    lent = spec.profiling.nodes if spec.profiling is not None else {}
    shape = Shape(spec.cluster, header.names, lent, settings.slurm_profiling)
    declared = read_declared(settings.fake_profiles) if settings.fake_profiles else ()
    folder, slurm = settings.state_dir / "slurm", slurm_of(settings)
    slurm.beat = beat or slurm.beat
    return SlurmBackend(folder, shape, slurm, declared=declared, clock=clock)


def host_of(settings: Settings, cluster: ClusterSpec) -> Host:
    """This host as the nodes of the cluster. HostError when it has not so many GPUs."""
    sizes = [has.gpus for has in cluster.nodes()]
    if not settings.fake_gpus:
        return Host.here(sizes)
    declared = read_declared(settings.fake_profiles) if settings.fake_profiles else ()
    return Host.with_fake(sizes, declared)
