"""What Ansible is told, and that the user's own word counts where it should."""

from pathlib import Path

import pytest

from rollout.adapters.ansible.inventory import is_reachable_by_name, write_inventory, write_variables
from rollout.adapters.ansible.settings import AnsibleSettings
from rollout.adapters.ssh.known_hosts import HostKeyChecking
from rollout.model.host import Host


def settings(folder: Path, **said: object) -> AnsibleSettings:
    return AnsibleSettings(**{"folder": folder, "environment": {"HOME": str(folder), "PATH": "/bin"}, **said})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("checking", "ansible", "openssh"),
    [
        (HostKeyChecking.STRICT, "True", "StrictHostKeyChecking=yes"),
        (HostKeyChecking.ACCEPT_NEW, "True", "StrictHostKeyChecking=accept-new"),
        (HostKeyChecking.OFF, "False", "StrictHostKeyChecking=accept-new"),
    ],
)
def test_host_keys_are_checked_as_asked(tmp_path: Path, checking: HostKeyChecking, ansible: str, openssh: str) -> None:
    """ansible-runner would check none, and a user's own setting may not undo ours."""
    given = {"HOME": str(tmp_path), "ANSIBLE_HOST_KEY_CHECKING": "whatever"}
    variables = settings(tmp_path, host_key_checking=checking, environment=given).variables()
    assert variables["ANSIBLE_HOST_KEY_CHECKING"] == ansible
    assert openssh in variables["ANSIBLE_SSH_ARGS"]


def test_what_rollout_was_told_comes_before_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "ansible.cfg").write_text(
        "[defaults]\nremote_user = ops\n[ssh_connection]\nssh_args = -o ControlPersist=60s\n"
    )
    variables = settings(tmp_path, known_hosts=Path("/keys"), user="core").variables(Path("/ssh_config"))
    words = variables["ANSIBLE_SSH_ARGS"].split()
    assert words.index("UserKnownHostsFile=/keys") < words.index("ControlPersist=60s")
    assert "ControlMaster=no" not in words
    assert words[words.index("-F") + 1] == "/ssh_config"
    assert variables["ANSIBLE_REMOTE_USER"] == "core"
    assert variables["ANSIBLE_CONFIG"] == str(tmp_path / "ansible.cfg")


def test_where_nothing_is_said_connections_do_not_outlive_a_boot(tmp_path: Path) -> None:
    variables = settings(tmp_path).variables()
    assert "ControlMaster=no" in variables["ANSIBLE_SSH_ARGS"]
    assert "ServerAliveInterval=5" in variables["ANSIBLE_SSH_ARGS"]
    assert "ANSIBLE_REMOTE_USER" not in variables
    assert "ANSIBLE_CONFIG" not in variables


def test_the_usual_user_comes_after_the_client_configuration(tmp_path: Path) -> None:
    assert settings(tmp_path).ssh_config_text().splitlines() == [
        "Include ~/.ssh/config",
        "Include /etc/ssh/ssh_config",
        "Host *",
        "User core",
    ]
    assert settings(tmp_path, ssh_config=Path("none")).ssh_config_text() == "Host *\nUser core\n"
    assert settings(tmp_path, ssh_config=Path("/mine")).ssh_config_text().startswith("Include /mine\n")


def test_nothing_from_the_cluster_is_taken_for_a_template(tmp_path: Path) -> None:
    host = Host("worker-1", "{{ lookup('pipe', 'id') }}")
    written = write_inventory(tmp_path, settings(tmp_path), [host]).read_text()
    assert "!unsafe \"{{ lookup('pipe', 'id') }}\"" in written or "!unsafe '{{ lookup(''pipe'', ''id'') }}'" in written
    variables = write_variables(tmp_path, {"labels": {"zone": "{{ evil }}"}, "roles": ["{{ evil }}"], "few": 3})
    assert variables.read_text().count("!unsafe") == 2
    assert (variables.stat().st_mode & 0o777) == 0o600


@pytest.mark.parametrize("address", ["-oProxyCommand=id", "a b", "$(id)", "a;b", "{{ a }}", ""])
def test_no_address_becomes_an_option_of_ssh(address: str) -> None:
    assert not is_reachable_by_name(Host("worker-1", address))
    assert is_reachable_by_name(Host("worker-1", "fe80::1%eth0"))
