"""The entry point of `pellucid`: runs a command and handles signals and errors. The commands are
listed in `pipeline/app.py`."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130  # as a shell says of SIGINT
CLOSED_PIPE = 141  # and of SIGPIPE: `pellucid ... | head`
# libraries that the base install leaves out, by the extra that brings them
EXTRAS = {
    "agents": ("mcp",),
    "train": (
        "interpret",
        "lightgbm",
        "matplotlib",
        "mlflow",
        "pandas",
        "scipy",
        "sklearn",
        "threadpoolctl",
    ),
    "postgres": ("psycopg",),
    "profiler": ("pynvml", "torch"),
    "cluster": ("cryptography", "dask", "dask_jobqueue", "distributed"),
}


class Ended(BaseException):
    """Raised when a signal asks the command to end. `number` is the number of the signal."""

    def __init__(self, number: int):
        self.number = number


def main() -> None:
    """Run a command, and exit with its status. A Ctrl-C, a signal or a closed pipe ends the
    command at any time without a traceback, and its temporary folders are removed."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # `nohup` has it ignored
            signal.signal(number, _end)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # any locale
    out = sys.stdout
    try:
        status = _run()
        out.flush()
    except (KeyboardInterrupt, Ended, BrokenPipeError) as error:
        status = _status_of(error)
    except RuntimeError as error:  # raised within `__set_name__`, Python wraps whatever it is
        if not isinstance(error.__cause__, KeyboardInterrupt | Ended):
            raise
        status = _status_of(error.__cause__)
    if status == CLOSED_PIPE:  # else the interpreter tries to flush once more as it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
    sys.exit(status)


def _status_of(error: BaseException) -> int:
    """Return the exit status that a shell would give for a command that this error ended."""
    if isinstance(error, Ended):
        return 128 + error.number
    return CLOSED_PIPE if isinstance(error, BrokenPipeError) else INTERRUPTED


def _end(number: int, _: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)  # asked again, it ends at once
    raise Ended(number)


def _run() -> int | str | None:
    from features.plain import plain
    from pipeline.app import app
    from pipeline.errors import UserError

    out, there = sys.stdout, os.fstat(1)
    try:
        app()
    except UserError as error:
        print(f"pellucid: {plain(str(error))}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        extra = next((extra for extra, names in EXTRAS.items() if missing in names), None)
        if extra is None:
            raise
        needs = f"this needs {missing}, which is not installed"
        print(f"pellucid: {needs}: pip install 'pellucid[{extra}]'", file=sys.stderr)
        return 2
    except SystemExit as ended:
        # at a closed pipe typer wraps the stream, rich redirects it, and both exit with status 1
        closed = sys.stdout is not out or not os.path.samestat(there, os.fstat(1))
        return CLOSED_PIPE if closed else ended.code
    return 0


if __name__ == "__main__":
    main()
