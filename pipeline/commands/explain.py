"""`pellucid explain`: the story of one job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.commands.why import why
from pipeline.console import user_errors
from pipeline.errors import UserError
from pipeline.remote import SERVER, TOKEN

if TYPE_CHECKING:
    from pipeline.explain import Story

CONTRADICTION = 1  # exit status when the record contradicts itself


def explain(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.")],
    run: Annotated[Path | None, typer.Option(help="Folder a simulation wrote (its --out).")] = None,
    html: Annotated[
        Path | None, typer.Option(help="Also draw it, as one page.", metavar="FILE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON instead.")] = False,
    server: SERVER = None,
    token: TOKEN = None,
) -> None:
    """Tell the story of one job: every decision, why, and what it waited for.

    Each decision is shown in order with its reason and the numbers behind it; a predicted
    duration is taken apart into the terms that make it up, each as a factor. What is shown is
    checked first: an explanation that does not add up is said to be an error (exit status 1).

    Example:

      pellucid explain 774700 --run runs/lucid --html story.html

    A job of the service is asked about there (as `pellucid why` does):

      pellucid explain 7njjr7qk87fm --server http://127.0.0.1:8400
    """
    if run is None:
        if server is None:
            raise UserError("give --run FOLDER for a simulated job, --server URL for a live one")
        why(job, server, token, as_json)
        return
    with user_errors():
        from rich.console import Console

        from pipeline.explain import RunFolder, tell
        from pipeline.explain.text import as_plain, plain_console, show

        story = tell(RunFolder(run), job)
        if html is not None:
            _draw(html, run, story)
        if as_json:
            typer.echo(json.dumps(as_plain(story), indent=2))
        else:
            show(story, plain_console(Console(highlight=False)))
    if story.problems:
        raise typer.Exit(CONTRADICTION)


def _draw(path: Path, run: Path, story: Story) -> None:
    from pipeline.explain.page import view
    from pipeline.report.look import page, release, write_page

    write_page(path, page("story.html", view=view(story), run=run.name, release=release()))
