"""The service in front of Slurm: what the settings mean for its backend."""

from __future__ import annotations

import os

from scheduler.backends.local.host import own_user, read_declared
from scheduler.backends.slurm.backend import SlurmBackend
from scheduler.backends.slurm.client import Slurm, SlurmDown, SlurmError, to_stdout
from scheduler.backends.slurm.parse import ParseError
from scheduler.backends.slurm.shape import Shape
from scheduler.service.log.header import Genesis, Partition
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


def read_shape(settings: Settings) -> tuple[Shape, Partition | None]:
    """The cluster as Slurm has it now. Raises SettingsError."""
    slurm = slurm_of(settings)
    try:
        shape = Shape.of(
            slurm.nodes(),
            partitions=[name for name in settings.slurm_partitions.split(",") if name],
            profiling=settings.slurm_profiling,
            slots=settings.slurm_mode == "place",
            gpu_memory_mib=settings.slurm_gpu_memory_mib,
        )
    except SlurmDown as down:
        raise SettingsError(f"backend slurm: no controller answers ({down})") from None
    except (SlurmError, ParseError) as error:
        raise SettingsError(f"backend slurm: {error}") from None
    if not shape.lent:
        return shape, None
    return shape, Partition(shape.lent, settings.slurm_look_s, shape.spec.gpus_per_node)


def open_backend(settings: Settings, genesis: Genesis) -> SlurmBackend:
    """The backend of mode `place`, as its last user left it."""
    lent = genesis.partition.nodes if genesis.partition is not None else {}
    shape = Shape(genesis.cluster, genesis.names, lent, settings.slurm_profiling)
    declared = read_declared(settings.fake_profiles) if settings.fake_profiles else ()
    folder = settings.state_dir / "slurm"
    return SlurmBackend(folder, shape, slurm_of(settings), declared=declared)
