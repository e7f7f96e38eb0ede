"""The suite takes the kubeconfigs that test clusters come with."""

from pathlib import Path

import yaml

from tests.contract.cluster import Cluster


def test_a_server_whose_certificate_is_not_to_be_checked(server: Cluster, tmp_path: Path) -> None:
    config = yaml.safe_load(server.kubeconfig.read_text())
    for entry in config["clusters"]:
        entry["cluster"] = {"server": entry["cluster"]["server"], "insecure-skip-tls-verify": True}
    unchecked = tmp_path / "kubeconfig"
    unchecked.write_text(yaml.safe_dump(config))
    assert Cluster(unchecked, tmp_path).get("/version").body == server.get("/version").body
