"""What the operator logs in with: key files, decrypted once, their certificates, and the agent's keys.

Where no key file is named, the agent's keys and OpenSSH's default files are tried, as `ssh` does.
Nobody is asked for a passphrase: that of the environment opens a key, or the agent holds it.
paramiko's own agent client connects to `SSH_AUTH_SOCK` alone, forgets to close its socket where
nobody answers, and offers a certificate that the agent holds as the bare key.
"""

import base64
import copy
import io
import os
import socket
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from paramiko.agent import AgentKey, AgentSSH
from paramiko.pkey import PublicBlob
from typing_extensions import override

from rollout.adapters.input_files import check_input
from rollout.errors import SshAuthError
from rollout.model.host import Identities
from rollout.model.text import shell_word

PASSPHRASE_VARIABLE = "ROLLOUT_SSH_KEY_PASSPHRASE"  # noqa: S105 - the name of the variable
_AGENT_VARIABLE = "SSH_AUTH_SOCK"

_DEFAULT_FILES = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
_NO_FILE = "none"
# sshd ends the connection at the sixth refusal.
_MOST_TRIED = 5
_OPEN_TO_OTHERS = 0o077
_OPENSSH_HEADER = b"-----BEGIN OPENSSH PRIVATE KEY-----"
_PUBLIC_KEYS = (b"ssh-", b"ecdsa-", b"sk-")
_UNLOCK = "Run: ssh-add {} (with ssh-agent), or set ROLLOUT_SSH_KEY_PASSPHRASE."
_CERTIFICATE = "-cert-v01@openssh.com"
# Somebody may have to confirm the use of a key, or touch a token; an agent that hangs must not hang
# us.
_PATIENCE = 60.0
Keys = tuple[paramiko.PKey, ...]


class KeyRing:
    """Private keys by file. Safe to use from many threads; each file is read once, also where that failed."""

    def __init__(self, passphrase: str = "") -> None:
        self.passphrase = passphrase
        self._lock = threading.Lock()
        self._loaded: dict[str, paramiko.PKey | SshAuthError] = {}

    def load(self, file: str) -> paramiko.PKey:
        """Return the key in a file; `SshAuthError` says why it cannot be used."""
        with self._lock:
            if file not in self._loaded:
                try:
                    self._loaded[file] = _read_private_key(Path(file).expanduser(), self.passphrase)
                except SshAuthError as error:
                    self._loaded[file] = error
            key = self._loaded[file]
        if isinstance(key, SshAuthError):
            # A fresh one a caller: raising adds the traceback of each thread to the object.
            raise SshAuthError(key.message, hint=key.hint) from key
        return key

    @contextmanager
    def candidates(self, named: str | None, identities: Identities) -> Iterator[Keys]:
        """Keys to try in order: of the named file alone, else of the identities, else the agent's and OpenSSH's own.

        `SshAuthError` where there are files and none of them can be used.
        """
        opened: Keys = ()
        if named:
            identities = replace(identities, files=(named,), only=True)
            with suppress(SshAuthError):
                opened = tuple(_certified(self.load(named), named))
        if opened:
            # the agent is asked where it is needed, and not once a connection
            yield opened
            return
        with _agent_keys(identities.agent) as held:
            # the agent may hold what is on file as well
            distinct = dict[tuple[str, bytes], paramiko.PKey]()
            for key in self._any(identities, held):
                distinct.setdefault(_shown(key), key)
            yield tuple(distinct.values())[:_MOST_TRIED]

    def _any(self, identities: Identities, held: Keys) -> Iterator[paramiko.PKey]:
        """Yield the agent's keys of the files, the files', and the agent's others."""
        files = [file for file in identities.files or self._usual if file != _NO_FILE]
        of_files = [(key, file) for file in files if (key := _held(file, held)) is not None]
        failures = list[SshAuthError]()
        for file in files:
            try:
                of_files.append((self.load(file), file))
            except SshAuthError as error:
                failures.append(error)
        for key, file in of_files:
            yield from _certified(key, file)
        others = () if identities.only else held
        yield from others
        if failures and not (of_files or others):
            raise failures[0]

    @cached_property
    def _usual(self) -> tuple[str, ...]:
        """OpenSSH's own files that are there: looked for once, and not for each of thousands of hosts."""
        return tuple(file for file in _DEFAULT_FILES if Path(file).expanduser().exists())


