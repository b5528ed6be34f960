"""A file system that stops answering: mounted by the kernel (FUSE), served by a process of ours."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from features import aside

GETATTR, OPEN, READ, FLUSH = 3, 14, 15, 25  # questions of the kernel
CONTENT = b"step 1/10\n"
_LOOKUP, _FORGET, _INIT, _RELEASE, _OPENDIR, _RELEASEDIR = 1, 2, 26, 18, 27, 29
_UNMOUNT = 2  # MNT_DETACH
PRETENDED = """
import features.aside as a, signal
right = a.copied
def copied(path, *given):
    if path.startswith("FOLDER"): signal.pause()
    return right(path, *given)
a.copied = copied
a.main()
"""

Libc = ctypes.CDLL(None, use_errno=True)


def can_mount() -> bool:
    """Whether this user may mount one here."""
    return os.geteuid() == 0 and os.access("/dev/fuse", os.R_OK | os.W_OK) and _tried()


def _tried() -> bool:
    child = os.fork()
    if not child:  # in mounts of its own, which go with it
        os._exit(0 if Libc.unshare(0x20000) == 0 else 1)
    return os.waitpid(child, 0)[1] == 0


def pretended(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """A folder in which whatever is copied hangs, without a mount: a signal ends who hangs."""
    code = PRETENDED.replace("FOLDER", str(folder))
    monkeypatch.setattr(aside, "MAIN", f"exec({code!r})")
    monkeypatch.setattr(aside, "PATIENCE_S", 3.0)
    return folder


@contextmanager
def mounted(where: Path, silent: int) -> Iterator[None]:
    """Mount a file system in which every name is a regular file. It doesn't answer questions of
    one kind, nor can who asked them be ended until it is gone.
    """
    code = f"from tests.hung import serve; serve({str(where)!r}, {silent})"
    root = Path(__file__).parents[1]
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"mounted\n"
        try:
            yield
        finally:
            server.kill()  # whoever hangs gets an error
            Libc.umount2(os.fsencode(where), _UNMOUNT)


def serve(where: str, silent: int) -> None:
    """Mount it and answer the kernel, in a process of its own."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    if Libc.mount(b"hung", where.encode(), b"fuse", 0, options.encode()):
        sys.exit(os.strerror(ctypes.get_errno()))
    print("mounted", flush=True)
    while data := os.read(device, 1 << 17):
        _, kind, number, node = struct.unpack_from("<IIQQ", data)
        if kind in (silent, _FORGET):
            continue
        answer = {
            _INIT: struct.pack("<IIIIHHI", 7, 19, 65_536, 0, 0, 0, 65_536).ljust(64, b"\0"),
            _LOOKUP: struct.pack("<QQQQII", 2, 1, 0, 0, 0, 0) + _attributes(2),
            GETATTR: struct.pack("<QII", 0, 0, 0) + _attributes(node),
            OPEN: struct.pack("<QII", 1, 1, 0),
            _OPENDIR: struct.pack("<QII", 1, 0, 0),
            READ: CONTENT,
            FLUSH: b"",
            _RELEASE: b"",
            _RELEASEDIR: b"",
        }.get(kind)
        refused, told = -38 if answer is None else 0, answer or b""
        os.write(device, struct.pack("<IiQ", 16 + len(told), refused, number) + told)


def _attributes(node: int) -> bytes:
    mode = 0o40755 if node == 1 else 0o100644
    return struct.pack("<6Q10I", node, len(CONTENT), 1, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
