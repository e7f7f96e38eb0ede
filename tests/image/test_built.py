"""The image as it is built, step by step, and the program in it: against a lab outside, over loopback.

It takes a minute or two and the network, so it waits to be asked for: `ROLLOUT_IMAGE=1 pytest
tests/image`.
"""

import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from rollout.lab.lab import Lab
from tests.conftest import StartLab
from tests.ended import Ended
from tests.image import container
from tests.image.container import SETTINGS
from tests.image.dockerfile import stages_of
from tests.image.roots import Image, Roots, missing, usual_cache
from tests.server.conftest import Client, Serving
from tests.state import is_cordoned

ROOT = Path(__file__).parents[2]
ASKED_FOR = "ROLLOUT_IMAGE"
REASON = (
    missing()
    if os.environ.get(ASKED_FOR)
    else f"takes minutes and the network: {ASKED_FOR}=1 asks for it"
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.image,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(REASON), reason=REASON),
]

Run = Callable[..., Ended]


@pytest.fixture(scope="session")
def image() -> Image:
    return Roots(stages_of((ROOT / "Dockerfile").read_text()), ROOT, usual_cache()).build()


@pytest.fixture
def lab(start_lab: StartLab) -> Lab:
    return start_lab("default", nodes=5, speed=30)


@pytest.fixture
def settings(lab: Lab, tmp_path: Path) -> Path:
    """The files that a cluster would mount."""
    files = tmp_path / "settings"
    files.mkdir()
    for path in (lab.kubeconfig, lab.key, lab.known_hosts):
        shutil.copy(path, files)
    return files


@pytest.fixture
def variables(lab: Lab) -> dict[str, str]:
    """Where they are."""
    return {
        **lab.environment,
        "KUBECONFIG": f"{SETTINGS}/{lab.kubeconfig.name}",
        "ROLLOUT_SSH_KEY": f"{SETTINGS}/{lab.key.name}",
        "ROLLOUT_KNOWN_HOSTS": f"{SETTINGS}/{lab.known_hosts.name}",
    }


@pytest.fixture
def run(image: Image, settings: Path, variables: dict[str, str]) -> Run:
    """Run the image on the lab."""
    return lambda *arguments: container.run(image, arguments, variables=variables, files=settings)


@pytest.fixture
def inside(image: Image, tmp_path: Path) -> Run:
    """Any command in the container, by its words."""
    return lambda *command: container.execute(image, command, variables={}, files=tmp_path)


def test_what_it_says_without_arguments(run: Run) -> None:
    ended = run()
    assert (ended.code, "Usage: rollout" in ended.stdout) == (0, True), ended


def test_it_is_not_root_and_can_write_nowhere_but_to_tmp(inside: Run, image: Image) -> None:
    ended = inside(
        "sh",
        "-c",
        "id -u; id -g; grep CapBnd /proc/self/status; touch /tmp/a; touch ~/a /opt/a /var/tmp/a",
    )
    assert ended.stdout.split() == [*image.user.split(":"), "CapBnd:", "0" * 16]
    assert ended.stderr.count("Read-only file system") == 3


def test_no_compiler_no_installer_and_nothing_of_the_lab(inside: Run, image: Image) -> None:
    for command in ("cc", "gcc", "ld", "make", "pip", "pip3"):
        assert inside("sh", "-c", f"command -v {command}").stdout == "", command
    packages = {
        path.name.split("-")[0]
        for path in image.root.glob("opt/rollout/lib/python3*/site-packages/*.dist-info")
    }
    assert {
        "aiohttp",
        "ansible_core",
        "ansible_runner",
        "apprise",
        "paramiko",
        "node_rollout",
    } <= packages
    assert not packages & {"asyncssh", "pip", "hatchling", "pytest"}


def test_doctor(run: Run) -> None:
    ended = run("doctor")
    assert ended.code == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("executor", ["ssh", "ansible"])
def test_a_pass_from_inside(run: Run, lab: Lab, executor: str) -> None:
    ended = run("operate", "--once", "--max-unavailable", "2", "--executor", executor)
    assert ended.code == 0, ended.stdout + ended.stderr
    score = lab.scoreboard()
    assert set(score.reboots.values()) == {1}
    assert score.clean


def test_a_server_that_hosts_ask(
    image: Image, lab: Lab, settings: Path, variables: dict[str, str]
) -> None:
    """FleetLock over HTTP from inside: a grant after the drain, the release after the proof, and a
    calm end.
    """
    words = ("fleetlock", "serve", "--listen", "127.0.0.1:0", "--set", "waves.health-checks=1")
    server = Serving(
        container.begin(image, [*image.entrypoint, *words], variables=variables, files=settings)
    )
    client = Client(lab, "worker-1")
    try:
        assert "node_rollout_build_info" in server.get("/metrics")[1]
        client.await_grant(server, 90)
        assert is_cordoned(lab, "worker-1")
        client.reboot()
        client.await_return(server, 90)
        assert container.ask_to_end(server.process) == 0, server.said
    finally:
        server.end(signal.SIGKILL)
    assert lab.scoreboard().reboots["worker-1"] == 1
    assert not is_cordoned(lab, "worker-1")


