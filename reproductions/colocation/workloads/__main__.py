"""`python -m reproductions.colocation.workloads`: train one reference workload, or serve a bench.

The report (JSON lines, see `loop.py`) goes to `--report` or to standard error, so
that standard output stays as quiet as a training script's. With `--serve` the process takes
orders as JSON lines on standard input instead (`start`, `stop`, `quit`) and answers on standard
output; it ends when the input closes, so a bench that is killed leaves nothing running.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import queue
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from profiler.errors import NotSupported, ProfilerError
from reproductions.colocation.workloads import WORKLOADS, Config, Size, default_batch, parse_config


class Writer:
    """Writes JSON lines to a file, each flushed. A closed reader ends the process quietly."""

    def __init__(self, file: TextIO) -> None:
        self.file = file

    def __call__(self, message: dict[str, Any]) -> None:
        try:
            self.file.write(json.dumps(message) + "\n")
            self.file.flush()
        except BrokenPipeError:
            os._exit(1)


def run(config: Config, device: str, size: Size, seconds: float, seed: int, to: Writer) -> None:
    """Train a workload for `seconds` from the first full step; `to` gets the events."""
    from reproductions.colocation.workloads import loop

    device = loop.pick_device(device)
    to({"event": "start", "t": time.monotonic(), "workload": str(config), "device": device})
    task = loop.build(config, device, size, seed)
    began: list[float] = []

    def stop() -> bool:
        if not began:
            began.append(time.monotonic())
        return time.monotonic() - began[0] >= seconds

    loop.train(task, device, to, stop)


def serve(device: str, to: Writer) -> None:
    """Train what standard input asks for, one workload at a time."""
    orders: queue.Queue[dict[str, Any]] = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            orders.put(json.loads(line))
        os._exit(0)  # the bench has gone: leave, whatever the main thread is computing

    from reproductions.colocation.workloads import loop

    threading.Thread(target=listen, daemon=True).start()
    device = loop.pick_device(device)
    to({"event": "hello", "t": time.monotonic(), "device": device, "pid": os.getpid()})
    while (order := orders.get())["do"] != "quit":
        if order["do"] != "start":
            continue  # a stop that crossed an error on its way
        config = Config(order["model"], order["batch"], order["amp"])
        try:
            task = loop.build(config, device, order["size"], order.get("seed", 0))
            every = order.get("report_every_s", 0.3)
            loop.train(task, device, to, lambda: not orders.empty(), report_every_s=every)
            to({"event": "memory", "peak_mib": loop.peak_memory_mib(device)})
        except Exception as error:
            kind = "out_of_memory" if loop.out_of_memory(error) else "error"
            to({"event": kind, "t": time.monotonic(), "text": str(error).split("\n")[0]})
        task = None  # type: ignore[assignment]
        gc.collect()
        loop.release(device)
        to({"event": "idle", "t": time.monotonic()})


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python -m reproductions.colocation.workloads",
        description="Train a reference workload on synthetic data and report its true speed.",
        epilog="workloads: " + ", ".join(f"{w.name} ({w.dataset})" for w in WORKLOADS.values()),
    )
    found.add_argument("workload", nargs="?", help="MODEL[/BATCH][/amp]")
    found.add_argument("--batch", type=int, help="batch size (default: the family's smallest)")
    found.add_argument("--amp", action="store_true", help="train in mixed precision")
    found.add_argument("--seconds", type=float, default=20.0)
    found.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    found.add_argument(
        "--tiny", action="store_true", help="use a small model and data set, for a CPU"
    )
    found.add_argument("--threads", type=int, help="number of torch threads on a CPU")
    found.add_argument("--seed", type=int, default=0)
    found.add_argument(
        "--report", type=Path, help="file for the JSON lines, in place of standard error"
    )
    found.add_argument("--serve", action="store_true", help="read commands from standard input")
    return found


def main() -> int:
    args = parser().parse_args()
    size: Size = "tiny" if args.tiny else "full"
    try:
        try:
            import torch
        except ImportError as error:
            raise NotSupported(
                "reference workloads need torch: pip install 'pellucid[profiler]'"
            ) from error
        if args.threads:
            torch.set_num_threads(args.threads)
        if args.serve:
            serve(args.device, Writer(sys.stdout))
            return 0
        if args.workload is None:
            raise ProfilerError("no workload given; see --help for the list")
        config = parse_config(args.workload, size)
        if args.amp or args.batch:
            family = WORKLOADS[config.model]
            batch = args.batch or config.batch or default_batch(family, size)
            text = f"{config.model}/{batch}{'/amp' if args.amp or config.amp else ''}"
            config = parse_config(text, size)
        with suppress(KeyboardInterrupt):
            if args.report is None:
                run(config, args.device, size, args.seconds, seed=args.seed, to=Writer(sys.stderr))
            else:
                with args.report.open("w") as file:
                    run(config, args.device, size, args.seconds, seed=args.seed, to=Writer(file))
    except ProfilerError as error:
        print(f"reproductions.colocation.workloads: {error}", file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
