"""Keys to log in with: files, certificates and the agent's.

paramiko's agent client knows only `SSH_AUTH_SOCK`, and offers certificates as bare keys.
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
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from msgspec.structs import replace
from paramiko.agent import AgentKey, AgentSSH
from paramiko.pkey import PublicBlob
from typing_extensions import override

from rollout.adapters.input_files import Trust, read_input
from rollout.adapters.input_trust import hint_of
from rollout.errors import SshAuthError
from rollout.model.host import Identities
from rollout.model.text import shell_word

PASSPHRASE_VARIABLE = "ROLLOUT_SSH_KEY_PASSPHRASE"  # noqa: S105 - the name of the variable
_AGENT_VARIABLE = "SSH_AUTH_SOCK"

_DEFAULT_FILES = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
_NO_FILE = "none"
# sshd ends a connection at the sixth.
_MOST_TRIED = 5
_OTHERS_BITS = 0o077
_OPENSSH_HEADER = b"-----BEGIN OPENSSH PRIVATE KEY-----"
_CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
# As for ssh: fewer may not fit a SHA-2 signature.
_FEWEST_RSA_BITS = 1024
_PUBLIC_KEYS = (b"ssh-", b"ecdsa-", b"sk-")
_HEADER_LENGTH = 64
_TYPE_LENGTH = 256
_CERTIFICATE_SUFFIX = "-cert-v01@openssh.com"
# Seconds: a person may have to confirm.
_AGENT_SECONDS = 60.0
Keys = tuple[paramiko.PKey, ...]


class _PublicKey(NamedTuple):
    type: str
    blob: bytes


class KeyRing:
    """Reads each file once, for many threads."""

    def __init__(self, passphrase: str = "") -> None:
        self.passphrase = passphrase
        self._lock = threading.Lock()
        self._loaded: dict[str, paramiko.PKey | SshAuthError] = {}

    def load(self, file: str) -> paramiko.PKey:
        """Return the key in a file, or raise `SshAuthError`."""
        with self._lock:
            if file not in self._loaded:
                try:
                    self._loaded[file] = _read_private_key(Path(file).expanduser(), self.passphrase)
                except SshAuthError as error:
                    self._loaded[file] = error
            key = self._loaded[file]
        if isinstance(key, SshAuthError):
            # Each raise adds a traceback.
            raise SshAuthError(key.message, hint=key.hint) from key
        return key

    @contextmanager
    def open_keys(self, key_file: str | None, identities: Identities) -> Iterator[Keys]:
        """Yield keys to try: `key_file`'s, else the identities', else the usual.

        The agent stays open meanwhile. Raises `SshAuthError` if no file is usable.
        """
        if key_file:
            keys_of_file: Keys = ()
            # The agent may have an unreadable file's key.
            with suppress(SshAuthError):
                keys_of_file = tuple(_certificate_and_key(self.load(key_file), key_file))
            if keys_of_file:
                yield keys_of_file
                return
            identities = replace(identities, files=(key_file,), only=True)
        with _open_agent(identities.agent) as agent_keys:
            distinct = dict[_PublicKey, paramiko.PKey]()
            for key in self._keys_in_order(identities, agent_keys):
                distinct.setdefault(_public_key(key), key)
            yield tuple(distinct.values())[:_MOST_TRIED]

    def _keys_in_order(self, identities: Identities, agent_keys: Keys) -> Iterator[paramiko.PKey]:
        """Yield the agent's keys for files, the files', then all the agent's.

        Raises the first file's error if there is no key.
        """
        files = [file for file in identities.files or self._default_files if file != _NO_FILE]
        keys_with_file = list[tuple[paramiko.PKey, str]]()
        for file in files:
            key = _agent_key_for(file, agent_keys)
            if key is not None:
                keys_with_file.append((key, file))
        failures = list[SshAuthError]()
        for file in files:
            try:
                keys_with_file.append((self.load(file), file))
            except SshAuthError as error:
                failures.append(error)
        for key, file in keys_with_file:
            yield from _certificate_and_key(key, file)
        further_keys = () if identities.only else agent_keys
        yield from further_keys
        has_keys = bool(keys_with_file or further_keys)
        if failures and not has_keys:
            raise failures[0]

    @cached_property
    def _default_files(self) -> tuple[str, ...]:
        return tuple(file for file in _DEFAULT_FILES if Path(file).expanduser().exists())


def _agent_key_for(file: str, agent_keys: Keys) -> paramiko.PKey | None:
    if not agent_keys:
        return None
    for candidate in (file, f"{file}.pub"):
        try:
            public = PublicBlob.from_string(_read_public_file(candidate)).key_blob
        except (OSError, ValueError, paramiko.SSHException):
            continue
        return next((key for key in agent_keys if key.asbytes() == public), None)
    return None


def _certificate_and_key(key: paramiko.PKey, file: str) -> Iterator[paramiko.PKey]:
    """Yield a certificate before its key, as `ssh` does."""
    if isinstance(key, HeldKey):
        # `copy` fails, because these keys delegate attributes.
        copied: paramiko.PKey = HeldKey(key.agent, key.blob, key.comment)
    else:
        copied = copy.copy(key)
    with suppress(OSError, ValueError, paramiko.SSHException):
        copied.load_certificate(_read_public_file(f"{file.removesuffix('.pub')}-cert.pub"))
        yield copied
    yield key


def _read_public_file(file: str) -> str:
    return read_input(Path(file).expanduser()).decode()


def _public_key(key: paramiko.PKey) -> _PublicKey:
    certificate = key.public_blob
    if certificate is not None:
        return _PublicKey(certificate.key_type, certificate.key_blob)
    return _PublicKey(key.get_name(), key.asbytes())


def _read_private_key(file: Path, passphrase: str) -> paramiko.PKey:
    try:
        data = read_input(file, trust=Trust.NOT_WRITABLE_BY_OTHERS)
        if _is_open_to_others(file):
            hint = f"Run: chmod 600 {shell_word(str(file))} (ssh refuses it as well)"
            raise SshAuthError(f"key file {file}: others can read it", hint=hint)
        return _parse_file(file, data, passphrase)
    except OSError as error:
        message = f"key file {file}: {error.strerror}"
        hint = hint_of(error, "Specify another key with --ssh-key.")
        raise SshAuthError(message, hint=hint) from error


def _parse_file(file: Path, data: bytes, passphrase: str) -> paramiko.PKey:
    try:
        return _parse_data(data, passphrase=None)
    except TypeError:
        if not passphrase:
            message = f"key file {file}: it is encrypted"
            raise SshAuthError(message, hint=_unlock_hint(file)) from None
    except (ValueError, UnsupportedAlgorithm, paramiko.SSHException) as error:
        raise _unusable_key_error(file, data) from error
    try:
        return _parse_data(data, passphrase=passphrase.encode())
    except (TypeError, ValueError) as error:
        message = f"key file {file}: the passphrase is wrong"
        raise SshAuthError(message, hint=_unlock_hint(file)) from error
    except (UnsupportedAlgorithm, paramiko.SSHException) as error:
        raise _unusable_key_error(file, data) from error


def _unlock_hint(file: Path) -> str:
    name = shell_word(str(file))
    return f"Run: ssh-add {name} (with ssh-agent), or set ROLLOUT_SSH_KEY_PASSPHRASE."


def _parse_data(data: bytes, passphrase: bytes | None) -> paramiko.PKey:
    """Return a private key in the format of OpenSSH, PKCS#8, PKCS#1 or SEC 1.

    Raises:
        TypeError: the key is encrypted, and there is no passphrase.
        ValueError: the passphrase is wrong, or the data is no key.
        UnsupportedAlgorithm: paramiko has no such keys.
    """
    is_openssh = data.lstrip().startswith(_OPENSSH_HEADER)
    load = serialization.load_ssh_private_key if is_openssh else serialization.load_pem_private_key
    key = load(data, passphrase)
    match key:
        case rsa.RSAPrivateKey() if key.key_size >= _FEWEST_RSA_BITS:
            return paramiko.RSAKey(key=key)
        case ec.EllipticCurvePrivateKey() if isinstance(key.curve, _CURVES):
            return paramiko.ECDSAKey(vals=(key, key.public_key()))
        case ed25519.Ed25519PrivateKey():
            # paramiko reads these only from files.
            text = key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.OpenSSH,
                serialization.NoEncryption(),
            )
            return paramiko.Ed25519Key(file_obj=io.StringIO(text.decode()))
        case _:
            raise UnsupportedAlgorithm(f"keys of type {type(key).__name__}")


def describe(key: paramiko.PKey) -> str:
    """Return the fingerprint, and a certificate's ID and expiry."""
    key_type, blob = _public_key(key)
    line = key_type.encode() + b" " + base64.b64encode(blob)
    try:
        identity = serialization.load_ssh_public_identity(line)
    except (ValueError, UnsupportedAlgorithm):
        return key.fingerprint
    if not isinstance(identity, serialization.SSHCertificate):
        return key.fingerprint
    key_id = identity.key_id.decode(errors="replace")
    expired = ", which has expired" if identity.valid_before <= time.time() else ""
    return f"certificate {key_id!r} of {key.fingerprint}{expired}"


