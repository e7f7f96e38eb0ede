"""Files that a pod's settings name: in its ConfigMap, at their relative paths, found by the program; or refused."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from rollout.errors import ExitCode
from rollout.lab.lab import Lab
from tests.cli.conftest import Command
from tests.cli.test_manifests import IMAGE, KEY, kustomized, pod, printed, refused
from tests.conftest import StartLab
from tests.ended import invoked

MOUNTED = "/etc/rollout/settings"


BEFORE = """
- hosts: all
  gather_facts: false
  roles: [look]
  tasks:
    - ansible.builtin.include_tasks: further.yml
"""


LOOK = "- name: Look at {{ word }}\n  ansible.builtin.assert: {that: word == 'here' and rollout_node == 'worker-1'}\n"


FURTHER = "- name: Go further\n  ansible.builtin.raw: cat /proc/sys/kernel/random/boot_id\n"


SITE = {
    "site/hosts.yaml": "all: {hosts: {worker-1: {ansible_host: 10.0.0.1}}}\n",
    "site/group_vars/all.yml": "word: here\n",
    "site/before.yml": BEFORE,
    "site/further.yml": FURTHER,
    "site/roles/look/tasks/main.yml": LOOK,
    "site/roles/look/files/check.sh": "#!/bin/sh\ntrue\n",
    "site/.git/config": "[core]\n",
    "site/unnamed.yml": "other: true\n",
    "ssh_config": "Host *\n  ConnectTimeout 9\n",
}


SETTINGS = """
[ssh]
executor = "ansible"
inventory = "site/hosts.yaml"
config = "ssh_config"
[reboot]
pre-playbook = "site/before.yml"
"""


ARGUMENTS = ("manifests", *IMAGE, "--known-hosts", "known_hosts", "--config", "cluster.toml")


@pytest.fixture
def site(home: Path) -> Path:
    for name, text in {**SITE, "cluster.toml": SETTINGS, "known_hosts": f"10.0.0.1 ssh-ed25519 {KEY}\n"}.items():
        file = home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (home / "site/roles/look/files/check.sh").chmod(0o755)
    return home


def lay_out(documents: dict[str, Any], folder: Path) -> dict[str, str]:
    """The volume as a kubelet makes it, with its links; the container's variables and settings, as if it stood here."""
    spec = pod(documents["CronJob"])
    volume = next(each["configMap"] for each in spec["volumes"] if each["name"] == "settings")
    data = documents["ConfigMap"]["data"]
    items = volume.get("items", [{"key": key, "path": key} for key in data])
    for item in items:
        file = folder / "..2026" / item["path"]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(data[item["key"]])
        file.chmod(item.get("mode", 0o644))
    (folder / "..data").symlink_to("..2026")
    for name in {Path(item["path"]).parts[0] for item in items}:
        (folder / name).symlink_to(f"..data/{name}")
    values = {entry["name"]: entry.get("value", "") for entry in spec["containers"][0]["env"]}
    values |= dict(word.split("=", 1) for word in spec["containers"][0]["args"] if "=" in word)
    return {name: value.replace(MOUNTED, str(folder)) for name, value in values.items() if MOUNTED in value}


@pytest.mark.parametrize(
    ("name", "text", "reasons"),
    [
        (
            "site/group_vars/all.yml",
            "word: x\ndb_password: hunter22\n",
            ("all.yml:2 may hold a secret", "lookup('env'"),
        ),
        ("site/roles/look/files/big", "x\n" * 600_000, ("look/files/big 1200000 of them", "hint: Name a folder with")),
        ("site/roles/look.tasks/main.yml", "[]\n", ("would both be the key", "hint: Rename one")),
        ("site/further.yml", "# a\u0085b\n", ("site/further.yml:1:4 has the character U+0085",)),
    ],
)
def test_what_cannot_go_along_is_refused(
    name: str, text: str, reasons: tuple[str, ...], command: Command, site: Path
) -> None:
    (site / name).parent.mkdir(exist_ok=True)
    (site / name).write_text(text)
    ended = command(*ARGUMENTS)
    assert all(reason in refused(ended) for reason in reasons), ended.stderr
    assert "hunter22" not in ended.stderr


def test_what_ansible_takes_from_elsewhere_is_no_secret(command: Command, site: Path) -> None:
    (site / "site/group_vars/all.yml").write_text("db_password: \"{{ lookup('env', 'DB') }}\"\n")
    printed(command(*ARGUMENTS))