def _held(file: str, held: Keys) -> paramiko.PKey | None:
    """Return the agent's key of this file, which needs no passphrase: by the public half that lies beside it.

    The file may be the public key itself, as where only an agent has the private one.
    """
    for candidate in (file, f"{file}.pub") if held else ():
        with suppress(OSError, ValueError, paramiko.SSHException):
            public = PublicBlob.from_file(Path(candidate).expanduser()).key_blob
            return next((key for key in held if key.asbytes() == public), None)
    return None


def _certified(key: paramiko.PKey, file: str) -> Iterator[paramiko.PKey]:
    """Yield the key with the certificate that lies beside its file, as `ssh` looks for it, and then by itself."""
    # The agent's keys look up attributes in a way that copying does not survive.
    certified = (
        HeldKey(key.agent, key.blob, key.comment) if isinstance(key, HeldKey) else copy.copy(key)
    )
    with suppress(OSError, ValueError, paramiko.SSHException):
        certified.load_certificate(str(Path(f"{file.removesuffix('.pub')}-cert.pub").expanduser()))
        yield certified
    yield key


def _shown(key: paramiko.PKey) -> tuple[str, bytes]:
    """Return the type and the bytes that a host is shown: of a certificate, where the key has one."""
    blob = key.public_blob
    return (blob.key_type, blob.key_blob) if blob is not None else (key.get_name(), key.asbytes())


def _read_private_key(file: Path, passphrase: str) -> paramiko.PKey:
    """Return the key; `SshAuthError` where it cannot be used."""
    try:
        check_input(file)
        if _too_open(file):
            raise SshAuthError(
                f"key file {file}: others may read it",
                hint=f"Run: chmod 600 {file} (ssh refuses it as well)",
            )
        return _parse(file, passphrase)
    except OSError as error:
        raise SshAuthError(
            f"key file {file}: {error.strerror}", hint="Name another with --ssh-key."
        ) from error


def _parse(file: Path, passphrase: str) -> paramiko.PKey:
    data = file.read_bytes()
    try:
        return _load(data, None)
    except TypeError:
        if not passphrase:
            raise SshAuthError(
                f"key file {file}: it is encrypted", hint=_UNLOCK.format(file)
            ) from None
    except (ValueError, UnsupportedAlgorithm, paramiko.SSHException) as error:
        raise _unusable(file, data) from error
    try:
        return _load(data, passphrase.encode())
    except (TypeError, ValueError) as error:
        message = f"key file {file}: the passphrase does not open it"
        raise SshAuthError(message, hint=_UNLOCK.format(file)) from error
    except (UnsupportedAlgorithm, paramiko.SSHException) as error:
        raise _unusable(file, data) from error


def _load(data: bytes, passphrase: bytes | None) -> paramiko.PKey:
    """Load a private key in any format that `cryptography` reads: OpenSSH's own, PKCS#8, PKCS#1, SEC 1.

    paramiko alone reads neither PKCS#8 nor every file in OpenSSH's format.

    Raises:
        TypeError: The key is encrypted, and no passphrase is given.
        ValueError: It is no key, or the passphrase is wrong.
    """
    is_openssh = data.lstrip().startswith(_OPENSSH_HEADER)
    load = serialization.load_ssh_private_key if is_openssh else serialization.load_pem_private_key
    key = load(data, passphrase)
    match key:
        case rsa.RSAPrivateKey():
            return paramiko.RSAKey(key=key)
        case ec.EllipticCurvePrivateKey():
            return paramiko.ECDSAKey(vals=(key, key.public_key()))
        case ed25519.Ed25519PrivateKey():
            text = key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.OpenSSH,
                serialization.NoEncryption(),
            )
            return paramiko.Ed25519Key(file_obj=io.StringIO(text.decode()))
        case _:
            raise UnsupportedAlgorithm(f"keys of the type {type(key).__name__}")


