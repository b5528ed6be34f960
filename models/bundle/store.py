"""A bundle on disk: `bundle.json` beside one file of numbers named by its own digest.

    bundle.json            format, feature schema, terms, trees, metadata, digest
    arrays-<16 hex>.npy    one flat float64 array; bundle.json says where each tensor lies

Writing puts the new numbers beside the old, then renames bundle.json over the old one: that one
rename is the moment the bundle changes, so a reader meets the old bundle or the new, never half.
Models beyond the first three are optional entries of their own, written only when present: a reader
that does not know one ignores it, and a bundle without them is byte for byte what it always was.
Nothing in it depends on when or where it was written; the same content has the same digest.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from features.files import write_whole
from features.given import MIB, read_given
from features.spec import FeatureSpec
from models.bundle.additive import AdditiveModel, Axis, Floats, Term
from models.bundle.arrivals import ArrivalModel
from models.bundle.errors import BundleError
from models.bundle.gputypes import GpuTypeSpeed
from models.bundle.packing import PackingModel, PairHinge, PairSpeedModel
from models.bundle.tree import Node, Tree

FORMAT = "pellucid-bundle"
VERSION = 1
JSON_NAME = "bundle.json"
# What is learned from all of a site has 34 to 45 KB, names of its users apart. A decider reads it,
# and its content may be anybody's: a mebibyte costs 0.14 s and 45 MiB, whatever it is.
MOST_JSON, MOST_ARRAYS = MIB, 256 * MIB
_ARRAYS_NAME = re.compile(r"arrays-[0-9a-f]{16}\.npy")

Document = dict[str, Any]
T = TypeVar("T")


class Read(Protocol):
    """Returns the content of a file as `features.given.read_given` does."""

    def __call__(self, path: Path, most: int, *, within: Path | None = None) -> bytes: ...


class _Part(Protocol):
    """A model that can be stored as settings (plain JSON) and additive models by name."""

    def parts(self) -> tuple[dict[str, Any], dict[str, AdditiveModel]]: ...


# Optional entries of bundle.json, and what reads each.
_READERS: dict[str, Callable[[Mapping[str, Any], Mapping[str, AdditiveModel]], Any]] = {
    "arrivals": ArrivalModel.from_parts,
    "gpu_types": GpuTypeSpeed.from_parts,
    "pair_hinge": PairHinge.from_parts,
}


class Bundle:
    """Models as exported: what the scheduler reads. Any of them may be absent.

    Args:
        duration: predicts a job's duration; its score is ln(1 + seconds).
        packing: a tree that classes a job by its profile (0 tiny, 1 medium, 2 jumbo), for sharing.
        pair_speed: speeds of two jobs on the same GPUs, a tree.
        arrivals: jobs and GPUs about to be asked for.
        gpu_types: speeds on other types of GPU.
        pair_hinge: speeds of two jobs on the same GPUs whose profiles have counters.
        metadata: plain JSON values: training-data digest, window, metrics, where the pairs
            come from. Numbers that are not finite are kept as null.
        created_by: distribution and version that trained it.
    """

    in_copies: ClassVar = "shared"  # of a core (`explain.whatif.copies`)

    def __init__(
        self,
        *,
        duration: AdditiveModel | None = None,
        packing: PackingModel | None = None,
        pair_speed: PairSpeedModel | None = None,
        arrivals: ArrivalModel | None = None,
        gpu_types: GpuTypeSpeed | None = None,
        pair_hinge: PairHinge | None = None,
        metadata: Mapping[str, Any] | None = None,
        created_by: str = "pellucid",
    ) -> None:
        models = {"duration": duration, "packing": packing, "pair_speed": pair_speed,
                  "arrivals": arrivals, "gpu_types": gpu_types,
                  "pair_hinge": pair_hinge}  # fmt: skip
        self._models: dict[str, Any] = {k: v for k, v in models.items() if v is not None}
        self.metadata: Document = _plain(dict(metadata or {}))
        self.created_by = created_by
        self._digest: str | None = None

    @property
    def duration(self) -> AdditiveModel:
        """Return the duration model. Raises BundleError if the bundle has none."""
        return self._model("duration", AdditiveModel)

    @property
    def packing(self) -> PackingModel:
        """Return the packing model. Raises BundleError if the bundle has none."""
        return self._model("packing", PackingModel)

    @property
    def pair_speed(self) -> PairSpeedModel:
        """Return the pair-speed model. Raises BundleError if the bundle has none."""
        return self._model("pair_speed", PairSpeedModel)

    @property
    def arrivals(self) -> ArrivalModel:
        """Return the arrivals forecast. Raises BundleError if the bundle has none."""
        return self._model("arrivals", ArrivalModel)

    @property
    def gpu_types(self) -> GpuTypeSpeed:
        """Return the speeds on other types of GPU. Raises BundleError if the bundle has none."""
        return self._model("gpu_types", GpuTypeSpeed)

    @property
    def pair_hinge(self) -> PairHinge:
        """Return the hinge of pair speeds. Raises BundleError if the bundle has none."""
        return self._model("pair_hinge", PairHinge)

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the names of the models in the bundle."""
        return tuple(self._models)

    def with_duration(
        self, duration: AdditiveModel, metadata: Mapping[str, Any] | None = None
    ) -> Bundle:
        """Return a bundle with `duration` in place of this one's duration model, and the same other
        models.

        Args:
            metadata: entries to add to the metadata, or to replace those of the same name.
        """
        kept = {**self._models, "duration": duration}
        about = {**self.metadata, **(metadata or {})}
        return Bundle(**kept, metadata=about, created_by=self.created_by)

    def _model(self, name: str, _: type[T]) -> T:
        if name not in self._models:
            raise BundleError(f"the bundle has no {name} model")
        model: T = self._models[name]
        return model

    @property
    def sharing(self) -> str:
        """Return how GPUs were shared while the bundle's pairs were measured: "mps",
        "time-slicing", or "" if unknown.
        """
        trained_on = self.metadata.get("pair_speed") or self.metadata.get("packing") or {}
        return str(trained_on.get("sharing") or "") if isinstance(trained_on, Mapping) else ""

    @property
    def digest(self) -> str:
        """Return the sha256 of the content, hex: equal for equal models, schema and metadata."""
        if self._digest is None:
            self._digest = str(self._encode()[0]["digest"])
        return self._digest

    def save(self, path: str | Path) -> Path:
        """Write the bundle into the directory `path`, replacing the bundle there, if any. Return
        its path. Raise BundleError, and write nothing, where it is larger than what is read.
        """
        folder = Path(path)
        document, data = self._encode()
        text = _pretty(document)
        for file, content, most in ((JSON_NAME, text, MOST_JSON), ("arrays", data, MOST_ARRAYS)):
            if len(content) > most:
                raise BundleError(f"{file} would have {len(content):,} bytes, more than are read")
        name = document["arrays"]["file"]
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / name, data, durable=True)
        write_whole(folder / JSON_NAME, text, durable=True)
        self._digest = str(document["digest"])
        for stale in folder.glob("arrays-*.npy"):
            if stale.name != name:
                stale.unlink(missing_ok=True)
        return folder

    @classmethod
    def load(cls, path: str | Path, read: Read = read_given) -> Bundle:
        """Return the bundle in the directory `path`. BundleError names what is wrong with it.

        Args:
            read: opens its files.
        """
        folder = Path(path)
        with suppress(FileNotFoundError):
            return cls._looked(folder, read)
        try:  # perhaps replaced between our two reads: the second look sees the new one
            return cls._looked(folder, read)
        except FileNotFoundError as error:
            raise BundleError(f"bundle {folder}: no {_file_of(error)} there") from None

    @classmethod
    def _looked(cls, folder: Path, read: Read) -> Bundle:
        try:
            return cls._read(folder, read)
        except FileNotFoundError:
            raise
        except OSError as error:
            why = error.strerror or error
            raise BundleError(f"bundle {folder}: {_file_of(error)}: {why}") from error

    @classmethod
    def _read(cls, folder: Path, read: Read) -> Bundle:
        try:
            document = _parse(folder / JSON_NAME, read)
            name = document["arrays"]["file"]
            if not _ARRAYS_NAME.fullmatch(name):
                raise BundleError(f"arrays file {name!r} is not a name this format gives")
            return cls._decode(document, read(folder / name, MOST_ARRAYS, within=folder))
        except BundleError as error:
            raise BundleError(f"bundle {folder}: {error}") from None
        except KeyError as error:
            raise BundleError(f"bundle {folder}: {error} is missing in {JSON_NAME}") from None
        except OSError:
            raise
        except Exception:  # the header of an array file makes NumPy raise whatever it likes
            raise BundleError(f"bundle {folder}: it does not follow the format") from None

    def _encode(self) -> tuple[Document, bytes]:
        arrays, models = _Arrays(), self._models
        duration, packing, pair = map(models.get, ("duration", "packing", "pair_speed"))
        document: Document = {
            "format": FORMAT,
            "version": VERSION,
            "created_by": self.created_by,
            "duration": None if duration is None else _additive(duration, arrays),
            "packing": None if packing is None else _tree(packing.tree),
            "pair_speed": None if pair is None else _tree(pair.tree),
            "metadata": self.metadata,
            **{name: _optional(models[name], arrays) for name in _READERS if name in models},
        }
        data = arrays.file()
        sha = hashlib.sha256(data).hexdigest()
        document["arrays"] = {"file": f"arrays-{sha[:16]}.npy", "sha256": sha}
        document["digest"] = digest_of(document)
        return document, data

    @classmethod
    def _decode(cls, document: Document, data: bytes) -> Bundle:
        if hashlib.sha256(data).hexdigest() != document["arrays"]["sha256"]:
            raise BundleError(f"{document['arrays']['file']} is damaged (its digest differs)")
        arrays = np.load(io.BytesIO(data), allow_pickle=False)
        if arrays.dtype != np.float64 or arrays.ndim != 1:
            raise BundleError("the arrays file does not hold one flat float64 array")
        duration, packing, pair = (document[name] for name in ("duration", "packing", "pair_speed"))
        if not isinstance(document["metadata"], dict):
            raise BundleError("metadata is not an object")
        bundle = cls(
            duration=None if duration is None else _read_additive(duration, arrays),
            packing=None if packing is None else PackingModel(_read_tree(packing)),
            pair_speed=None if pair is None else PairSpeedModel(_read_tree(pair)),
            metadata=document["metadata"],
            created_by=str(document["created_by"]),
            **{
                name: _read_optional(read, document[name], arrays)
                for name, read in _READERS.items()
                if document.get(name) is not None
            },
        )
        bundle._digest = document["digest"]
        return bundle


