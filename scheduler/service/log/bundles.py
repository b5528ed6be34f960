"""Copies of the bundles of models that a service has decided with, kept by digest, so that its log
can always be replayed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from features.aside import Aside, Hangs, stamp
from features.files import sync
from features.given import read_given
from models.bundle import Bundle, BundleError
from models.bundle.acceptance import check
from models.bundle.doubts import read_doubts
from models.bundle.store import JSON_NAME, Read

CHAMPION = "champion"  # whose folder it is, for `Aside`
Signature = tuple[int, int, int]  # inode, size and time of bundle.json: they change with the bundle


class BundleStore:
    """The copies of all bundles of models that were in use so far.

    Args:
        folder: holds one folder per bundle, named by the bundle's digest.
        aside: looks at champions, whose folder others may write to; None: this process does.
    """

    def __init__(self, folder: Path, aside: Aside | None = None):
        self.folder = folder
        self._read: Read = read_given if aside is None else partial(aside.read, whose=CHAMPION)
        self._aside = aside
        self._loaded: dict[str, Bundle] = {}

    def signature(self, path: Path) -> Signature | None:
        """Return a value that changes when the bundle at `path` does, or None while there is none.
        Raise BundleError where the file system does not answer.
        """
        if self._aside is None:
            return signature(path)
        file = str(path / JSON_NAME)
        try:
            inode, size, changed = self._aside.ask(
                "features.aside:stamp", file, whose=CHAMPION, place=str(path)
            )
        except Hangs as error:
            raise BundleError(f"bundle {path}: {path.name}: {error.strerror}") from None
        except OSError:
            return None
        return inode, size, changed

    def find(self, body: Mapping[str, Any]) -> Bundle:
        """Return the bundle of models that the body of a BUNDLE event names. Raise BundleError
        where its copy is missing or is another bundle.
        """
        digest = body["digest"]
        bundle = self._loaded.get(digest)
        if bundle is None:
            bundle = Bundle.load(self.folder / digest)
            if bundle.digest != digest:
                raise BundleError(f"bundle {self.folder / digest} is {bundle.digest[:12]} by now")
            self._loaded[digest] = bundle
        return bundle

    def take(self, path: Path) -> Bundle:
        """Check the bundle of models at `path`, copy it into the folder, and return it. Raise
        BundleError with the reason where the bundle is unusable.
        """
        bundle = Bundle.load(path, self._read)
        check(bundle)
        kept = self.folder / bundle.digest
        if not (kept / JSON_NAME).is_file():
            partial = kept.with_name(f".{kept.name}.{os.getpid()}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            bundle.save(partial)
            shutil.rmtree(kept, ignore_errors=True)
            os.replace(partial, kept)
            sync(self.folder)
        self._loaded[bundle.digest] = bundle
        return bundle

    def body(self, path: Path, digest: str) -> dict[str, Any]:
        """Return the body of the BUNDLE event by which the bundle of models at `path` comes into
        use.
        """
        doubts = read_doubts(path, digest, self._read)
        return {"digest": digest, "path": str(path)} | ({"doubts": doubts} if doubts else {})


def signature(path: Path) -> Signature | None:
    """Return a value that changes when the file of the bundle of models at `path` is replaced, or
    None where there is no bundle.
    """
    try:
        return stamp(str(path / JSON_NAME))
    except OSError:
        return None