def described(key: paramiko.PKey) -> str:
    """Return a key for a message: its fingerprint, and what there is to know of its certificate."""
    type_, blob = _shown(key)
    with suppress(ValueError, UnsupportedAlgorithm):
        certificate = serialization.load_ssh_public_identity(
            type_.encode() + b" " + base64.b64encode(blob)
        )
        if isinstance(certificate, serialization.SSHCertificate):
            words = (
                f"certificate {certificate.key_id.decode(errors='replace')!r} of {key.fingerprint}"
            )
            return (
                f"{words}, which has expired" if certificate.valid_before <= time.time() else words
            )
    return key.fingerprint


def _too_open(file: Path) -> bool:
    """Whether OpenSSH would refuse it: ours, and not for us alone."""
    status = file.stat()
    ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid()
    return ours and bool(stat.S_IMODE(status.st_mode) & _OPEN_TO_OTHERS)


def _unusable(file: Path, data: bytes) -> SshAuthError:
    """Return why a file cannot be used as a private key, with the command that helps."""
    start = data.lstrip()
    name = shell_word(str(file))
    what = "it is not a private key"
    hint = "Name a private key with --ssh-key."
    if start.startswith(_PUBLIC_KEYS):
        what = "it is a public key"
    elif start.startswith(b"PuTTY-User-Key-File"):
        what = "it is a PuTTY key"
        hint = f"Convert it: puttygen {name} -O private-openssh -o {name}.openssh"
    elif _is_on_token(data):
        what = "it is the handle of a key on a security token, which only ssh and its agent can use"
        hint = f"Run: ssh-add {name} (with ssh-agent), or use --executor ansible."
    elif b" PRIVATE KEY-----" in start[:64]:
        what = (
            "it is a private key in a form that rollout cannot read (ed25519, ecdsa and rsa are"
            " supported)"
        )
        hint = f"If ssh can use it, convert it: ssh-keygen -p -Z aes256-ctr -f {name}"
    return SshAuthError(f"key file {file}: {what}", hint=hint)


def _is_on_token(data: bytes) -> bool:
    """Whether this is OpenSSH's format and its public half is of a type that is kept on a token (`sk-…`)."""
    body = b"".join(line for line in data.splitlines() if not line.startswith(b"-----"))
    with suppress(ValueError):
        return data.lstrip().startswith(_OPENSSH_HEADER) and b"sk-" in base64.b64decode(body)[:256]
    return False


class UnsignedError(paramiko.AuthenticationException):
    """The agent holds a key, and does not sign with it: its token is away, or somebody said no."""


class HeldKey(AgentKey):
    """A key of the agent's: one that it does not sign with is like one that the host refuses, and the next may do."""

    @override
    def sign_ssh_data(self, data: Any, algorithm: str | None = None) -> paramiko.Message:
        try:
            return super().sign_ssh_data(data, algorithm)
        except paramiko.SSHException as error:
            raise UnsignedError(str(error)) from error


class _Certified(HeldKey):
    """A certificate that the agent has the key of: shown whole, and signed for by its own name."""

    @override
    def asbytes(self) -> bytes:
        return bytes(self.blob)


@contextmanager
def _agent_keys(path: str | None) -> Iterator[tuple[HeldKey, ...]]:
    """Yield the keys of the agent that listens at `path`, else of the usual one; none where it makes no sense.

    It answers one request at a time, so each connection to a host has its own line to it.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(_PATIENCE)
        held: tuple[HeldKey, ...] = ()
        with suppress(OSError, paramiko.SSHException):
            line.connect(
                os.environ.get(_AGENT_VARIABLE, "")
                if path is None
                else str(Path(path).expanduser())
            )
            agent = AgentSSH()
            agent._connect(line)  # type: ignore[attr-defined]  # noqa: SLF001 - connects to the usual one by itself
            kinds = (
                (_Certified if key.name.endswith(_CERTIFICATE) else HeldKey, key)
                for key in agent.get_keys()
            )
            held = tuple(kind(agent, key.blob, key.comment) for kind, key in kinds)
        yield held
