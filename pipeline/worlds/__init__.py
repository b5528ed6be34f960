"""Tracks: the settings under which policies are compared."""

from __future__ import annotations

from pathlib import Path

from pipeline.worlds.scenario import Scenario
from pipeline.worlds.venus import TrackError

TRACKS = ("published", "honest", "honest-open", "philly")


def open_scenario(
    trace: Path,
    *,
    cluster: Path | None = None,
    track: str | None = None,
    seed: int = 0,
    durations: str | None = None,
    compress: float = 1.0,
    bundle: Path | None = None,
    quirks: bool = True,
    since: float | None = None,
) -> Scenario:
    """The world that the options of `pellucid simulate` describe.

    Raises TrackError with one line naming what is wrong.
    """
    if not trace.exists():
        raise TrackError(f"--trace {trace}: no such file or folder")
    if not compress > 0:
        raise TrackError(f"--compress is {compress:g}; it must be above 0")
    if seed < 0:
        raise TrackError(f"--seed is {seed}; it must be 0 or more")
    if track is None:
        from pipeline.traces import read_dataset
        from pipeline.worlds import plain
        from pipeline.worlds.cluster_file import read_cluster

        if compress != 1.0:
            raise TrackError("--compress needs --track honest, honest-open or philly")
        table = read_dataset(trace)
        if cluster is not None:
            spec, profiling = read_cluster(cluster)
        else:
            spec, profiling = plain.cluster_of(table), None
        return plain.scenario(
            table,
            trace.name,
            spec,
            profiling,
            durations=durations,
            bundle=bundle,
            seed=seed,
            since=since,
        )
    if since is not None:
        raise TrackError("--since: a track is played whole; leave it out")
    from pipeline.worlds import honest, philly, published, venus

    if track not in TRACKS:
        raise TrackError(f"--track {track}: use one of {', '.join(TRACKS)}")
    if cluster is not None:
        raise TrackError(f"--cluster: track {track} brings its own; leave it out")
    if track == "philly":
        if bundle is not None:
            raise TrackError("track philly learns online: no --bundle")
        return philly.scenario(trace, seed=seed, durations=durations, compress=compress)
    folder = venus.load(trace)
    if track == "published":
        if seed or compress != 1.0:
            raise TrackError("track published is one exact replay: no --seed, no --compress")
        if bundle is not None:
            raise TrackError("track published uses given predictions: no --bundle")
        return published.scenario(folder, durations=durations, quirks=quirks)
    return honest.scenario(
        folder,
        seed=seed,
        durations=durations,
        compress=compress,
        bundle=bundle,
        walls=track == "honest",
    )


__all__ = ["TRACKS", "Scenario", "TrackError", "open_scenario"]
