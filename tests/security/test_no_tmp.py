"""Without a folder for temporary files the program works, or says so in a sentence; it is no bug of its own.

The mishap: a container with a read-only root has no /tmp that can be written. The rule: what takes a folder is refused
with what it is for, and the rest works. Mounts of a namespace of its own make places read-only for root, too.
"""

import base64
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rollout.errors import ExitCode
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from tests.conftest import StartLab
from tests.ended import Ended

TINY = str(Path(__file__).parents[1] / "cli" / "tiny.yaml")
UNSHARE = ("unshare", "--map-root-user", "--mount")
USUAL = ("/tmp", "/var/tmp", "/usr/tmp")  # noqa: S108 - they are closed here


def may_mount() -> bool:
    try:
        return subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


pytestmark = [pytest.mark.skipif(not may_mount(), reason="takes a mount namespace of its own"), pytest.mark.exhaustive]


def rollout(lab: Lab, *arguments: str, closed: tuple[str, ...], kubeconfig: Path | None = None) -> Ended:
    """The real program where these places are read-only, in a folder that is so for everybody."""
    mounts = [
        f"mount --rbind {place} {place} && mount -o remount,bind,ro {place}" for place in closed if Path(place).is_dir()
    ]
    command = shlex.join([sys.executable, "-m", "rollout", *arguments])
    environment = {"PATH": os.environ["PATH"], "HOME": "/proc", **lab.environment}
    if kubeconfig is not None:
        environment["KUBECONFIG"] = str(kubeconfig)
    script = " && ".join([*mounts, "cd /proc", f"exec {command}"])
    ended = subprocess.run(
        [*UNSHARE, "sh", "-c", script], env=environment, capture_output=True, text=True, check=False, timeout=100
    )
    assert "a bug" not in ended.stderr, ended.stderr
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def without_certificates_in_it(lab: Lab, folder: Path) -> Path:
    """The lab's kubeconfig with the certificates in files beside it, as a pod's account has them."""
    content = yaml.safe_load(lab.kubeconfig.read_text(encoding="utf-8"))
    for entries, fields in (("clusters", ("certificate-authority",)), ("users", ("client-certificate", "client-key"))):
        for entry in content[entries]:
            inner = entry[entries[:-1]]
            for field in fields:
                if f"{field}-data" in inner:
                    (folder / field).write_bytes(base64.b64decode(inner.pop(f"{field}-data")))
                    inner[field] = str(folder / field)
    (folder / "kubeconfig").write_text(yaml.safe_dump(content), encoding="utf-8")
    return folder / "kubeconfig"


@pytest.fixture
def lab(start_lab: StartLab) -> Lab:
    return start_lab(load_scenario(TINY))


def test_where_there_is_none_at_all_that_is_said(lab: Lab) -> None:
    for arguments, purpose in (
        (("status",), "a kubeconfig with certificates in it"),
        (("demo", "--nodes", "3"), "the demo"),
        (("lab", "up"), "the lab"),
    ):
        ended = rollout(lab, *arguments, closed=USUAL)
        assert ended.code == ExitCode.ERROR, ended
        error, hint = ended.stderr.splitlines()
        assert error.startswith(f"rollout: error: {purpose} needs a folder for temporary files, and none is writable")
        assert "TMPDIR" in hint


def test_what_takes_no_folder_works(lab: Lab, tmp_path: Path) -> None:
    """The journal is missed by a warning."""
    kubeconfig = without_certificates_in_it(lab, tmp_path)
    ended = rollout(lab, "apply", "--yes", "-o", "json", closed=USUAL, kubeconfig=kubeconfig)
    assert ended.code == ExitCode.OK, ended.stderr
    assert len(ended.summary["succeeded"]) == 3
