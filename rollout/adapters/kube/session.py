"""Connections to an API server, with credentials.

OpenSSL takes an embedded key only from a file, which is removed at once. If all are in files, each
connection reads them, because they may be replaced.
"""

import base64
import socket
import ssl
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import urllib3
import urllib3.exceptions
from urllib3 import HTTPHeaderDict
from urllib3.connection import HTTPConnection
from urllib3.util.ssl_ import create_urllib3_context

from rollout.adapters.input_files import Trust, read_input
from rollout.adapters.kube.client_parts import client_parts
from rollout.adapters.kube.credentials import Credentials, as_kubeconfig_error, log_in
from rollout.adapters.kube.kubeconfig import (
    Login,
    UserEntry,
    find_login,
    in_cluster,
    service_account_login,
)
from rollout.adapters.local_files import needing_temporary_folder
from rollout.adapters.secrets import header_value, masked, without_userinfo
from rollout.errors import ApiError, ApiUnavailableError, KubeconfigError

_UNAUTHORIZED = 401
# More threads open more connections.
_KEPT_CONNECTIONS = 64
# Seconds after a failed login.
_LOGIN_PAUSE = 5.0
_STARTING_SECONDS = 60.0
_REFUSAL_STATUSES = (_UNAUTHORIZED, 403)
_SOCKS = "socks"
_PROXY_HINT = "Check proxy-url and HTTPS_PROXY. Write a proxy as http://HOST:PORT."
_LOOPBACK = "localhost,127.0.0.0/8,::1"


@dataclass(frozen=True, slots=True)
class ApiSession:
    """Connections to an API server, with credentials."""

    server: str
    pool: urllib3.PoolManager
    credentials: Credentials
    # Empty without a kubeconfig.
    context: str = ""
    impersonation: tuple[tuple[str, str], ...] = ()
    # A token file changes.
    sent_authorizations: set[str] = field(default_factory=set, repr=False)

    def with_credentials(self, headers: Mapping[str, str]) -> HTTPHeaderDict:
        """Raise `ApiUnavailableError` if they cannot be read or sent now."""
        complete = HTTPHeaderDict(headers)
        try:
            authorization = self.credentials.authorization()
        except KubeconfigError as error:
            raise ApiUnavailableError(
                error.message, status=_UNAUTHORIZED, hint=error.hint
            ) from error
        if authorization:
            self.sent_authorizations.add(authorization)
            complete["authorization"] = authorization
        for name, value in self.impersonation:
            complete.add(name, value)
        return complete

    def without_credentials(self, body: bytes) -> bytes:
        """Mask credentials, which a server may send back."""
        # Other threads add to the set.
        sent = self.sent_authorizations.copy()
        secrets = [authorization.split()[-1] for authorization in sent]
        text = masked(body.decode(errors="surrogateescape"), secrets)
        return text.encode(errors="surrogateescape")


def open_session(kubeconfig: Path | None, context: str | None, *, may_ask: bool) -> ApiSession:
    """Log in; nothing is sent yet. Raises `KubeconfigError`."""
    is_pod_login = kubeconfig is None and in_cluster()
    login = service_account_login(context) if is_pod_login else find_login(kubeconfig, context)
    impersonation = _impersonation(login)
    credentials = log_in(login, may_ask=may_ask)
    # Check that they can be sent.
    credentials.authorization()
    pool = _make_pool(login, credentials)
    return ApiSession(
        login.server, pool, credentials, context=login.context, impersonation=impersonation
    )


def _impersonation(login: Login) -> tuple[tuple[str, str], ...]:
    try:
        return tuple((name, header_value(value)) for name, value in login.user.impersonation())
    except ValueError as error:
        raise KubeconfigError(
            f"a name that {login.user_origin} impersonates {error}",
            hint="Use only ASCII characters in it, on one line.",
        ) from None


