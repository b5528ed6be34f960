"""What a service in front of a Slurm needs of it: its cluster, notes of it, the process."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from scheduler.policies import policy_named
from scheduler.service.settings import Settings, SettingsError
from scheduler.slurm.read.client import Slurm, SlurmDown, SlurmError, to_stdout
from scheduler.slurm.read.parse import ParseError
from scheduler.slurm.read.shape import Shape
from scheduler.slurm.read.site import config_of, read_site
from scheduler.slurm.read.table import Table
from scheduler.slurm.read.versions import caution, release_in
from scheduler.slurm.twin.unmodelled import unmodelled, unmodelled_words


def slurm_of(settings: Settings) -> Slurm:
    """Return the connection to Slurm, which is reached through SLURM_CONF, as its own commands
    are.
    """
    warn = structlog.get_logger("slurm").warning
    return Slurm(show=to_stdout if settings.dry_run else None, warn=warn)


def read_shape(settings: Settings) -> Shape:
    """Return the cluster as Slurm has it now. Raises SettingsError."""
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
    """Return what an administrator should know of a followed Slurm, a line each: about its release,
    and, where the policy `slurm` answers, what of its QOS and associations that leaves out.
    """
    slurm = slurm_of(settings)
    twin = policy_named(policy).capabilities.twin
    return _of_release(slurm) + (_left_out(slurm, settings) if twin else [])


def _of_release(slurm: Slurm) -> list[str]:
    try:
        config = config_of(slurm.read("scontrol", "show", "config"))
    except (SlurmDown, SlurmError, ParseError) as error:
        return [f"Which release of Slurm this is, and whether it was tried, is not known: {error}"]
    text = caution(release_in(config.get("SLURM_VERSION", "")))
    return [f"Slurm {text}."] if text else []


def _left_out(slurm: Slurm, settings: Settings) -> list[str]:
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


def follow(settings: Settings, stopping: Callable[[], bool], holder: str = "") -> None:
    """Run the process of `advise` and `order` until it is to stop."""
    from scheduler.slurm.follow.follower import run_follower

    run_follower(settings, slurm_of(settings), stopping, holder)
