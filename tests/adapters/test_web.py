"""The HTTP server for pages, over a real connection: its headers, its bounds, and what it refuses."""

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from rollout.adapters import web
from rollout.adapters.web import WebPage, page_application, serve_http
from rollout.errors import InputError

PAGE = WebPage("<!DOCTYPE html><title>night</title>", "default-src 'none'", refresh=5)


class Answered(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: str


def pages(path: str, *, refreshes: bool) -> WebPage | None:
    if path == "/broken":
        raise ValueError("a password")
    if path != "/":
        return None
    return PAGE if refreshes else WebPage(PAGE.html, PAGE.csp)


@contextmanager
def serving(address: str = "127.0.0.1:0") -> Iterator[int]:
    with serve_http(address, page_application(pages)) as url:
        yield urlsplit(url).port or 0


@pytest.fixture
def port() -> Iterator[int]:
    with serving() as number:
        yield number


def ask(
    port: int,
    path: str = "/",
    method: str = "GET",
    host: str = "localhost",
    *,
    address: str = "127.0.0.1",
) -> Answered:
    source = (address, 0)
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=20, source_address=source)
    with closing(client) as connection:
        connection.request(method, path, headers={"Host": host} if host else {})
        response = connection.getresponse()
        return Answered(response.status, response.headers, response.read().decode())


def test_a_page_may_load_nothing_and_is_not_kept(port: int) -> None:
    status, headers, body = ask(port)
    assert (status, body) == (200, PAGE.html)
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Refresh"] == "5"
    assert "Refresh" not in ask(port, "/?refresh=off").headers


def test_only_reading_is_allowed(port: int) -> None:
    status, headers, body = ask(port, method="HEAD")
    assert (status, body) == (200, "")
    assert headers["Content-Length"] == str(len(PAGE.html))
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        refused = ask(port, method=method)
        assert refused.status == 405
        assert refused.headers["Allow"] == "GET, HEAD"
    assert ask(port, "/nothing").status == 404
    assert ask(port, "/nothing", "HEAD")[2] == ""


def test_a_page_that_fails_says_nothing_of_the_error(
    port: int, capfd: pytest.CaptureFixture[str]
) -> None:
    status, _, body = ask(port, "/broken")
    assert (status, body) == (500, "internal error: ValueError\n")
    assert capfd.readouterr().err == ""
    assert ask(port).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "192.0.2.1", "[::1", ""]
)
def test_on_loopback_no_other_name_is_answered(port: int, host: str) -> None:
    """A page elsewhere whose name resolves to loopback would send its own name."""
    answered = ask(port, host=host or " ")
    assert answered.status == 421
    assert PAGE.html not in answered.body


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9732", "[::1]:9732"])
def test_names_of_loopback_are_answered(port: int, host: str) -> None:
    assert ask(port, host=host).status == 200


def test_a_port_forward_of_all_addresses_answers_only_names_of_loopback() -> None:
    """In a pod, connections of kubectl port-forward come from loopback."""
    with serving(":0") as port:
        assert ask(port, host="evil.example").status == 421
        assert ask(port, host="localhost:9732").status == 200


def test_a_client_elsewhere_may_use_any_name() -> None:
    environ = {
        "REMOTE_ADDR": "::ffff:192.0.2.7",
        "HTTP_HOST": "rollout.node-rollout.svc:9732",
        "REQUEST_METHOD": "GET",
        "PATH_INFO": "/",
    }
    statuses = list[str]()
    body = page_application(pages)(environ, lambda status, _headers: statuses.append(status))
    assert (statuses, [*body]) == (["200 OK"], [PAGE.html.encode()])


def test_many_clients_at_once_are_answered(port: int) -> None:
    answers = list[int]()
    threads = [threading.Thread(target=lambda: answers.append(ask(port).status)) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * 12


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(10)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_connections_beyond_the_limit_are_closed_at_once(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        silent = [
            stack.enter_context(closing(socket.create_connection(("127.0.0.1", port))))
            for _ in range(13)
        ]
        assert is_closed(silent[-1])
        # One client leaves room for others.
        assert ask(port, address="127.0.0.2").status == 200
    end = time.monotonic() + 10
    while True:
        try:
            assert ask(port).status == 200
        except ConnectionError:
            assert time.monotonic() < end
            time.sleep(0.05)
        else:
            return


def test_a_client_that_sends_nothing_does_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web._Handler, "timeout", 0.2)
    with serving() as port, closing(socket.create_connection(("127.0.0.1", port))) as silent:
        assert is_closed(silent)


def test_a_client_that_sends_a_letter_now_and_then_does_not_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(web, "_CONNECTION_SECONDS", 0.5)
    with serving() as port, closing(socket.create_connection(("127.0.0.1", port))) as slow:
        slow.settimeout(0.1)
        end = time.monotonic() + 10
        while time.monotonic() < end:
            try:
                slow.send(b"G")
                if slow.recv(1) == b"":
                    return
            except TimeoutError:
                continue
            except ConnectionError:
                return
        pytest.fail("it stayed")


@pytest.mark.parametrize("count", [2, 90])
def test_headers_that_are_too_large_together_are_refused(port: int, count: int) -> None:
    headers = "".join(f"X-{number}: {'a' * (80_000 // count)}\r\n" for number in range(count))
    request = f"GET / HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode()
    with closing(socket.create_connection(("127.0.0.1", port), timeout=10)) as client:
        answer = b" 431 "
        # The server may close the connection before all is sent.
        with suppress(ConnectionError):
            client.sendall(request)
            answer = client.recv(100)
    assert b" 431 " in answer
    assert ask(port).status == 200


def test_a_request_line_that_is_too_long_is_refused(port: int) -> None:
    with closing(socket.create_connection(("127.0.0.1", port), timeout=10)) as client:
        # No byte more than the server reads: it would reset the connection.
        client.sendall(b"GET /".ljust(65_537, b"a"))
        assert b"414" in client.recv(1000)


def test_a_client_that_stops_reading_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(web._Handler, "timeout", 0.2)
    ended = threading.Event()
    forget = web._HttpServer._note_closed

    def forget_client(server: web._HttpServer, client: str) -> None:
        forget(server, client)
        ended.set()

    def large_page(path: str, *, refreshes: bool) -> WebPage:
        return WebPage("a" * 20_000_000, PAGE.csp)

    monkeypatch.setattr(web._HttpServer, "_note_closed", forget_client)
    with serve_http("127.0.0.1:0", page_application(large_page)) as url:
        place = ("127.0.0.1", urlsplit(url).port)
        with closing(socket.create_connection(place)) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert ended.wait(10)
    assert capfd.readouterr().err == ""


def test_an_address_in_use_is_an_error_for_the_operator(port: int) -> None:
    with (
        pytest.raises(InputError, match=f"cannot listen on 127.0.0.1:{port}"),
        serving(f"127.0.0.1:{port}"),
    ):
        pass
