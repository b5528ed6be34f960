"""Job names and workload profiles of the synthetic trace, drawn independently of durations.

The functions here get the number of templates (recurring scripts) and the template of each job,
never a duration, a user, a number of GPUs or a state. So names and profiles cannot reveal anything
about these.

The profiles are smooth functions of model family, size and batch, invented for this trace, in
plausible ranges; they come from no measurement.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from features.schema import TIME, TRACE_SCHEMA
from pipeline.traces.synthetic.config import SyntheticConfig
from pipeline.traces.synthetic.process import STATES, Drawn, Floats, Ints


@dataclass(frozen=True, slots=True)
class Family:
    """A family of models, and the load that it puts on one GPU.

    Attributes:
        models: (name, size relative to the family's usual member).
        datasets: names of data sets that it is trained on.
        batches: batch sizes per GPU in use.
        util_pct: GPU utilisation when the batch is large.
        half_batch: batch size at which a member of size 1 reaches about two thirds of `util_pct`.
        traffic: memory utilisation as a share of GPU utilisation.
        base_mib, sample_mib: memory of a member of size 1: at batch size 0, and per sample, MiB.
    """

    models: tuple[tuple[str, float], ...]
    datasets: tuple[str, ...]
    batches: tuple[int, ...]
    util_pct: float
    half_batch: float
    traffic: float
    base_mib: float
    sample_mib: float


FAMILIES: tuple[Family, ...] = (
    Family(
        models=(("ResNet18", 0.45), ("ResNet50", 1.0), ("ResNet101", 1.6)),
        datasets=("ImageNet", "CIFAR100", "Places"),
        batches=(32, 64, 128, 256),
        util_pct=97,
        half_batch=30,
        traffic=0.62,
        base_mib=1700,
        sample_mib=78,
    ),
    Family(
        models=(("MobileNetV2", 0.7), ("MobileNetV3", 0.6)),
        datasets=("ImageNet", "CIFAR10", "Plants"),
        batches=(64, 128, 256),
        util_pct=88,
        half_batch=70,
        traffic=0.55,
        base_mib=1500,
        sample_mib=42,
    ),
    Family(
        models=(("EfficientNetB0", 0.8), ("EfficientNetB4", 2.4)),
        datasets=("ImageNet", "Retina"),
        batches=(16, 32, 64, 128),
        util_pct=94,
        half_batch=35,
        traffic=0.6,
        base_mib=1600,
        sample_mib=90,
    ),
    Family(
        models=(("VGG11", 0.8), ("VGG16", 1.2)),
        datasets=("ImageNet", "CIFAR10", "Faces"),
        batches=(32, 64, 128),
        util_pct=99,
        half_batch=22,
        traffic=0.48,
        base_mib=3100,
        sample_mib=95,
    ),
    Family(
        models=(("DCGAN", 1.0), ("StyleGAN", 3.2)),
        datasets=("LSUN", "CelebA", "Faces"),
        batches=(32, 64, 128, 256),
        util_pct=83,
        half_batch=60,
        traffic=0.33,
        base_mib=1400,
        sample_mib=17,
    ),
    Family(
        models=(("PointNet", 0.8), ("PointNet2", 1.7)),
        datasets=("ShapeNet", "ModelNet", "Lidar"),
        batches=(16, 32, 64, 128),
        util_pct=64,
        half_batch=45,
        traffic=0.25,
        base_mib=1300,
        sample_mib=26,
    ),
    Family(
        models=(("LSTM", 1.0), ("BiLSTM", 1.7)),
        datasets=("WikiText", "PennTreebank", "Logs"),
        batches=(32, 64, 128, 256),
        util_pct=58,
        half_batch=80,
        traffic=0.38,
        base_mib=1250,
        sample_mib=11,
    ),
    Family(
        models=(("TransformerBase", 1.0), ("TransformerBig", 2.3)),
        datasets=("WMT", "Multi30k", "Subtitles"),
        batches=(16, 32, 64, 128),
        util_pct=86,
        half_batch=40,
        traffic=0.44,
        base_mib=1900,
        sample_mib=58,
    ),
    Family(
        models=(("BERTBase", 1.0), ("BERTLarge", 2.6)),
        datasets=("SQuAD", "GLUE", "Wikipedia", "Reviews"),
        batches=(4, 8, 16, 32),
        util_pct=96,
        half_batch=6,
        traffic=0.5,
        base_mib=2600,
        sample_mib=340,
    ),
    Family(
        models=(("GPTSmall", 1.0), ("GPTMedium", 2.4)),
        datasets=("OpenWebText", "Code", "Dialogues"),
        batches=(2, 4, 8, 16),
        util_pct=98,
        half_batch=3,
        traffic=0.57,
        base_mib=4200,
        sample_mib=720,
    ),
    Family(
        models=(("NeuMF", 1.0), ("DLRM", 2.2)),
        datasets=("MovieLens", "Clicks", "Ratings"),
        batches=(256, 512, 1024, 2048),
        util_pct=32,
        half_batch=900,
        traffic=0.2,
        base_mib=1500,
        sample_mib=1.1,
    ),
    Family(
        models=(("PPO", 1.0), ("TD3", 0.8), ("DQN", 1.2)),
        datasets=("HalfCheetah", "Hopper", "LunarLander", "Pong"),
        batches=(64, 128, 256),
        util_pct=17,
        half_batch=150,
        traffic=0.1,
        base_mib=1150,
        sample_mib=1.6,
    ),
)

AMP_SHARE = 0.4  # of templates
AMP_UTIL, AMP_TRAFFIC, AMP_MEMORY = 0.95, 0.82, 0.58  # mixed precision relative to single
IDLE_UTIL_PCT = 4.0
UTIL_NOISE, MEMORY_NOISE = 0.03, 0.01  # relative, between runs
CHANGED_BATCH, CHANGED_AMP = 0.12, 0.03  # runs that differ from their template

VERBS = ("train", "finetune", "exp", "run", "fit", "main")
TAGS = (
    "amber", "anchor", "aspen", "basalt", "beacon", "birch", "cedar", "cobalt", "comet", "coral",
    "crater", "delta", "drift", "ember", "falcon", "fjord", "garnet", "glacier", "harbor", "hazel",
    "indigo", "iris", "jasper", "juniper", "kestrel", "lagoon", "lark", "maple", "meadow", "nimbus",
    "onyx", "orchid", "osprey", "pebble", "pine", "quartz", "raven", "sable", "sierra", "summit",
    "thistle", "tundra", "umber", "vector", "willow", "zephyr",
)  # fmt: skip
RATES = ("0.1", "0.05", "0.01", "0.003", "0.001", "3e-4", "1e-4", "5e-5", "2e-5")
STYLES = 5
CPUS_PER_GPU = (2, 4, 6, 8)
MEMORY_PER_CPU_MIB = 8192


@dataclass(frozen=True, slots=True)
class Labels:
    """Names, workloads and profiles of jobs, one element per job; utilisation in percent, memory in
    MiB per GPU."""

    name: pa.Array
    model: pa.DictionaryArray
    dataset: pa.DictionaryArray
    batch_size: Ints
    amp: NDArray[np.bool_]
    gpu_util_pct: Floats
    gpu_mem_util_pct: Floats
    gpu_mem_mib: Floats
    cpus_per_gpu: Ints


def tabulate(config: SyntheticConfig, jobs: Drawn) -> pa.Table:
    """Return the generated jobs, with names and workloads added, as a table in TRACE_SCHEMA."""
    # A large odd constant keeps the derived seed apart from the seeds people choose.
    labels_seed = config.seed + 0x9E3779B9 if config.labels_seed is None else config.labels_seed
    labels = draw_labels(labels_seed, jobs.templates, jobs.template, config.gpu_memory_mib)
    n = len(jobs.template)
    midnight = int(datetime.combine(config.start, time(), UTC).timestamp())
    cpus = jobs.gpus * labels.cpus_per_gpu
    width = len(str(config.users))
    exit_code = pa.array(np.array([0, 0, 1])[jobs.state], pa.int32(), mask=jobs.state == 1)
    columns = {
        "job_id": _numbered("syn-", np.arange(1, n + 1), 7),
        "user": _labelled(jobs.user, [f"user-{i:0{width}d}" for i in range(1, config.users + 1)]),
        "vc": _labelled(jobs.vc, [vc.name for vc in config.vcs]),
        "name": labels.name,
        "gpus": pa.array(jobs.gpus, pa.int32()),
        "nodes": pa.array(-(-jobs.gpus // config.gpus_per_node), pa.int32()),
        "cpus": pa.array(cpus, pa.float32()),
        "memory_mib": pa.array(cpus * float(MEMORY_PER_CPU_MIB), pa.float64()),
        "state": _labelled(jobs.state, [str(state) for state in STATES]),
        "exit_code": exit_code,
        "submit_time": pa.array((midnight + jobs.submit_s) * 1000, pa.int64()).cast(TIME),
        "duration_s": pa.array(jobs.duration_s, pa.float64()),
        "model": labels.model,
        "dataset": labels.dataset,
        "batch_size": pa.array(labels.batch_size, pa.int32()),
        "amp": pa.array(labels.amp),
        "gpu_util_pct": pa.array(labels.gpu_util_pct, pa.float32()),
        "gpu_mem_util_pct": pa.array(labels.gpu_mem_util_pct, pa.float32()),
        "gpu_mem_mib": pa.array(labels.gpu_mem_mib, pa.float32()),
        "source_line": pa.array(np.arange(1, n + 1)),  # keeps the order of equal submit times
    }
    return pa.table(
        [
            columns[field.name] if field.name in columns else pa.nulls(n, field.type)
            for field in TRACE_SCHEMA
        ],
        schema=TRACE_SCHEMA,
    )


def draw_labels(seed: int, templates: int, template: Ints, gpu_memory_mib: float) -> Labels:
    """Return names and profiles of jobs in order of submission.

    Args:
        seed: seed of these labels; nothing else of the trace depends on it.
        templates: number of templates (recurring scripts).
        template: number of the template of each job.
        gpu_memory_mib: memory of one GPU, which profiles stay below.
    """
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    n = len(template)

    def choose(options: int | Ints, size: int) -> Ints:
        return (rng.random(size) * options).astype(np.int64)

    models = [(f, name, size) for f, family in enumerate(FAMILIES) for name, size in family.models]
    datasets = sorted({name for family in FAMILIES for name in family.datasets})
    counts = {
        field: np.array([len(getattr(family, field)) for family in FAMILIES])
        for field in ("models", "datasets", "batches")
    }
    first_model = np.cumsum(counts["models"]) - counts["models"]

    family = choose(len(FAMILIES), templates)
    model = first_model[family] + choose(counts["models"][family], templates)
    dataset_table = _padded([[datasets.index(d) for d in f.datasets] for f in FAMILIES])
    dataset = dataset_table[family, choose(counts["datasets"][family], templates)]
    batch_index = choose(counts["batches"][family], templates)
    amp = rng.random(templates) < AMP_SHARE
    cpus = np.array(CPUS_PER_GPU)[choose(len(CPUS_PER_GPU), templates)]

    # Runs mostly repeat their template; some double or halve the batch.
    step = np.where(rng.random(n) < CHANGED_BATCH, np.where(rng.random(n) < 0.5, -1, 1), 0)
    run_family = family[template]
    run_batch_index = np.clip(batch_index[template] + step, 0, counts["batches"][run_family] - 1)
    batch = _padded([list(f.batches) for f in FAMILIES])[run_family, run_batch_index]
    run_amp = amp[template] ^ (rng.random(n) < CHANGED_AMP)
    size = np.array([size for _, _, size in models])[model[template]]
    noise = rng.standard_normal((3, n))
    util, traffic, memory = profile(
        family=run_family, size=size, batch=batch, amp=run_amp, gpu_memory_mib=gpu_memory_mib
    )
    util = np.clip(util * (1 + UTIL_NOISE * noise[0]), 0, 100)
    traffic = np.clip(traffic * (1 + UTIL_NOISE * noise[1]), 0, 100)
    memory = np.minimum(memory * (1 + MEMORY_NOISE * noise[2]), gpu_memory_mib)

    names = [name for _, name, _ in models]
    return Labels(
        name=_names(
            rng,
            template,
            models=names,
            model=model,
            datasets=datasets,
            dataset=dataset,
            batch=batch,
            amp=run_amp,
        ),
        model=_labelled(model[template], names),
        dataset=_labelled(dataset[template], datasets),
        batch_size=batch,
        amp=run_amp,
        gpu_util_pct=np.round(util, 1),
        gpu_mem_util_pct=np.round(traffic, 1),
        gpu_mem_mib=np.round(memory),
        cpus_per_gpu=cpus[template],
    )


def profile(
    family: Ints, size: Floats, batch: Ints, amp: NDArray[np.bool_], gpu_memory_mib: float
) -> tuple[Floats, Floats, Floats]:
    """Return (GPU utilisation pct, memory utilisation pct, memory MiB) of workloads, one element
    each.

    Utilisation rises with the work per step, size x batch, and saturates; memory is linear in the
    batch, and approaches the memory of the GPU smoothly.
    """
    column = {
        field: np.array([float(getattr(f, field)) for f in FAMILIES])[family]
        for field in ("util_pct", "half_batch", "traffic", "base_mib", "sample_mib")
    }
    filled = 1 - np.exp(-size * batch / column["half_batch"])
    util = IDLE_UTIL_PCT + (column["util_pct"] - IDLE_UTIL_PCT) * filled
    util = util * np.where(amp, AMP_UTIL, 1.0)
    traffic = util * column["traffic"] * np.where(amp, AMP_TRAFFIC, 1.0)
    samples = column["sample_mib"] * np.sqrt(size) * batch * np.where(amp, AMP_MEMORY, 1.0)
    wanted = column["base_mib"] * np.sqrt(size) + samples
    limit = 0.95 * gpu_memory_mib
    memory = wanted / (1 + (wanted / limit) ** 6) ** (1 / 6)
    return util, traffic, memory


def _names(
    rng: np.random.Generator,
    template: Ints,
    models: list[str],
    model: Ints,
    datasets: list[str],
    dataset: Ints,
    batch: Ints,
    amp: NDArray[np.bool_],
) -> pa.Array:
    """Return a name for each run of a job. Script, model, data set and project in it are those of
    the job's template; hyperparameters and counter differ between runs."""
    templates, n = len(model), len(template)
    verb = (rng.random(templates) * len(VERBS)).astype(np.int64)
    tag = (rng.random(templates) * len(TAGS)).astype(np.int64)
    style = (rng.random(templates) * STYLES).astype(np.int64)[template]
    offset = (rng.random(templates) * 40).astype(np.int64)
    rate = pa.array(RATES).take(pa.array((rng.random(n) * len(RATES)).astype(np.int64)))
    seed = pc.cast(pa.array((rng.random(n) * 100).astype(np.int64)), pa.string())
    counter = offset[template] + _nth(template) + 1
    run = pc.utf8_lpad(pc.cast(pa.array(counter), pa.string()), 3, padding="0")
    bs = pc.cast(pa.array(batch), pa.string())
    precision = pa.array(["fp32", "amp"]).take(pa.array(amp.astype(np.int64)))

    stem = [
        (VERBS[v], models[m].lower(), datasets[d].lower(), TAGS[t])
        for v, m, d, t in zip(verb, model, dataset, tag, strict=True)
    ]
    of_run = pa.array(template)

    def script(form: str) -> pa.Array:
        return pa.array([form.format(*parts) for parts in stem]).take(of_run)

    def joined(*parts: pa.Array | str) -> pa.Array:
        return pc.binary_join_element_wise(*parts, "")

    styles = (
        joined(script("{0}_{1}_{2}_{3}_lr"), rate, "_bs", bs, "_run", run),
        joined(script("{1}-{2}-{3}-s"), seed, "-v", run),
        joined("exp", run, script("_{3}_{1}_{2}_"), precision, "_bs", bs),
        joined(script("{3}.{0}.{1}.{2}.lr"), rate, ".", precision),
        script("{0}-{1}-{2}-{3}"),
    )
    return pc.choose(pa.array(style), *styles)


def _nth(template: Ints) -> Ints:
    """Return, for each element of `template`, how many earlier elements are equal to it."""
    order = np.argsort(template, kind="stable")
    ordered = template[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    runs = np.diff(np.concatenate([starts, [len(ordered)]]))
    nth = np.empty(len(template), dtype=np.int64)
    nth[order] = np.arange(len(ordered)) - np.repeat(starts, runs)
    return nth


def _padded(rows: list[list[int]]) -> Ints:
    """Return rows of unequal length as one array, (rows, longest). The padding is 0."""
    table = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
    for index, row in enumerate(rows):
        table[index, : len(row)] = row
    return table


def _labelled(codes: Ints, names: list[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(names))


def _numbered(prefix: str, numbers: Ints, width: int) -> pa.Array:
    digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width, padding="0")
    return pc.binary_join_element_wise(prefix, digits, "")
