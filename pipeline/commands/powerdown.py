"""`pellucid powerdown`: which nodes could have slept."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from pipeline.console import user_errors
from pipeline.errors import UserError


def powerdown(
    run: Annotated[Path, typer.Argument(help="Folder a simulation wrote (its --out).")],
    settings: Annotated[
        str, typer.Option(help="Whose published thresholds: venus, earth, saturn, uranus, philly.")
    ] = "venus",
    learn: Annotated[
        float, typer.Option(help="Share of the run the forecast is fitted on.", min=0.1, max=0.9)
    ] = 0.5,
    out: Annotated[
        Path | None, typer.Option(help="Also write each advice, as Parquet.", metavar="FILE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Advise which nodes could sleep: the energy saving of Helios (CES), on a recorded run.

    Every ten minutes the advice says how many nodes to keep awake, and why. A forecast of busy
    nodes is fitted on the first part of the run; what is printed is of the rest, which it had not
    seen. Nothing is switched off.

    Example:

      pellucid simulate --track honest --trace ../shared/data/venus --policy pellucid
      --out runs/month

      pellucid powerdown runs/month --out runs/month/powerdown.parquet
    """
    with user_errors():
        from pipeline.powerdown import advise, table
        from scheduler.policies.ces import PUBLISHED
        from scheduler.simulation.recorder import write_table

        if settings not in PUBLISHED:
            raise UserError(f"--settings {settings}: use one of {', '.join(PUBLISHED)}")
        saving = advise(run, PUBLISHED[settings], learn=learn)
        if out is not None:
            write_table(out, table(saving))
    figures = {key: value for key, value in asdict(saving).items() if key != "advice"}
    if as_json:
        typer.echo(json.dumps(figures, indent=2))
        return
    typer.echo(
        f"{saving.asleep:.1f} of {saving.nodes} nodes could have slept on average; "
        f"{saving.busy_pct:.0f} % of those awake in use ({saving.busy_all_pct:.0f} % of all), "
        f"nodes woken {saving.wakings_a_day:.1f} times a day."
    )
    typer.echo(f"At the end: {saving.advice[-1].sentence()}.")
