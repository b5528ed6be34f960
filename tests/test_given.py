"""Whoever opens a file that somebody else may have put there opens it by `features.given`.

A lint: it finds every call that opens or reads a file by its name. Each is either one of the
opener's, or stands below with why nobody else can have put anything there, or why it does not
matter.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("features", "models", "profiler", "scheduler", "pipeline", "reproductions")
OPENER = "features/given.py"
TESTING = ("scheduler/testing/", "pipeline/testing/")

KERNEL = "the kernel's"
OURS = "in a folder that only this process, or its user, can put anything into; made here"
PACKAGE = "of the installed package"
NO_READ = "opened to be written"
EXEMPT = {
    "features/aside.py:Aside.read:open": "a descriptor of memory",
    "features/clock.py:boot_id:.read_text": KERNEL,
    "features/files.py:replacing:os.open": "made under a name of its own (O_EXCL)",
    "features/files.py:write_whole:os.open": NO_READ,
    "features/files.py:sync:os.open": "what was just written, or a folder",
    "features/files.py:_locked:os.open": "O_RDWR waits for nobody; a link is refused",
    "features/folders.py:temporary_folder:os.open": OURS,
    "features/folders.py:_remove_if_left:os.open": "below an open folder; waits for nobody",
    "features/folders.py:_remove_if_left:os.open#2": "below an open folder; waits for nobody",
    "profiler/guardian.py:Guardian.__init__:os.open": NO_READ,
    "profiler/guardian.py:Guardian._become_command:os.open": KERNEL,
    "profiler/procs.py:_read:open": KERNEL,
    "profiler/progress/apart.py:Reading._known:open": "a descriptor of its own memory",
    "profiler/procs.py:Gauge.__init__:os.open": KERNEL,
    "profiler/progress/table.py:shipped:.read_text": PACKAGE,
    "models/training/card.py:_histories:.read_bytes": "drawn here, in a folder of its own",
    "scheduler/backends/local/xid.py:since:os.open": KERNEL,
    "profiler/samplers/host.py:cpu_name:open": KERNEL,
    "scheduler/backends/local/backend.py:LocalBackend.__init__:os.open": "a pipe, on purpose",
    "scheduler/backends/local/cgroup.py:own:.read_text": KERNEL,
    "scheduler/backends/local/cgroup.py:own:.read_text#2": KERNEL,
    "scheduler/backends/local/cgroup.py:members:.read_text": KERNEL,
    "scheduler/backends/local/leftovers.py:orphans:.read_bytes": KERNEL,
    "scheduler/backends/local/leftovers.py:orphans:.read_bytes#2": KERNEL,
    "scheduler/backends/local/program.py:_mode:os.open": "O_PATH opens nothing",
    "scheduler/backends/local/program.py:_mode:os.open#2": "O_PATH opens nothing",
    "scheduler/backends/local/program.py:_mode:os.open#3": "O_PATH opens nothing",
    "scheduler/backends/local/spool.py:start_ticks:open": KERNEL,
    "scheduler/backends/local/spool.py:Spool.lock:os.open": OURS,
    "scheduler/backends/local/spool.py:Spool.ring:os.open": "a pipe, on purpose; does not wait",
    "scheduler/backends/local/spool.py:Acks._open:os.open": OURS,
    "scheduler/backends/local/zygote.py:end_strays:.read_bytes": KERNEL,
    "scheduler/backends/local/zygote.py:_owner_lives:.read_text": KERNEL,
    "scheduler/backends/simulated.py:_Journal.__init__:os.open": OURS,
    "scheduler/slurm/twin/passes.py:Passes._earliest:.open": "opens no file",
    "scheduler/service/api/peer.py:_looked_up:.read_text": KERNEL,
    "scheduler/service/log/header.py:code_version:.read_bytes": PACKAGE,
    "scheduler/service/log/restore.py:Restore.apply:os.open": "made here (O_EXCL)",
    "scheduler/service/log/restore.py:Restore.apply:sqlite3.connect": "made here",
    "scheduler/service/log/restore.py:Restore._models:shutil.copytree": "read as models later",
    "scheduler/service/log/restore.py:_read_only:sqlite3.connect": "looked at before",
    "scheduler/service/log/store/soundness.py:_opened:sqlite3.connect": "the service's own",
    "scheduler/service/log/store/line.py:Line.turn:os.open": "O_RDWR waits for nobody",
    "scheduler/service/log/store/store.py:_of_ours:os.open": "made here (O_EXCL)",
    "pipeline/report/interactive.py:scripts:.read_bytes": PACKAGE,
    "scheduler/service/pages/render.py:_asset:.read_bytes": PACKAGE,
    "scheduler/service/pages/render.py:_asset:.read_bytes#2": PACKAGE,
    "pipeline/cli.py:main:os.open": KERNEL,
    "pipeline/cluster.py:_Kept.__call__:.open": NO_READ,
    "pipeline/demo/first.py:keep:shutil.copytree": "of the work tree, by who made them",
    "pipeline/demo/first.py:keep:shutil.copy": "of the work tree, by who made them",
    "pipeline/demo/run.py:service:.open": NO_READ,
    "pipeline/onefile/build.py:build:zipfile.ZipFile": "in memory",
    "pipeline/traces/packed.py:unpacked:tarfile.open": "given an open file",
    "pipeline/onefile/build.py:build:.read_bytes": PACKAGE,
    "pipeline/onefile/build.py:_compiled:.read_bytes": OURS,
    "pipeline/onefile/build.py:modules:.read_text": PACKAGE,
    "pipeline/replay/runs.py:_site:.read_bytes": OURS,
    "pipeline/report/interactive.py:scripts:.read_text": PACKAGE,
    "pipeline/report/page.py:page:.read_text": PACKAGE,
    "pipeline/sharded.py:write_stretch:pq.read_table": "what this command has written",
    "pipeline/sharded.py:train_sharded:pq.read_table": "what this command has written",
    "pipeline/stages/code.py:digest:.read_bytes": PACKAGE,
    "pipeline/stages/evaluate.py:run:pq.read_table": "what the stage before has written",
    "pipeline/stages/train.py:run:pq.read_table": "what the stage before has written",
    "pipeline/traces/fingerprints.py:Seen._to_disk:np.memmap": OURS,
    "reproductions/colocation/journal.py:Journal._load:.open": NO_READ,
    "reproductions/colocation/journal.py:Journal._append:.open": NO_READ,
    "reproductions/colocation/workloads/__main__.py:main:.open": NO_READ,
    "reproductions/smd/outer.py:_hushed:os.open": KERNEL,
}

# what opens a file by its name: functions of these modules, methods whatever they belong to
FUNCTIONS = {
    "": {"open"},
    "os": {"open"},
    "io": {"open", "open_code", "FileIO"},
    "codecs": {"open"},
    "gzip": {"open"},
    "bz2": {"open"},
    "lzma": {"open"},
    "tarfile": {"open"},
    "zipfile": {"ZipFile"},
    "sqlite3": {"connect"},
    "shutil": {"copy", "copy2", "copyfile", "copytree"},
    "np": {"load", "loadtxt", "genfromtxt", "fromfile", "memmap"},
    "pd": {"read_csv", "read_parquet", "read_json", "read_table", "read_feather", "read_pickle"},
    "pq": {"read_table", "read_schema", "read_metadata", "read_pandas", "ParquetFile"},
    "pa": {"OSFile", "memory_map"},
    "pacsv": {"read_csv", "open_csv"},
    "joblib": {"load"},
}
METHODS = {"read_text", "read_bytes", "open"}
CLASSES = {"YamlConfigSettingsSource", "JsonConfigSettingsSource", "TomlConfigSettingsSource"}
# what is bound to an open file by `with`, and what holds bytes: reading these opens nothing
OPENERS = {"arrow_file", "opened", "opened_text", "unpacked"}
HELD = {"io.BytesIO", "pa.BufferReader", "BytesIO"}
OPEN_ALREADY = {"options.meter", "archive"}  # whose `open` is the opener's; of an open archive


@cache
def calls() -> dict[str, str]:
    """What opens a file: `file:function:call` -> its source."""
    found: dict[str, str] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            file = path.relative_to(ROOT).as_posix()
            if file != OPENER and not file.startswith(TESTING):
                tree = ast.parse(path.read_text())
                found |= {f"{file}:{where}": text for where, text in _opening(tree)}
    return found


def _opening(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Each call that opens a file: the function it stands in, what is called and the how manieth;
    its source."""
    seen = Counter[str]()

    def within(node: ast.AST, where: str, open_already: set[str]) -> Iterator[tuple[str, str]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            where = f"{where}.{node.name}".lstrip(".")
            open_already = _bound(node)
        if isinstance(node, ast.Call) and (called := _opens(node, open_already)):
            seen[f"{where}:{called}"] += 1
            times = seen[f"{where}:{called}"]
            yield f"{where}:{called}" + (f"#{times}" if times > 1 else ""), ast.unparse(node)
        for child in ast.iter_child_nodes(node):
            yield from within(child, where, open_already)

    return within(tree, "", set())


def _bound(function: ast.AST) -> set[str]:
    """Names of files that were opened by the opener, within a function; `raw`, `opened` are files
    by their types."""
    return {
        item.optional_vars.id
        for node in ast.walk(function)
        if isinstance(node, ast.With)
        for item in node.items
        if isinstance(item.optional_vars, ast.Name)
        if isinstance(item.context_expr, ast.Call)
        if ast.unparse(item.context_expr.func) in OPENERS
    } | {
        one.arg
        for one in getattr(getattr(function, "args", None), "args", [])
        if one.annotation is not None and ast.unparse(one.annotation) in ("BinaryIO", "IO[bytes]")
    }


def _opens(call: ast.Call, open_already: set[str]) -> str:
    """What a call opens a file by; "" for another."""
    function = call.func
    given = [*call.args[:1], *(one.value for one in call.keywords if one.arg == "fileobj")]
    held = {ast.unparse(one.func) for one in given if isinstance(one, ast.Call)}
    if held & HELD or {ast.unparse(one) for one in given} & open_already:
        return ""
    if isinstance(function, ast.Name):
        known = function.id in FUNCTIONS[""] | CLASSES
        return function.id if known else ""
    if not isinstance(function, ast.Attribute):
        return ""
    owner = ast.unparse(function.value)
    if function.attr in FUNCTIONS.get(owner, ()):
        return f"{owner}.{function.attr}"
    method = function.attr in METHODS and owner not in FUNCTIONS and owner not in OPEN_ALREADY
    return f".{function.attr}" if method else ""


def test_every_file_is_opened_by_the_one_opener_or_has_a_reason() -> None:
    found = calls()
    assert {where: text for where, text in found.items() if where not in EXEMPT} == {}
    assert EXEMPT.keys() - found.keys() == set(), "no longer there"
    assert all(EXEMPT.values())


@pytest.mark.parametrize(
    "source",
    [
        "def f(path): return open(path)",
        "def f(path): return path.read_text()",
        "def f(path): return Path(path).open('rb')",
        "import os\ndef f(path): return os.open(path, os.O_RDONLY)",
        "def f(path): return pq.read_table(path)",
        "def f(path): return np.load(path)",
        "class C:\n    def f(self): return self.path.read_bytes()",
        "def f(path):\n    with opened(path) as file:\n        return np.load(path)",
    ],
)
def test_a_planted_one_is_found(source: str) -> None:
    assert len([*_opening(ast.parse(source))]) == 1
