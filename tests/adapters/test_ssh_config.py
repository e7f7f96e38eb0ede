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


def test_jump_hosts_are_left_to_openssh(tmp_path: Path) -> None:
    text = "Host far\n  User admin\n  ProxyJump me@a:2200,b\n"
    config = str(tmp_path / "config")
    assert configured(Host("a", "far"), tmp_path, text).proxy == (
        *("ssh", "-F", config, "-o", "BatchMode=yes", "-J", "me@a:2200", "-W", "[far]:22", "--", "ssh://b"),
    )


def test_the_rest_that_is_followed(tmp_path: Path) -> None:
    text = "Host *\n  HostKeyAlias node\n  UserKnownHostsFile /etc/a /etc/b\n  ConnectTimeout 7\n"
    found = configured(Host("a", "10.0.0.1"), tmp_path, text)
    assert (found.known_as, found.known_hosts, found.connect_timeout) == ("node", "/etc/a", 7)


@pytest.mark.parametrize(
    "line",
    [
        "CertificateFile /a",
        "IdentityAgent /a",
        "PKCS11Provider /a",
        "BindAddress 10.0.0.1",
        "ProxyUseFdpass yes",
        "Include /tmp/none",
    ],
)
def test_what_cannot_be_followed_is_refused_by_name(tmp_path: Path, line: str) -> None:
    with pytest.raises(InputError, match=f"sets {line.split(maxsplit=1)[0].lower()} for a"):
        configured(Host("a", "10.0.0.1"), tmp_path, f"Host 10.0.0.1\n  {line}\n")


def test_match_by_a_command_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Match exec"):
        configured(Host("a", "10.0.0.1"), tmp_path, "Match exec true\n  User admin\n")


def test_match_by_host(tmp_path: Path) -> None:
    assert configured(Host("a", "10.0.0.1"), tmp_path, "Match host 10.0.*\n  User admin\n").user == "admin"


def test_included_files_come_first_and_end_with_themselves(tmp_path: Path) -> None:
    (tmp_path / "one.conf").write_text("Host other\n  Port 2200\n")
    (tmp_path / "two.conf").write_text("Host 10.0.0.1\n  Port 2222\n")
    found = configured(Host("a", "10.0.0.1"), tmp_path, f"Include {tmp_path}/*.conf\nUser admin\n")
    assert (found.port, found.user) == (2222, "admin")


def test_files_that_include_each_other(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="include each other"):
        configured(Host("a", "10.0.0.1"), tmp_path, f"Include {tmp_path}/config\n")


@pytest.mark.parametrize("address", ["-oProxyCommand=touch", "a;b", "$(id)", "a b"])
@pytest.mark.parametrize("line", ["ProxyJump a", "ProxyCommand nc %h %p"])
def test_addresses_of_the_cluster_never_become_commands(tmp_path: Path, address: str, line: str) -> None:
    with pytest.raises(InputError, match="may not be part of the command"):
        configured(Host("a", address), tmp_path, f"Host *\n  {line}\n")


def test_numbers(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="port 'ssh' is no number"):
        configured(Host("a", "10.0.0.1"), tmp_path, "Host *\n  Port ssh\n")


def test_a_proxy_command_is_told_what_counts(tmp_path: Path) -> None:
    text = "Host *\n  User admin\n  ProxyCommand relay %r %h %p\n"
    assert configured(Host("a", "b"), tmp_path, text).proxy[-1] == "exec relay admin b 22"
    assert configured(Host("a", "b"), tmp_path, text.replace("User admin", "")).proxy[-1] == "exec relay core b 22"
    assert configured(Host("a", "b", 2222, "me"), tmp_path, text).proxy[-1] == "exec relay me b 2222"


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        with_ssh_config({}, tmp_path / "none")


def test_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not an OpenSSH client configuration"):
        configured(Host("a", "b"), tmp_path, 'Host "\n')
