"""Charts of a profile: its signals over time, with the steady window marked."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from features.files import replacing
from features.given import arrow_file
from features.plain import plain
from profiler.result import ProfileResult
from profiler.samplers import FIELDS
from profiler.session import SAMPLES_NAME

# one panel for each line that has a signal; several signals of a line share an axis
PANELS = (
    ("utilisation", ("util_pct", "engine_pct", "mem_util_pct", "sm_active_pct", "tensor_pct")),
    ("memory", ("mem_used_mib", "tree_mem_mib")),
    ("power", ("power_w",)),
    ("host CPU", ("cpu_pct",)),
    ("host memory", ("rss_mib",)),
)
FORMATS = ("svg", "png", "pdf")


def plot(result: ProfileResult, folder: Path, form: str = "svg") -> Path:
    """Draw the signals in `folder`/samples.parquet to the file `folder`/profile.FORM. Return its
    path."""
    from matplotlib.figure import Figure  # slow to import, and only wanted here

    with arrow_file(folder / SAMPLES_NAME) as file:
        table = pq.read_table(file)
    t = table["t_s"].to_numpy()
    panels = []
    for title, fields in PANELS:
        keys = [k for k in table.column_names if "." in k and k.split(".", 1)[1] in fields]
        if keys:
            panels.append((title, keys))
    figure = Figure(figsize=(9, 0.8 + 1.5 * max(1, len(panels))), layout="constrained")
    axes = figure.subplots(max(1, len(panels)), 1, sharex=True, squeeze=False)[:, 0]
    window = result.window
    for axis, (title, keys) in zip(axes, panels, strict=False):
        label = "steady window" if window.steady else "window (not steady)"
        axis.axvspan(
            window.start_s,
            window.end_s,
            color="#2a9d8f" if window.steady else "#e9c46a",
            alpha=0.18,
            label=label,
        )
        for boundary in window.boundaries_s:
            axis.axvline(boundary, color="0.6", linewidth=0.6, linestyle=":")
        for key in keys:
            axis.plot(t, table[key].to_numpy(), linewidth=0.9, label=key)
        unit = FIELDS[keys[0].split(".", 1)[1]][0]
        axis.set_ylabel(f"{title}\n({unit})", fontsize=8)
        axis.set_ylim(bottom=0)
        axis.tick_params(labelsize=7)
        axis.legend(fontsize=6, loc="lower right", ncols=3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("seconds since the command started", fontsize=8)
    name = " ".join(result.command)
    name = plain(name if len(name) <= 80 else name[:77] + "...").replace("\n", " ")
    outcome = result.ending.outcome.replace("_", " ")
    figure.suptitle(f"{name}: {outcome}", fontsize=9, parse_math=False)  # "$A $B" is a shell's
    path = folder / f"profile.{form}"
    with replacing(path) as partial:
        figure.savefig(partial, format=form)
    return path
