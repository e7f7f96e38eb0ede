"""`rollout known-hosts`: what is scanned is shown, what confirms it decides, and a file is never
changed unseen.
"""

import json
import os
from pathlib import Path

from rollout.adapters.ssh.known_hosts import HostKey, parse_known_hosts_line
from rollout.lab.lab import Lab
from tests.cli.conftest import Command

OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"


def keys(lab: Lab) -> dict[str, HostKey]:
    """The hosts' real keys, by the first field of their lines."""
    lines = lab.known_hosts.read_text().splitlines()
    parsed = [parse_known_hosts_line(line) for line in lines]
    return {line.names: line.key for line in parsed if line.key is not None}


def consoles(lab: Lab, command: Command, folder: Path) -> Path:
    """What each host prints on its console, in a file named after its Node."""
    folder.mkdir()
    shown = json.loads(command("known-hosts", "-o", "json", "--yes", lab=lab).stdout)
    for row in shown["hosts"]:
        text = (
            f"[  OK  ] Reached target\r\nSSH host key: {keys(lab)[row['host']].fingerprint}"
            " (ED25519)\r\n"
        )
        (folder / f"{row['node']}.log").write_text(text)
    return folder


def test_yes_takes_them_into_a_file_that_pods_can_read(
    lab: Lab, command: Command, tmp_path: Path
) -> None:
    file = tmp_path / "known_hosts"
    before = os.umask(0o077)
    try:
        ended = command("known-hosts", "--out", str(file), "--yes", lab=lab)
    finally:
        os.umask(before)
    assert ended.code == 0, ended.stderr
    assert file.stat().st_mode & 0o777 == 0o644
    assert sorted(file.read_text().splitlines()) == sorted(lab.known_hosts.read_text().splitlines())
    status = command("status", "--known-hosts", str(file), "-o", "json", lab=lab)
    assert [row["error"] for row in json.loads(status.stdout)["nodes"]] == ["", "", ""]
    again = command("known-hosts", "--out", str(file), lab=lab).ends(0)
    assert "is unchanged" in again.stderr


def test_consoles_confirm_each_its_own_host(lab: Lab, command: Command, tmp_path: Path) -> None:
    """Without a question; another host's fingerprint confirms nothing."""
    file = tmp_path / "known_hosts"
    folder = consoles(lab, command, tmp_path / "consoles")
    flags = ("known-hosts", "--out", str(file), "--fingerprints", str(folder))
    first, second, *_ = sorted(folder.iterdir())
    content = first.read_text()
    first.write_text(second.read_text())
    wrong = command(*flags, lab=lab).ends(3)
    assert "1 unconfirmed key" in wrong.stderr
    assert not file.exists()
    first.write_text(content)
    ended = command(*flags, lab=lab).ends(0)
    assert ended.stdout.count("fingerprint") == 3
    assert len(file.read_text().splitlines()) == 3


def test_a_changed_key_is_written_only_where_it_is_confirmed(
    lab: Lab, command: Command, tmp_path: Path
) -> None:
    """In place of the old one, with all other lines as they were: `--yes` is no reason to believe
    it.
    """
    file = tmp_path / "known_hosts"
    name = next(iter(keys(lab)))
    others = "# mine\n@revoked * ssh-ed25519 AAAAdGhlaXJz\nother.example.org " + OTHER + "\n"
    file.write_text(f"{others}{name},alias {OTHER}\n")
    flags = ("known-hosts", "--out", str(file), "-o", "json")
    ended = command(*flags, "--yes", lab=lab).ends(4)
    rows = {row["host"]: row for row in json.loads(ended.stdout)["hosts"]}
    assert rows[name]["standing"] == "changed"
    assert len(rows[name]["before"]) == 1
    assert file.read_text().startswith(f"{others}{name},alias {OTHER}\n")
    assert len(file.read_text().splitlines()) == 6
    folder = consoles(lab, command, tmp_path / "consoles")
    command(*flags, "--fingerprints", str(folder), lab=lab).ends(0)
    text = file.read_text()
    assert text.startswith(f"{others}alias {OTHER}\n")
    assert len([line for line in text.splitlines() if line.split()[0] == name]) == 1
    command("status", "--known-hosts", str(file), lab=lab).ends(0)


def test_what_is_revoked_is_never_written(lab: Lab, command: Command, tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    line = lab.known_hosts.read_text().splitlines()[0]
    name, key = line.split(" ", 1)
    file.write_text(f"@revoked * {key}\n")
    ended = command("known-hosts", "--out", str(file), "--yes", "-o", "json", lab=lab).ends(4)
    assert {row["host"]: row["standing"] for row in json.loads(ended.stdout)["hosts"]}[
        name
    ] == "revoked"
    assert name not in file.read_text()


def test_what_confirms_nothing_is_refused(lab: Lab, command: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("nothing here")
    ended = command("known-hosts", "--yes", "--fingerprints", str(tmp_path / "file"), lab=lab).ends(
        1
    )
    assert "contains no key fingerprints" in ended.stderr
