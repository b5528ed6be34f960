"""`pellucid explain`: explains what happened to one job, and why."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.commands import why
from pipeline.console import user_errors
from pipeline.errors import UserError
from pipeline.options import CODES, JOB, spread
from pipeline.remote import Address, Service

if TYPE_CHECKING:
    from scheduler.explain.story import Story

CONTRADICTION = 1  # exit status when the record contradicts itself


@dataclass(frozen=True, kw_only=True)
class OtherService(Address):
    """The options that name a service to ask, if a job is not of a simulation."""

    server: Annotated[
        str | None,
        typer.Option(
            envvar="PELLUCID_SERVER",
            help="Without --run: address of the service whose job is explained.",
            metavar="URL",
            show_default=False,
        ),
    ] = None


@spread
def explain(
    job: JOB,
    address: OtherService,
    run: Annotated[
        Path | None,
        typer.Option(help="Folder of the simulation (its --out) to which the job belongs."),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(help="Also write the explanation as one HTML page to FILE.", metavar="FILE"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the explanation as JSON, not as text.")
    ] = False,
    counterfactual: Annotated[
        bool,
        typer.Option(
            "--counterfactuals",
            help=(
                "Also print which changes to the job would have started it during its wait. Each "
                "is tried in the simulation, which is run again up to then."
            ),
        ),
    ] = False,
    at: Annotated[
        float | None,
        typer.Option(
            help=(
                "As --counterfactuals, for the wait at this number of seconds after the job's "
                "submission. Default: for its longest wait."
            ),
        ),
    ] = None,
    codes: CODES = False,
) -> None:
    """Explain what happened to one job of a simulation: every decision about it, and why.

    Decisions are shown in order, each with its reason and the numbers behind it. A predicted
    duration is shown as a product of factors, one for each feature of the job. If the recorded
    numbers contradict each other, this is printed, and the exit status is 1.

    Example:

      pellucid explain 774700 --run runs/lucid --html story.html

    Also print which changes would have started the job, such as fewer GPUs or a shorter time limit:

      pellucid explain 774700 --run runs/pellucid --counterfactuals

    Explain a job of a running service, as `pellucid why` does:

      pellucid explain 7njjr7qk87fm --server http://127.0.0.1:8400
    """
    if run is None:
        if address.server is None:
            raise UserError("give --run FOLDER for a simulated job, --server URL for a live one")
        if html is not None or counterfactual or at is not None:
            raise UserError(
                "--html, --counterfactuals and --at are for a simulated job: --run FOLDER"
            )
        why.print_why(Service(**vars(address), as_json=as_json), job, codes=codes)
        return
    with user_errors():
        from rich.console import Console

        from pipeline.explain import RunFolder, read_story
        from pipeline.explain.text import as_plain, plain_console, section, show

        folder = RunFolder(run)
        story = read_story(folder, job)
        found = None
        if counterfactual or at is not None:
            from pipeline.explain import counterfactuals

            found = counterfactuals.counterfactuals(folder, story, since_submit_s=at)
        if html is not None:
            _draw(html, run, story, codes)
        if as_json:
            record = as_plain(story)
            if found is not None:
                record["counterfactuals"] = counterfactuals.plain(found)
            typer.echo(json.dumps(record, indent=2))
        else:
            console = plain_console(Console(highlight=False))
            show(story, console, codes=codes)
            if found is not None:
                section(console, "What would have started it", counterfactuals.lines(found))
    if story.problems:
        raise typer.Exit(CONTRADICTION)


def _draw(path: Path, run: Path, story: Story, codes: bool) -> None:
    from features.files import write_whole
    from pipeline.report.page import page, release
    from scheduler.explain.drawing import view

    write_whole(
        path, page("story.html", view=view(story, codes=codes), run=run.name, release=release())
    )