def _make_pool(login: Login, credentials: Credentials) -> urllib3.PoolManager:
    cluster = login.cluster
    configuration = client_parts().configuration.Configuration()
    configuration.host = login.server
    configuration.verify_ssl = not cluster.insecure_skip_tls_verify
    configuration.tls_server_name = cluster.tls_server_name
    configuration.connection_pool_maxsize = _KEPT_CONNECTIONS
    configuration.socket_options = _keep_alive_options()
    tls_context = _load_certificates(configuration, login, credentials)
    _choose_proxy(configuration, cluster.proxy_url)
    proxy_origin = login.cluster_origin if cluster.proxy_url else "the environment"
    pool = _create_pool(configuration, proxy_origin)
    if tls_context is not None:
        pool.connection_pool_kw["ssl_context"] = tls_context
    if not configuration.verify_ssl:
        warnings.simplefilter("ignore", urllib3.exceptions.InsecureRequestWarning)
    return pool


def _create_pool(configuration: Any, proxy_origin: str) -> urllib3.PoolManager:
    warnings.simplefilter("ignore", urllib3.exceptions.DependencyWarning)
    message = f"the proxy of {proxy_origin} cannot be used"
    try:
        pool: urllib3.PoolManager = client_parts().rest.RESTClientObject(configuration).pool_manager
    except ModuleNotFoundError as error:
        if error.name != _SOCKS:
            raise
        hint = f"A SOCKS proxy needs PySocks: {sys.executable} -m pip install PySocks"
        raise KubeconfigError(message, hint=hint) from error
    except (ValueError, urllib3.exceptions.HTTPError):
        # The text may show a password.
        raise KubeconfigError(message, hint=_PROXY_HINT) from None
    return pool