def _is_open_to_others(file: Path) -> bool:
    status = file.stat()
    # OpenSSH accepts another user's file, as of a mounted Secret.
    is_own_file = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid()
    return is_own_file and bool(stat.S_IMODE(status.st_mode) & _OTHERS_BITS)


def _unusable_key_error(file: Path, data: bytes) -> SshAuthError:
    start = data.lstrip()
    name = shell_word(str(file))
    problem = "it is not a private key"
    hint = "Specify a private key with --ssh-key."
    if start.startswith(_PUBLIC_KEYS):
        problem = "it is a public key"
    elif start.startswith(b"PuTTY-User-Key-File"):
        problem = "it is a PuTTY key"
        hint = f"Convert it: puttygen {name} -O private-openssh -o {name}.openssh"
    elif _is_token_handle(data):
        problem = "it refers to a key on a security token, which only ssh and its agent can use"
        hint = f"Run: ssh-add {name} (with ssh-agent), or use --executor ansible."
    elif b" PRIVATE KEY-----" in start[:_HEADER_LENGTH]:
        problem = (
            "rollout cannot use this private key (supported are ed25519, ecdsa with a NIST curve,"
            f" and rsa with at least {_FEWEST_RSA_BITS} bits)"
        )
        hint = f"If ssh can use it, convert it: ssh-keygen -p -Z aes256-ctr -f {name}"
    return SshAuthError(f"key file {file}: {problem}", hint=hint)


