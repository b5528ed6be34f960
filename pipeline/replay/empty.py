"""Forecasts when a job would start on an empty site that is only known from files of its Slurm."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from features.clock import Clock
from pipeline.errors import UserError
from pipeline.replay.printed import read_printed
from scheduler.assembly import CoreSpec
from scheduler.explain.effect import Eta
from scheduler.slurm.follow.cores import Assembled
from scheduler.slurm.follow.planner import Planner
from scheduler.slurm.follow.trials import Means, Refused, Trials
from scheduler.slurm.read.shape import Shape
from scheduler.slurm.read.site import site_node
from scheduler.slurm.twin.site import Site


def eta_of(paths: Iterable[Path], options: Sequence[str], user: str) -> Eta:
    """Return when a job with these options of sbatch would start if the site were empty: its start
    in each partition that accepts it, and why the other partitions do not.

    Raises UserError if a file cannot be used, or Slurm would not accept the job.

    Args:
        paths: files in which the site's Slurm printed its nodes and settings.
        options: options of sbatch, one per word.
        user: name of the job's user.
    """
    given = read_printed(paths)
    if not given.nodes:
        raise UserError("--site: no node in it; give slurm.conf, or scontrol show nodes")
    parts = {part.name: part for part in given.partitions}
    nodes = {node.name: site_node(node) for node in given.nodes}
    licences = given.licences or {}
    site = Site(
        nodes,
        parts,
        licences=licences,
        qos=given.qos,
        assocs=given.assocs,
        config=given.config,
        accounts=given.accounts,
    )
    shape = Shape.followed(given.nodes)
    planner = Planner(Assembled(CoreSpec.of(shape.spec, "slurm")), shape)
    planner.nodes, planner.site = given.nodes, site
    means = Means(planner.trial, planner.own, lambda: None, lambda made: made)
    clock = Clock()
    try:
        return Trials(
            site=site, jobs=[], memory=planner.memory, now=clock.now(), clock=clock, means=means
        ).eta(options, user)
    except Refused as refused:
        raise UserError(str(refused)) from None
