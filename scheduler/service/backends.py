"""The backend that the settings name: what they mean for it, and how it is opened."""

from __future__ import annotations

from features.clock import Clock
from features.plugins import load
from profiler.progress import table
from scheduler.backends.base import Backend
from scheduler.backends.local.host import KNOWN, Host, read_declared
from scheduler.core.cluster import ClusterSpec
from scheduler.policies import policy_named
from scheduler.service.log.header import LogHeader
from scheduler.service.settings import Settings, SettingsError
from scheduler.slurm.read.client import (
    Slurm,
    SlurmDown,
    SlurmError,
    to_stdout,
)
from scheduler.slurm.read.parse import ParseError
from scheduler.slurm.read.shape import Shape


def slurm_of(settings: Settings) -> Slurm:
    """How Slurm is reached: through SLURM_CONF, as its own commands are."""
    return Slurm(show=to_stdout if settings.dry_run else None)


def read_shape(settings: Settings) -> Shape:
    """The cluster as Slurm has it now. Raises SettingsError."""
    partitions = [name for name in settings.slurm_partitions.split(",") if name]
    memory = settings.slurm_gpu_memory_mib
    try:
        nodes = slurm_of(settings).nodes()
        return Shape.followed(nodes, partitions=partitions, gpu_memory_mib=memory)
    except SlurmDown as down:
        raise SettingsError(f"backend slurm: no controller answers ({down})") from None
    except (SlurmError, ParseError) as error:
        raise SettingsError(f"backend slurm: {error}") from None


def notes(settings: Settings, policy: str) -> list[str]:
    """What an administrator is to know of a followed Slurm, a line each: of its release, and, where
    the policy `slurm` answers, what of its QOS and associations that leaves out."""
    slurm = slurm_of(settings)
    twin = policy_named(policy).capabilities.twin
    return _of_release(slurm) + (_left_out(slurm, settings) if twin else [])


def _of_release(slurm: Slurm) -> list[str]:
    from scheduler.slurm.read.site import config_of
    from scheduler.slurm.read.versions import caution, release_in

    try:
        config = config_of(slurm.read("scontrol", "show", "config"))
    except (SlurmDown, SlurmError, ParseError) as error:
        return [f"Which release of Slurm this is, and whether it was tried, is not known: {error}"]
    text = caution(release_in(config.get("SLURM_VERSION", "")))
    return [f"Slurm {text}."] if text else []


def _left_out(slurm: Slurm, settings: Settings) -> list[str]:
    from scheduler.slurm.read.site import read_site
    from scheduler.slurm.read.table import Table
    from scheduler.slurm.twin.unmodelled import unmodelled, unmodelled_words

    parts = set(filter(None, settings.slurm_partitions.split(",")))
    try:
        jobs = Table(slurm).jobs()
        mine = [job for job in jobs if not parts or parts & set(job.partition.split(","))]
        site = read_site(slurm, slurm.nodes())
        left_out = unmodelled(site, mine)
    except (SlurmDown, SlurmError, ParseError) as error:
        return [f"What the policy slurm leaves out of QOS and associations is not known: {error}"]
    unread = [f"Not read, and left out by the policy slurm: {fault}." for fault in site.faults]
    return [unmodelled_words(*one) for one in left_out.items()] + unread


def open_backend(
    settings: Settings,
    header: LogHeader,
    clock: Clock | None = None,
) -> Backend:
    """The backend of the settings, as its last user left it.

    Args:
        clock: that of this process.
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
    """This host as the nodes of the cluster. HostError when it has not so many GPUs."""
    sizes = [has.gpus for has in cluster.nodes()]
    if not settings.fake_gpus:
        return Host.here(sizes, known=settings.state_dir / "local" / KNOWN)
    declared = read_declared(settings.fake_profiles) if settings.fake_profiles else ()
    return Host.with_fake(sizes, declared)