def _is_token_handle(data: bytes) -> bool:
    """Whether its type is a token's (`sk-…`)."""
    if not data.lstrip().startswith(_OPENSSH_HEADER):
        return False
    body = b"".join(line for line in data.splitlines() if not line.startswith(b"-----"))
    try:
        start = base64.b64decode(body)[:_TYPE_LENGTH]
    except ValueError:
        return False
    return b"sk-" in start


class UnsignedError(paramiko.AuthenticationException):
    """The agent did not sign: no token or confirmation."""


class HeldKey(AgentKey):
    """An agent's key. If it does not sign, the next is tried."""

    @override
    def sign_ssh_data(self, data: Any, algorithm: str | None = None) -> paramiko.Message:
        try:
            return super().sign_ssh_data(data, algorithm)
        except paramiko.SSHException as error:
            raise UnsignedError(str(error)) from error


class _AgentCertificate(HeldKey):
    """A certificate, which paramiko would reduce to its key."""

    @override
    def asbytes(self) -> bytes:
        return bytes(self.blob)


@contextmanager
def _open_agent(path: str | None) -> Iterator[tuple[HeldKey, ...]]:
    """Yield the agent's keys, or none.

    `path` None means `SSH_AUTH_SOCK`, empty no agent. Each SSH connection needs its own: an agent
    answers one request at a time.
    """
    address = os.environ.get(_AGENT_VARIABLE, "")
    if path is not None:
        address = str(Path(path).expanduser())
    keys: list[HeldKey] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_AGENT_SECONDS)
        with suppress(OSError, paramiko.SSHException):
            connection.connect(address)
            agent = AgentSSH()
            # The public method uses SSH_AUTH_SOCK.
            agent._connect(connection)  # type: ignore[attr-defined]  # noqa: SLF001
            for key in agent.get_keys():
                is_certificate = key.name.endswith(_CERTIFICATE_SUFFIX)
                key_class = _AgentCertificate if is_certificate else HeldKey
                keys.append(key_class(agent, key.blob, key.comment))
        yield tuple(keys)
