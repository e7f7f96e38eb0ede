from pathlib import Path

import pytest

from rollout.adapters.ssh_config import with_ssh_config
from rollout.errors import InputError
from rollout.model.host import Host

CONFIG = """
Host 10.0.0.*
    User admin
    Port 2222
    IdentityFile /keys/nodes
Host node-1
    HostName 192.0.2.1
Host far
    ProxyJump bastion
Host near
    ProxyJump none
"""


def configured(host: Host, tmp_path: Path, text: str = CONFIG) -> Host:
    path = tmp_path / "config"
    path.write_text(text, encoding="utf-8")
    return with_ssh_config({"node": host}, path)["node"]


def test_what_the_file_says_fills_in_what_nobody_said(tmp_path: Path) -> None:
    assert configured(Host("a", "10.0.0.1"), tmp_path) == Host("a", "10.0.0.1", 2222, "admin", "/keys/nodes")


def test_flags_and_inventory_go_before_the_file(tmp_path: Path) -> None:
    told = Host("a", "10.0.0.1", 22022, "core2", "/keys/own")
    assert configured(told, tmp_path) == told


def test_a_name_leads_to_its_address(tmp_path: Path) -> None:
    assert configured(Host("a", "node-1"), tmp_path).address == "192.0.2.1"


def test_a_host_the_file_does_not_know_stays_as_it_is(tmp_path: Path) -> None:
    assert configured(Host("a", "10.9.9.9"), tmp_path) == Host("a", "10.9.9.9")
    assert configured(Host("a", "near"), tmp_path) == Host("a", "near")


def test_a_jump_host_is_refused_instead_of_ignored(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="reached by proxyjump"):
        configured(Host("a", "far"), tmp_path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        with_ssh_config({}, tmp_path / "none")


def test_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not an OpenSSH client configuration"):
        configured(Host("a", "b"), tmp_path, 'Host "\n')
