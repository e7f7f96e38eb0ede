import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from rollout.adapters.kube.api import KubeApi, connect
from rollout.errors import (
    ApiConflictError,
    ApiError,
    ApiGoneError,
    ApiNotFoundError,
    ApiUnavailableError,
    TooManyRequestsError,
)
from rollout.execution.base.deadline import is_transient
from tests.scripted_api import QUICK, Exchange, Kubeconfig, client, scripted


def status_body(code: int, reason: str, message: str, **more: Any) -> dict[str, Any]:
    return {
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        **more,
    }


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (401, "Unauthorized", ApiError),
        (403, "Forbidden", ApiError),
        (404, "NotFound", ApiNotFoundError),
        (409, "Conflict", ApiConflictError),
        (410, "Expired", ApiGoneError),
        (422, "Invalid", ApiError),
        (429, "TooManyRequests", TooManyRequestsError),
        (500, "InternalError", ApiUnavailableError),
        (503, "ServiceUnavailable", ApiUnavailableError),
    ],
)
def test_every_refusal_has_its_class_and_keeps_what_the_server_said(
    tmp_path: Path, status: int, reason: str, kind: type[ApiError]
) -> None:
    body = status_body(status, reason, "no, because")
    with (
        scripted(lambda exchange: exchange.json(body, status)) as server,
        pytest.raises(ApiError) as caught,
    ):
        client(tmp_path, server.url).get("/api/v1/nodes")
    assert type(caught.value) is kind
    assert caught.value.status == status
    assert caught.value.reason == reason
    assert caught.value.message.endswith("no, because")


def test_causes_and_patience_come_from_the_body(tmp_path: Path) -> None:
    details = {
        "causes": [{"reason": "DisruptionBudget", "message": "The disruption budget b needs 2"}],
        "retryAfterSeconds": 10,
    }
    body = status_body(429, "TooManyRequests", "Cannot evict pod", details=details)
    with (
        scripted(lambda exchange: exchange.json(body, 429, Retry_After="3")) as server,
        pytest.raises(TooManyRequestsError) as caught,
    ):
        client(tmp_path, server.url).create("/x", {})
    assert len(server.exchanges) == 1
    assert caught.value.has_cause("DisruptionBudget")
    assert caught.value.causes[0].message == "The disruption budget b needs 2"
    assert caught.value.retry_after == 10


def test_plain_text_429_of_flow_control_surfaces_at_once_with_its_header(tmp_path: Path) -> None:
    with scripted(
        lambda exchange: exchange.answer(429, b"Too many requests", Retry_After="77")
    ) as server:
        began = time.monotonic()
        with pytest.raises(
            TooManyRequestsError, match="429 to GET /x: Too many requests"
        ) as caught:
            client(tmp_path, server.url).get("/x")
        assert len(server.exchanges) == 1
    assert caught.value.retry_after == 77
    assert time.monotonic() - began < 60


def test_a_kept_connection_that_died_is_replaced_for_reads_only(tmp_path: Path) -> None:
    answered = 0

    def script(exchange: Exchange) -> None:
        nonlocal answered
        answered += 1
        if answered % 2:
            exchange.json({})
        else:
            exchange.reset()

    with scripted(script) as server:
        api = client(tmp_path, server.url)
        api.get("/x")
        assert api.get("/x") == b"{}"
        with pytest.raises(ApiUnavailableError):
            api.patch("/x", {})
    assert [exchange.command for exchange in server.exchanges] == ["GET", "GET", "GET", "PATCH"]


