"""Worlds: the simulated settings under which policies are compared, by track or for any trace."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.worlds.closed_loop import within
from pipeline.worlds.playing import Playing
from pipeline.worlds.policy_options import over
from pipeline.worlds.scenario import Scenario
from pipeline.worlds.venus import TrackError
from scheduler.simulation.stating import stating, with_commands

TRACKS = ("published", "honest", "honest-closed", "honest-open", "philly")
MOST_COMPRESSED = 1e-3  # and most stretched, 1000: beyond it no trace is what it was


def open_scenario(
    trace: Path,
    *,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    cluster: Path | None = None,
    track: str | None = None,
    quirks: bool = True,
    **options: Any,
) -> Scenario:
    """Return the scenario (a cluster with its jobs, ready to simulate) that the options of
    `pellucid simulate` describe.

    Args:
        settings: settings by policy, which override those of the track or the cluster file.
        options: options of `Playing`.

    Raises TrackError, with a message of one line, if the options contradict each other or a file is
    wrong.
    """
    playing = Playing(**options)
    _check_plain(trace, playing)
    if track is None:
        world = _plain(trace, cluster, playing)
    elif cluster is not None:
        raise TrackError(f"--cluster: track {track} brings its own; leave it out")
    else:
        world = _of_track(trace, track, playing, quirks=quirks)
    if playing.readable:
        jobs, work, seed = world.workload.jobs, world.workload.work, playing.seed
        world.states = stating(
            jobs, work, share=playing.readable, error=playing.readable_error, seed=seed
        )
        if playing.readable_commands:
            world.workload.jobs = list(with_commands(jobs, work, world.states, seed))
    world.settings = over(world.settings, settings or {})
    return world


def _of_track(trace: Path, track: str, playing: Playing, *, quirks: bool) -> Scenario:
    seed, durations, compress = playing.seed, playing.durations, playing.compress
    bundle, loop = playing.bundle, playing.loop
    if track not in TRACKS:
        raise TrackError(f"--track {track}: use one of {', '.join(TRACKS)}")
    if playing.since is not None:
        raise TrackError("--since: a track is played whole; leave it out")
    if track == "honest-closed" and loop == "open":
        raise TrackError("--loop open: track honest-closed is a closed loop; leave it out")
    from pipeline.worlds import honest, philly, venus

    if track == "philly":
        if bundle is not None:
            raise TrackError("track philly learns online: no --bundle")
        return philly.scenario(
            trace, seed=seed, durations=durations, compress=compress, loop=loop or "open"
        )
    folder = venus.load(trace)
    if track == "published":
        exact = not seed and compress == 1.0 and loop in (None, "open")
        _check_published(exact=exact, bundle=bundle)
        from pipeline.systems import published

        return published().scenario(folder, durations=durations, quirks=quirks)
    return honest.scenario(
        folder,
        seed=seed,
        durations=durations,
        compress=compress,
        bundle=bundle,
        borrowing=track == "honest-open",
        loop=loop or ("closed" if track == "honest-closed" else "open"),
    )


def _check_plain(trace: Path, playing: Playing) -> None:
    compress, seed = playing.compress, playing.seed
    if not trace.exists():
        raise TrackError(f"--trace {trace}: no such file or folder")
    if not MOST_COMPRESSED <= compress <= 1 / MOST_COMPRESSED:
        raise TrackError(f"--compress is {compress:g}; it must be 0.001 to 1000")
    if seed < 0:
        raise TrackError(f"--seed is {seed}; it must be 0 or more")
    if not 0 <= playing.readable <= 1:
        raise TrackError(f"--readable is {playing.readable:g}; it must be 0 to 1")
    if not 0.01 <= playing.readable_error <= 2:
        raise TrackError(f"--readable-error is {playing.readable_error:g}; it must be 0.01 to 2")
    if playing.readable_commands and not playing.readable:
        raise TrackError("--readable-commands: say of how many users with --readable")
    within(playing.loop or "open")


def _check_published(*, exact: bool, bundle: Path | None) -> None:
    if not exact:
        raise TrackError("track published is one exact replay: no --seed, no --compress, no --loop")
    if bundle is not None:
        raise TrackError("track published uses given predictions: no --bundle")


def _plain(trace: Path, cluster: Path | None, playing: Playing) -> Scenario:
    """Return the scenario of any trace: its jobs on the cluster in the file `cluster`, or, if that
    is None, on a cluster inferred from the trace."""
    from pipeline.traces import read_dataset
    from pipeline.worlds import plain
    from pipeline.worlds.cluster_file import read_cluster

    table = read_dataset(trace)
    if cluster is None:
        from pipeline.worlds.shape import cluster_of
        from scheduler.core.settings import ProfilingPartition

        table, spec, notes = cluster_of(table)
        # no nodes are named that profile: what jobs are like is seen where they run
        world = plain.scenario(
            table, trace.name, cluster=spec, profiling=ProfilingPartition(), playing=playing
        )
        world.notes = (*notes, *world.notes)
        return world
    file = read_cluster(cluster)
    world = plain.scenario(table, trace.name, file.cluster, file.profiling, playing=playing)
    world.settings = {file.policy: file.settings.plain()}
    return world


__all__ = ["TRACKS", "Scenario", "TrackError", "open_scenario"]
