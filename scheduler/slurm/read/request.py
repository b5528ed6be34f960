"""Turns options of sbatch into the job that Slurm would make of them, without submitting it.

After sbatch's manual page (https://slurm.schedmd.com/sbatch.html). What the options leave open is
taken from the site: default partition, account, QOS, memory per CPU.
"""

from __future__ import annotations

import argparse
import re
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from operator import attrgetter
from typing import NamedTuple, NoReturn

from features.clock import LAST_S
from scheduler.slurm.read import parse
from scheduler.slurm.read.parse import SlurmJob
from scheduler.slurm.read.site import defaults_in
from scheduler.slurm.read.tres import gpu_types, mib, other_gres
from scheduler.slurm.twin.priority import duration_s
from scheduler.slurm.twin.site import Site

MOST = 100_000  # nodes, tasks, CPUs or GPUs that one option may ask for: more than any cluster has
MOST_OPTIONS = 200  # sbatch has about half as many
MOST_MIB = 1e12
MOST_NICE = 2_147_483_645  # as sbatch has it


class RequestError(ValueError):
    """Raised for options that cannot be read. The message is one sentence."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise RequestError(message)


_MEMORY = "--mem", "--mem-per-cpu", "--mem-per-gpu"  # of which sbatch takes one
# short, long: as sbatch has them
_NAMES = (
    ("-p", "--partition"), ("-N", "--nodes"), ("-n", "--ntasks"), ("-c", "--cpus-per-task"),
    ("-G", "--gpus"), ("-t", "--time"), ("-C", "--constraint"), ("-w", "--nodelist"),
    ("-x", "--exclude"), ("-L", "--licenses"), ("-A", "--account"), ("-q", "--qos"),
    ("-a", "--array"), ("-b", "--begin"), ("-d", "--dependency"), ("-J", "--job-name"),
    ("-o", "--output"), ("-e", "--error"), ("-D", "--chdir"), (None, "--ntasks-per-node"),
    (None, "--gres"), (None, "--gpus-per-node"), (None, "--gpus-per-task"), (None, "--mem"),
    (None, "--mem-per-cpu"), (None, "--mem-per-gpu"), (None, "--cpus-per-gpu"),
    (None, "--reservation"), (None, "--nice"), (None, "--comment"), (None, "--deadline"),
    (None, "--switches"), (None, "--hint"), (None, "--gres-flags"),
)  # fmt: skip
# of options that take a value, their names without dashes by letter, or by themselves
LONG_NAMES = {(short or long).lstrip("-"): long.lstrip("-") for short, long in _NAMES}
# what they say changes neither when a job starts nor where: those with a value, and those without
_PLACE_NOTHING = (
    "--mail-type", "--mail-user", "--export", "--export-file", "--wrap", "--input/-i", "--signal",
    "--open-mode", "--wckey", "--acctg-freq", "--profile", "--cpu-freq", "--gpu-freq", "--gpu-bind",
    "--mem-bind", "--kill-on-invalid-dep",
)  # fmt: skip
_BARE = (
    "--parsable", "--requeue", "--no-requeue", "--no-kill/-k", "--get-user-env", "--propagate",
    "--quiet/-Q", "--verbose/-v", "--wait/-W", "--test-only", "--ignore-pbs",
)  # fmt: skip
_LETTERS = "".join(name.rpartition("/-")[2] for name in _BARE if "/" in name)
_OPTIONAL = "--no-kill", "--get-user-env", "--propagate"  # a value follows "=", or there is none


def _parsed(options: Sequence[str]) -> argparse.Namespace:
    if _given(options) > MOST_OPTIONS:  # argparse takes time quadratic in their number
        raise RequestError(f"more than {MOST_OPTIONS} options")
    words = ((one.partition("=")[0], one) for one in options)
    return _parser().parse_args([name if name in _OPTIONAL else one for name, one in words])


def _given(options: Sequence[str]) -> int:
    """Return how many options there are up to where the script must have begun: at a word that can
    be no option's value. Several may stand in one word, `-QQQ`."""
    count, value = 0, False  # whether the next word may be a value
    for one in options:
        if one.startswith("-"):
            together = len(one) - len(one[1:].lstrip(_LETTERS)) - 1
            count, value = count + max(1, together), "=" not in one
        elif value:
            value = False
        else:
            break
    return count


