"""Credentials and connections to an API server, out of a kubeconfig or of the account of a pod.

Certificates and keys that stand in a kubeconfig are held in memory: OpenSSL takes them from a file alone, which is
this user's own and removed before anything is sent, as a killed process would leave it for ever.
"""

import os
import socket
import ssl
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import urllib3
import urllib3.exceptions
from urllib3.connection import HTTPConnection
from urllib3.util.ssl_ import create_urllib3_context

from rollout.adapters.kube.credentials import Credentials, content, credentials_of
from rollout.adapters.kube.kubeconfig import Cluster, Login, find_login
from rollout.adapters.local_files import scratch_for
from rollout.adapters.secrets import masked, without_userinfo
from rollout.errors import ApiUnavailableError, KubeconfigError

_UNAUTHORIZED = 401
_PEM_HINT = "It must be PEM, and a key without a passphrase."
_PROXY_HINT = "Check HTTPS_PROXY and NO_PROXY: a proxy is http://HOST:PORT."


@dataclass(frozen=True, slots=True)
class Session:
    """One way in: where, over which connections, with which credentials."""

    server: str
    pool: urllib3.PoolManager
    credentials: Credentials

    @property
    def has_expired(self) -> bool:
        """Whether the credentials are known to be good no longer."""
        return time.time() >= self.credentials.good_until

    def headers(self) -> Mapping[str, str]:
        """Return the headers that log in.

        `ApiUnavailableError` where they cannot be sent: a file that gives others later is waited for.
        """
        try:
            value = self.credentials.header()
        except KubeconfigError as error:
            raise ApiUnavailableError(error.message, status=_UNAUTHORIZED, hint=error.hint) from None
        return {"authorization": value} if value else {}

    def without_credentials(self, body: bytes) -> bytes:
        """Return what a server has answered, should it have sent back what it was sent."""
        sent: list[str] = []
        with suppress(KubeconfigError):
            sent = self.credentials.header().split()[-1:]
        return masked(body.decode(errors="surrogateescape"), sent).encode(errors="surrogateescape")


def open_session(kubeconfig: Path | None, context: str | None, *, connections: int, may_ask: bool) -> Session:
    """Find the kubeconfig, log in, and prepare connections; nothing is sent to the API server yet.

    Raises:
        KubeconfigError: It cannot be used.
    """
    login = find_login(kubeconfig, context, os.environ)
    cluster = login.cluster
    tls = create_urllib3_context(cert_reqs=ssl.CERT_NONE if cluster.insecure_skip_tls_verify else ssl.CERT_REQUIRED)
    with _named(login, "certificate authority"):
        _trust(tls, cluster)
    with _named(login, "client certificate or key"):
        credentials = credentials_of(login, may_ask=may_ask)
        _show(tls, credentials)
    credentials.header()
    server = (cluster.server or "").rstrip("/")
    return Session(server, _pool(server, cluster, tls, connections), credentials)


@contextmanager
def _named(login: Login, what: str) -> Iterator[None]:
    """Name what could not be used; it is met here, and not in the middle of a request."""
    try:
        yield
    except (OSError, ValueError) as error:
        message = f"{login.origin} cannot be used: the {what} of the kubeconfig: {error}"
        raise KubeconfigError(message, hint=_PEM_HINT) from error


def _trust(tls: ssl.SSLContext, cluster: Cluster) -> None:
    """Have the server's certificate signed by the cluster's authority, else by one of the system's."""
    if cluster.certificate_authority_data or cluster.certificate_authority:
        authority = content(cluster.certificate_authority_data, cluster.certificate_authority)
        # what is not ASCII is a comment
        tls.load_verify_locations(cadata=authority.decode("ascii", errors="ignore"))
    elif not cluster.insecure_skip_tls_verify:
        tls.load_default_certs()


def _show(tls: ssl.SSLContext, credentials: Credentials) -> None:
    """Have connections show the user's certificate, where there is one."""
    if not (credentials.certificate or credentials.key):
        return
    with scratch_for("a kubeconfig with certificates"), tempfile.NamedTemporaryFile(prefix="rollout-") as file:
        file.write(credentials.certificate + b"\n" + credentials.key)
        file.flush()
        # An empty passphrase keeps OpenSSL from asking for one on the terminal.
        tls.load_cert_chain(file.name, password="")


def _pool(server: str, cluster: Cluster, tls: ssl.SSLContext, connections: int) -> urllib3.PoolManager:
    """Return connections to the server: through the kubeconfig's proxy, else through the environment's."""
    options: dict[str, Any] = {
        "maxsize": connections,
        "socket_options": _kept_alive(),
        "ssl_context": tls,
        "server_hostname": cluster.tls_server_name,
    }
    if cluster.insecure_skip_tls_verify:
        # The operator asked for it in the kubeconfig; a warning a request helps nobody.
        warnings.simplefilter("ignore", urllib3.exceptions.InsecureRequestWarning)
    proxy = cluster.proxy_url or _proxy_of_environment(server)
    if not proxy:
        return urllib3.PoolManager(**options)
    try:
        if proxy.startswith("socks"):
            warnings.simplefilter("ignore", urllib3.exceptions.DependencyWarning)
            from urllib3.contrib.socks import SOCKSProxyManager  # noqa: PLC0415 - it takes a package of its own

            return SOCKSProxyManager(proxy, **options)
        # One that is reached by TLS shows a certificate of the same authorities, as with kubectl.
        return urllib3.ProxyManager(proxy, proxy_ssl_context=tls, **options)
    except (ImportError, ValueError, urllib3.exceptions.HTTPError) as error:
        raise _no_proxy(error, "the kubeconfig" if cluster.proxy_url else "the proxy of the environment") from error


def _no_proxy(error: Exception, origin: str) -> KubeconfigError:
    if isinstance(error, ImportError):
        message = f"{origin} cannot be used: a SOCKS proxy takes the package PySocks, which is not installed"
        return KubeconfigError(message, hint="pipx inject node-rollout PySocks, or: pip install PySocks")
    return KubeconfigError(f"{origin} cannot be used: {without_userinfo(str(error))}", hint=_PROXY_HINT)


def _proxy_of_environment(server: str) -> str:
    """Return the proxy that leads there, as Go's rules have it: none to this machine, or to what NO_PROXY lists."""
    parts, proxies = urlsplit(server), getproxies()
    listed = [entry.strip().lower() for entry in proxies.get("no", "").split(",")]
    if any(
        _covers(entry, parts.hostname or "") for entry in ("localhost", "127.0.0.0/8", "::1", *filter(None, listed))
    ):
        return ""
    proxy = proxies.get(parts.scheme, "")
    # It may be a host and a port alone: HTTP's, as for kubectl and curl.
    return proxy if "://" in proxy or not proxy else f"http://{proxy}"


def _covers(entry: str, host: str) -> bool:
    """Whether an entry of NO_PROXY speaks of this host: by name, domain, address or network."""
    with suppress(ValueError):
        return ip_address(host) in ip_network(entry, strict=False)
    name = entry.partition(":")[0].removeprefix("*").lstrip(".")
    return entry == "*" or host == name or host.endswith(f".{name}")


def _kept_alive() -> list[tuple[int, int, int]]:
    """Return socket options by which an idle watch is not forgotten on its way, and its death is noticed."""
    seconds_by_name = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 3}
    available = {name: seconds for name, seconds in seconds_by_name.items() if hasattr(socket, name)}
    return [
        *HTTPConnection.default_socket_options,
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        *((socket.IPPROTO_TCP, getattr(socket, name), seconds) for name, seconds in available.items()),
    ]
