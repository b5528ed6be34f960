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
    "Your jobs (asked of a running service)": (
        _one("submit", "Submit a job to the service, and print its id."),
        _one("ps", "List jobs that wait or run: yours; for an operator, all."),
        _one("logs", "Print what a job has written; -f goes on while it runs."),
        _one("why", "Say why a job waits, why it runs where it does, or how it ended."),
        _one("order", "List the waiting jobs in order, and how each place is computed."),
        _one("claims", "Show how often the service's statements about jobs came true."),
        _one("whatif", "Forecast when a waiting job would start with other options."),
        _one("eta", "Forecast when a job would start if it were submitted now."),
        _one("change", "Change the options of waiting jobs, such as GPUs or time limit."),
        _one("hold", "Keep waiting jobs from starting until they are released."),
        _one("release", "Release held jobs, so that they may start.", "hold"),
        _one("priority", "Let waiting jobs start before or after others."),
        _one("cancel", "Cancel waiting jobs, and stop running ones."),
        _one("links", "List and revoke the links by which others can see your jobs."),
        _one("mcp", "Answer an AI agent's questions about your site's Slurm."),
        _one("top", "Watch how busy the cluster is, and the jobs."),
    ),
    "Recorded jobs": (
        _one("replay", "Replay past weeks of your Slurm under other policies: who gains?"),
        _one("ingest", "Convert a trace (a record of a cluster's jobs) to Parquet."),
        _one("simulate", "Simulate one policy on a trace, and record every decision."),
        _one("compare", "Simulate several policies on the same jobs, side by side."),
        _one("tune", "Search better settings of the policy by replaying your own past jobs."),
        _one("explain", "Explain what happened to one job of a simulation, and why."),
        _one("report", "Write one HTML page about a trace, models and compared policies."),
    ),
    "Run the service": (
        _one("serve", "Run the scheduler as a service, until stopped."),
        _one(
            "serve-demo",
            "Try it: a service with fake GPUs and invented jobs.",
            "demo",
            "serve_demo",
        ),
        _one("node", "Add, remove, drain, open and move nodes while jobs run.", function="app"),
        _one("settings", "Show and change the settings of the service's policy.", function="app"),
        _one("token", "Make, list and revoke the tokens that let people use the service."),
        _one(
            "slurm",
            "On a Slurm site: undo the service's changes, erase a user's data.",
            function="app",
        ),
        _one("beside", "Compare the models in use with former ones and with one on trial."),
        _one("served", "Show which models were used each week, and their errors."),
        _one("audit", "Check that a service's database follows from its log."),
        _one("restore", "Replace a damaged database of a service by a backup."),
        _one(
            "mend-clock",
            "Correct the times that a wrong clock wrote into a service's log.",
            "mend_clock",
        ),
        _one("export", "Write a service's finished jobs as a trace, to learn from or to replay."),
    ),
    "Models and measurements": (
        _one("train", "Train models of durations and of GPU sharing on a trace."),
        _one("promote", "Use a new model if it is better than the one in use; or go back."),
        _one("evaluate", "Measure the errors of models, and of simpler ones beside them."),
        _one("profile", "Run a command for some minutes, and measure its use of the GPU."),
        _one(
            "colocate",
            "Measure how much sample training jobs slow each other on one GPU.",
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
            "A service also has web pages at its address: Fairness (who waits longest), Models "
            "(how they predict durations, and how to correct them), and one for each job, which "
            "can be shared by a link."
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