def _parser() -> _Parser:
    parser = _Parser(prog="sbatch", add_help=False, allow_abbrev=False)
    of_memory = parser.add_mutually_exclusive_group()
    for short, long in _NAMES:
        group = of_memory if long in _MEMORY else parser
        group.add_argument(*filter(None, (short, long)), default="")
    for name in _PLACE_NOTHING:
        parser.add_argument(*name.split("/"), dest="ignored")
    for name in _BARE:
        parser.add_argument(*name.split("/"), dest="ignored", action="store_true")
    parser.add_argument("--contiguous", action="store_true")
    parser.add_argument("--exclusive", action="store_true")
    # as of jobs in the queue: whole nodes are those that are shared with nobody
    for own in ("--exclusive=user", "--exclusive=mcs"):
        parser.add_argument(own, dest="exclusive", action="store_false")
    parser.set_defaults(exclusive=False)
    parser.add_argument("script", nargs=argparse.REMAINDER)  # and its own arguments
    return parser


def script_of(options: Sequence[str]) -> list[str]:
    """Return the batch script that follows the options, with its own arguments; empty where none is
    given. Raise RequestError as `request` does."""
    return list(_parsed(options).script)


def script_options(lines: Iterable[str]) -> list[str]:
    """Return the options in the ``#SBATCH`` lines of a batch script, up to its first command. Raise
    RequestError for a line whose quotes do not close."""
    found: list[str] = []
    for line in lines:
        if line.startswith("#SBATCH"):
            try:
                found += shlex.split(line.removeprefix("#SBATCH"), comments=True)
            except ValueError:
                raise RequestError(f"quotes that do not close: {line.strip()[:80]}") from None
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return found


_PLAIN = "script", "partition", "time", "job_name", "exclusive"
_SIZES = (
    "nodes", "ntasks", "ntasks_per_node", "cpus_per_task", "cpus_per_gpu", "gpus", "gres",
    "gpus_per_node", "gpus_per_task", "ignored",
)  # fmt: skip


class Plain(NamedTuple):
    """What options of sbatch mean to a service that schedules by itself, without Slurm.

    Attributes:
        command: the script with its arguments.
        left: the options that have no meaning to such a service.
    """

    command: list[str]
    gpus: int
    gpu_type: str | None
    time_limit_s: float | None
    vc: str | None
    name: str | None
    share: bool | None
    left: list[str]


