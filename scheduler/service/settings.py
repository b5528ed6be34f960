"""Settings of the service: one flat model, from a YAML file, the environment and the command line.

The command line wins over the environment (`PELLUCID_DATABASE=...`), the environment over the
file. Every process of the service is given the same settings.
"""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from features.codec import Json
from features.given import read_given
from features.plain import first_line
from features.plugins import load
from profiler.progress import table
from scheduler.core.settings import NOT_YAML, printable

# After a stop `pellucid slurm release-all` waits for a lease; the unit gives it 30 s in all.
ORDER_LEASE_S = 20.0
EVERYBODY = "*"  # among the groups of proxy_roles: all whom the proxy signed in


class SettingsError(ValueError):
    """Raised for a setting that is not accepted; names the field, the value and what is
    accepted.
    """


@dataclass(frozen=True, slots=True)
class Option:
    """How a setting is given on the command line of `pellucid serve`.

    Attributes:
        help: what its option's help says.
        flags: of what is on or off: the options for both; "": one option, named as the setting.
    """

    help: str
    flags: str = ""


class Settings(BaseSettings):
    """Settings of `pellucid serve` and its processes.

    Attributes:
        database: SQLAlchemy URL; `sqlite:///PATH` or `postgresql+psycopg://...`.
        cluster: cluster YAML; read when the database is new, compared with its log afterwards.
            None: the demo cluster that is installed with the package.
        policy: how to decide, by name or as `module:Class`; likewise fixed by the first start.
            None: as the cluster file says, else `pellucid`.
        policy_settings: of it, over those of the cluster file, which Slurm's have none of.
        profiling: put the cluster file's profiling partition in front of the queues.
        bundle: folder of the champion's models; watched, and taken when it changes.
        shadow: folder of models that predict beside those in use, and decide nothing.
        watch_models: go back to the former models when new ones are worse beyond chance on what
            has ended since; or behind, where they were judged worse before.
        params: of the pipeline (`params.yaml`), which name registry and cluster: with them
            operators have models judged and promoted on the pages; else by `pellucid promote`.
        state_dir: what is not in the database: bundles in use, the backend's files, exports.
        backend: where decisions take effect: simulated, local, slurm, or module:function.
        slurm_mode: what the `slurm` backend does: explain, or order the queue, too.
        slurm_partitions: those that are virtual clusters, comma-separated; "" = all with GPUs.
        slurm_gpu_memory_mib: memory of one GPU, which Slurm does not know.
        slurm_interval_s: the queue is read this often, seconds.
        slurm_read_progress: read in the output files of running jobs how far they are, where this
            process may read them and `pellucid:no-progress` is not in the job's comment.
        dry_run: print the commands that would change something in Slurm, and run none.
        fake_gpus: the `local` backend's GPUs are only declared (a machine without any).
        fake_profiles: JSON of the profiles of commands on fake GPUs.
        read_progress: the `local` backend reads in the output of jobs how far they are, and the
            service in commands how much they ask for, unless their owner declined.
        progress_formats: TOML of lines in which this site's jobs say how far they are
            (docs/progress.md); tried before those that are known.
        pace: seconds on the `simulated` backend's clock per real second.
        host, port: where the API listens.
        server_names: names by which a proxy on this host (TLS) is reached, comma-separated; with
            any, tokens are asked for.
        api_workers: API processes; 0: none, and nothing listens.
        auth: whether a token is asked for; `auto` = on anything but loopback.
        proxy_addresses: addresses and networks of the proxy that signs people in, comma-separated:
            its headers are believed there and nowhere else; "" = there is none.
        proxy_account: Unix account that the proxy runs in, where it is on this host.
        proxy_user, proxy_groups: headers with the name of who is signed in, and the groups,
            comma-separated.
        proxy_roles: what a group may (`*`: everybody): `operator`, `viewer`, or a list of the
            virtual clusters it submits to.
        proxy_sign_out: address at which the proxy signs people out, a path on its own host.
        single_tenant: all who have a token trust each other with everything: jobs of a service that
            does not run as root run in one account, its own.
        lease_s: a decider that is not heard of for so long is replaced, seconds; with `slurm_mode`
            order at most 20.
        poll_s: longest time between two reads of the log, seconds.
        bundle_poll_s: the champion is checked this often, seconds.
        export_every: finished jobs are exported each time so many have ended; 0 = never.
        max_waiting: jobs of one submitter that may wait at once; 0 = any number.
        max_payload_mib: what commands and environments of one submitter's jobs that are not over
            may take, MiB; 0 = any size.
        max_changes_per_day: submissions and other changes of one account but an operator's, so many
            at once and so many a day; 0 = any number.
        mail_program: sends owners who ask for it (`notify`) a message when a job starts or ends, as
            Slurm's MailProg: PROGRAM -s SUBJECT OWNER, text on standard input; "" = none are sent.
        keep_days: idempotency keys, and tokens that hold no more, are forgotten after this.
        archive_days: what events and decisions say is compressed when they are older; 0 = never.
        accept_clock: a time of day that other clocks do not bear out is believed at the start up to
            this day (UTC), 2026-11-24; None: the start is refused.
        log_level: of what is logged on standard error.
    """

    model_config = SettingsConfigDict(env_prefix="PELLUCID_", extra="forbid")

    database: Annotated[
        str,
        Option("sqlite:///PATH or postgresql://USER@HOST/NAME. Created when it does not exist."),
    ] = "sqlite:///data/service/pellucid.db"
    cluster: Annotated[
        Path | None,
        Option(
            "Cluster YAML: virtual clusters, nodes, GPUs, profiling partition, policy. By default "
            "a demo cluster of 240 GPUs."
        ),
    ] = None
    policy: str | None = None
    policy_settings: Json = {}
    profiling: Annotated[
        bool,
        Option("Use the cluster's profiling partition.", flags="--profiling/--no-profiling"),
    ] = True
    bundle: Annotated[
        Path | None,
        Option("Exported models, e.g. data/bundle. They are taken up when they change."),
    ] = Path("data/bundle")
    shadow: Path | None = Path("data/shadow")
    watch_models: bool = True
    params: Path | None = Path("params.yaml")
    state_dir: Annotated[
        Path, Option("Folder for what is not in the database: models in use, outputs.")
    ] = Path("data/service")
    backend: Annotated[
        str,
        Option(
            "local: processes on this host. slurm: the site's Slurm (see --slurm-mode). simulated: "
            "none, and a fast clock. module:function: one of your own (docs/adding-a-backend.md)."
        ),
    ] = "local"
    slurm_mode: Annotated[
        Literal["advise", "order"],
        Option(
            "advise: explain and forecast, change nothing. order: set priorities of pending jobs."
        ),
    ] = "advise"
    slurm_partitions: Annotated[
        str, Option("slurm: partitions to follow, separated by commas; default: all.")
    ] = ""
    slurm_gpu_memory_mib: float = Field(24_576.0, gt=0)
    slurm_interval_s: float = Field(30.0, ge=0.5, le=3600)
    slurm_read_progress: bool = False
    dry_run: Annotated[
        bool,
        Option("slurm: print the commands, change nothing.", flags="--dry-run/--for-real"),
    ] = False
    fake_gpus: Annotated[
        bool,
        Option(
            "local: only declare the cluster's GPUs, without using real ones.",
            flags="--fake-gpus/--real-gpus",
        ),
    ] = False
    fake_profiles: Path | None = None
    read_progress: bool = True
    progress_formats: Path | None = None
    pace: Annotated[float, Option("simulated: seconds on its clock per real second.")] = Field(
        1.0, gt=0, le=1e6
    )
    host: Annotated[str, Option("Address to listen on. Any but loopback requires tokens.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Option("Port to listen on.")] = Field(8400, ge=0, le=65_535)
    server_names: str = Field("", pattern=r"^[A-Za-z0-9.,-]*$")
    api_workers: Annotated[
        int, Option("Number of API processes. 0: none, and nothing listens.")
    ] = Field(1, ge=0, le=64)
    auth: Literal["auto", "on", "off"] = "auto"
    proxy_addresses: str = Field("", pattern=r"^[0-9A-Fa-f.:/, ]*$")
    proxy_account: str = ""
    proxy_user: str = Field("X-Forwarded-User", pattern=r"^[A-Za-z0-9_-]+$")
    proxy_groups: str = Field("X-Forwarded-Groups", pattern=r"^[A-Za-z0-9_-]+$")
    proxy_roles: dict[str, Literal["operator", "viewer"] | list[str]] = {}
    proxy_sign_out: str = Field("", pattern=r"^(/[^/\\].*)?$")
    single_tenant: bool = False
    lease_s: float = Field(10.0, ge=0.5, le=600)
    poll_s: float = Field(0.05, gt=0, le=5)
    bundle_poll_s: float = Field(5.0, gt=0, le=3600)
    export_every: int = Field(1000, ge=0)
    max_waiting: int = Field(20_000, ge=0)
    max_payload_mib: float = Field(64.0, ge=0, le=1e6)
    max_changes_per_day: int = Field(200_000, ge=0)
    mail_program: str = ""
    keep_days: float = Field(30.0, gt=0, le=36_500)
    archive_days: float = Field(7.0, ge=0, le=36_500)
    accept_clock: Annotated[
        date | None,
        Option(
            "Today's date (UTC), such as 2026-11-24. It says that the host's time is right, though "
            "the start was refused over it."
        ),
    ] = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Option("Level of the log on standard error: debug, info, warning or error."),
    ] = "info"

    @field_validator("auth", mode="before")
    @classmethod
    def _as_meant(cls, value: Any) -> Any:
        """Return "on" or "off" for a truth value, since YAML reads these words as such; any
        other value as it is."""
        return {True: "on", False: "off"}[value] if isinstance(value, bool) else value

    @field_validator("backend")
    @classmethod
    def _known_backend(cls, backend: str) -> str:
        if backend in ("simulated", "local", "slurm"):
            return backend
        if ":" not in backend:
            raise ValueError("give simulated, local, slurm or module:function")
        load(backend)
        return backend

    @field_validator("progress_formats")
    @classmethod
    def _readable(cls, path: Path | None) -> Path | None:
        if path is not None:
            table.read(path)
        return path

    @field_validator("database")
    @classmethod
    def _known_database(cls, url: str) -> str:
        if url.startswith("postgresql://"):
            url = url.replace("postgresql://", "postgresql+psycopg://", 1)
        if not url.startswith(("sqlite:///", "postgresql+psycopg://")):
            raise ValueError("give sqlite:///PATH or postgresql://USER@HOST/DATABASE")
        try:
            url.encode()
            parsed = make_url(url)
            parsed.get_dialect()().create_connect_args(parsed)
        except (ArgumentError, ValueError, TypeError) as error:
            raise ValueError(f"no URL of a database ({error})") from None
        return url

    @model_validator(mode="after")
    def _waited_for(self) -> Self:
        if self.follows and self.slurm_mode == "order" and self.lease_s > ORDER_LEASE_S:
            raise ValueError(
                f"lease_s is {self.lease_s:g}: with slurm_mode order at most {ORDER_LEASE_S:g}"
            )
        return self

    @field_validator("proxy_addresses")
    @classmethod
    def _networks(cls, addresses: str) -> str:
        networks(addresses)
        return addresses

    @model_validator(mode="after")
    def _vouched_for(self) -> Self:
        where = networks(self.proxy_addresses)
        if any(map(holds_loopback, where)) and not self.proxy_account:
            raise ValueError(
                f"proxy_addresses is {self.proxy_addresses}: on this host everybody could say who "
                "they are; name the Unix account of the proxy in proxy_account"
            )
        if where and not self.proxy_roles:
            raise ValueError(
                "proxy_roles is empty: nobody whom the proxy signs in could do anything; give "
                "`GROUP: operator`, `GROUP: viewer` or `GROUP: [VIRTUAL CLUSTER, ...]`"
            )
        return self

    @property
    def loopback(self) -> bool:
        """Return whether only this machine can reach the API."""
        return self.host in ("127.0.0.1", "::1", "localhost")

    @property
    def follows(self) -> bool:
        """Return whether Slurm decides, and this service only follows (and may set
        priorities)."""
        return self.backend == "slurm"

    @property
    def one_account(self) -> bool:
        """Return whether jobs of all users would run in the service's account, so that each
        could read and change the others', and the service's own database."""
        return self.backend == "local" and os.geteuid() != 0 and not self.single_tenant

    @property
    def needs_token(self) -> bool:
        behind = bool(self.named or self.proxy_addresses)
        return self.auth == "on" or (self.auth == "auto" and (behind or not self.loopback))

    @property
    def named(self) -> list[str]:
        """Return the names of a proxy in front, in lower case. A visitor who comes by it may
        come from anywhere."""
        return [name.lower() for name in self.server_names.split(",") if name]


def networks(addresses: str) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """Return the networks in a list of addresses or networks in CIDR, separated by commas.
    Raise ValueError for anything else."""
    given = [one.strip() for one in addresses.split(",")]
    return [ipaddress.ip_network(one) for one in given if one]


def holds_loopback(network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    """Return whether an address of this host alone is in a network."""
    if isinstance(network, ipaddress.IPv4Network):
        return network.overlaps(ipaddress.IPv4Network("127.0.0.0/8"))
    return ipaddress.IPv6Address("::1") in network


def read_settings(file: Path | None = None, **given: Any) -> Settings:
    """Return settings from a file, the environment and what was given; `None` counts as not given.

    Raises SettingsError with one line.
    """

    class Read(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, InitSettingsSource(settings_cls, content)

    content = {} if file is None else _content(file)
    try:
        read = Read(**{name: value for name, value in given.items() if value is not None})
        settings = Settings(**read.model_dump())
    except ValidationError as error:
        first = error.errors()[0]
        if not first["loc"]:  # of several together
            raise SettingsError(first["msg"].removeprefix("Value error, ")) from None
        name = ".".join(map(str, first["loc"]))
        raise SettingsError(f"{name} is {printable(first.get('input'))}: {first['msg']}") from None
    except RecursionError:
        raise SettingsError(f"settings {file}: too many brackets within brackets") from None
    if "bundle" in read.model_fields_set and read.bundle is not None and not read.bundle.is_dir():
        raise SettingsError(
            f"bundle {read.bundle}: no such folder; make it first if models are to come later, or "
            "leave the setting out"
        )
    return settings


def _content(file: Path) -> Json:
    """Return the settings that a file states, by name. Raise SettingsError where the file
    cannot be read or is no YAML mapping."""
    try:
        found = yaml.safe_load(read_given(file))
    except OSError as error:
        why = "no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise SettingsError(f"settings {file}: {why}") from None
    except RecursionError:
        raise SettingsError(f"settings {file}: too many brackets within brackets") from None
    except NOT_YAML as error:
        why = first_line(error)
        raise SettingsError(f"settings {file}: not YAML of `name: value` lines ({why})") from None
    if not isinstance(found or {}, dict):
        held = type(found).__name__
        raise SettingsError(f"settings {file}: not YAML of `name: value` lines (a {held})")
    return {str(name): value for name, value in (found or {}).items()}
