"""Whether a host is the one it was: its key is looked at before anybody logs in."""

import base64
import hmac
import logging
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from rollout.adapters.ssh.host_keys import ScannedHost, scan, with_keys
from rollout.adapters.ssh.known_hosts import HostKey, KnownHosts
from rollout.adapters.ssh.shell import ParamikoShell
from rollout.errors import HostKeyError
from rollout.model.host import Host, HostKeyChecking, HostKeyFiles, KeyState
from tests.adapters.conftest import shell
from tests.adapters.openssh import (
    MISSING,
    MakeStranger,
    certify,
    fingerprint,
    is_here,
    new_key,
    pass_on,
    public,
    sshd,
)


@pytest.mark.usefixtures("nothing_is_left_behind")
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
    key = asyncssh.generate_private_key("ssh-ed25519")
    other_key = asyncssh.generate_private_key(algorithm)
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
    assert not strict or f"({known}:1)" in caught.value.message
    assert after.logins == []


@pytest.mark.usefixtures("nothing_is_left_behind")
def test_unknown_key_is_never_logged_in_to(server: Any, key_file: Path) -> None:
    known = key_file.parent / "known_hosts"
    known.write_text("")
    with pytest.raises(HostKeyError) as caught:
        ParamikoShell(known_hosts=known, key_file=key_file).run(server.host(), "x", timeout=60)
    assert "its host key is unknown" in caught.value.message
    assert server.host_keys[0].get_fingerprint() in caught.value.message
    assert f"rollout known-hosts --out {known}" in caught.value.hint
    assert server.logins == []


@pytest.mark.usefixtures("nothing_is_left_behind")
def test_new_key_is_accepted_once(
    servers: Any, client_key: asyncssh.SSHKey, key_file: Path
) -> None:
    server = servers.serve(authorized=[client_key])
    known = key_file.parent / "new" / "known_hosts"
    for _ in range(2):
        one = ParamikoShell(
            known_hosts=known, host_key_checking=HostKeyChecking.ACCEPT_NEW, key_file=key_file
        )
        for _ in range(2):
            assert one.run(server.host(), "x", timeout=60).exit_status == 3
    assert known.read_text() == server.known_hosts(key_file.parent).read_text()
    assert known.parent.stat().st_mode & 0o077 == 0


@pytest.mark.usefixtures("nothing_is_left_behind")
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


@pytest.mark.parametrize(
    ("on_file", "address", "port"),
    [
        ("2001:DB8:0::1", "2001:db8::1", 22),
        ("[2001:db8:0:0::1]:2222", "2001:db8::1", 2222),
        ("2001:db8::1", "2001:DB8:0::1", 22),
        ("::ffff:192.0.2.1", "192.0.2.1", 22),
    ],
)
def test_a_changed_key_takes_the_place_of_the_old_one_however_its_address_is_spelled(
    on_file: str, address: str, port: int
) -> None:
    old, new = (key_of(asyncssh.generate_private_key("ssh-ed25519")) for _ in range(2))
    entry = ScannedHost(
        "worker-1", Host("worker-1", address, port), KeyState.CHANGED, new, "fingerprint", (old,)
    )
    before = f"{on_file},other.example {line_of(old)}\n"
    kept, added = with_keys(before, [entry]).splitlines()
    assert kept == f"other.example {line_of(old)}"
    assert added.endswith(line_of(new))


def changed(address: str) -> ScannedHost:
    """A host whose key has changed, with the new one confirmed."""
    old, new = (key_of(asyncssh.generate_private_key("ssh-ed25519")) for _ in range(2))
    host = Host("worker-1", address)
    return ScannedHost("worker-1", host, KeyState.CHANGED, new, "fingerprint", (old,))


def test_a_hashed_line_is_replaced_only_if_it_is_the_hosts() -> None:
    """Hosts that were cloned have the same key."""
    entry = changed("a.example")
    own, clones = (f"{hashed(name)} {line_of(entry.before[0])}" for name in ("a.example", "b"))
    kept, added = with_keys(f"{own}\n{clones}\n", [entry]).splitlines()
    assert kept == clones
    assert entry.key is not None
    assert added.endswith(line_of(entry.key))


def test_an_old_key_under_a_pattern_is_kept_for_the_other_hosts_alone(tmp_path: Path) -> None:
    entry = changed("a.example")
    old = entry.before[0]
    file = tmp_path / "known_hosts"
    file.write_text(with_keys(f"*.example {line_of(old)}\n", [entry]))
    known = KnownHosts(HostKeyFiles((str(file),)), HostKeyChecking.STRICT)
    assert known.keys(entry.host) == (entry.key,)
    assert known.keys(Host("worker-2", "b.example")) == (old,)


def hashed(name: str) -> str:
    salt = b"salt" * 5
    parts = (salt, hmac.digest(salt, name.encode(), "sha1"))
    return "|1|" + "|".join(base64.b64encode(part).decode() for part in parts)


def key_of(key: asyncssh.SSHKey) -> HostKey:
    return HostKey(key.get_algorithm(), key.public_data)


def line_of(key: HostKey) -> str:
    return f"{key.type} {base64.b64encode(key.blob).decode()}"


# Keys scanned from OpenSSH's own server.


@pytest.mark.skipif(not is_here(), reason=MISSING)
def test_a_host_of_an_authority_is_new_by_its_own_key(tmp_path: Path) -> None:
    authority = new_key(tmp_path / "authority")
    key = new_key(tmp_path / "host")
    file = tmp_path / "known_hosts"
    file.write_text(f"@cert-authority * {public(authority)}\n")
    certificate = certify(authority, key, "-h", "-n", "127.0.0.1")
    with sshd(tmp_path / "server", f"HostCertificate {certificate}", host_keys=[key]) as server:
        (scanned,) = scan({"worker-1": server.host()}, file, {}, timeout=30, concurrency=1)
    assert scanned.standing is KeyState.NEW
    assert scanned.key is not None
    assert scanned.key.fingerprint == fingerprint(key)
    assert with_keys("", [scanned]) == f"[127.0.0.1]:{server.port} {public(key)}\n"


@pytest.mark.skipif(not is_here(), reason=MISSING)
def test_a_scan_says_nothing_beside_its_answer(
    stranger: MakeStranger, caplog: pytest.LogCaptureFixture
) -> None:
    """What paramiko logs of a server that speaks no SSH is in the answer; on the operator's screen
    it is a riddle.
    """
    logger = logging.getLogger("paramiko")
    level = logger.level
    logger.setLevel(logging.NOTSET)
    web = stranger(lambda _, connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    (scanned,) = scan({"worker-1": web.host}, None, {}, timeout=120, concurrency=1)
    assert scanned.standing is KeyState.UNREACHABLE
    logger.setLevel(level)
    assert [
        record.getMessage() for record in caplog.records if record.name.startswith("paramiko")
    ] == []
