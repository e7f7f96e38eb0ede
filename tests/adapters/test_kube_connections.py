"""Servers that cannot be reached, break off, or are not who they should be."""

import base64
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rollout.adapters.kube.api import KubeApi, Timeouts, connect
from rollout.errors import ApiError, ApiUnavailableError
from rollout.lab.credentials import Authority, new_authority, server_context, write_kubeconfig
from tests.ended import end_of, start
from tests.scripted_api import QUICK, Exchange, Kubeconfig, ScriptedServer, client, scripted
from tests.waiting import wait_until


def break_off(exchange: Exchange) -> None:
    """In the middle of the body."""
    exchange.send_response(200)
    exchange.send_header("Content-Length", "1000")
    exchange.end_headers()
    exchange.wfile.write(b"{")
    exchange.close_connection = True


@pytest.mark.parametrize(
    ("misbehave", "text"),
    [
        (Exchange.wait, "did not respond to GET /x in time"),
        (Exchange.reset, "broke during GET /x"),
        (break_off, "broke during GET /x"),
    ],
)
def test_no_answer_is_unavailable(
    tmp_path: Path, misbehave: Callable[[Exchange], None], text: str
) -> None:
    with scripted(misbehave) as server, pytest.raises(ApiUnavailableError, match=text):
        client(tmp_path, server.url).get("/x")


@pytest.mark.sample
@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize(
    ("status", "text"), [(200, "did not respond to GET /x in time"), (503, "503 to GET /x")]
)
def test_a_body_that_trickles_for_ever_ends_all_the_same(
    tmp_path: Path, status: int, text: str, *, chunked: bool
) -> None:
    def script(exchange: Exchange) -> None:
        exchange.send_response(status)
        exchange.send_header(
            *(("Transfer-Encoding", "chunked") if chunked else ("Content-Length", "1000000"))
        )
        exchange.end_headers()
        while not exchange.server.over.wait(0.05):
            exchange.wfile.write(b"1\r\n \r\n" if chunked else b" ")
            exchange.wfile.flush()

    with scripted(script) as server, pytest.raises(ApiUnavailableError, match=text):
        client(tmp_path, server.url, Timeouts(connect=2, read=0.3)).get("/x")


def test_a_refused_connection_is_unavailable_and_says_so(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"https://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ApiUnavailableError, match="Connection refused") as caught:
            client(tmp_path, url).get("/x")
    assert "server address" in caught.value.hint
    assert "urllib3" not in caught.value.message


def test_tls_works_with_the_kubeconfigs_authority_and_fails_with_another(tmp_path: Path) -> None:
    authority = new_authority(datetime.now(UTC))
    other = new_authority(datetime.now(UTC))
    context = server_context(authority, tmp_path)
    with scripted(lambda exchange: exchange.json({}), context) as server:
        for trusted in (authority, other):
            write_kubeconfig(
                tmp_path / trusted.certificate[40:50].hex(),
                server=server.url,
                authority=trusted,
                token="t",
            )
        good = connect(tmp_path / authority.certificate[40:50].hex(), None, timeouts=QUICK)
        bad = connect(tmp_path / other.certificate[40:50].hex(), None, timeouts=QUICK)
        assert good.get("/x") == b"{}"
        with pytest.raises(ApiError, match="cannot be verified") as caught:
            bad.get("/x")
    assert not isinstance(caught.value, ApiUnavailableError)
    assert "certificate-authority" in caught.value.hint


@pytest.mark.parametrize("days", [-400, 400])
def test_a_certificate_that_a_clock_finds_too_old_or_too_new_leads_to_the_clock(
    tmp_path: Path, days: int
) -> None:
    authority = new_authority(datetime.now(UTC) + timedelta(days=days))
    with scripted(
        lambda exchange: exchange.json({}), server_context(authority, tmp_path)
    ) as server:
        write_kubeconfig(tmp_path / "kubeconfig", server=server.url, authority=authority, token="t")
        with pytest.raises(ApiError, match="cannot be verified") as caught:
            connect(tmp_path / "kubeconfig", None, timeouts=QUICK).get("/x")
    assert "this machine's clock" in caught.value.hint


def test_insecure_skip_tls_verify_is_honoured_silently(tmp_path: Path) -> None:
    context = server_context(new_authority(datetime.now(UTC)), tmp_path)
    with scripted(lambda exchange: exchange.json({}), context) as server:
        config = Kubeconfig(server.url, cluster={"insecure-skip-tls-verify": True})
        assert connect(config.write(tmp_path / "kubeconfig"), None).get("/x") == b"{}"


def with_inline_key(server: ScriptedServer, authority: Authority, path: Path) -> Path:
    """A kubeconfig whose authority, certificate and key stand in it."""
    certificate, key = (
        base64.b64encode(pem).decode() for pem in (authority.certificate, authority.server_key)
    )
    user = {"client-certificate-data": certificate, "client-key-data": key}
    return Kubeconfig(
        server.url, cluster={"certificate-authority-data": certificate}, user=user
    ).write(path)


def mutual(authority: Authority, directory: Path) -> ssl.SSLContext:
    """A server that lets nobody in without a certificate."""
    context = server_context(authority, directory)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=authority.certificate.decode())
    return context


