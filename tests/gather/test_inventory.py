"""Hosts out of what `ansible-inventory` says: of documents, and of files as the real one reads
them.
"""

from pathlib import Path
from typing import Any

import pytest

from rollout.adapters.ansible.inventory import read_inventory
from rollout.adapters.ansible.settings import AnsibleSettings
from rollout.errors import InventoryError
from rollout.gather.inventory import Inventory, SshDefaults, parse_inventory
from rollout.model.host import Host

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def of(variables: dict[str, Any], *, by_ansible: bool = False, name: str = "a") -> Inventory:
    document = {
        "_meta": {"hostvars": {name: variables}},
        "all": {"children": ["x"]},
        "x": {"hosts": [name]},
    }
    return parse_inventory(document, SshDefaults("admin", 2200, "/keys/id"), by_ansible=by_ansible)


@pytest.mark.parametrize(
    ("variables", "host"),
    [
        ({}, Host("a", "a", 2200, "admin", "/keys/id")),
        (
            {"ansible_host": "192.0.2.1", "ansible_port": 23},
            Host("a", "192.0.2.1", 23, "admin", "/keys/id"),
        ),
        ({"ansible_port": "23", "ansible_user": " u "}, Host("a", "a", 23, "u", "/keys/id")),
        (
            {"ansible_host": "192.0.2.2", "ansible_ssh_host": "::1"},
            Host("a", "::1", 2200, "admin", "/keys/id"),
        ),
        ({"ansible_host": "[2001:db8::1]"}, Host("a", "2001:db8::1", 2200, "admin", "/keys/id")),
        (
            {"ansible_ssh_host": "[::1]", "ansible_port": 23},
            Host("a", "::1", 23, "admin", "/keys/id"),
        ),
        ({"ansible_private_key_file": "/my keys/id"}, Host("a", "a", 2200, "admin", "/my keys/id")),
        ({"ansible_user": {"__ansible_unsafe": "a{{b"}}, Host("a", "a", 2200, "a{{b", "/keys/id")),
        (
            {"ansible_connection": "ssh", "other": "{{ x }}", "more": [1]},
            Host("a", "a", 2200, "admin", "/keys/id"),
        ),
    ],
)
def test_variables_say_how_a_host_is_reached(variables: dict[str, Any], host: Host) -> None:
    assert of(variables) == of(variables, by_ansible=True) == Inventory((host,))


ONLY_BY_ANSIBLE: list[tuple[dict[str, Any], str]] = [
    (
        {"ansible_connection": "docker"},
        "host a: ansible_connection='docker': rollout's own SSH cannot",
    ),
    ({"ansible_ssh_common_args": "-o ProxyJump=bastion"}, "does not support jump hosts"),
    ({"ansible_ssh_extra_args": "-J bastion"}, "does not support jump hosts"),
    ({"ansible_ssh_args": "-o Port=23"}, "does not support jump hosts"),
    ({"ansible_host": "{{ address }}"}, "only Ansible evaluates templates"),
    ({"ansible_host": ["192.0.2.1"]}, "only Ansible reads this value"),
    (
        {"ansible_user": {"__ansible_vault": "$ANSIBLE_VAULT;1.1;AES256\n30\n"}},
        "ansible_user=(encrypted): only Ansible",
    ),
    ({"ansible_host": "b\u202ec"}, "only Ansible reads this value"),
]


@pytest.mark.parametrize(("variables", "message"), ONLY_BY_ANSIBLE)
def test_what_only_ansible_can_follow_is_refused_or_left_to_it(
    variables: dict[str, Any], message: str
) -> None:
    with pytest.raises(InventoryError) as caught:
        of(variables)
    assert message in caught.value.message
    assert "--executor ansible" in caught.value.hint
    assert of(variables, by_ansible=True).hosts == (Host("a", "a", 2200, "admin", "/keys/id"),)


@pytest.mark.parametrize("by_ansible", [False, True])
@pytest.mark.parametrize("port", ["0", "65536", 99999999999, "ssh", "0000065536"])
def test_a_port_that_is_none_is_refused(port: object, by_ansible: bool) -> None:  # noqa: FBT001 - a parameter
    with pytest.raises(InventoryError, match=r"inventory: host a: ansible_port=.*: not a port"):
        of({"ansible_port": port}, by_ansible=by_ansible)


def read(path: Path) -> Inventory:
    settings = AnsibleSettings(
        folder=path.parent, environment={"HOME": str(path.parent), "PATH": "/bin"}
    )
    return read_inventory(path, settings, SshDefaults(), by_ansible=False)


@pytest.mark.slow
def test_examples_say_the_same() -> None:
    ini, yaml = (read(EXAMPLES / name) for name in ("hosts.ini", "hosts.yaml"))
    assert set(ini.hosts) == set(yaml.hosts)
    assert len(ini.hosts) == 23
    assert Host("cp-3", "192.0.2.13", 2222, "core", "~/.ssh/id_ed25519") in ini.hosts
    assert Host("worker-01", "worker-01", 22, "core", "~/.ssh/id_ed25519") in ini.hosts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("hosts.ini", "a b\n", "Expected key=value host variable assignment, got: b"),
        ("hosts.yaml", "all: [x\n", "YAML parsing failed"),
        ("hosts.yaml", "", "has no hosts"),
        ("hosts", "$ANSIBLE_VAULT;1.1;AES256\n6162\n", "no vault secrets"),
        ("group/hosts.ini", "a\n", "no such file"),
    ],
)
def test_what_ansible_cannot_read(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / Path(name).name).write_text(text)
    with pytest.raises(InventoryError) as caught:
        read(tmp_path / name)
    assert message in caught.value.message
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 600
