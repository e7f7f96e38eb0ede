"""Where OpenSSH's client gets in, the shell does as well: servers that allow little, agents that decline."""

import getpass
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rollout.adapters.ssh.config import with_ssh_config
from rollout.adapters.ssh.shell import ParamikoShell
from rollout.gather.hosts.boot import BOOT_COMMAND, parse_boot
from rollout.gather.inventory.nodes import Connection
from tests.adapters.openssh import MISSING, Sshd, add_to_agent, certify, is_here, new_key, public, ssh_agent, sshd

pytestmark = [pytest.mark.skipif(not is_here(), reason=MISSING), pytest.mark.usefixtures("home")]


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An agent that nobody can be asked by: it declines to sign where somebody would have to agree."""
    path = tmp_path / "agent"
    monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
    monkeypatch.setenv("SSH_ASKPASS", "/bin/false")
    with ssh_agent(path):
        yield path


def hello(shell: ParamikoShell, server: Sshd) -> str:
    return shell.run(server.host(), "echo hello", timeout=30).stdout


def test_one_session_a_connection_is_enough_to_ask_and_to_act(tmp_path: Path, key: Path) -> None:
    """sshd counts a session until it has noticed its end, which may come after the next one is asked for."""
    with sshd(tmp_path / "sshd", f"AuthorizedKeysFile {key}.pub", "MaxSessions 1") as server:
        shell = ParamikoShell(known_hosts=server.known_hosts(), key_file=key)
        for _ in range(5):
            told = shell.run_if(server.host(), "echo 1", lambda answer: answer.stdout == "1\n", "echo 2", timeout=30)
            assert told is not None
            assert told.stdout == "2\n"


@pytest.mark.parametrize("principals", ["", "somebody"])
def test_the_next_key_is_tried_where_the_agent_declines_to_sign(
    agent: Path, key: Path, tmp_path: Path, principals: str
) -> None:
    declined = new_key(tmp_path / "declined")
    if principals:
        certify(new_key(tmp_path / "ca"), declined, "-n", principals)
    add_to_agent("-c", declined)
    add_to_agent(key)
    both = tmp_path / "both.pub"
    both.write_text(f"{public(declined)}\n{public(key)}\n")
    with sshd(tmp_path / "sshd", f"AuthorizedKeysFile {both}") as server:
        assert hello(ParamikoShell(known_hosts=server.known_hosts()), server) == "hello\n"
    assert agent.exists()


def test_ways_in_that_a_configuration_leads(tmp_path: Path, key: Path) -> None:
    """The second certificate is the one that counts, the first is away; and no command is the way."""
    authority = new_key(tmp_path / "ca")
    certificate = certify(authority, key, "-n", getpass.getuser()).rename(tmp_path / "second")
    with sshd(tmp_path / "sshd", f"TrustedUserCAKeys {authority}.pub") as server:
        config = tmp_path / "config"
        config.write_text(
            f"Host 127.* # loopback\n  ProxyCommand none\n  IdentitiesOnly true\n  IdentityFile {key} # ours\n"
            f"  CertificateFile {tmp_path}/first\n  CertificateFile %d/{certificate.name}\nHost *\n  ProxyJump nobody\n"
        )
        host = with_ssh_config({"w": server.host()}, config)["w"]
        assert ParamikoShell(known_hosts=server.known_hosts()).run(host, "echo hello", timeout=30).stdout == "hello\n"


def test_an_id_that_a_login_shell_prints_is_no_boots(tmp_path: Path, key: Path) -> None:
    """Nor is a version of its own: a host would count as rebooted that was not even asked."""
    noise = "echo 11111111-2222-4333-8444-555555555555; echo VERSION=9.9.9; printf unfinished"
    shout = tmp_path / "shout"
    shout.write_text(f'#!/bin/sh\n{noise}\nexec sh -c "$SSH_ORIGINAL_COMMAND"\n')
    shout.chmod(0o755)
    with sshd(tmp_path / "sshd", f"AuthorizedKeysFile {key}.pub", f"ForceCommand {shout}") as server:
        shell = ParamikoShell(known_hosts=server.known_hosts(), key_file=key)
        answer = shell.run(server.host(), BOOT_COMMAND, timeout=30)
    facts = parse_boot(answer)
    assert answer.stdout.startswith("11111111-2222-4333-8444-555555555555\n")
    assert facts is not None
    assert facts.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert facts.version != "9.9.9"


def test_the_inventory_hands_the_identities_of_a_configuration_on(tmp_path: Path, key: Path, agent: Path) -> None:
    """A client that is given an address finds no block of a name: what stands there goes along, for OpenSSH itself."""
    folder = tmp_path / "our keys"
    folder.mkdir()
    authority = new_key(tmp_path / "ca")
    certificate = certify(authority, key, "-n", getpass.getuser()).rename(folder / "signed")
    key.rename(folder / "key")
    (folder / "agent").symlink_to(agent)
    with sshd(tmp_path / "sshd", f"TrustedUserCAKeys {authority}.pub") as server:
        known = server.known_hosts().rename(folder / "known")
        config = tmp_path / "config"
        config.write_text(
            f'Host worker-1\n  IdentityFile "{folder}/key"\n  CertificateFile "{certificate}"\n  IdentitiesOnly yes\n'
            f'  IdentityAgent "{folder}/agent"\n  UserKnownHostsFile "{known}" /dev/null\n'
        )
        host = with_ssh_config({"w": server.host()}, config)["w"]
        told = shlex.split(Connection(ssh_config="none").arguments(host))
        command = [
            "ssh",
            *told,
            "-o",
            "BatchMode=yes",
            "-p",
            str(host.port),
            f"{host.user}@{host.address}",
            "echo hello",
        ]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "hello\n"), ended.stderr
    assert {"IdentitiesOnly=yes", f'IdentityAgent="{folder}/agent"'} <= set(told)
    alone = replace(host, identities=replace(host.identities, agent="", only=False))
    assert "IdentityAgent=none" in shlex.split(Connection().arguments(alone))
