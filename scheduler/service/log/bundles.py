"""Bundles a service has decided with: kept by digest, so that its log can always be replayed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from features.files import sync
from features.job import Job
from models.bundle import Bundle, BundleError
from models.bundle.store import JSON_NAME
from scheduler.core.estimates import LiveEstimator
from scheduler.core.pairs import pair_predictor_of

Signature = tuple[int, int, int]  # inode, size and time of bundle.json: they change with the bundle


class BundleStore:
    """The bundles in use so far.

    Args:
        folder: holds one folder per bundle, named by digest.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._loaded: dict[str, Bundle] = {}

    def find(self, body: Mapping[str, Any]) -> Bundle:
        """The bundle that the body of a BUNDLE event names. BundleError when it is not there."""
        digest = body["digest"]
        bundle = self._loaded.get(digest)
        if bundle is None:
            bundle = Bundle.load(self.folder / digest)
            if bundle.digest != digest:
                raise BundleError(f"bundle {self.folder / digest} is {bundle.digest[:12]} by now")
            self._loaded[digest] = bundle
        return bundle

    def take(self, path: Path) -> Bundle:
        """Check the bundle at `path` and keep it. BundleError says what is wrong with it."""
        bundle = Bundle.load(path)
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


def check(bundle: Bundle) -> None:
    """BundleError unless this code can decide with it: features, and a finite estimate."""
    try:
        seconds = _tried(bundle)
    except BundleError:
        raise
    except Exception as error:  # a model that is not what it says may raise anything
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise BundleError(f"bundle {bundle.digest[:12]} cannot be decided with ({why})") from None
    if not isfinite(seconds):
        raise BundleError(f"bundle {bundle.digest[:12]} estimates {seconds} s for a plain job")


def _tried(bundle: Bundle) -> float:
    """What it estimates for a plain job, seconds."""
    estimator = LiveEstimator()
    estimator.use(bundle)
    pair_predictor_of(bundle)
    return estimator.estimate(Job("probe", 0.0, 1), 0.0).seconds


def signature(path: Path) -> Signature | None:
    """Changes when the bundle at `path` does; None while there is none."""
    try:
        found = (path / JSON_NAME).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