def plainly(options: Sequence[str]) -> Plain:
    """Return what options of sbatch mean to a service that schedules by itself. Raise RequestError
    as `request` does, and also where GPUs of several types are asked for."""
    args = _parsed(options)
    size = _size(args, 0)
    types = [kind for kind, _ in size.gpus if kind]
    if len(types) > 1:
        raise RequestError("GPUs of several types; a job here has those of one")
    left = sorted(
        name for name, value in vars(args).items() if value and name not in (*_PLAIN, *_SIZES)
    )
    return Plain(
        command=list(args.script),
        gpus=size.gpus_in_all,
        gpu_type=types[0] if types else None,
        time_limit_s=_time(args.time),
        vc=args.partition or None,
        name=args.job_name or None,
        share=False if args.exclusive else None,
        left=[f"--{name.replace('_', '-')}" for name in left],
    )


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a job that options ask for: nodes, tasks, CPUs and GPUs.

    Attributes:
        gpus: GPUs by type, in all or (`gpus_per_node`) on each node.
    """

    nodes: int
    max_nodes: int
    cpus: int
    min_cpus: int
    gpus: tuple[tuple[str, int], ...]
    gpus_per_node: bool

    @property
    def gpus_in_all(self) -> int:
        return sum(n for _, n in self.gpus) * (self.nodes if self.gpus_per_node else 1)


def request(
    options: Sequence[str],
    site: Site,
    user: str,
    job_id: str,
    now: float,
    account: str = "",
    partition: str = "",
) -> SlurmJob:
    """Return the pending job that Slurm would make of options of sbatch; for an array, its first
    task. Raise RequestError where sbatch would not take the options, or they are not known here.

    Args:
        account: account where the options name none; "": the user's default.
        partition: partition instead of those that the options name.
    """
    args = _parsed(options)
    if args.script[:1] == [":"]:
        raise RequestError("a heterogeneous job (:) is one of several; give the options of each")
    args.partition = partition or args.partition
    try:
        return _job(args, site, user, job_id, now=now, account=account)
    except (ValueError, OverflowError) as error:
        raise RequestError(str(error)) from None


def refusal(options: Sequence[str], site: Site, user: str) -> str:
    """Return as text why Slurm would refuse such a job of a user, by its accounts and QOS. Return
    "" if Slurm would accept it, does not show all associations, or does not enforce them. Raise
    RequestError as `request` does."""
    args, known = _parsed(options), site.assocs
    if not site.enforced & {"associations", "limits", "safe", "qos"} or ("root", "") not in known:
        return ""
    mine = [key for key in known if key[1].partition("|")[0] == user]
    account = args.account.lower()
    asked = [key for key in mine if account in ("", key[0])]
    if account and not asked:
        return f"there is no account {args.account[:64]} that {user} may use"
    if not mine:
        return f"{user} has no account"
    if not args.qos or "qos" not in site.enforced:
        return ""
    allowed = {qos.lower() for key in asked for qos in known[key].qos}
    wrong = [name for name in args.qos.split(",") if name.lower() not in allowed]
    return f"there is no QOS {wrong[0][:64]} that {user} may use" if wrong and allowed else ""


_ARRAY = re.compile(r"[0-9,:%-]{1,200}")


def array_of(options: Sequence[str]) -> str:
    """Return the tasks of an array for which options ask, such as ``1-137%4``; "" for no array, or
    for a list in another form. Raise RequestError as `request` does."""
    found = _ARRAY.fullmatch(_parsed(options).array or "")
    return found[0] if found else ""


_PLACES = attrgetter(
    "partition",
    "account",
    "qos",
    "time_limit_s",
    "num_nodes",
    "cpus",
    "min_cpus",
    "least_mib",
    "per",
    "gpus",
    "gpu_types",
    "gpus_per_node",
    "gres",
    "features",
    "licences",
    "req_nodes",
    "exc_nodes",
    "exclusive",
    "reservation",
)


def options_of(job: SlurmJob, site: Site, now: float) -> list[str] | None:
    """Return options of sbatch that ask for the same as a waiting job, except for begin time and
    dependencies. Return None where no options are known to do so."""
    if job.odd or "+" in job.id or job.deadline is not None:
        return None
    if any("/" in name for name in (*job.req_nodes, *job.exc_nodes)):
        return None  # sbatch would open a file of that name, with the rights of whoever runs it
    found = [f"--{name}={value}" for name, value in _worded(job) if value]
    found += ["--exclusive"] * job.exclusive
    try:
        made = request(found, site, job.user, job_id=job.id, now=now)
    except RequestError:
        return None
    return found if _PLACES(made) == _PLACES(job) else None


def _worded(job: SlurmJob) -> Iterator[tuple[str, str]]:
    """Yield pairs (option name, value) for a job's request. Options without a value are left
    out."""
    yield "partition", job.partition
    yield "account", job.account
    yield "qos", job.qos
    yield "time", "" if job.time_limit_s is None else f"{ceil(job.time_limit_s / 60)}"
    most = f"-{job.max_nodes}" if job.num_nodes < job.max_nodes else ""
    yield "nodes", f"{job.num_nodes}{most}" if 0 < job.max_nodes <= MOST else ""
    tasks, rest = divmod(job.cpus, job.min_cpus)
    if job.cpus_per_gpu:
        yield "cpus-per-gpu", f"{job.cpus_per_gpu}"
    elif not rest:
        yield "ntasks", f"{tasks}"
        yield "cpus-per-task", f"{job.min_cpus}"
    of = {"node": "mem", "cpu": "mem-per-cpu", "gpu": "mem-per-gpu"}[job.per]
    yield of, f"{job.least_mib:.0f}M" if job.least_mib else ""
    kinds = [(":".join(filter(None, ("gpu", kind))), n) for kind, n in job.gpu_types]
    on_nodes = [*job.gres, *(kinds if job.gpus_per_node else ())]
    yield "gres", ",".join(f"{name}:{n}" for name, n in on_nodes)
    gpus = (f"{name.removeprefix('gpu').lstrip(':')}:{n}".lstrip(":") for name, n in kinds)
    yield "gpus", "" if job.gpus_per_node else ",".join(gpus)
    yield "constraint", job.features
    yield "licenses", job.licences
    yield "nodelist", ",".join(job.req_nodes)
    yield "exclude", ",".join(job.exc_nodes)
    yield "reservation", job.reservation


def _job(
    args: argparse.Namespace, site: Site, user: str, job_id: str, now: float, account: str
) -> SlurmJob:
    parts = args.partition or next((p.name for p in site.partitions.values() if p.default), "")
    unknown = [name for name in parts.split(",") if name not in site.partitions]
    if unknown:
        raise RequestError(f"there is no partition {unknown[0] or '(none is the default)'}")
    named = site.partitions[parts.partition(",")[0]]
    defaults = defaults_in(site.config, named)
    size = _size(args, int(defaults.get("DefCpuPerGPU", 0)))
    least, per = _memory(args, defaults, size)
    cpus = size.cpus
    each = {"node": size.nodes, "cpu": cpus, "gpu": size.gpus_in_all}[per]
    memory = least * each
    if memory > MOST_MIB:
        raise RequestError("more memory than any cluster has")
    account = args.account.lower() or account or site.default_account(user)
    begin = _moment(args.begin, now) if args.begin else now
    return SlurmJob(
        id=job_id,
        state="PENDING",
        user=user,
        name=args.job_name or "wrap",
        partition=parts,
        submit=now,
        eligible=begin,
        priority=1,
        gpus=size.gpus_in_all,
        gpu_type=size.gpus[-1][0] if size.gpus else "",
        num_nodes=size.nodes,
        max_nodes=size.max_nodes,
        cpus=cpus,
        memory_mib=memory or None,
        time_limit_s=_time(args.time),
        reservation=args.reservation,
        dependency=args.dependency,
        account=account,
        qos=args.qos or site.default_qos(account, user, named.name),
        features=args.constraint,
        licences=args.licenses,
        nice=_whole("--nice", args.nice or "0", -MOST_NICE, MOST_NICE),
        req_nodes=parse.hosts(args.nodelist),
        min_cpus=size.min_cpus,
        least_mib=least,
        per=per,
        exclusive=args.exclusive,
        gpu_types=size.gpus,
        gpus_per_node=size.gpus_per_node,
        accrue=begin,
        array_limit=_array_limit(args.array),
        tres=_tres(size, memory, args.licenses, site),
        exc_nodes=parse.hosts(args.exclude),
        deadline=_moment(args.deadline, now) if args.deadline else None,
        odd=parse.odd(bool(args.contiguous), bool(args.switches), args.constraint)
        + tuple(f"--{name}" for name in _ODD if getattr(args, name.replace("-", "_"))),
        gres=tuple(other_gres(args.gres).items()),
    )


_ODD = "hint", "gres-flags"


def _size(args: argparse.Namespace, default: int) -> Size:
    """Return the size of a job that options ask for. Raise RequestError where the options
    contradict each other or cannot be read.

    Args:
        default: CPUs with each GPU where the options do not state them; 0: none.
    """
    low, dash, high = args.nodes.partition("-")
    nodes = _whole("--nodes", low) if args.nodes else 1
    max_nodes = (_whole("--nodes", high) if dash else nodes) if args.nodes else 1_000_000
    if max_nodes < nodes:
        raise RequestError(f"--nodes {args.nodes[:20]}: the first number is the larger one")
    per_task = _whole("--cpus-per-task", args.cpus_per_task or "1")
    per_node = _whole("--ntasks-per-node", args.ntasks_per_node) if args.ntasks_per_node else 0
    tasks = _whole("--ntasks", args.ntasks) if args.ntasks else nodes * max(1, per_node)
    own = args.cpus_per_gpu or (str(default) if default and not args.cpus_per_task else "")
    per_gpu = _whole("--cpus-per-gpu", own) if own else 0
    if per_node and not args.nodes:
        nodes = ceil(tasks / per_node)
    by_node = args.gpus_per_node or args.gres
    gpus: dict[str, int] = {}
    if args.gpus:
        gpus = gpu_types(_named(args.gpus)) or {}
    elif by_node:
        gpus = gpu_types(by_node if args.gres and not args.gpus_per_node else _named(by_node)) or {}
    elif args.gpus_per_task:
        gpus = {
            kind: n * tasks for kind, n in (gpu_types(_named(args.gpus_per_task)) or {}).items()
        }
    if any(n > MOST for n in gpus.values()):
        raise RequestError(f"more than {MOST:,} GPUs")
    on_nodes = bool(by_node) and not args.gpus
    count = sum(gpus.values()) * (nodes if on_nodes else 1)
    cpus = max(tasks * per_task, count * per_gpu, nodes)
    least = max(1, per_node) * per_task if per_node else per_task
    most = min(max_nodes, max(nodes, tasks))
    if args.gpus and count > 1 and not (args.nodes or args.ntasks or per_node):
        most = 0  # on any number of nodes
    return Size(
        nodes=nodes,
        max_nodes=most,
        cpus=cpus,
        min_cpus=least,
        gpus=tuple(gpus.items()),
        gpus_per_node=on_nodes,
    )


def _whole(option: str, text: str, least: int = 1, most: int = MOST) -> int:
    """Return the whole number given for an option. Raise RequestError where the text is no whole
    number, or the number is not from `least` to `most`."""
    if re.fullmatch(r"-?[0-9]{1,10}", text) and least <= int(text) <= most:
        return int(text)
    raise RequestError(f"{option} takes a whole number from {least} to {most:,}, not {text[:20]!r}")


def _named(gpus: str) -> str:
    """Return ``a100:2,v100`` as a list of resources as Slurm writes it, ``gpu:a100:2,gpu:v100``."""
    return ",".join(f"gpu:{one}" for one in gpus.split(","))


def _memory(
    args: argparse.Namespace, defaults: Mapping[str, float], size: Size
) -> tuple[float, str]:
    """Return the memory that options ask for (otherwise the site's default) in MiB, and whether it
    is for each "node", "gpu" or "cpu". Return (0, "node") where neither states it."""
    if args.mem:
        return mib(args.mem), "node"
    if args.mem_per_gpu:
        return mib(args.mem_per_gpu), "gpu"
    if args.mem_per_cpu:
        return mib(args.mem_per_cpu), "cpu"
    for name, per in (("DefMemPerGPU", "gpu"), ("DefMemPerCPU", "cpu"), ("DefMemPerNode", "node")):
        if name in defaults and (per != "gpu" or size.gpus):
            return defaults[name], per
    return 0.0, "node"


def _time(text: str) -> float | None:
    if not text:
        return None
    found = duration_s(text)
    if found is None:
        raise RequestError(f"a time limit {text!r}")
    return ceil(found / 60) * 60.0  # Slurm's have whole minutes


_IN = re.compile(r"now(?:\+([0-9]{1,10})(seconds?|minutes?|hours?|days?|weeks?)?)?")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def _moment(text: str, now: float) -> float:
    """Return a time as sbatch takes it, ``now+1hour`` or a date, in seconds since the epoch. Raise
    RequestError where it cannot be read."""
    match = _IN.fullmatch(text)
    if match is not None:
        return min(now + int(match[1] or 0) * _UNITS[(match[2] or "s")[0]], LAST_S)
    for form in ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d"):
        with suppress(ValueError):
            return time.mktime(time.strptime(text, form))
    raise RequestError(f"a time {text!r}: give now+... or YYYY-MM-DDTHH:MM")


def _array_limit(text: str) -> int:
    limit = text.rpartition("%")[2] if "%" in text else ""
    return int(limit) if limit.isdecimal() else 0


def _tres(size: Size, memory: float, licences: str, site: Site) -> tuple[tuple[str, float], ...]:
    """Return the resources (TRES) for which a job is counted; memory in MiB. GPUs by type, and
    licences, are among them only where the site counts them."""
    counted = site.config.get("AccountingStorageTRES", "").split(",")
    found: dict[str, float] = {"cpu": size.cpus, "mem": memory, "node": size.nodes}
    found["billing"] = size.cpus
    if size.gpus:
        found["gres/gpu"] = size.gpus_in_all
        for kind, count in size.gpus:
            if f"gres/gpu:{kind}" in counted:
                found[f"gres/gpu:{kind}"] = count * (size.nodes if size.gpus_per_node else 1)
    for one in filter(None, licences.split(",")):
        name, _, many = one.replace("=", ":").partition(":")
        wanted = _whole("--licenses", many or "1")
        if f"license/{name}" in counted:
            found[f"license/{name}"] = float(wanted)
    return tuple(found.items())
