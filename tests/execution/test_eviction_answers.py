"""What each answer to an eviction means, in the words of real API servers and of what stands before them."""

import json
from pathlib import Path
from typing import Any

import pytest

from rollout.adapters.kube.api import connect
from rollout.execution.drain.eviction import Answer, Attempt, request_removal
from rollout.model.policy import DrainPolicy
from tests.planning.builders import pod
from tests.scripted_api import Exchange, Kubeconfig, scripted

BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."
NGINX = "<html>\r\n<head><title>{0}</title></head>\r\n<body>\r\n<center><h1>{0}</h1></center>\r\n</body>\r\n</html>"
GROUP = "poddisruptionbudgets.policy"


def status(code: int, reason: str, message: str, *causes: tuple[str, str], wait: int = 0) -> tuple[int, bytes]:
    details: dict[str, Any] = {"causes": [{"reason": word, "message": told} for word, told in causes]} if causes else {}
    details |= {"retryAfterSeconds": wait} if wait else {}
    body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message}
    body |= {"code": code} | ({"reason": reason} if reason else {}) | ({"details": details} if details else {})
    return code, json.dumps(body).encode()


def page(code: int, title: str) -> tuple[int, bytes]:
    return code, NGINX.format(f"{code} {title}").encode()


def webhook(code: int, name: str, why: str) -> tuple[int, bytes]:
    return status(code, "", f'admission webhook "{name}" denied the request: {why}')


def asked(tmp_path: Path, answer: tuple[int, bytes], headers: dict[str, str]) -> Attempt:
    code, body = answer
    with scripted(lambda exchange: exchange.answer(code, body, **headers)) as server:
        api = connect(Kubeconfig(server.url).write(tmp_path / "kubeconfig"), None)
        return request_removal(api, pod("web-0", "w-1"), DrainPolicy())


@pytest.mark.parametrize(
    ("answer", "meaning"),
    [
        ((201, b'{"kind":"Status","status":"Success","code":201}'), Answer.ACCEPTED),
        (status(404, "NotFound", 'pods "web-0" not found'), Answer.GONE),
        (
            status(
                429, "TooManyRequests", BUDGET, ("DisruptionBudget", "The disruption budget web needs 2 healthy pods")
            ),
            Answer.BLOCKED,
        ),
        ((429, b"Too many requests, please try again later.\n"), Answer.AWAY),
        (status(429, "TooManyRequests", "the server has received too many requests", wait=1), Answer.AWAY),
        (
            webhook(429, "virt-launcher-eviction-interceptor.kubevirt.io", "Eviction triggered evacuation"),
            Answer.DENIED,
        ),
        (webhook(500, "drain-cleaner.strimzi.io", "The pod will be rolled by the operator"), Answer.DENIED),
        (webhook(503, "guard.example.com", "come back later"), Answer.DENIED),
        (webhook(403, "guard.example.com", "never"), Answer.REFUSED),
        (webhook(400, "guard.example.com", "never"), Answer.REFUSED),
        (webhook(418, "guard.example.com", "never"), Answer.REFUSED),
        (
            status(
                500,
                "",
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ),
            Answer.REFUSED,
        ),
        (status(500, "", "etcdserver: leader changed"), Answer.AWAY),
        (
            status(
                500, "InternalError", 'Internal error occurred: failed calling webhook "g": context deadline exceeded'
            ),
            Answer.AWAY,
        ),
        (
            status(504, "Timeout", 'Timeout: couldn\'t update PodDisruptionBudget "web" due to conflicts', wait=10),
            Answer.LATER,
        ),
        (status(504, "Timeout", "request did not complete within the allotted timeout"), Answer.AWAY),
        (page(502, "Bad Gateway"), Answer.AWAY),
        (page(404, "Not Found"), Answer.AWAY),
        ((404, b""), Answer.AWAY),
        (page(503, "Service Temporarily Unavailable"), Answer.AWAY),
        (page(504, "Gateway Time-out"), Answer.AWAY),
        (status(503, "ServiceUnavailable", "apiserver is shutting down"), Answer.AWAY),
        (
            status(409, "Conflict", f'Operation cannot be fulfilled on {GROUP} "web": the object has been modified'),
            Answer.LATER,
        ),
        (status(409, "Conflict", "the UID in the precondition (a) does not match the UID in record (b)"), Answer.LATER),
        (
            status(403, "Forbidden", 'pods "web-0" is forbidden', ("NamespaceTerminating", "it is being terminated")),
            Answer.DENIED,
        ),
        (
            status(
                403,
                "Forbidden",
                f'{GROUP} "web" is forbidden: DisruptedPods map too big - too many evictions not confirmed',
            ),
            Answer.LATER,
        ),
        (status(403, "Forbidden", f'{GROUP} "web" is forbidden: pdb disruptions allowed is negative'), Answer.LATER),
        (
            status(403, "Forbidden", 'pods "web-0" is forbidden: User "ann" cannot create resource "pods/eviction"'),
            Answer.REFUSED,
        ),
        (page(403, "Forbidden"), Answer.REFUSED),
        (status(422, "Invalid", 'Eviction.policy "web-0" is invalid'), Answer.REFUSED),
        (status(400, "BadRequest", "name in URL does not match name in Eviction object"), Answer.REFUSED),
        (status(401, "Unauthorized", "Unauthorized"), Answer.REFUSED),
        (page(302, "Found"), Answer.REFUSED),
    ],
)
def test_each_answer_has_its_meaning(answer: tuple[int, bytes], meaning: Answer, tmp_path: Path) -> None:
    attempt = asked(tmp_path, answer, {})
    assert attempt.answer is meaning, attempt.message
    assert "\n" not in attempt.message


@pytest.mark.parametrize(
    ("answer", "headers", "seconds"),
    [
        ((429, b"Too many requests, please try again later."), {"Retry-After": "1"}, 1),
        (status(429, "TooManyRequests", BUDGET, ("DisruptionBudget", "web is still being processed"), wait=10), {}, 10),
        (page(503, "Service Unavailable"), {"Retry-After": "Sat, 21 Nov 2026 12:00:00 GMT"}, None),
        (page(503, "Service Unavailable"), {"Retry-After": "10"}, 10),
    ],
)
def test_whoever_asks_for_patience_is_given_it(
    answer: tuple[int, bytes], headers: dict[str, str], seconds: int | None, tmp_path: Path
) -> None:
    assert asked(tmp_path, answer, headers).retry_after == seconds


def test_an_answer_that_breaks_off_is_the_servers_trouble(tmp_path: Path) -> None:
    with scripted(Exchange.reset) as server:
        api = connect(Kubeconfig(server.url).write(tmp_path / "kubeconfig"), None)
        assert request_removal(api, pod("web-0", "w-1"), DrainPolicy()).answer is Answer.AWAY