def test_a_release(lab: Lab, tmp_path: Path) -> None:
    """Wheel, sdist, what an installation of the wheel holds, what Krew installs, and the sums of
    these.
    """
    variables = {**os.environ, "GITHUB_REPOSITORY": "owner/name"}
    made = tmp_path / "dist"
    subprocess.run([ROOT / ".ci" / "dist", made], env=variables, check=True, capture_output=True)
    names = {path.name for path in made.iterdir()}
    places = ("linux-amd64", "linux-arm64", "darwin-arm64")
    archives = {f"kubectl-node_rollout-v0.1.0-{place}.tar.gz" for place in places}
    assert {name.split("-0.1.0")[0] for name in names - archives} == {
        "node_rollout",
        "node-rollout-man.tar.gz",
        "node-rollout.cdx.json",
        "node-rollout.yaml",
        "SHA256SUMS",
    }
    assert archives <= names
    subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"],
        cwd=made,
        check=True,
        capture_output=True,
    )
    contents = json.loads((made / "node-rollout.cdx.json").read_text())
    assert contents["metadata"]["component"]["name"] == "node-rollout"
    installed = {(part["name"].lower(), part["version"]) for part in contents["components"]}
    lock = (ROOT / ".ci" / "requirements.lock").read_text()
    assert {
        ("paramiko", version) for version in re.findall(r"^paramiko==(\S+)", lock, re.MULTILINE)
    } <= installed
    assert not {name for name, _ in installed} & {"asyncssh", "pip"}
    with tarfile.open(next(made.glob("node_rollout-*.tar.gz"))) as source:
        held = {name.partition("/")[2] for name in source.getnames()}
    assert {
        "Dockerfile",
        ".dockerignore",
        ".ci/requirements.lock",
        ".ci/build.lock",
        "rollout/__init__.py",
    } <= held
    installs_from_an_index(next(made.glob("*.whl")), made)
    installs_as_krew_does(made, lab)


def installs_as_krew_does(released: Path, lab: Lab) -> None:
    """By the manifest: the archive of this platform, its sum, its files, a link in PATH; then
    without any index.
    """
    manifest = yaml.safe_load((released / "node-rollout.yaml").read_text())
    arch = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    here = {"os": "linux", "arch": arch}
    (mine,) = (
        one for one in manifest["spec"]["platforms"] if one["selector"]["matchLabels"] == here
    )
    archive = released / mine["uri"].rpartition("/")[2]
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == mine["sha256"]
    store = released / "store" / "v0.1.0"
    programs = released / "programs"
    with tarfile.open(archive) as packed:
        packed.extractall(store, filter="data")
    assert (store / "LICENSE").is_file()
    programs.mkdir()
    (programs / "kubectl-node_rollout").symlink_to(os.path.relpath(store / mine["bin"], programs))
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    variables = {
        **os.environ,
        **lab.environment,
        "PATH": path,
        "PIP_INDEX_URL": "http://127.0.0.1:9/",
    }
    for arguments, first in ((("--version",), True), (("doctor",), False)):
        command = ["kubectl", "node-rollout", *arguments]
        ended = subprocess.run(command, env=variables, check=False, capture_output=True, text=True)
        assert ended.returncode == 0, ended
        assert ("First start" in ended.stderr) is first
    assert not [left for left in store.iterdir() if left.is_symlink() and not left.exists()]


def installs_from_an_index(wheel: Path, folder: Path) -> None:
    """By its name, from an index that names the wheel with its sum; both commands are there."""
    project = folder / "index" / "node-rollout"
    project.mkdir(parents=True)
    shutil.copy(wheel, project)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (project / "index.html").write_text(
        f'<a href="{wheel.name}#sha256={digest}">{wheel.name}</a>\n'
    )
    serving = partial(SimpleHTTPRequestHandler, directory=str(folder / "index"))
    with ThreadingHTTPServer(("127.0.0.1", 0), serving) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        environment = folder / "installed"
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        index = f"http://127.0.0.1:{server.server_port}/"
        install = ("install", "--quiet", "--extra-index-url", index, "node-rollout")
        subprocess.run([environment / "bin" / "pip", *install], check=True, capture_output=True)
        server.shutdown()
    for command in ("rollout", "kubectl-node_rollout"):
        said = subprocess.run(
            [environment / "bin" / command, "--version"], check=True, capture_output=True, text=True
        )
        assert said.stdout == "rollout 0.1.0\n"
