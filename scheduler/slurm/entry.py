"""What a service in front of a Slurm needs from this package: the cluster's shape, notes for the
administrator, and the process that follows Slurm."""

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
    """Return a client for Slurm. It finds Slurm by SLURM_CONF, as Slurm's own commands do."""
    warn = structlog.get_logger("slurm").warning
    return Slurm(show=to_stdout if settings.dry_run else None, warn=warn)


def read_shape(settings: Settings) -> Shape:
    """Return the cluster's present shape, as Slurm reports it. Raise SettingsError where it cannot
    be read."""
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
    """Return what an administrator should know about a followed Slurm, as a list of lines. They are
    about its release and, with the policy `slurm`, about settings of its QOS and associations that
    the policy leaves out."""
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
    """Run the process of the modes `advise` and `order` until `stopping` returns True."""
    from scheduler.slurm.follow.follower import run_follower

    run_follower(settings, slurm_of(settings), stopping, holder)
