"""What the page on clusters says of each kind holds: the settings that it writes, how its control
plane is known.
"""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from rollout.cli.settings.schema import settings
from rollout.model.cluster import Node
from rollout.model.placement import Taint
from rollout.model.policy import Policy
from rollout.planning.eligibility.candidates import is_control_plane
from tests.docs.pages import DOCS
from tests.planning.builders import node

PAGE = (DOCS / "clusters.md").read_text(encoding="utf-8")
WRITTEN = re.findall(r"^printf .*(?: \\\n )? > cluster\.toml$", PAGE, re.MULTILINE)
ROLE = "node-role.kubernetes.io/"
CONTROLLER = "node.kubernetes.io/controller"
# As these systems set them.
CONTROL_PLANES = {
    "kubeadm, kops": node("a", labels={f"{ROLE}control-plane": ""}),
    "k3s, RKE2": node("a", labels={f"{ROLE}control-plane": "true", f"{ROLE}etcd": "true"}),
    "RKE1": node("a", labels={f"{ROLE}controlplane": "true"}),
    "a taint alone": node("a", taints=(Taint(f"{ROLE}control-plane", "", "NoSchedule"),)),
    "etcd apart": node("a", taints=(Taint(f"{ROLE}etcd", "true", "NoExecute"),)),
    "Typhoon": node(
        "a", labels={CONTROLLER: "true"}, taints=(Taint(f"{ROLE}controller", "", "NoSchedule"),)
    ),
}


def written(line: str, folder: Path) -> dict[str, dict[str, object]]:
    subprocess.run(["bash", "-euc", line], cwd=folder, check=True)
    return tomllib.loads((folder / "cluster.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("line", WRITTEN)
def test_the_settings_that_it_writes_exist(line: str, tmp_path: Path) -> None:
    tables = written(line, tmp_path)
    assert tables
    assert {f"{table}.{key}" for table, keys in tables.items() for key in keys} <= set(settings())


@pytest.mark.parametrize("own", CONTROL_PLANES.values(), ids=CONTROL_PLANES)
def test_a_control_plane_is_recognised_without_a_setting(own: Node) -> None:
    assert is_control_plane(own, Policy())


def test_typhoons_without_its_taint_by_the_selector_of_the_page(tmp_path: Path) -> None:
    (line,) = [line for line in WRITTEN if "control-plane-selector" in line]
    selector = str(written(line, tmp_path)["waves"]["control-plane-selector"])
    bare = node("a", labels={CONTROLLER: "true"})
    assert not is_control_plane(bare, Policy())
    assert is_control_plane(bare, Policy(control_plane_selector=selector))
