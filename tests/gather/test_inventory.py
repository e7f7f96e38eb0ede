"""Ansible's inventories, as far as they say how hosts are reached."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout.errors import InventoryError
from rollout.gather.inventory.ini import parse_ini
from rollout.gather.inventory.reading import Inventory, SshDefaults, read_inventory
from rollout.gather.inventory.yaml_files import parse_yaml
from rollout.model.host import Host

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def read(folder: Path, text: str, name: str = "hosts.ini", defaults: SshDefaults | None = None) -> Inventory:
    (folder / name).write_text(text)
    return read_inventory(folder / name, defaults or SshDefaults())


def by_name(inventory: Inventory) -> dict[str, Host]:
    return {host.name: host for host in inventory.hosts}


def test_examples_say_the_same() -> None:
    ini, yaml = (read_inventory(EXAMPLES / name, SshDefaults()) for name in ("hosts.ini", "hosts.yaml"))
    assert ini == yaml
    assert len(ini.hosts) == 23
    assert ini.hosts[2] == Host("cp-3", "192.0.2.13", 2222, "core", "~/.ssh/id_ed25519")
    assert ini.hosts[3] == Host("worker-01", "worker-01", 22, "core", "~/.ssh/id_ed25519")


def test_defaults_hold_where_nothing_is_said(folder: Path) -> None:
    defaults = SshDefaults("admin", 2200, "/keys/id")
    inventory = read(
        folder, "a\nb ansible_user=core ansible_port=22 ansible_ssh_private_key_file=/b\n", defaults=defaults
    )
    assert inventory.hosts == (Host("a", "a", 2200, "admin", "/keys/id"), Host("b", "b", 22, "core", "/b"))


@pytest.mark.parametrize(
    ("line", "host"),
    [
        ("a ansible_host=192.0.2.1", Host("a", "192.0.2.1")),
        ("a ansible_host='192.0.2.1'  # comment", Host("a", "192.0.2.1")),
        ('a ansible_host="2001:db8::1"', Host("a", "2001:db8::1")),
        ("a:2222", Host("a", "a", 2222)),
        ("a:2222 ansible_port=23", Host("a", "a", 23)),
        ("[2001:db8::1]:2222", Host("2001:db8::1", "2001:db8::1", 2222)),
        ("2001:db8::1", Host("2001:db8::1", "2001:db8::1")),
        ("[2001:db8::1]", Host("2001:db8::1", "2001:db8::1")),
        ("n[5:5].example:23", Host("n5.example", "n5.example", 23)),
        ("a ansible_ssh_host=192.0.2.1 ansible_ssh_port=23 ansible_ssh_user=u", Host("a", "192.0.2.1", 23, "u")),
        ("a ansible_ssh_host=192.0.2.1 ansible_host=192.0.2.2", Host("a", "192.0.2.1")),
        ("a ansible_private_key_file='/my keys/id'", Host("a", "a", key_file="/my keys/id")),
        ("a ansible_connection=ssh ansible_become=true other='{{ x }}'", Host("a", "a")),
    ],
)
def test_ini_host_lines(folder: Path, line: str, host: Host) -> None:
    assert read(folder, line + "\n").hosts == (host,)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("n[1:3]", ["n1", "n2", "n3"]),
        ("n[01:03].example", ["n01.example", "n02.example", "n03.example"]),
        ("n[08:10]", ["n08", "n09", "n10"]),
        ("n[0:6:3]", ["n0", "n3", "n6"]),
        ("n[:2]", ["n0", "n1", "n2"]),
        ("db-[a:c]", ["db-a", "db-b", "db-c"]),
        ("r[1:2]-n[1:2]", ["r1-n1", "r1-n2", "r2-n1", "r2-n2"]),
    ],
)
@pytest.mark.parametrize("form", ["{}\n", "all:\n  hosts:\n    {}:\n      ansible_user: core\n"], ids=["ini", "yaml"])
def test_ranges(folder: Path, form: str, pattern: str, names: list[str]) -> None:
    name = "hosts.yaml" if "all:" in form else "hosts"
    assert [host.name for host in read(folder, form.format(pattern), name).hosts] == names


NESTED_INI = """
[all:vars]
ansible_user=from_all
ansible_port=1

[parent:children]
child
sibling

[parent:vars]
ansible_user = from parent
ansible_port = 2

