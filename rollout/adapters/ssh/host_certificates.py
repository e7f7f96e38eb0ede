"""Certificates that hosts show: whether an authority that speaks for a host has signed this one, and for now.

paramiko proves that the host has the certified key, and looks at nothing else in a certificate. What OpenSSH's
client asks of one is asked here.
"""

import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from contextlib import suppress

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    SSHCertificate,
    SSHCertificateType,
    load_ssh_public_identity,
)

from rollout.adapters.ssh.known_hosts_file import matches

# What to propose in the handshake where an authority speaks for the host, as OpenSSH orders it.
ALGORITHMS = (
    "ssh-ed25519-cert-v01@openssh.com",
    "ecdsa-sha2-nistp256-cert-v01@openssh.com",
    "ecdsa-sha2-nistp384-cert-v01@openssh.com",
    "ecdsa-sha2-nistp521-cert-v01@openssh.com",
    "rsa-sha2-512-cert-v01@openssh.com",
    "rsa-sha2-256-cert-v01@openssh.com",
)
_WEAK = b"ssh-rsa"


def read_certificate(type_: str, blob: bytes) -> SSHCertificate | None:
    """Return the certificate of an OpenSSH key blob; None where it is none that can be read."""
    with suppress(ValueError, UnsupportedAlgorithm):
        identity = load_ssh_public_identity(type_.encode() + b" " + b64encode(blob))
        return identity if isinstance(identity, SSHCertificate) else None
    return None


def authority_of(certificate: SSHCertificate) -> bytes:
    """Return the key blob of who signed it."""
    line = certificate.signature_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return b64decode(line.split()[1])


def refusal(certificate: SSHCertificate, name: str, now: Callable[[], float] = time.time) -> str:
    """Why this certificate, of an authority that is trusted, does not speak for this name now; empty where it does."""
    if certificate.type is not SSHCertificateType.HOST:
        return "it is not a host certificate"
    if not _is_signed(certificate):
        return "its signature is wrong, or made with SHA-1"
    if certificate.critical_options:
        return "it has conditions that are not known here"
    if not certificate.valid_after <= now() < certificate.valid_before:
        return f"it is valid {_period(certificate)} only"
    principals = [principal.decode(errors="replace") for principal in certificate.valid_principals]
    if principals and not any(matches(principal.removeprefix("!"), name) for principal in principals):
        return f"it is for {', '.join(principals)}, not for {name}"
    return ""


def _is_signed(certificate: SSHCertificate) -> bool:
    # The library would take SHA-1, which OpenSSH refuses; it tells the algorithm nowhere in public.
    if bytes(certificate._inner_sig_type) == _WEAK:  # noqa: SLF001
        return False
    try:
        certificate.verify_cert_signature()
    except InvalidSignature:
        return False
    return True


def _period(certificate: SSHCertificate) -> str:
    return f"from {_time(certificate.valid_after)} to {_time(certificate.valid_before)}"


def _time(seconds: int) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
    except (OverflowError, ValueError):
        return "for ever"
