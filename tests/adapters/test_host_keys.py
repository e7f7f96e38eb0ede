"""Keys scanned from OpenSSH's own server."""

import logging
from pathlib import Path

import pytest

from rollout.adapters.ssh.host_keys import KeyState, ScannedHost, scan, written
from tests.adapters.openssh import MISSING, certify, fingerprint, is_here, new_key, public, sshd
from tests.adapters.strangers import MakeStranger

pytestmark = pytest.mark.skipif(not is_here(), reason=MISSING)


def test_an_authority_on_file_speaks_for_the_hosts_that_it_has_certified(tmp_path: Path) -> None:
    """A server whose certificate is for another name is merely new."""
    authority, key = new_key(tmp_path / "authority"), new_key(tmp_path / "host")
    file = tmp_path / "known_hosts"
    file.write_text(f"@cert-authority * {public(authority)}\n")
    for name, standing in (("elsewhere", KeyState.NEW), ("127.0.0.1", KeyState.KNOWN)):
        certificate = certify(authority, key, "-h", "-n", name)
        with sshd(tmp_path / name, f"HostCertificate {certificate}", host_keys=[key]) as server:
            (scanned,) = scan({"worker-1": server.host()}, file, {}, timeout=30, concurrency=1)
            assert scanned.standing is standing
            assert scanned.key is not None
            assert scanned.key.fingerprint == fingerprint(key)
            assert written("", [scanned]) == f"[127.0.0.1]:{server.port} {public(key)}\n"


def test_what_does_not_answer_has_no_key(tmp_path: Path) -> None:
    with sshd(tmp_path / "server") as server:
        host = server.host()
    (scanned,) = scan({"worker-1": host}, tmp_path / "none", {}, timeout=5, concurrency=1)
    assert scanned == ScannedHost("worker-1", host, KeyState.UNREACHABLE, error=scanned.error)
    assert "the connection was refused" in scanned.error


def test_a_scan_says_nothing_beside_its_answer(stranger: MakeStranger, caplog: pytest.LogCaptureFixture) -> None:
    """What paramiko logs of a server that speaks no SSH is in the answer; on the operator's screen it is a riddle."""
    logger = logging.getLogger("paramiko")
    level = logger.level
    logger.setLevel(logging.NOTSET)
    web = stranger(lambda _, connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    (scanned,) = scan({"worker-1": web.host}, None, {}, timeout=20, concurrency=1)
    assert scanned.standing is KeyState.UNREACHABLE
    logger.setLevel(level)
    assert [record.getMessage() for record in caplog.records if record.name.startswith("paramiko")] == []