[child]
a
b ansible_user=from_host

[child:vars]
ansible_user='from child'

[sibling]
c

; a comment
[other]
d
"""
NESTED_YAML = """
all:
  vars: {ansible_user: from_all, ansible_port: 1}
  children:
    parent:
      vars: {ansible_user: from parent, ansible_port: 2}
      children:
        child:
          vars: {ansible_user: from child}
          hosts:
            a:
            b: {ansible_user: from_host}
        sibling: {hosts: {c: }}
    other:
      hosts:
        d: null
"""


@pytest.mark.parametrize(("text", "name"), [(NESTED_INI, "hosts"), (NESTED_YAML, "hosts"), (NESTED_YAML, "h.yml")])
def test_nearest_word_counts(folder: Path, text: str, name: str) -> None:
    hosts = by_name(read(folder, text, name))
    assert {name: (host.user, host.port) for name, host in hosts.items()} == {
        "a": ("from child", 2),
        "b": ("from_host", 2),
        "c": ("from parent", 2),
        "d": ("from_all", 1),
    }


def test_equal_groups_go_by_priority_then_by_name(folder: Path) -> None:
    text = "[x]\na\n[y]\na\n[x:vars]\nansible_user=x\n[y:vars]\nansible_user=y\n"
    assert read(folder, text).hosts[0].user == "y"
    assert read(folder, text + "[x:vars]\nansible_group_priority=10\n").hosts[0].user == "x"


def test_duplicates_are_merged(folder: Path) -> None:
    text = "a ansible_host=192.0.2.1\n[x]\na ansible_user=u\n[y]\na ansible_port=23\na ansible_user=v\n"
    assert read(folder, text).hosts == (Host("a", "192.0.2.1", 23, "v"),)


def test_files_of_variables_beside_the_inventory(folder: Path) -> None:
    for name, text in {
        "group_vars/all.yml": "ansible_port: 2201\nansible_user: all_file\n",
        "group_vars/workers/ssh.yaml": "ansible_user: workers_file\n",
        "group_vars/workers/secret.yml": "$ANSIBLE_VAULT;1.1;AES256\n6162\n",
        "group_vars/elsewhere.yml": "ansible_user: nobody\n",
        "host_vars/b": "ansible_host: 192.0.2.2\nansible_user: host_file\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    inventory = read(folder, "[workers]\na ansible_user=line\nb\nc\n[workers:vars]\nansible_user=group\n")
    assert inventory.hosts == (
        Host("a", "a", 2201, "line"),
        Host("b", "192.0.2.2", 2201, "host_file"),
        Host("c", "c", 2201, "workers_file"),
    )
    assert inventory.warnings == (f"{folder}/group_vars/workers/secret.yml is encrypted with ansible-vault; ignored",)


def test_what_is_ignored_is_told(folder: Path) -> None:
    text = """
all:
  hosts:
    localhost: {ansible_connection: local}
    a: {ansible_ssh_pass: secret, ansible_ssh_common_args: -o StrictHostKeyChecking=no}
    b: {unrelated: !vault "6162", also: !unsafe "{{ x }}"}
  vras: {}