def digest_of(document: Document) -> str:
    """Return sha256 of a bundle document without its own "digest" entry, hex.

    The numbers are covered through their own digest, which the document holds.
    """
    content = {key: value for key, value in document.items() if key != "digest"}
    text = json.dumps(
        content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _parse(path: Path, read: Read) -> Document:
    try:
        document = json.loads(read(path, MOST_JSON, within=path.parent), parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise BundleError(f"{JSON_NAME} is not JSON") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise BundleError(f"{JSON_NAME} is not a {FORMAT}")
    if document.get("version") != VERSION:
        raise BundleError(f"format version {document.get('version')!r}, this reads {VERSION}")
    if document.get("digest") != digest_of(document):
        raise BundleError(f"{JSON_NAME} is damaged or was edited by hand (its digest differs)")
    return document


def _file_of(error: OSError) -> str:
    return Path(error.filename).name if error.filename else JSON_NAME


def _refuse(constant: str) -> float:
    raise ValueError(constant)


# -- models as JSON and numbers --------------------------------------------------------------


class _Arrays:
    """Tensors laid end to end; a reference is {"at": offset, "shape": [...]}."""

    def __init__(self) -> None:
        self._parts: list[Floats] = []
        self._size = 0

    def add(self, values: Any) -> Document:
        array = np.asarray(values, dtype=np.float64)
        reference = {"at": self._size, "shape": list(array.shape)}
        self._parts.append(array.ravel())
        self._size += array.size
        return reference

    def file(self) -> bytes:
        buffer = io.BytesIO()
        flat = np.concatenate(self._parts) if self._parts else np.empty(0)
        np.save(buffer, flat.astype("<f8"), allow_pickle=False)
        return buffer.getvalue()


def _take(arrays: Floats, reference: Document) -> Floats:
    at, shape = reference["at"], tuple(reference["shape"])
    if not all(type(n) is int and n >= 0 for n in (at, *shape)) or len(shape) > 2:
        raise BundleError("a reference into the arrays file is malformed")
    size = math.prod(shape)
    if at + size > arrays.size:
        raise BundleError("a reference points past the end of the arrays file")
    return arrays[at : at + size].reshape(shape)


def _additive(model: AdditiveModel, arrays: _Arrays) -> Document:
    return {
        "link": model.link,
        "intercept": model.intercept,
        "features": [
            {
                **asdict(axis.spec),
                "cuts": arrays.add(axis.cuts),
                "categories": list(axis.categories),
            }
            for axis in model.axes
        ],
        "terms": [
            {
                "name": name,
                "features": list(term.features),
                "origin": term.origin,
                "scores": arrays.add(term.scores),
                "weights": arrays.add(term.weights),
                "spread": arrays.add(term.spread),
            }
            for name, term in zip(model.term_names, model.terms, strict=True)
        ],
    }


def _read_additive(document: Document, arrays: Floats) -> AdditiveModel:
    axes = []
    for entry in document["features"]:
        fields = dict(entry)
        cuts, categories = _take(arrays, fields.pop("cuts")), fields.pop("categories")
        if not all(isinstance(category, str) for category in categories):
            raise BundleError(f"feature {fields.get('name')!r} has a category that is no string")
        axes.append(Axis(FeatureSpec(**fields), tuple(cuts.tolist()), tuple(categories)))
    terms = [
        Term(
            features=tuple(int(i) for i in entry["features"]),
            scores=_take(arrays, entry["scores"]),
            weights=_take(arrays, entry["weights"]),
            spread=_take(arrays, entry["spread"]),
            origin=entry["origin"],
        )
        for entry in document["terms"]
    ]
    model = AdditiveModel(axes, terms, document["intercept"], document["link"])
    names = [entry["name"] for entry in document["terms"]]
    if names != list(model.term_names):
        raise BundleError("the names of the terms do not match their features")
    return model


def _optional(part: _Part, arrays: _Arrays) -> Document:
    settings, models = part.parts()
    return {
        "settings": _plain(settings),
        "models": {name: _additive(model, arrays) for name, model in models.items()},
    }


def _read_optional(
    read: Callable[[Mapping[str, Any], Mapping[str, AdditiveModel]], Any],
    document: Document,
    arrays: Floats,
) -> Any:
    models = {name: _read_additive(model, arrays) for name, model in document["models"].items()}
    return read(document["settings"], models)


def _tree(tree: Tree) -> Document:
    return {"features": list(tree.features), "nodes": [asdict(node) for node in tree.nodes]}


def _read_tree(document: Document) -> Tree:
    nodes = (Node(**{**n, "value": tuple(float(v) for v in n["value"])}) for n in document["nodes"])
    return Tree(document["features"], nodes)


# -- bytes -----------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """Return `value` in types that JSON has: string keys, lists, Python numbers, and None for NaN
    and infinity. Raises BundleError for a value of a type that JSON lacks."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise BundleError(f"metadata holds {value!r}, which JSON cannot")


def _pretty(document: Document) -> bytes:
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode("utf-8", "surrogatepass")
