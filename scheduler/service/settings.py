"""Settings of the service: one flat model, from a YAML file, the environment and the command line.

The command line wins over the environment (`PELLUCID_DATABASE=...`), and the environment over the
file. Every process of the service gets the same settings.
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
from features.yamls import NOT_YAML, printable
from profiler.progress import table

# After a stop `pellucid slurm release-all` waits for a lease; the unit gives it 30 s in all.
ORDER_LEASE_S = 20.0
EVERYBODY = "*"  # among the groups of proxy_roles: all whom the proxy signed in


class SettingsError(ValueError):
    """Raised for a setting that is not accepted. The message names the field, the value and what is
    accepted.
    """


@dataclass(frozen=True, slots=True)
class Option:
    """Marks a setting that is also an option of `pellucid serve`. The setting's description is the
    option's help.

    Attributes:
        flags: for a setting that is on or off, the names of both options; "": one option, named
            like the setting.
    """

    flags: str = ""


class Settings(BaseSettings):
    """Settings of `pellucid serve` and its processes, each described where it is declared.

    Those marked with `Option` are options on the command line too, with their description as help.
    """

    model_config = SettingsConfigDict(env_prefix="PELLUCID_", extra="forbid")

    database: Annotated[str, Option()] = Field(
        "sqlite:///data/service/pellucid.db",
        description="Database of the service: sqlite:///PATH or postgresql://USER@HOST/NAME. A "
        "missing one is created.",
    )
    cluster: Annotated[Path | None, Option()] = Field(
        None,
        description="Cluster file (YAML): virtual clusters, nodes, GPUs, nodes for profiling, "
        "policy (docs/cluster-file.md). Left out: a demo cluster of 240 GPUs.",
    )
    policy: str | None = Field(
        None,
        description="How to decide, by name or as module:Class; fixed by the first start. Default: "
        "as the cluster file says, else pellucid.",
    )
    policy_settings: Json = Field(
        {},
        description="Settings of the policy, over those of the cluster file, which Slurm's have "
        "none of.",
    )
    profiling: Annotated[bool, Option("--profiling/--no-profiling")] = Field(
        True,
        description="Use the nodes that the cluster file sets aside for profiling: new jobs run "
        "there for some minutes first, to be measured.",
    )
    bundle: Annotated[Path | None, Option()] = Field(
        Path("data/bundle"),
        description="Folder of the exported models that predict durations. New models in it are "
        "used without a restart.",
    )
    shadow: Path | None = Field(
        Path("data/shadow"),
        description="Folder of models that predict beside those in use, and decide nothing.",
    )
    watch_models: bool = Field(
        True,
        description="Go back to the former models when new ones are worse beyond chance on what "
        "has ended since; or behind, where they were judged worse before.",
    )
    params: Path | None = Field(
        Path("params.yaml"),
        description="Of the pipeline, which name registry and cluster: with them operators have "
        "models judged and promoted on the pages; else by `pellucid promote`.",
    )
    state_dir: Annotated[Path, Option()] = Field(
        Path("data/service"),
        description="Folder for the service's files: copies of the models in use, outputs of jobs.",
    )
    backend: Annotated[str, Option()] = Field(
        "local",
        description="Where jobs run. local: as processes on this host. slurm: in the site's Slurm "
        "(see --slurm-mode). simulated: nowhere, their time only passes (see --pace). "
        "module:function: in a backend of your own (docs/adding-a-backend.md).",
    )
    slurm_mode: Annotated[Literal["advise", "order"], Option()] = Field(
        "advise",
        description="With --backend slurm. advise: only explain and forecast. order: also set the "
        "priorities of Slurm's pending jobs.",
    )
    slurm_partitions: Annotated[str, Option()] = Field(
        "",
        description="With --backend slurm: its partitions that the service looks at, separated by "
        "commas. Default: all.",
    )
    slurm_gpu_memory_mib: float = Field(
        24_576.0, gt=0, description="Memory of one GPU, which Slurm does not know."
    )
    slurm_interval_s: float = Field(
        30.0, ge=0.5, le=3600, description="Seconds between two reads of the queue."
    )
    slurm_read_progress: bool = Field(
        False,
        description="Read in the output files of running jobs how far they are, and in scripts how "
        "much work jobs ask for, where this process may read them and `pellucid:no-progress` is "
        "not in the job's comment.",
    )
    dry_run: Annotated[bool, Option("--dry-run/--for-real")] = Field(
        False,
        description="With --slurm-mode order: only print the commands that would change "
        "priorities, or run them.",
    )
    fake_gpus: Annotated[bool, Option("--fake-gpus/--real-gpus")] = Field(
        False,
        description="With --backend local: pretend that this host has the GPUs of the cluster, or "
        "use its real ones.",
    )
    fake_profiles: Path | None = Field(
        None, description="JSON of the profiles of commands on fake GPUs."
    )
    read_progress: bool = Field(
        True,
        description="local: read in the output of jobs how far they are, and in commands how much "
        "they ask for, unless their owner declined.",
    )
    progress_formats: Path | None = Field(
        None,
        description="TOML of lines in which this site's jobs say how far they are "
        "(docs/progress.md); tried before those that are known.",
    )
    pace: Annotated[float, Option()] = Field(
        1.0,
        gt=0,
        le=1e6,
        description="With --backend simulated: seconds that pass in the simulation per real "
        "second.",
    )
    host: Annotated[str, Option()] = Field(
        "127.0.0.1",
        description="Address to listen on. On any but 127.0.0.1 or ::1, users need tokens.",
    )
    port: Annotated[int, Option()] = Field(8400, ge=0, le=65_535, description="Port to listen on.")
    server_names: str = Field(
        "",
        pattern=r"^[A-Za-z0-9.,-]*$",
        description="Names by which a proxy on this host (TLS) is reached, comma-separated; with "
        "any, tokens are asked for.",
    )
    api_workers: Annotated[int, Option()] = Field(
        1,
        ge=0,
        le=64,
        description="Number of processes that answer requests. 0: none, so that no user can reach "
        "the service.",
    )
    auth: Literal["auto", "on", "off"] = Field(
        "auto", description="Whether a token is asked for; auto: on anything but loopback."
    )
    proxy_addresses: str = Field(
        "",
        pattern=r"^[0-9A-Fa-f.:/, ]*$",
        description="Addresses and networks of the proxy that signs people in, comma-separated: "
        "its headers are believed there and nowhere else. Default: there is none.",
    )
    proxy_account: str = Field(
        "", description="Unix account that the proxy runs in, where it is on this host."
    )
    proxy_user: str = Field(
        "X-Forwarded-User",
        pattern=r"^[A-Za-z0-9_-]+$",
        description="Header with the name of who is signed in.",
    )
    proxy_groups: str = Field(
        "X-Forwarded-Groups",
        pattern=r"^[A-Za-z0-9_-]+$",
        description="Header with the groups of who is signed in, comma-separated.",
    )
    proxy_roles: dict[str, Literal["operator", "viewer"] | list[str]] = Field(
        {},
        description="What a group may (`*`: everybody): `operator`, `viewer`, or a list of the "
        "virtual clusters it submits to.",
    )
    proxy_sign_out: str = Field(
        "",
        pattern=r"^(/[^/\\].*)?$",
        description="Address at which the proxy signs people out, a path on its own host.",
    )
    single_tenant: bool = Field(
        False,
        description="All who have a token trust each other with everything: jobs of a service that "
        "does not run as root run in one account, its own.",
    )
    lease_s: float = Field(
        10.0,
        ge=0.5,
        le=600,
        description="A decider that is not heard of for so long is replaced, seconds; with "
        "`slurm_mode` order at most 20.",
    )
    poll_s: float = Field(
        0.05, gt=0, le=5, description="Longest time between two reads of the log, seconds."
    )
    bundle_poll_s: float = Field(
        5.0, gt=0, le=3600, description="The champion is checked this often, seconds."
    )
    export_every: int = Field(
        1000,
        ge=0,
        description="Finished jobs are exported each time so many have ended; 0: never.",
    )
    max_waiting: int = Field(
        20_000, ge=0, description="Jobs of one submitter that may wait at once; 0: any number."
    )
    max_payload_mib: float = Field(
        64.0,
        ge=0,
        le=1e6,
        description="What commands and environments of one submitter's jobs that are not over may "
        "take, MiB; 0: any size.",
    )
    max_changes_per_day: int = Field(
        200_000,
        ge=0,
        description="Submissions and other changes of one account but an operator's, so many at "
        "once and so many a day; 0: any number.",
    )
    mail_program: str = Field(
        "",
        description="Sends owners who ask for it (`notify`) a message when a job starts or ends, "
        "as Slurm's MailProg: PROGRAM -s SUBJECT OWNER, text on standard input. Default: none.",
    )
    keep_days: float = Field(
        30.0,
        gt=0,
        le=36_500,
        description="Idempotency keys, and tokens that hold no more, are forgotten after this.",
    )
    archive_days: float = Field(
        7.0,
        ge=0,
        le=36_500,
        description="What events and decisions say is compressed when they are older; 0: never.",
    )
    accept_clock: Annotated[date | None, Option()] = Field(
        None,
        description="Today's date (UTC), such as 2026-11-24. Start even though the host's clock "
        "seems to have leapt forward; give it only if the clock is right.",
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Option()] = Field(
        "info",
        description="Lowest level of the messages that are printed on standard error: debug, info, "
        "warning or error.",
    )

    @field_validator("auth", mode="before")
    @classmethod
    def _as_meant(cls, value: Any) -> Any:
        """Return "on" or "off" for a boolean, because YAML reads these words as booleans. Return
        any other value unchanged.
        """
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
        """Return whether only this machine can reach the API directly: it listens on a loopback
        address.
        """
        return self.host in ("127.0.0.1", "::1", "localhost")

    @property
    def follows(self) -> bool:
        """Return whether Slurm decides, and this service only follows (and may set
        priorities)."""
        return self.backend == "slurm"

    @property
    def judges(self) -> bool:
        """Return whether this service can have candidates judged and promoted: the pipeline's
        parameters are there, and a folder for the champion."""
        there = self.params is not None and os.path.isfile(self.params)  # or cannot be read
        return there and self.bundle is not None

    @property
    def one_account(self) -> bool:
        """Return whether jobs of all users would run in the service's account, so that each could
        read and change the others', and the service's own database. False where `single_tenant`
        says that they trust each other.
        """
        return self.backend == "local" and os.geteuid() != 0 and not self.single_tenant

    @property
    def needs_token(self) -> bool:
        behind = bool(self.named or self.proxy_addresses)
        return self.auth == "on" or (self.auth == "auto" and (behind or not self.loopback))

    @property
    def named(self) -> list[str]:
        """Return the names, in lower case, by which visitors reach the service through a proxy in
        front. With a proxy, visitors may come from anywhere.
        """
        return [name.lower() for name in self.server_names.split(",") if name]


def networks(addresses: str) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """Return the networks in a list of addresses or networks in CIDR, separated by commas.
    Raise ValueError for anything else."""
    given = [one.strip() for one in addresses.split(",")]
    return [ipaddress.ip_network(one) for one in given if one]


def holds_loopback(network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    """Return whether a network contains a loopback address (one that only this host can use)."""
    if isinstance(network, ipaddress.IPv4Network):
        return network.overlaps(ipaddress.IPv4Network("127.0.0.0/8"))
    return ipaddress.IPv6Address("::1") in network


def read_settings(file: Path | None = None, **given: Any) -> Settings:
    """Return settings from a file, the environment and the given values; `None` counts as not
    given. Raise SettingsError where one is not accepted.
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