"""
    inventory = read(folder, text, "hosts.yaml")
    assert [host.name for host in inventory.hosts] == ["a", "b"]
    assert [warning.removeprefix(f"{folder}/") for warning in inventory.warnings] == [
        "hosts.yaml: group all: vras is neither hosts, vars nor children; ignored",
        "host localhost is this machine (ansible_connection=local); left out",
        "hosts.yaml: ansible_ssh_common_args is ignored",
        "hosts.yaml: ansible_ssh_pass is ignored: only keys are used",
    ]


BROKEN = [
    ("hosts.ini", "a ansible_connection=docker", ":1: host a: ansible_connection=docker: only SSH"),
    ("hosts.ini", "\na ansible_ssh_common_args='-o ProxyJump=bastion'", ":2: host a: ansible_ssh_common_args="),
    ("hosts.ini", "a ansible_ssh_extra_args='-J bastion'", ":1: host a: ansible_ssh_extra_args=-J bastion"),
    ("hosts.ini", "a ansible_ssh_args='-o Port=23'", "jump hosts and options of ssh cannot be honoured"),
    ("hosts.ini", "[x]\na ansible_host='{{ address }}'", ":2: host a: ansible_host={{ address }}: templates"),
    ("hosts.ini", "a ansible_port=ssh", ":1: host a: ansible_port=ssh: not a port"),
    ("hosts.ini", "a ansible_port=0000065536", ":1: host a: ansible_port=0000065536: not a port"),
    ("hosts.ini", "a ansible_port=70000", "not a port"),
    ("hosts.ini", "a:99999", "not a port"),
    ("hosts.ini", "a b", ":1: 'b' is not a variable"),
    ("hosts.ini", "a ansible_user='open", ":1: no closing quotation"),
    ("hosts.ini", "[x:children]\nb c", ":2: one group a line"),
    ("hosts.ini", "[x:children]\nb", ":2: group b is not defined"),
    ("hosts.ini", "a\n[x:vars]\ny=1", ":2: group x is not defined"),
    ("hosts.ini", "[x:hosst]\na", ":1: [x:hosst] is neither"),
    ("hosts.ini", "[x:children]\ny\n[y:children]\nx\n[x]\na", "hosts.ini: group x is its own descendant: x > y > x"),
    ("hosts.ini", "n[5:1]", ":1: [5:1] is an empty range"),
    ("hosts.ini", "n[01:9]", ":1: the ends of [01:9] are not of one length"),
    ("hosts.ini", "n[1:9:0]", ":1: [1:9:0] is an empty range"),
    ("hosts.ini", "n[1:999999999]", "more than 100000 hosts"),
    ("hosts.ini", "# nothing\n", "names no host"),
    ("hosts.yaml", "", "names no host"),
    ("hosts.yaml", "all:\n  hosts: [a, b]\n", "hosts of group all should be a mapping, not a list"),
    ("hosts.yaml", "all:\n  hosts: 5\n", "not a number"),
    ("hosts.yaml", "- a\n", "the file should be a mapping"),
    ("hosts.yaml", "all:\n  hosts:\n   a: {b: }\n  c: [\n", ":5: "),
    ("hosts.yaml", "all: {hosts: {a: {ansible_host: !vault 6162}}}", "ansible_host=(encrypted): ansible-vault"),
    ("hosts.yaml", "all: {hosts: {a: {ansible_host: [1]}}}", "a text is expected"),
    ("hosts.yaml", "all: {hosts: {a: !!python/object/apply:os.system ['true']}}", "could not determine"),
    ("hosts.yaml", "all: &a {children: {x: *a}}\n", "a group contains itself"),
    ("hosts.yaml", 'all: {hosts: {"a\\e[2J": }}', "cannot be printed"),
    ("hosts.yaml", 'all: {hosts: {a: {ansible_host: "b\\u202ec"}}}', "cannot be printed"),
    ("aws_ec2.yaml", "plugin: aws_ec2\n", "configures an inventory plugin"),
    ("hosts", "$ANSIBLE_VAULT;1.1;AES256\n6162\n", "is encrypted"),
    ("hosts.py", "print('{}')", "is a program"),
    ("hosts", "#!/bin/sh\necho '{}'", "is a program"),
    ("hosts.toml", "[all]", "TOML is not read here"),
]


@pytest.mark.parametrize(("name", "text", "message"), BROKEN)
def test_broken(folder: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(InventoryError) as caught:
        read(folder, text, name)
    assert message in caught.value.message
    assert "\n" not in caught.value.message


def test_unreadable(folder: Path) -> None:
    with pytest.raises(InventoryError, match="No such file"):
        read_inventory(folder / "missing", SshDefaults())
    with pytest.raises(InventoryError, match="is a folder"):
        read_inventory(folder, SshDefaults())
    (folder / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InventoryError, match="is not text"):
        read_inventory(folder / "binary", SshDefaults())


LINES = st.lists(
    st.text()
    | st.sampled_from(
        [
            "[a]",
            "[a:children]",
            "[a:vars]",
            "b",
            "a",
            "x=1",
            "n[1:3]",
            "n[a:",
            "h ansible_port=1",
            "h x='",
            "[::1]:2",
            "[]",
        ]
    )
).map("\n".join)


@pytest.mark.slow
@given(LINES)
def test_any_text_is_an_inventory_or_an_error(text: str) -> None:
    for parse in (parse_ini, parse_yaml):
        with suppress(InventoryError):
            parse(text, "file").resolved()
