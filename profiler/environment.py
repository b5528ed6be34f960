"""The environment variables that a profiled command gets: those on an allow-list, and those that
the user adds.

A profiling node is shared, and a user's shell holds tokens and keys that a profiling run of five
minutes does not need. What numerical programs do need (paths, locale, thread counts, caches) is
passed on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from profiler.errors import BadOption

ALLOWED = re.compile(
    r"""^(
      PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_[A-Z]+|TZ|TERM|TMPDIR|PWD
    | PYTHONPATH|PYTHONHOME|PYTHONUNBUFFERED|PYTHONHASHSEED|VIRTUAL_ENV
    | CONDA_(PREFIX|DEFAULT_ENV|EXE|PYTHON_EXE|SHLVL)
    | LD_LIBRARY_PATH|LIBRARY_PATH|CUDA_(HOME|PATH|ROOT|CACHE_PATH)|CUDNN_[A-Z_]+
    | CUDA_MPS_(PIPE|LOG)_DIRECTORY|CUDA_DEVICE_MAX_CONNECTIONS|CUDA_MODULE_LOADING
    | (OMP|MKL|OPENBLAS|NUMEXPR|KMP|GOMP)_[A-Z_]+
    | NCCL_(DEBUG|SOCKET_IFNAME|IB_DISABLE|P2P_DISABLE|SHM_DISABLE|ALGO|PROTO)
    | (PYTORCH|TORCH|TORCHINDUCTOR|TRITON)_[A-Z_]+|XLA_FLAGS|TF_[A-Z_]+
    | (HF|HUGGINGFACE|TRANSFORMERS)_(HOME|CACHE|HUB_CACHE|DATASETS_CACHE|HUB_OFFLINE|OFFLINE)
    | XDG_(CACHE|CONFIG|DATA)_HOME|MPLBACKEND|MPLCONFIGDIR
    | SLURM_(JOB_ID|JOBID|NTASKS|PROCID|LOCALID|NODEID|CPUS_PER_TASK|JOB_NODELIST|NNODES)
    )$""",
    re.VERBOSE,
)
# never by pattern, only when named outright
SECRET = re.compile(r"(TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|PRIVATE|COOKIE)")
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


def scrubbed(source: Mapping[str, str], extra: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables of `source` that are on the allow-list, and those of `extra`.

    Args:
        extra: ``NAME`` passes that variable on even if it is not on the list; ``NAME=VALUE`` sets
            it.

    Raises:
        BadOption: an entry of `extra` has no valid name, or a NUL byte in its value, or NAME is not
            set in `source`.
    """
    found = {
        name: value
        for name, value in source.items()
        if ALLOWED.match(name) and not SECRET.search(name)
    }
    for item in extra:
        name, equals, value = item.partition("=")
        if not _NAME.match(name):
            raise BadOption(f"--env {item!r}: expected NAME or NAME=VALUE")
        if "\0" in value:
            raise BadOption(f"--env {name}: the value holds a NUL byte")
        if not equals:
            if name not in source:
                raise BadOption(f"--env {name}: not set here; give it as {name}=VALUE")
            value = source[name]
        found[name] = value
    return found
