"""An inventory leads to the hosts that Ansible would reach with it, or is refused.

The mishap: of `group_vars/all` beside `group_vars/all.yml` Ansible reads the first alone; whoever reads both, or reads
`hosts: worker-1` in another way, connects to another address, and reboots what is there. The rule: what is read here
is read as the real `ansible-inventory` reads it, which these tests ask; what is left out is told.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rollout.errors import ExitCode, InventoryError
from rollout.gather.inventory.reading import SshDefaults, read_inventory
from tests.conftest import StartLab
from tests.ended import invoked

ANSIBLE_INVENTORY = Path(sys.executable).with_name("ansible-inventory")
needs_ansible = pytest.mark.skipif(not ANSIBLE_INVENTORY.exists(), reason="ansible-core is not installed")

ONE = "ansible_host: 192.0.2.1"
OTHER = "ansible_host: 192.0.2.2"
JSON = '{"ansible_host": "192.0.2.3"}'
FILES: dict[str, dict[str, str]] = {
    "file before all": {"group_vars/all": ONE, "group_vars/all.yml": OTHER, "group_vars/all.json": JSON},
    "folder before yml": {"group_vars/all/a.yml": ONE, "group_vars/all.yml": OTHER},
    "yml before yaml": {"group_vars/all.yml": ONE, "group_vars/all.yaml": OTHER, "group_vars/all.json": JSON},
    "yaml before json": {"group_vars/pool.yaml": ONE, "group_vars/pool.json": JSON},
    "host's file before all": {"host_vars/web1": ONE, "host_vars/web1.yml": OTHER},
    "host's folder before json": {"host_vars/web1/a.json": JSON, "host_vars/web1.json": "{}"},
    "empty folder": {"group_vars/all/.keep": "", "group_vars/all.yml": ONE},
    "hidden": {"group_vars/all/a.yml": ONE, "group_vars/all/.b.yml": OTHER},
    "backups": {"group_vars/all/a": ONE, "group_vars/all/b~": OTHER, "group_vars/all/c.yml.bak": OTHER},
    "deeper and later": {"group_vars/all/b.yml": ONE, "group_vars/all/c/x.yml": OTHER},
    "deeper and earlier": {"group_vars/all/z.yml": ONE, "group_vars/all/c/x.yml": OTHER},
    "folder with a suffix": {"group_vars/all.yml/a.yml": ONE, "group_vars/all.yaml": OTHER},
    "folder with a suffix inside": {"group_vars/all/a.yml": ONE, "group_vars/all/c.d/x.yml": OTHER},
}
TEXTS = [
    "all: {hosts: web1}",
    "all: {children: {pool: {hosts: 'web[1:2]:2222', vars: x}}}",
    "all: {children: {pool: {hosts: web1}}, vars: {ansible_port: 2200}}",
    "all: {hosts: {web1: }, children: pool}",
    "all: {hosts: ''}",
    "all: {hosts: [web1]}",
    "all: {hosts: 5}",
    "all: {hosts: {web1: text}}",
]


def laid_out(folder: Path, files: Mapping[str, str], inventory: str) -> Path:
    for name, text in {**files, "hosts.yml": inventory}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder / "hosts.yml"


def as_ansible(inventory: Path) -> dict[str, tuple[str, int]] | None:
    """Address and port by host as the real Ansible reads them; None where it cannot read the inventory."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(inventory.parent),
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "1",
    }
    command = [str(ANSIBLE_INVENTORY), "-i", str(inventory), "--list"]
    ended = subprocess.run(command, env=environment, cwd=inventory.parent, capture_output=True, text=True, check=False)
    if ended.returncode:
        return None
    read: dict[str, Any] = json.loads(ended.stdout)
    variables: dict[str, Any] = read["_meta"]["hostvars"]
    hosts = {host for group in read.values() for host in group.get("hosts", ())}
    reached = {host: variables.get(host, {}) for host in hosts}
    return {host: (said.get("ansible_host", host), said.get("ansible_port", 22)) for host, said in reached.items()}


def as_read_here(inventory: Path) -> dict[str, tuple[str, int]] | None:
    try:
        hosts = read_inventory(inventory, SshDefaults()).hosts
    except InventoryError:
        return None
    return {host.name: (host.address, host.port) for host in hosts}


@needs_ansible
@pytest.mark.parametrize("files", FILES.values(), ids=FILES)
def test_variable_files_count_as_in_ansible(files: dict[str, str], tmp_path: Path) -> None:
    inventory = laid_out(tmp_path, files, "all: {children: {pool: {hosts: {web1: }}}}")
    expected = as_ansible(inventory)
    assert expected
    assert as_read_here(inventory) == expected


@needs_ansible
@pytest.mark.parametrize("text", TEXTS)
def test_texts_in_place_of_mappings_are_read_as_in_ansible(text: str, tmp_path: Path) -> None:
    inventory = laid_out(tmp_path, {}, text)
    assert as_read_here(inventory) == as_ansible(inventory)


def test_the_program_connects_where_ansible_would(start_lab: StartLab, tmp_path: Path) -> None:
    """`hosts` is a text; the file without a suffix says where the host is, the one beside it names a dead port."""
    lab = start_lab(nodes=2)
    (host,) = (host for host in read_inventory(lab.inventory, SshDefaults()).hosts if host.name == "worker-1")
    home = tmp_path / "home"
    files = {
        "host_vars/worker-1": f"ansible_host: {host.address}\nansible_port: {host.port}\n",
        "host_vars/worker-1.yml": "ansible_port: 1\n",
    }
    inventory = laid_out(home, files, "all:\n  children:\n    workers:\n      hosts: worker-1\n")
    arguments = ("status", "--node", "worker-1", "-i", str(inventory), "-o", "json")
    ended = invoked(home, lab.environment, arguments)
    assert ended.code == ExitCode.OK, ended.stderr
    (status,) = json.loads(ended.stdout)
    assert (status["error"], status["running_version"]) == ("", "4081.2.0"), status
    ignored = f"{home}/host_vars/worker-1.yml is ignored: Ansible takes {home}/host_vars/worker-1 alone"
    assert ignored in ended.stderr