def test_each_named_file_is_where_the_program_in_the_pod_looks_for_it(
    command: Command, site: Path, tmp_path: Path, start_lab: StartLab
) -> None:
    """With what Ansible reads beside it and nothing else of that folder: one pass, in a folder where none of it is."""
    lab: Lab = start_lab("default", nodes=5, speed=30)
    own = {"site/hosts.yaml": lab.inventory.read_text(), "ssh_config": "", "known_hosts": lab.known_hosts.read_text()}
    for name, text in own.items():
        (site / name).write_text(text)
    laid = lay_out(printed(command(*ARGUMENTS)), tmp_path / "pod")
    folder = Path(laid["reboot.pre-playbook"]).parent
    files = {str(file.relative_to(folder)): file for file in folder.rglob("*") if file.is_file()}
    named = {name.removeprefix("site/"): own.get(name, text) for name, text in SITE.items() if name.startswith("site/")}
    left = {".git/config", "unnamed.yml"}
    assert {name: file.read_text() for name, file in files.items()} == {
        name: text for name, text in named.items() if name not in left
    }
    assert [name for name, file in files.items() if file.stat().st_mode & 0o111] == ["roles/look/files/check.sh"]
    assert Path(laid["ROLLOUT_CONFIG"]).read_text() == SETTINGS
    variables = {**lab.environment, **{name: value for name, value in laid.items() if "." not in name}}
    words = [word for name, value in laid.items() if "." in name for word in ("--set", f"{name}={value}")]
    (tmp_path / "elsewhere").mkdir()
    words = ["operate", "--once", "--node", "worker-1", "-o", "json", *words]
    ended = invoked(tmp_path / "elsewhere", variables, words)
    assert ended.code == ExitCode.OK, ended
    assert lab.scoreboard().reboots["worker-1"] == 1
    said = "\n".join(detail for _, detail in ended.steps("worker-1") if "pre-reboot playbook" in detail)
    assert ("Look at here" in said, "Go further" in said) == (True, True), ended


# Settings and known_hosts are in the ConfigMap byte for byte, or they are refused.


HOST = f"10.0.0.1 ssh-ed25519 {KEY}\n"


CARRIED = {
    "umlauts": "# ü€\U0001f600\nwaves.canary = 1\n",
    "a line separator": "# a\u2028b\u2029c\nwaves.canary = 1\n",
    "a byte order mark within": "# a\ufeffb\nwaves.canary = 1\n",
    "ends of lines of Windows": "# a\r\nwaves.canary = 1\r\n",
    "spaces and lines first": "\n\n  waves.canary = 1\n",
    "spaces and lines last": "waves.canary = 1 \t\n\n\n",
    "no end": "waves.canary = 1",
    "tabs": "# a\n\twaves.canary\t=\t1\n",
}


REFUSED = {
    "# a\u0085b\nwaves.canary = 1\n": "1:4 has the character U+0085",
    "waves.canary = 1\n\n# a\u009bb\n": "3:4 has the character U+009B",
    "waves.canary = 1\n# \ufffe": "2:3 has the character U+FFFE",
}


def carried(command: Command, home: Path, settings: str, known_hosts: str) -> dict[str, str]:
    """The ConfigMap's texts, as Python and Go read them; the refusal else."""
    (home / "cluster.toml").write_bytes(settings.encode())
    (home / "hosts").write_bytes(known_hosts.encode())
    ended = command("manifests", *IMAGE, "--known-hosts", "hosts", "--config", "cluster.toml")
    if ended.code:
        assert (ended.code, ended.stdout) == (ExitCode.ERROR, "")
        return {"refused": ended.stderr}
    data, as_go_reads = (
        next(document["data"] for document in documents if document["kind"] == "ConfigMap")
        for documents in (yaml.safe_load_all(ended.stdout), kustomized(home, ended.stdout))
    )
    assert data == as_go_reads
    read: dict[str, str] = data
    return read


@pytest.mark.kubectl
@pytest.mark.parametrize("settings", CARRIED.values(), ids=CARRIED)
def test_a_text_comes_through_byte_for_byte(settings: str, command: Command, home: Path) -> None:
    known_hosts = HOST + settings.replace("waves.canary", "# ")
    data = carried(command, home, settings, known_hosts)
    assert data == {"rollout.toml": settings, "known_hosts": known_hosts}


@pytest.mark.parametrize(("text", "why"), REFUSED.items())
def test_what_cannot_be_carried_is_refused_by_line_and_character(
    text: str, why: str, command: Command, home: Path
) -> None:
    assert f"cluster.toml:{why}, which" in carried(command, home, text, HOST)["refused"]
    assert f"hosts:{why}, which" in carried(command, home, "", text.replace("waves.canary = 1", HOST[:-1]))["refused"]


@pytest.mark.parametrize(("character", "named"), [("\x7f", "U+007F"), ("\r", "U+000D"), ("\x1b", "U+001B")])
def test_known_hosts_are_no_toml_that_would_refuse_the_rest(
    character: str, named: str, command: Command, home: Path
) -> None:
    said = carried(command, home, "", f"{HOST}# a{character}b\n")["refused"]
    assert f"hosts:2:4 has the character {named}" in said
