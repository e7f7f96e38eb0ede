"""The suite takes the kubeconfigs that test clusters come with."""

import json
from pathlib import Path

import yaml

from tests.contract.cluster import Cluster
from tests.ended import invoked


def kubeconfig(server: Cluster, folder: Path, **cluster: object) -> Path:
    """The server's, with this and its address alone said of it."""
    config = yaml.safe_load(server.kubeconfig.read_text())
    for entry in config["clusters"]:
        entry["cluster"] = {"server": entry["cluster"]["server"], **cluster}
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


def test_a_server_whose_certificate_is_not_to_be_checked(server: Cluster, tmp_path: Path) -> None:
    unchecked = kubeconfig(server, tmp_path, **{"insecure-skip-tls-verify": True})
    assert Cluster(unchecked, tmp_path).get("/version").body == server.get("/version").body


def test_the_program_checks_it_but_where_it_is_not_to(cluster: Cluster, tmp_path: Path) -> None:
    """Silently, as kubectl: standard error is for what goes wrong."""
    cluster.node()
    words = ("status", "-o", "json")
    checked = invoked(tmp_path, {"KUBECONFIG": str(kubeconfig(cluster, tmp_path))}, words)
    assert checked.code == 1, checked.stderr
    assert "certificate" in checked.stderr
    unchecked = kubeconfig(cluster, tmp_path, **{"insecure-skip-tls-verify": True})
    ended = invoked(tmp_path, {"KUBECONFIG": str(unchecked)}, words)
    assert (ended.code, ended.stderr) == (0, ""), ended.stderr
    assert json.loads(ended.stdout)