def test_refused_credentials_are_read_afresh_once(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")

    def script(exchange: Exchange) -> None:
        fresh = exchange.headers["Authorization"] == "Bearer new"
        (
            exchange.json({}, 200)
            if fresh
            else exchange.json(status_body(401, "Unauthorized", "Unauthorized"), 401)
        )

    with scripted(script) as server:
        config = Kubeconfig(server.url, user={"tokenFile": "token"})
        api = connect(config.write(tmp_path / "kubeconfig"), None, timeouts=QUICK)
        with pytest.raises(ApiError, match="Unauthorized"):
            api.get("/x")
        token.write_text("new")
        assert api.get("/x") == b"{}"
        # The token file is read for each request.
        assert len(server.exchanges) == 3


def test_credentials_that_were_accepted_before_may_be_again(tmp_path: Path) -> None:
    """The first refusal of all is a mistake in the kubeconfig; a later one may pass, as when a
    token was replaced.
    """

    def script(exchange: Exchange) -> None:
        known = exchange.path == "/known"
        (
            exchange.json({}, 200)
            if known
            else exchange.json(status_body(401, "Unauthorized", "Unauthorized"), 401)
        )

    with scripted(script) as server:
        api = client(tmp_path, server.url)
        with pytest.raises(ApiError) as first:
            api.get("/x")
        api.get("/known")
        with pytest.raises(ApiUnavailableError, match="no longer accepts the credentials") as later:
            api.get("/x")
    assert not is_transient(first.value)
    assert is_transient(later.value)
    assert later.value.status == 401
    assert later.value.hint == first.value.hint


def test_pages_follow_the_continue_token_with_the_same_selection(tmp_path: Path) -> None:
    def script(exchange: Exchange) -> None:
        number = int(exchange.query.get("continue", "0"))
        exchange.json(
            {"metadata": {"continue": str(number + 1) if number < 2 else ""}, "items": [number]}
        )

    with scripted(script) as server:
        bodies = list(
            client(tmp_path, server.url).pages("/api/v1/pods", {"fieldSelector": "spec.nodeName=n"})
        )
        assert [json.loads(body)["items"] for body in bodies] == [[0], [1], [2]]
        assert [exchange.query.get("continue") for exchange in server.exchanges] == [None, "1", "2"]
        assert {exchange.query["limit"] for exchange in server.exchanges} == {"500"}
        assert {exchange.query["fieldSelector"] for exchange in server.exchanges} == {
            "spec.nodeName=n"
        }


def test_the_next_page_is_asked_for_while_the_one_before_is_read(tmp_path: Path) -> None:
    """And what is wrong with it is raised where it is wanted."""
    asked = threading.Event()

    def script(exchange: Exchange) -> None:
        if exchange.query.get("continue"):
            asked.set()
            exchange.json(status_body(410, "Expired", "the token is too old"), 410)
        else:
            exchange.json({"metadata": {"continue": "1"}, "items": []})

    with scripted(script) as server:
        pages = client(tmp_path, server.url).pages("/api/v1/pods")
        next(pages)
        assert asked.wait(10)
        with pytest.raises(ApiGoneError):
            next(pages)


def test_a_server_that_was_away_is_not_believed_when_it_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = ["refuse", "reset", "refuse", "refuse for a cause", "refuse", "answer"]

    def script(exchange: Exchange) -> None:
        match answers.pop(0):
            case "reset":
                exchange.reset()
            case "refuse":
                exchange.json(
                    status_body(403, "Forbidden", 'nodes is forbidden: User "ann" cannot list'), 403
                )
            case "refuse for a cause":
                causes = {"causes": [{"reason": "NamespaceTerminating"}]}
                exchange.json(status_body(403, "Forbidden", "no", details=causes), 403)
            case _:
                exchange.json({})

    def refused(api: KubeApi) -> ApiError:
        with pytest.raises(ApiError) as caught:
            api.patch("/x", {})
        return caught.value

    with scripted(script) as server:
        api = client(tmp_path, server.url)
        assert not isinstance(refused(api), ApiUnavailableError)
        assert refused(api).status == 0
        early = refused(api)
        assert type(early) is ApiUnavailableError
        assert early.status == 403
        assert "still refuses requests: nodes is forbidden" in early.message
        assert refused(api).has_cause("NamespaceTerminating")
        later = time.monotonic() + 61
        monkeypatch.setattr("rollout.adapters.kube.session.time.monotonic", lambda: later)
        assert not isinstance(refused(api), ApiUnavailableError)
        assert api.get("/x") == b"{}"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (
            json.dumps(status_body(404, "NotFound", 'nodes "w-1" not found')).encode(),
            ApiNotFoundError,
        ),
        (b"404 page not found\n", ApiNotFoundError),
        (b"<html><body><h1>404 Not Found</h1></body></html>", ApiUnavailableError),
        (b"default backend - 404", ApiUnavailableError),
        (b'{"type":"error","status":404,"message":"cluster not found"}', ApiUnavailableError),
        (b"", ApiUnavailableError),
    ],
)
def test_only_an_api_server_is_believed_that_something_is_not_there(
    tmp_path: Path, body: bytes, kind: type[ApiError]
) -> None:
    """What stands before it answers 404 as well when it has lost it; a Node that is only out of
    sight is not gone.
    """
    with (
        scripted(lambda exchange: exchange.answer(404, body)) as server,
        pytest.raises(ApiError) as caught,
    ):
        client(tmp_path, server.url).get("/api/v1/nodes/w-1")
    assert type(caught.value) is kind
    assert caught.value.status == 404


def test_a_path_in_the_server_address_is_kept(tmp_path: Path) -> None:
    with scripted(lambda exchange: exchange.json({})) as server:
        client(tmp_path, server.url + "/k8s/clusters/c-1/").get("/version")
        assert server.exchanges[0].path == "/k8s/clusters/c-1/version"
