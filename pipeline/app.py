"""The list of commands of `pellucid`, grouped by purpose. A command's module is imported only when
the command is used."""

from __future__ import annotations

import importlib
import inspect
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command

from pipeline.help_text import reflowed
from pipeline.settings_help import WithSettings


class Command(NamedTuple):
    """A command: its name, the module and name of its function (or group), and what it does in a
    line. `module` is a module of `pipeline.commands`, or the full name of any other."""

    name: str
    module: str
    function: str
    does: str


def _one(name: str, does: str, module: str = "", function: str = "") -> Command:
    return Command(name, module or name, function or name.replace("-", "_"), does)


GROUPS: dict[str, tuple[Command, ...]] = {
    "Your jobs (a running service answers)": (
        _one("submit", "Submit a job to the service. Prints its id."),
        _one("ps", "List your jobs, latest first; an operator sees all."),
        _one("logs", "Print what a job has written; -f follows it."),
        _one("why", "Say why a job waits, runs where it does, or how it ended."),
        _one("order", "Show who waits, in order, and what makes each place (as sprio)."),
        _one("claims", "Show how often what was claimed of jobs was so."),
        _one("whatif", "Forecast a waiting job as it is, and as it would be."),
        _one("eta", "In front of Slurm: when would it start, before it is submitted."),
        _one("change", "Change what waiting jobs ask for; they keep their place."),
        _one("hold", "Hold waiting jobs: they do not start until they are released."),
        _one("release", "Release held jobs.", "hold"),
        _one("priority", "Let waiting jobs go sooner or later."),
        _one("cancel", "Cancel jobs: those that wait, and those that run."),
        _one("links", "List and revoke the shared links to your jobs."),
        _one("mcp", "Let an agent ask your site's Slurm: why, eta, order, read-only."),
        _one("top", "Watch virtual clusters fill, queues move, and your jobs run."),
    ),
    "Ask your own history": (
        _one("replay", "What would it have saved us? Other policies on your sacct dump."),
        _one("ingest", "Read a public or a site's own trace into Parquet."),
        _one("simulate", "Play one policy on a trace and record every decision."),
        _one("compare", "Play policies side by side, on the same inputs and seeds."),
        _one("tune", "Try other settings on your past; name those that are better beyond chance."),
        _one("explain", "Tell the story of one job of a recorded run."),
        _one("report", "Write one self-contained page on trace, models, policies."),
    ),
    "Run the service": (
        _one("serve", "Decide and run jobs behind an API, until stopped."),
        _one("serve-demo", "Try it: a service with fake GPUs and jobs.", "demo", "serve_demo"),
        _one("node", "Add, remove, drain, open and move nodes while jobs run.", function="app"),
        _one("settings", "Show and set what the policy decides by.", function="app"),
        _one("token", "Make, list and revoke the tokens that let people in."),
        _one("slurm", "In front of Slurm: take back an order, erase a user.", function="app"),
        _one("beside", "Show how a shadow and the former models turn out beside those in use."),
        _one("served", "Show which models decided each week, and how that turned out."),
        _one("audit", "Recompute every decision of the log and compare."),
        _one("restore", "Put a backup where a damaged database is."),
        _one("mend-clock", "Put right times that a wrong clock wrote.", "mend_clock"),
        _one("export", "Write a service's finished jobs as a trace to learn from or replay."),
    ),
    "Models and measurements": (
        _one("train", "Train the models and export them as a bundle."),
        _one("promote", "Judge a candidate against the champion; make it champion, or go back."),
        _one("evaluate", "Recompute the figures of a model, beside baselines."),
        _one("profile", "Run a command briefly and measure what it does to the GPU."),
        _one(
            "colocate",
            "Measure reference workloads alone and in pairs on one GPU.",
            "reproductions.colocation.command",
        ),
    ),
}
COMMANDS = {command.name: command for group in GROUPS.values() for command in group}


class Lazy(TyperGroup):
    """The top level of the command line. It knows names and summaries of commands without importing
    them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        _, module, function, _ = COMMANDS[cmd_name]
        where = module if "." in module else f"pipeline.commands.{module}"
        found = getattr(importlib.import_module(where), function)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            takes_policies = {"policy", "policies"} & inspect.signature(found).parameters.keys()
            alone.command(name=cmd_name, cls=WithSettings if takes_policies else None)(found)
            found = alone
        command = get_command(found)
        command.name = cmd_name
        return reflowed(command)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        self.commands: Any = dict.fromkeys(COMMANDS)  # what to suggest for a wrong one
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write_usage(ctx.command_path, "[OPTIONS] COMMAND [ARGS]...")
        formatter.write_paragraph()
        formatter.write_text(self.help or "")
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(command.name, command.does) for command in commands])
        with formatter.section("Options"):
            records = [param.get_help_record(ctx) for param in self.get_params(ctx)]
            formatter.write_dl([record for record in records if record is not None])
        formatter.write_paragraph()
        formatter.write_text("pellucid COMMAND --help explains a command, with examples.")
        formatter.write_text(
            "A service also has pages at its address: Fairness (who waits longest), Models (what "
            "they think of jobs, and how to correct them), and of each job one that can be shared."
        )


app = typer.Typer(
    name="pellucid",
    cls=Lazy,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"pellucid {version('pellucid')}")
        raise typer.Exit


@app.callback()
def pellucid(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A scheduler for GPU training clusters that can say why."""