def _keep_alive_options() -> list[tuple[int, int, int]]:
    """Keep an idle watch open through NAT, and notice a dead peer."""
    options = [*HTTPConnection.default_socket_options, (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    seconds = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 3}
    for name, value in seconds.items():
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


def _load_certificates(
    configuration: Any, login: Login, credentials: Credentials
) -> ssl.SSLContext | None:
    """Return a TLS context if anything is embedded or from a program.

    Else None, and the configuration gets the files. `KubeconfigError` for unusable ones.
    """
    cluster = login.cluster
    user = login.user
    verification = ssl.CERT_REQUIRED if configuration.verify_ssl else ssl.CERT_NONE
    tls_context = create_urllib3_context(cert_reqs=verification)
    with as_kubeconfig_error(f"certificate authority of {login.cluster_origin}"):
        authority = _read_pem(cluster.certificate_authority_data, cluster.certificate_authority)
        if authority:
            # Only comments are not ASCII.
            tls_context.load_verify_locations(cadata=authority.decode("ascii", errors="ignore"))
        elif configuration.verify_ssl:
            tls_context.load_default_certs()
    with as_kubeconfig_error(f"client certificate or key of {login.user_origin}"):
        _load_client_certificate(tls_context, user, credentials)
    contents_without_file = (
        credentials.certificate,
        cluster.certificate_authority_data,
        user.client_certificate_data,
        user.client_key_data,
    )
    if any(contents_without_file):
        # For an HTTPS proxy, as in kubectl.
        configuration.proxy_ssl_context = tls_context
        return tls_context
    configuration.ssl_ca_cert = cluster.certificate_authority
    configuration.cert_file = user.client_certificate
    configuration.key_file = user.client_key
    return None


def _load_client_certificate(
    tls_context: ssl.SSLContext, user: UserEntry, credentials: Credentials
) -> None:
    certificate = credentials.certificate or _read_pem(
        user.client_certificate_data, user.client_certificate
    )
    key = credentials.key or _read_pem(user.client_key_data, user.client_key)
    if not certificate:
        return
    with (
        needing_temporary_folder("a client certificate"),
        tempfile.NamedTemporaryFile(prefix="rollout-") as file,
    ):
        file.write(certificate + b"\n" + key)
        file.flush()
        # An empty passphrase keeps OpenSSL from asking.
        tls_context.load_cert_chain(file.name, password="")


def _read_pem(data: str | None, file: str | None) -> bytes:
    if data:
        return base64.b64decode("".join(data.split()), validate=True)
    if file:
        return read_input(Path(file), trust=Trust.NOT_WRITABLE_BY_OTHERS)
    return b""


def _choose_proxy(configuration: Any, proxy: str | None) -> None:
    """Use the kubeconfig's, else the environment's, except for loopback, as Go."""
    if proxy:
        configuration.proxy = proxy
        configuration.no_proxy = ""
        return
    configured_exceptions = configuration.no_proxy
    configuration.no_proxy = (
        f"{configured_exceptions},{_LOOPBACK}" if configured_exceptions else _LOOPBACK
    )
    # Also a proxy for kubectl and curl.
    if configuration.proxy and "://" not in configuration.proxy:
        configuration.proxy = f"http://{configuration.proxy}"


class RenewableSession:
    """A session that a new login can replace."""

    def __init__(self, kubeconfig: Path | None, context: str | None) -> None:
        self._kubeconfig = kubeconfig
        self._session = open_session(kubeconfig, context, may_ask=True)
        self._login_lock = threading.Lock()
        # Why the last login failed, and until when not to retry, by `time.monotonic`.
        self._login_error = KubeconfigError("")
        self._no_login_until = float("-inf")

    @property
    def session(self) -> ApiSession:
        """Return the latest session, renewed before it expires."""
        session = self._session
        if time.time() >= session.credentials.renew_at:
            # The server may still accept the old credentials.
            with suppress(ApiUnavailableError):
                return self.log_in_again(session)
        return session

    def log_in_again(self, refused: ApiSession) -> ApiSession:
        """Return another session, or raise `ApiUnavailableError`.

        Threads whose requests fail together share one login.
        """
        with self._login_lock:
            is_still_latest = self._session is refused
            if is_still_latest:
                self._session = self._log_in_unless_just_failed()
            return self._session

    def _log_in_unless_just_failed(self) -> ApiSession:
        started_at = time.monotonic()
        if started_at >= self._no_login_until:
            try:
                return self._open_same_server()
            except KubeconfigError as error:
                self._login_error = error
                failed_at = time.monotonic()
                # Pause at least as long as the failed login took.
                self._no_login_until = failed_at + max(_LOGIN_PAUSE, failed_at - started_at)
        raise ApiUnavailableError(
            f"the credentials have expired and cannot be renewed: {self._login_error.message}",
            status=_UNAUTHORIZED,
            hint=self._login_error.hint,
        ) from self._login_error

    def _open_same_server(self) -> ApiSession:
        """`KubeconfigError` also for another server."""
        previous = self._session
        session = open_session(self._kubeconfig, previous.context or None, may_ask=False)
        if session.server != previous.server:
            server = without_userinfo(session.server)
            previous_server = without_userinfo(previous.server)
            raise KubeconfigError(
                f"the kubeconfig now points to another API server, {server}",
                hint=f"Change it back to {previous_server}, or start rollout again.",
            )
        return session


class Recovery:
    """Tells passing refusals from final ones, for many threads.

    A starting API server refuses requests until it knows the roles. Accepted credentials may
    expire.
    """

    def __init__(self) -> None:
        self._latest_outage = float("-inf")
        self._was_accepted = False

    def note_acceptance(self) -> None:
        """The credentials were accepted."""
        self._was_accepted = True

    def note_outage(self) -> None:
        """The server was unavailable."""
        self._latest_outage = time.monotonic()

    def classify(self, error: ApiError) -> ApiError:
        """Return an `ApiUnavailableError` for a refusal that may pass."""
        if isinstance(error, ApiUnavailableError):
            self.note_outage()
            return error
        have_credentials_expired = error.status == _UNAUTHORIZED and self._was_accepted
        if have_credentials_expired:
            return _as_unavailable(error, "the API server no longer accepts the credentials")
        # With causes, it is about the object, and final.
        is_about_rights = error.status in _REFUSAL_STATUSES and not error.causes
        may_be_starting = time.monotonic() - self._latest_outage <= _STARTING_SECONDS
        if is_about_rights and may_be_starting:
            problem = "the API server was unavailable and still refuses requests"
            return _as_unavailable(error, problem)
        return error


def _as_unavailable(error: ApiError, problem: str) -> ApiUnavailableError:
    return ApiUnavailableError(
        f"{problem}: {error.message}", status=error.status, reason=error.reason, hint=error.hint
    )
