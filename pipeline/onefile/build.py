"""Builds the one file, `pellucid.pyz`, with the commands `why`, `eta` and `queue`: `python -m
pipeline.onefile.build FOLDER`. The same source tree gives the same bytes."""

from __future__ import annotations

import ast
import importlib.util
import io
import py_compile
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from features.files import write_whole

ENTRY = "pipeline.onefile.asking"
ROOTS = frozenset(("features", "models", "scheduler", "pipeline"))
NEVER = ("models", "features.posterior")  # no bundle is in use there, and no script ran before
AT = (1980, 1, 1, 0, 0, 0)
MAIN = """from pipeline.onefile.asking import main
raise SystemExit(main())
"""


def build(folder: Path) -> Path:
    """Write the one file, `pellucid.pyz`, into a folder, and return its path. Its bytecode is for
    the Python that builds it. Any Python from 3.11 on can run the file, but another version
    compiles the sources at every start."""
    tree = Path(__file__).parents[2]
    files = sorted({file for name in modules() for file in _files(tree, name)})
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / "pellucid.pyz"
    content = io.BytesIO(b"#!/usr/bin/env python3\n")
    content.seek(0, io.SEEK_END)
    with zipfile.ZipFile(content, "a", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        _add(packed, "__main__.py", MAIN.encode())
        for file in files:
            name = str(file.relative_to(tree))
            _add(packed, name, file.read_bytes())
            _add(packed, f"{name}c", _compiled(file, name))
    write_whole(made, content.getvalue(), mode=0o755)
    return made


def _add(packed: zipfile.ZipFile, name: str, data: bytes) -> None:
    info = zipfile.ZipInfo(name, AT)
    info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
    packed.writestr(info, data)


def _compiled(file: Path, name: str) -> bytes:
    with TemporaryDirectory() as folder:
        out = Path(folder, "compiled.pyc")
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(file), str(out), name, doraise=True, invalidation_mode=mode)
        return out.read_bytes()


def _files(tree: Path, module: str) -> Iterator[Path]:
    path = tree.joinpath(*module.split("."))
    yield path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def modules() -> set[str]:
    """Return the names of the modules of this project that the one file needs: all that its entry
    imports, except those that a question about Slurm never uses."""
    found, left = set[str](), [ENTRY]
    while left:
        name = left.pop()
        if name in found or name.split(".")[0] not in ROOTS or not _exists(name):
            continue
        if name.startswith(NEVER):
            continue
        found.add(name)
        left += [name.rpartition(".")[0]] if "." in name else []
        origin = importlib.util.find_spec(name)
        assert origin is not None
        assert origin.origin is not None
        left += _imports(ast.parse(Path(origin.origin).read_text()))
    return found


def _exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):
        return False  # a name within a module


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{one.name}" for one in node.names)
        else:
            yield from _imports(node)


if __name__ == "__main__":
    made = build(Path(sys.argv[1]))
    print(f"{made}: {made.stat().st_size / 1e6:.1f} MB")
