"""`pellucid serve`: runs the scheduler as a service."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.console import user_errors
from pipeline.options import POLICY, SET
from pipeline.settings_options import with_options

if TYPE_CHECKING:
    from scheduler.assembly import CoreSpec
    from scheduler.core.cluster import ClusterSpec
    from scheduler.service.log.restart import Choice, FileDiffers
    from scheduler.service.settings import Settings

UNMEASURED = "How fast jobs run that share GPUs is not measured here: learns_speeds has no effect."
DEMO_CLUSTER = Path(__file__).parents[1] / "worlds" / "clusters" / "demo.yaml"  # from any folder


@with_options
def serve(
    gpus: Annotated[
        int | None,
        typer.Argument(
            help=(
                "With --fake-gpus: number of fake GPUs, on nodes of up to 8. Left out: the GPUs of "
                "--cluster, by default 240."
            ),
            min=1,
            max=8192,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="YAML file of the service's settings (docs/service.md). Options and PELLUCID_... "
            "variables win over it."
        ),
    ] = None,
    policy: POLICY = None,
    options: SET = None,
    apply_file: Annotated[
        bool | None,
        typer.Option(
            "--apply-file/--keep-log",
            help=(
                "If the cluster file differs from the nodes and settings with which the service "
                "last ran: use those of the file, or keep those of last time. With neither: print "
                "the differences, and ask or stop."
            ),
        ),
    ] = None,
    **given: Any,
) -> None:
    """Run the scheduler as a service, until stopped. It takes jobs by HTTP, decides when and where
    each runs, and runs them. Jobs go on if the service is stopped, crashes or is killed.

    The service keeps everything in a log in its database, and goes on from there when it is started
    again. A second service with the same database waits, and takes over if the first has not been
    heard of for 10 s (the setting lease_s).

    Examples:

      pellucid serve --fake-gpus          # this host, GPUs only declared; http://127.0.0.1:8400

      pellucid serve --fake-gpus 8        # as before, one node of 8 in place of a cluster of 240

      pellucid serve --backend simulated --pace 60 --cluster pipeline/worlds/clusters/small.yaml

      pellucid serve --database postgresql://pellucid@db/pellucid --config service.yaml

      pellucid serve --backend slurm          # in front of your Slurm: docs/slurm.md

    Then: pellucid submit --gpus 1 -- python train.py, or the pages at the address above.
    """
    with user_errors():
        from dataclasses import replace

        from pipeline.serving import noted
        from pipeline.worlds.cluster_file import read_cluster_file
        from pipeline.worlds.policy_options import given as given_of
        from pipeline.worlds.policy_options import over
        from scheduler.assembly import CoreSpec, Stated
        from scheduler.service import logs
        from scheduler.service.decide.begin import begin, listen
        from scheduler.service.decide.supervisor import Supervisor
        from scheduler.service.log.restart import FileDiffers
        from scheduler.service.settings import SettingsError, read_settings

        settings = read_settings(config, policy=policy, **given)
        logs.configure(settings.log_level)
        names: tuple[str, ...] = ()
        if settings.backend == "slurm":
            from scheduler.slurm.entry import read_shape

            shape = read_shape(settings)
            file, names = CoreSpec.of(shape.spec), shape.names
            stated = Stated(policy=False)
        elif gpus is not None:
            file, stated = CoreSpec.of(declared(gpus, settings)), Stated(policy=False)
        elif settings.cluster is not None:
            file, stated = read_cluster_file(settings.cluster)
        else:
            file, stated = read_cluster_file(DEMO_CLUSTER)[0], Stated(False, False, False)
        if settings.policy is not None:
            stated = replace(stated, policy=True)
        own = "slurm" if settings.follows and settings.slurm_mode == "advise" else file.policy
        name = settings.policy or own
        written = file.settings.stated() if name == file.policy else {}
        values = over(over(written, settings.policy_settings), given_of(name, options or []))
        spec = CoreSpec.of(file.cluster, name, values, file.profiling)
        if settings.follows and file.cluster.mixes_types and not spec.kind.capabilities.mixes_types:
            why = "needs GPUs of one type, and this cluster has several: use slurm or pellucid"
            raise SettingsError(f"policy {name} {why}")
        choice: Choice | None = None
        if apply_file is not None:
            choice = "apply" if apply_file else "keep"
        try:
            present = begin(settings, spec, names, choice, stated=stated)
        except FileDiffers as differs:
            present = begin(settings, spec, names, choice=chosen(differs), stated=stated)
        listening = listen(settings)
        shown = "behind no API"
        if listening is not None:
            shown = f"on http://{settings.host}:{listening.getsockname()[1]}"
        there = sum(has.gpus for has in present.nodes.intended().values())
        now = present.spec
        typer.echo(
            f"Pellucid {shown}: cluster {now.cluster.name} ({there} GPUs), policy "
            f"{now.policy}, backend {settings.backend}. Stop with Ctrl-C; jobs run on."
        )
        for line in must_know(now, settings):
            typer.echo(line)
        with noted(settings.database, asks=settings.needs_token):
            Supervisor(settings, listening).run()


def declared(gpus: int, settings: Settings) -> ClusterSpec:
    """Return a cluster of one virtual cluster with `gpus` GPUs that are only declared (fake).
    Raise SettingsError if the settings have a cluster or real GPUs, or if the number is above 8
    and does not fill nodes of 8."""
    from scheduler.core.cluster import ClusterSpec
    from scheduler.service.settings import SettingsError

    if not settings.fake_gpus or settings.backend != "local" or settings.cluster is not None:
        raise SettingsError(f"{gpus}: a number of GPUs goes with --fake-gpus, without --cluster")
    if gpus > 8 and gpus % 8:
        raise SettingsError(
            f"--fake-gpus {gpus}: give 1 to 8 (one node) or a multiple of 8 (nodes of 8); "
            "--cluster states any other shape"
        )
    return ClusterSpec({"default": -(-gpus // 8)}, min(gpus, 8), name="fake")


def must_know(spec: CoreSpec, settings: Settings) -> Iterator[str]:
    """Yield lines that the operator must know: whether nodes named for profiling are not lent,
    whether the setting learns_speeds has no effect, whether the models are refused, and notes
    about a followed Slurm."""
    from pipeline.serving import usable
    from scheduler.assembly import folded_note
    from scheduler.core.settings import flat

    if (folded := folded_note(spec)) is not None:
        yield folded
    unread = settings.backend == "local" and not settings.read_progress
    if unread and flat(spec.settings).get("learns_speeds"):
        yield UNMEASURED
    if settings.bundle is not None:
        for line in usable([settings.bundle])[1]:
            yield f"{line}. Durations come from the models before it, or from what has ended."
    if settings.follows:
        from scheduler.slurm.entry import notes

        yield from notes(settings, spec.policy)


def chosen(differs: FileDiffers) -> Choice:
    """Ask the user at the terminal whether to apply the cluster file or to keep the log's
    settings, which differ. Return the choice. Raises FileDiffers if there is no terminal, if
    the file cannot be applied, or if the user chooses neither."""
    for line in differs.differences:
        typer.echo(line, err=True)
    if not (differs.can_apply and _asks()):
        raise differs
    answer = typer.prompt(
        "Apply the file, keep the log, or stop? [apply/keep/stop]", default="stop", err=True
    )
    if answer not in ("apply", "keep"):
        raise differs
    return "apply" if answer == "apply" else "keep"


def _asks() -> bool:
    """Return whether the command runs at a terminal, so that it can ask the user."""
    return sys.stdin.isatty() and sys.stderr.isatty()
