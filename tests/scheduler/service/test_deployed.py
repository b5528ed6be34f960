"""What deploy/ has for Kubernetes and Open OnDemand fits together, and fits the service."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from typer.testing import CliRunner

from pipeline.app import app as commands
from scheduler.assembly import CoreSpec
from scheduler.core.cluster import ClusterSpec
from scheduler.service.app import create_app
from scheduler.service.decide.begin import begin
from scheduler.service.log.store.store import Store
from scheduler.service.settings import Settings, SettingsError, read_settings
from tests.scheduler.service.api.conftest import address_of

DEPLOY = Path(__file__).parents[3] / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
CORE = CoreSpec.of(ClusterSpec({"vision": 2}, gpus_per_node=4, gpu_type="V100"), "fifo")
CONTAINERFILE = (DEPLOY / "container" / "Containerfile").read_text()


def read(name: str) -> Any:
    return yaml.safe_load((KUBERNETES / name).read_text())


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    """Every object by kind: as kustomize puts them together, or as the files have them."""
    found = {one["kind"]: one for one in map(read, read("kustomization.yaml")["resources"])}
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        return found
    asked = [kubectl, "kustomize", str(KUBERNETES)]
    made = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    built = {one["kind"]: one for one in yaml.safe_load_all(made)}
    assert set(built) == {*found, "ConfigMap"}
    assert {one["metadata"].get("namespace", "pellucid") for one in built.values()} == {"pellucid"}
    return built


def test_no_file_is_left_out() -> None:
    kept = read("kustomization.yaml")
    named = {*kept["resources"], "kustomization.yaml"}
    named |= {one.split("=")[-1] for maker in kept["configMapGenerator"] for one in maker["files"]}
    assert named == {path.name for path in KUBERNETES.iterdir()}


def test_what_refers_to_each_other_is_there(whole: dict[str, Any]) -> None:
    deployment = whole["Deployment"]["spec"]
    pod = deployment["template"]["spec"]
    volumes = {one["name"]: one for one in pod["volumes"]}
    containers = [*pod["initContainers"], *pod["containers"]]
    mounted = {mount["name"] for one in containers for mount in one["volumeMounts"]}
    assert mounted == set(volumes)
    claim = volumes["state"]["persistentVolumeClaim"]["claimName"]
    assert claim == whole["PersistentVolumeClaim"]["metadata"]["name"]
    assert pod["serviceAccountName"] == whole["ServiceAccount"]["metadata"]["name"]
    if "ConfigMap" in whole:
        name = volumes["settings"]["configMap"]["name"]
        assert name == whole["ConfigMap"]["metadata"]["name"]
        labels = deployment["template"]["metadata"]["labels"].items()
        for selector in (
            deployment["selector"]["matchLabels"], whole["Service"]["spec"]["selector"],
            whole["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
        ):  # fmt: skip
            assert selector.items() <= labels
    (container,) = pod["containers"]
    (port,) = container["ports"]
    assert whole["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]
    back = whole["Ingress"]["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
    assert back["name"] == whole["Service"]["metadata"]["name"]
    assert back["port"]["name"] == whole["Service"]["spec"]["ports"][0]["name"]
    hosts = whole["Ingress"]["spec"]["tls"][0]["hosts"]
    assert hosts == [rule["host"] for rule in whole["Ingress"]["spec"]["rules"]]


def test_it_fits_the_image_and_the_service(whole: dict[str, Any], store: Store) -> None:
    pod = whole["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    user = pod["securityContext"]["runAsUser"]
    assert f"USER {user}:{pod['securityContext']['runAsGroup']}" in CONTAINERFILE
    settings = read_settings(KUBERNETES / "settings.yaml")
    assert settings.needs_token
    assert settings.port == container["ports"][0]["containerPort"]
    where = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert str(settings.state_dir) == where["state"]
    assert settings.database == f"sqlite:///{where['state']}/pellucid.db"
    assert container["args"][2].startswith(f"{where['settings']}/")
    known = CliRunner().invoke(commands, [container["args"][0], "--help"]).stdout
    assert all(word in known for word in container["args"] if word.startswith("--"))
    app = create_app(
        Settings(database=address_of(store), auth="off", backend="simulated"), store=store
    )
    paths = {*app.openapi()["paths"]}
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")]
    assert {probe["path"] for probe in probes} <= paths
    metadata = whole["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert metadata["prometheus.io/path"] in paths
    app.state.changes.close()


def test_the_first_token_is_made_while_the_pod_waits_for_it(
    whole: dict[str, Any], tmp_path: Path
) -> None:
    """What the containers run, and what settings.yaml says to type, in folders of the test."""
    pod = whole["Deployment"]["spec"]["template"]["spec"]
    text = (KUBERNETES / "settings.yaml").read_text()
    (typed,) = (line for line in text.splitlines() if "kubectl" in line)
    to, command = typed.split(" -- ")
    waiting = next(one for one in pod["initContainers"] if f"-c {one['name']} " in f"{to} ")
    (serving,) = pod["containers"]
    assert waiting["volumeMounts"] == serving["volumeMounts"], "the same claim and settings"
    config = tmp_path / "service.yaml"
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    config.write_text(text.replace("/var/lib/pellucid", str(state)))

    def run(*words: str) -> int:
        here = [word.replace("/etc/pellucid/service.yaml", str(config)) for word in words]
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        return subprocess.run(
            here, env={"PATH": path, "HOME": str(state)}, cwd="/", timeout=300
        ).returncode

    (*shell, script) = waiting["command"]
    assert "sleep 5" in script
    once = [*shell, script.replace("sleep 5", "exit 9")]
    assert run(*once) == 9, "there is none yet"
    settings = read_settings(config)
    with pytest.raises(SettingsError, match="no token to enter with"):
        begin(settings, CORE)
    assert run(*command.split()) == 0
    assert run(*once) == 0
    begin(settings, CORE)
    assert run("pellucid", "token", "revoke", "me", "--config", str(config)) == 0
    assert run(*once) == 9, "nobody can enter by it"
    config.write_text(f"{text}proxy_addresses: 10.0.0.7\n")
    assert run(*once) == 0, "the proxy signs in"


def test_the_pod_may_do_little(whole: dict[str, Any]) -> None:
    pod = whole["Deployment"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["automountServiceAccountToken"] is False
    for container in (*pod["initContainers"], *pod["containers"]):
        bound = container["securityContext"]
        assert bound["readOnlyRootFilesystem"]
        assert bound["allowPrivilegeEscalation"] is False
        assert bound["capabilities"] == {"drop": ["ALL"]}


def test_every_object_is_of_its_schema(whole: dict[str, Any]) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    for one in whole.values():
        validate.validate(one, "1.25.0", strict=True)


def test_open_ondemand_has_an_app_that_is_a_link() -> None:
    (folder,) = (DEPLOY / "open-ondemand").iterdir()
    app = yaml.safe_load((folder / "manifest.yml").read_text())
    assert set(app) <= {"name", "category", "icon", "description", "url", "new_window"}
    assert app["icon"].startswith(("fa://", "fas://"))
    url = urlsplit(app["url"])
    assert (url.scheme, url.path) == ("https", "/")
    assert "%" not in app["url"], "Open OnDemand fills in what follows it"