def test_a_key_that_stands_in_the_kubeconfig_logs_in_again_and_again_and_lies_nowhere_else(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    refusals = iter([401])

    def script(exchange: Exchange) -> None:
        exchange.close_connection = True
        exchange.json({}, next(refusals, 200))

    with scripted(script, mutual(authority, tmp_path)) as server:
        api = connect(
            with_inline_key(server, authority, tmp_path / "kubeconfig"), None, timeouts=QUICK
        )
        assert list(temporary.iterdir()) == []
        # the first is refused, upon which a new session is made
        assert [api.get("/x"), api.get("/x")] == [b"{}", b"{}"]
        assert list(temporary.iterdir()) == []


def test_certificates_in_files_that_are_replaced_count_from_the_next_connection_on(
    tmp_path: Path,
) -> None:
    """As a pod's authority: no 401 tells of a handshake that fails."""

    def script(exchange: Exchange) -> None:
        exchange.close_connection = True
        exchange.json({})

    before = new_authority(datetime.now(UTC))
    after = new_authority(datetime.now(UTC))
    context = server_context(before, tmp_path)
    (tmp_path / "ca.crt").write_bytes(before.certificate)
    with scripted(script, context) as server:
        config = Kubeconfig(server.url, cluster={"certificate-authority": "ca.crt"})
        api = connect(config.write(tmp_path / "kubeconfig"), None, timeouts=QUICK)
        assert api.get("/x") == b"{}"
        (tmp_path / "next.pem").write_bytes(after.certificate + after.server_key)
        context.load_cert_chain(tmp_path / "next.pem")
        (tmp_path / "ca.crt").write_bytes(after.certificate)
        assert api.get("/x") == b"{}"


def test_a_killed_program_leaves_no_key_behind(authority: Authority, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with scripted(Exchange.wait, mutual(authority, tmp_path)) as server:
        kubeconfig = with_inline_key(server, authority, tmp_path / "kubeconfig")
        process = start(
            tmp_path, {"TMPDIR": str(temporary)}, ("status", "--kubeconfig", str(kubeconfig))
        )
        wait_until(lambda: server.exchanges)
        process.kill()
        assert end_of(process).code == -9
    assert list(temporary.iterdir()) == []


@pytest.fixture(scope="module")
def authority() -> Authority:
    return new_authority(datetime.now(UTC))


@pytest.fixture(params=["http", "https"])
def tls(
    request: pytest.FixtureRequest, authority: Authority, tmp_path: Path
) -> ssl.SSLContext | None:
    return server_context(authority, tmp_path) if request.param == "https" else None


def watching_client(tmp_path: Path, server: ScriptedServer) -> KubeApi:
    config = Kubeconfig(server.url, cluster={"insecure-skip-tls-verify": True})
    return connect(
        config.write(tmp_path / "kubeconfig"), None, timeouts=Timeouts(connect=2, read=1)
    )


def endless(exchange: Exchange) -> None:
    exchange.stream()
    exchange.line({"n": 1})
    exchange.wait()


def test_a_read_is_sent_once_more_where_the_connection_ends_without_a_word(
    tmp_path: Path, tls: ssl.SSLContext | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kept one, as load balancers end idle ones; or a new one, before the end of its handshake."""
    ends = iter([False, True, False])
    accepted = iter([False, True, False, True])

    def script(exchange: Exchange) -> None:
        if next(ends):
            exchange.connection.shutdown(socket.SHUT_RDWR)
            exchange.close_connection = True
        else:
            exchange.json({})

    with scripted(script, tls) as server:
        monkeypatch.setattr(server, "verify_request", lambda *_: next(accepted))
        api = watching_client(tmp_path, server)
        assert api.get("/x") == b"{}"
        with pytest.raises(ApiUnavailableError, match="broke"):
            api.get("/x")
        assert api.get("/x") == b"{}"


def test_lines_come_whole_and_as_they_happen_whatever_the_chunks(
    tmp_path: Path, tls: ssl.SSLContext | None
) -> None:
    proceed = threading.Event()

    def script(exchange: Exchange) -> None:
        exchange.stream()
        exchange.piece(b'{"n":1}\n{"n":')
        proceed.wait(60)
        exchange.piece(b"2}\n\n")
        exchange.piece(b'{"n":3}\n')
        exchange.piece(b"x" * 200_000 + b"\n")
        exchange.wfile.write(b"0\r\n\r\n")

    with (
        scripted(script, tls) as server,
        watching_client(tmp_path, server).watch("/w", {}, seconds=5) as lines,
    ):
        assert next(lines) == b'{"n":1}'
        proceed.set()
        assert list(lines) == [b'{"n":2}', b'{"n":3}', b"x" * 200_000]


def test_the_request_asks_for_bookmarks_and_an_end_and_no_compression(tmp_path: Path) -> None:
    with scripted(endless) as server:
        query = {"resourceVersion": "7", "fieldSelector": "metadata.name=n"}
        with watching_client(tmp_path, server).watch("/w", query, seconds=90) as lines:
            next(lines)
        assert server.exchanges[0].query == {
            **query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": "90",
        }
        assert server.exchanges[0].headers["Accept-Encoding"] == "identity"


def test_another_thread_ends_a_blocked_watch_at_once(
    tmp_path: Path, tls: ssl.SSLContext | None
) -> None:
    with scripted(endless, tls) as server:
        for _ in range(20):
            stream = watching_client(tmp_path, server).watch("/w", {}, seconds=600)
            outcome: list[object] = []
            entered = threading.Event()
            reader = threading.Thread(target=_collect, args=(stream, outcome, entered))
            reader.start()
            assert entered.wait(60)
            time.sleep(0.005)
            began = time.monotonic()
            stream.__exit__(None, None, None)
            reader.join(60)
            assert not reader.is_alive()
            assert time.monotonic() - began < 20
            assert outcome == [b'{"n": 1}', "end"]


def _collect(
    stream: AbstractContextManager[Iterator[bytes]], outcome: list[object], entered: threading.Event
) -> None:
    try:
        with stream as lines:
            for line in lines:
                outcome.append(line)
                entered.set()
        outcome.append("end")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what the test looks at
        outcome.append(error)


@pytest.mark.parametrize("orderly", [True, False])
def test_a_lost_connection_is_an_error_and_no_end(
    tmp_path: Path, tls: ssl.SSLContext | None, *, orderly: bool
) -> None:
    def script(exchange: Exchange) -> None:
        exchange.stream()
        exchange.line({"n": 1})
        exchange.close_connection = True
        if not orderly:
            time.sleep(0.05)
            exchange.reset()

    with (
        scripted(script, tls) as server,
        watching_client(tmp_path, server).watch("/w", {}, seconds=60) as lines,
    ):
        assert next(lines) == b'{"n": 1}'
        with pytest.raises(ApiUnavailableError, match="broke"):
            next(lines)


# The parts of the `kubernetes` package: loaded alone, of one piece with the rest for whoever
# imports it, or whole.


LOAD = (
    "import sys\nfrom rollout.adapters.kube.client_parts import client_parts\nparts ="
    " client_parts()\n"
)


SLOW = (
    "kubernetes.client.models",
    "pydantic",
    "requests",
    "requests_oauthlib",
    "oauthlib",
    "websocket",
    "dateutil",
)


def said(script: str) -> str:
    """What a Python of its own prints: what is imported here already says nothing."""
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout


def test_what_is_not_used_is_not_loaded() -> None:
    assert said(f"{LOAD}print([name for name in {SLOW} if name in sys.modules])") == "[]\n"


def test_the_ordinary_import_gives_all_of_the_package_afterwards() -> None:
    """And what was loaded before goes on working beside it."""
    script = (
        f"{LOAD}import kubernetes, oauthlib.oauth2\n"
        "from kubernetes import client, config\n"
        "assert client.V1Node(metadata=client.V1ObjectMeta(name='a')).metadata.name == 'a'\n"
        "assert client.CoreV1Api(client.ApiClient()).api_client.rest_client is not None\n"
        "assert config.load_kube_config.__module__ == 'kubernetes.config.kube_config'\n"
        "assert oauthlib.oauth2.__file__\n"
        "configuration = parts.configuration.Configuration()\n"
        "assert parts.rest.RESTClientObject(configuration).pool_manager is not None\n"
        "print('well')"
    )
    assert said(script) == "well\n"


@pytest.mark.parametrize(
    "otherwise",
    [
        "import kubernetes\n",
        "import importlib.util\nimportlib.util.find_spec = lambda name: None\n",
    ],
    ids=["loaded already", "not to be taken apart"],
)
def test_else_it_is_loaded_whole(otherwise: str) -> None:
    whole = "import kubernetes.client.rest as whole\nprint(parts.rest is whole)"
    assert said(f"{otherwise}{LOAD}{whole}") == "True\n"


def test_https_to_a_port_that_speaks_plain_http(tmp_path: Path) -> None:
    with scripted(lambda exchange: exchange.json({})) as server, pytest.raises(ApiError) as caught:
        client(tmp_path, server.url.replace("http:", "https:")).get("/x")
    assert "does not speak TLS on this port" in caught.value.hint
