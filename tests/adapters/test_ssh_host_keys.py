"""Whether a host is the one it was: its key is looked at before anybody logs in."""

from pathlib import Path
from typing import Any

import asyncssh
import pytest

from rollout.adapters.ssh.known_hosts import HostKeyChecking
from rollout.adapters.ssh.shell import ParamikoShell
from rollout.errors import HostKeyError
from tests.adapters.conftest import shell, trusting
from tests.adapters.strangers import MakeStranger, pass_on

pytestmark = pytest.mark.usefixtures("nothing_is_left_behind")


def test_changed_key_is_never_logged_in_to(servers: Any, client_key: asyncssh.SSHKey, key_file: Path) -> None:
    server = servers.serve(authorized=[client_key])
    one = shell(server, key_file)
    other = servers.serve(authorized=[client_key])
    known = key_file.parent / "known_hosts"
    known.write_text(known.read_text().replace(str(server.port), str(other.port)))
    for checking in (HostKeyChecking.STRICT, HostKeyChecking.ACCEPT_NEW):
        one = ParamikoShell(known_hosts=known, host_key_checking=checking, key_file=key_file)
        with pytest.raises(HostKeyError) as caught:
            one.run(other.host(), "x", timeout=60)
        for key in (*server.host_keys, *other.host_keys):
            assert key.get_fingerprint() in caught.value.message
        assert "has changed" in caught.value.message
        assert f"({known}:1)" in caught.value.message
    assert other.logins == []


@pytest.mark.parametrize("checking", list(HostKeyChecking))
@pytest.mark.parametrize("algorithm", ["ssh-ed25519", "ecdsa-sha2-nistp256"])
def test_same_key_after_a_reboot(
    checking: HostKeyChecking,
    algorithm: str,
    servers: Any,
    stranger: MakeStranger,
    client_key: asyncssh.SSHKey,
    key_file: Path,
) -> None:
    key, other_key = asyncssh.generate_private_key("ssh-ed25519"), asyncssh.generate_private_key(algorithm)
    before = servers.serve(authorized=[client_key], host_keys=[key])
    after = servers.serve(authorized=[client_key], host_keys=[other_key])
    known = before.known_hosts(key_file.parent)
    behind = [before]
    host = stranger(lambda _, connection: pass_on(connection, behind[-1].port)).host
    strict = checking is HostKeyChecking.STRICT
    known.write_text(known.read_text().replace(str(before.port), str(host.port)) if strict else "")
    one = ParamikoShell(known_hosts=known, host_key_checking=checking, key_file=key_file)
    for _ in range(2):
        assert one.run(host, "x", timeout=60).exit_status == 3
    behind.append(after)
    with pytest.raises(HostKeyError, match="its host key has changed") as caught:
        one.run(host, "x", timeout=60)
    assert key.get_fingerprint() in caught.value.message
    assert other_key.get_fingerprint() in caught.value.message
    assert after.logins == []


def test_unknown_key_is_never_logged_in_to(server: Any, key_file: Path) -> None:
    known = key_file.parent / "known_hosts"
    known.write_text("")
    with pytest.raises(HostKeyError) as caught:
        ParamikoShell(known_hosts=known, key_file=key_file).run(server.host(), "x", timeout=60)
    assert "its host key is unknown" in caught.value.message
    assert server.host_keys[0].get_fingerprint() in caught.value.message
    assert f"ssh-keyscan -p {server.port} 127.0.0.1 >> {known}" in caught.value.hint
    assert server.logins == []


def test_new_key_is_accepted_once(servers: Any, client_key: asyncssh.SSHKey, key_file: Path) -> None:
    server = servers.serve(authorized=[client_key])
    known = key_file.parent / "new" / "known_hosts"
    for _ in range(2):
        one = ParamikoShell(known_hosts=known, host_key_checking=HostKeyChecking.ACCEPT_NEW, key_file=key_file)
        for _ in range(2):
            assert one.run(server.host(), "x", timeout=60).exit_status == 3
    assert known.read_text() == server.known_hosts(key_file.parent).read_text()
    assert known.parent.stat().st_mode & 0o077 == 0


def test_checking_can_be_switched_off(server: Any, key_file: Path) -> None:
    one = trusting(key_file)
    assert one.run(server.host(), "x", timeout=60).exit_status == 3


@pytest.mark.parametrize("algorithm", ["ecdsa-sha2-nistp256", "ssh-rsa"])
def test_key_type_on_file_is_preferred(
    servers: Any, client_key: asyncssh.SSHKey, key_file: Path, algorithm: str
) -> None:
    keys = [asyncssh.generate_private_key(name) for name in ("ssh-ed25519", algorithm)]
    server = servers.serve(authorized=[client_key], host_keys=keys)
    one = shell(server, key_file)
    known = key_file.parent / "known_hosts"
    known.write_text(known.read_text().splitlines()[1] + "\n")
    one = ParamikoShell(known_hosts=known, key_file=key_file)
    assert one.run(server.host(), "x", timeout=60).exit_status == 3
