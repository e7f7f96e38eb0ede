"""Each answer that an eviction can get, over the real wire, and what the request log says of how it
was taken.
"""

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from rollout.adapters.kube.api import connect
from rollout.errors import AdmissionDenial, DenierKind, DrainError
from rollout.execution.drain import evictor
from rollout.execution.drain.eviction import Attempt, EvictionResult, request_removal
from rollout.gather.cluster.snapshot import read_node_pods
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.resources import BUDGETS, PODS
from rollout.model.policy import DrainPolicy
from rollout.model.progress import PodBlocked
from rollout.model.quantity import Duration
from rollout.ports import ClusterApi
from tests.execution.conftest import Drain, Recorder
from tests.execution.drains import (
    NODE,
    add_budget,
    add_node,
    add_pod,
    allow,
    asked,
    later,
    once,
    owner,
    pods_on,
    remove_pod,
    statuses,
    stored,
)
from tests.planning.builders import pod
from tests.scripted_api import Kubeconfig, scripted
from tests.standalone_api import StandaloneApi

pytestmark = [pytest.mark.in_memory, pytest.mark.usefixtures("kubelet", "node")]
RS = owner("ReplicaSet")
STATEFUL = owner("StatefulSet")


PATIENT = DrainPolicy(Duration(300))


def fault(
    server: StandaloneApi, answer: FaultAnswer, *, requests: int | None = 1, retry_after: int = 1
) -> None:
    rule = ApiFault(
        answer=answer, resource="pods/eviction", requests=requests, retry_after=retry_after
    )
    server.call(lambda: server.server.faults.add(rule))


def disrupted(server: StandaloneApi, budget: str) -> dict[str, str]:
    return stored(server, BUDGETS, budget, "default")["status"].get("disruptedPods") or {}


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (FaultAnswer.INTERNAL_ERROR, 500),
        (FaultAnswer.TOO_MANY_REQUESTS, 429),
        (FaultAnswer.CONFLICT, 409),
        (FaultAnswer.DROP, 0),
    ],
)
def test_what_passes_is_tried_again(
    answer: FaultAnswer, status: int, server: StandaloneApi, drained: Drain
) -> None:
    add_pod(server, NODE, "p", owned=RS)
    fault(server, answer, requests=2)
    drained()
    assert statuses(server) == [status, status, 201]


def test_flow_control_is_heeded_by_all(server: StandaloneApi, drained: Drain) -> None:
    for number in range(20):
        add_pod(server, NODE, f"p{number}", owned=RS)
    fault(server, FaultAnswer.TOO_MANY_REQUESTS, requests=8, retry_after=40)
    drained(speed=40)
    at = [(record.at, record.status) for record in asked(server, "create", "pods/eviction")]
    refused = [moment for moment, status in at if status == 429]
    assert len(refused) == 8
    assert min(moment for moment, status in at if status == 201) - max(refused) >= 0.95


@pytest.mark.parametrize("answer", [FaultAnswer.DENIED, FaultAnswer.DENIED_ERROR])
def test_a_webhook_that_denies_puts_off_its_pod_alone(
    answer: FaultAnswer, server: StandaloneApi, drained: Drain, recorder: Recorder
) -> None:
    """What moves a pod in its own way, a virtual machine say, denies its eviction for as long as
    that takes.
    """
    add_pod(
        server, NODE, "machine", owned=owner("VirtualMachineInstance", api_version="kubevirt.io/v1")
    )
    for number in range(20):
        add_pod(server, NODE, f"p{number}", owned=RS)
    rule = ApiFault(answer=answer, resource="pods/eviction", name="machine")
    server.call(lambda: server.server.faults.add(rule))
    later(1.5, lambda: remove_pod(server, "machine"))
    drained()
    log = asked(server, "create", "pods/eviction")
    assert [record.status for record in log if record.target.name != "machine"] == [201] * 20
    first = next(record.at for record in log if record.target.name == "machine")
    assert max(record.at for record in log if record.target.name != "machine") - first < 1
    # Thirty seconds have passed by its clock: the pauses grow.
    assert 2 <= len(statuses(server, "machine")) <= 6
    told = [event for event in recorder.events if isinstance(event, PodBlocked)]
    assert {(event.pod, event.budget) for event in told} == {("default/machine", "")}
    assert {(event.webhook, event.message) for event in told} == {
        ("evictions.lab", "the pod is being moved")
    }


def test_a_drain_that_a_webhook_denies_fails_with_its_name_and_its_words(
    server: StandaloneApi, drained: Drain
) -> None:
    add_pod(server, NODE, "p", owned=RS)
    fault(server, FaultAnswer.FORBIDDEN, requests=None)
    with pytest.raises(DrainError) as failed:
        drained(20)
    assert (
        "default/p: blocked by the admission webhook policy.lab: it is frozen"
        in failed.value.message
    )


def test_a_webhook_that_no_longer_denies_lets_the_drain_end(
    server: StandaloneApi, drained: Drain
) -> None:
    add_pod(server, NODE, "p", owned=RS)
    fault(server, FaultAnswer.FORBIDDEN, requests=2)
    drained()
    assert statuses(server) == [403, 403, 201]


def test_a_webhook_and_a_budget_that_refuse_in_turns_are_waited_for(
    server: StandaloneApi, drained: Drain, recorder: Recorder
) -> None:
    add_pod(server, NODE, "p", owned=RS)
    add_budget(server, "p", allowed=1)
    fault(server, FaultAnswer.FORBIDDEN)
    fault(server, FaultAnswer.DENIED_ERROR)
    closing = once(lambda: len(statuses(server)) == 1, lambda: allow(server, "p", 0, has=0))
    opening = once(lambda: "default/p" in held_by_budget(recorder), lambda: allow(server, "p", 1))
    drained(600)
    closing.join()
    opening.join()
    assert statuses(server) == [403, 500, 201]


def held_by_budget(recorder: Recorder) -> set[str]:
    return {event.budget for event in recorder.events if isinstance(event, PodBlocked)}


def test_a_webhook_that_denies_the_deletion_of_a_pod_is_waited_for(
    server: StandaloneApi, drained: Drain
) -> None:
    add_pod(server, NODE, "p", owned=RS)
    rule = ApiFault(answer=FaultAnswer.FORBIDDEN, verb="delete", resource="pods", requests=2)
    server.call(lambda: server.server.faults.add(rule))
    drained(evicting=False)
    assert [record.status for record in asked(server, "delete", "pods")] == [403, 403, 200]


def test_a_deletion_that_is_refused_for_good_ends_the_drain(
    server: StandaloneApi, drained: Drain
) -> None:
    add_pod(server, NODE, "p", owned=RS)
    rule = ApiFault(answer=FaultAnswer.INVALID, verb="delete", resource="pods")
    server.call(lambda: server.server.faults.add(rule))
    with pytest.raises(DrainError, match="will not delete default/p"):
        drained(evicting=False)
    assert len(asked(server, "delete", "pods")) == 1


@pytest.mark.wire  # virtual time could pass before the pod is replaced
def test_a_namesake_of_a_pod_that_was_accepted_and_not_deleted_is_evicted_itself(
    server: StandaloneApi, drained: Drain
) -> None:
    """Its owner replaces it on the same node, whose cordon the scheduler has not seen."""
    first = add_pod(server, NODE, "db-0", owned=STATEFUL)
    namesake = {**first, "metadata": {**first["metadata"], "uid": str(uuid4())}}
    success = '{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}'
    rule = ApiFault(
        answer=FaultAnswer.WRONG_KIND, resource="pods/eviction", body=success, requests=1
    )
    server.call(lambda: server.server.faults.add(rule))

    def replace_pod() -> None:
        server.store.remove(PODS, "db-0", "default")
        server.store.create(PODS, namesake)

    # In one step: the drain would end if it saw the node without the pod.
    replaced = once(lambda: len(statuses(server)) == 1, lambda: server.call(replace_pod))
    task = drained(600)
    replaced.join()
    assert pods_on(server, NODE) == set()
    assert len(statuses(server)) == 2
    assert len(task.moved_pods) == 2


@pytest.mark.parametrize(
    "answer",
    [
        FaultAnswer.FORBIDDEN,
        FaultAnswer.DENIED,
        FaultAnswer.CONFLICT,
        FaultAnswer.TOO_MANY_REQUESTS,
    ],
)
def test_no_pause_lasts_beyond_the_deadline(
    answer: FaultAnswer, server: StandaloneApi, drained: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was denied for long, or comes with a long Retry-After, is asked for once more before the
    drain ends.
    """
    monkeypatch.setattr(evictor, "_FIRST_PAUSE", 60.0)
    monkeypatch.setattr(evictor, "_LONGEST_PAUSE", 60.0)
    add_pod(server, NODE, "p", owned=RS)
    fault(server, answer, retry_after=3600)
    drained(40)
    assert statuses(server)[1:] == [201]


@pytest.mark.parametrize("answer", [FaultAnswer.BAD_REQUEST, FaultAnswer.INVALID])
def test_what_is_final_ends_the_drain(
    answer: FaultAnswer, server: StandaloneApi, drained: Drain
) -> None:
    add_pod(server, NODE, "p", owned=RS)
    fault(server, answer, requests=None)
    with pytest.raises(DrainError, match="will not evict default/p"):
        drained()
    assert len(statuses(server)) == 1


@pytest.mark.parametrize("where", ["n2", NODE])
def test_a_recreated_namesake_is_never_evicted_and_costs_no_budget(
    server: StandaloneApi, api: ClusterApi, where: str
) -> None:
    """Nor is one that is back on the very node: its drain has not looked at it yet."""
    add_pod(server, NODE, "db-0", owned=STATEFUL)
    add_budget(server, "db-0", allowed=1)
    (pod,) = read_node_pods(api, NODE)
    server.call(lambda: server.store.remove(PODS, "db-0", "default"))
    add_node(server, "n2")
    add_pod(server, where, "db-0", owned=STATEFUL)
    assert request_removal(api, pod, PATIENT).result is EvictionResult.GONE
    assert statuses(server) == []
    assert disrupted(server, "db-0") == {}
    assert pods_on(server, where) == {"db-0"}


@pytest.mark.parametrize("deleting", [False, True])
def test_a_namesake_that_came_this_moment_is_saved_by_the_uid(
    server: StandaloneApi, api: ClusterApi, *, deleting: bool
) -> None:
    """It is another pod than the one that was read, and no read has told so yet: the server does."""
    add_pod(server, NODE, "db-0", owned=RS)
    (pod,) = read_node_pods(api, NODE)
    remove_pod(server, "db-0")
    add_node(server, "n2")
    add_pod(server, "n2", "db-0", owned=RS)
    policy = DrainPolicy(disable_eviction=deleting)
    assert request_removal(api, pod, policy).result is EvictionResult.RETRIABLE
    assert pods_on(server, "n2") == {"db-0"}
    assert request_removal(api, pod, policy, may_be_evicted=True).result is EvictionResult.GONE
    asked_for = (
        asked(server, "delete", "pods") if deleting else asked(server, "create", "pods/eviction")
    )
    assert [record.status for record in asked_for] == [409]


def test_a_conflict_is_looked_into_before_anything_is_sent_again(
    server: StandaloneApi, drained: Drain
) -> None:
    add_pod(server, NODE, "p", owned=RS)
    fault(server, FaultAnswer.CONFLICT)
    drained()
    log = [
        record.target.verb
        for record in server.call(lambda: list(server.server.requests))
        if record.target.name
    ]
    assert log == ["create", "get", "create"]


BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."


NGINX = "<html>\r\n<head><title>{0}</title></head>\r\n<body>\r\n<center><h1>{0}</h1></center>\r\n</body>\r\n</html>"


GROUP = "poddisruptionbudgets.policy"


GUARD = 'admission webhook "guard.example.com" denied the request'


def status(
    code: int, reason: str, message: str, *causes: tuple[str, str], wait: int = 0
) -> tuple[int, bytes]:
    details: dict[str, Any] = (
        {"causes": [{"reason": word, "message": told} for word, told in causes]} if causes else {}
    )
    details |= {"retryAfterSeconds": wait} if wait else {}
    body: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
    }
    body |= (
        {"code": code}
        | ({"reason": reason} if reason else {})
        | ({"details": details} if details else {})
    )
    return code, json.dumps(body).encode()


def page(code: int, title: str) -> tuple[int, bytes]:
    return code, NGINX.format(f"{code} {title}").encode()


def webhook(code: int, name: str, why: str) -> tuple[int, bytes]:
    return status(code, "", f'admission webhook "{name}" denied the request: {why}')


def policy(code: int, reason: str, name: str) -> tuple[int, bytes]:
    """As a ValidatingAdmissionPolicy denies: with a cause, and with the status that its reason
    stands for.
    """
    denied = (
        f"ValidatingAdmissionPolicy '{name}' with binding '{name}-all' denied request: no evictions"
    )
    return status(code, reason, f'pods "web-0" is forbidden: {denied}', ("", denied))


def rights(why: str) -> tuple[int, bytes]:
    message = (
        'User "ann" cannot create resource "pods/eviction" in API group "" in the namespace'
        f' "shop": {why}'
    )
    return status(403, "Forbidden", f'pods "web-0" is forbidden: {message}')


def asked_once(
    tmp_path: Path,
    answer: tuple[int, bytes],
    headers: dict[str, str],
    policy: DrainPolicy | None = None,
) -> Attempt:
    code, body = answer
    with scripted(lambda exchange: exchange.answer(code, body, **headers)) as server:
        api = connect(Kubeconfig(server.url).write(tmp_path / "kubeconfig"), None)
        return request_removal(api, pod("web-0", "w-1"), policy or DrainPolicy())


# What each answer to an eviction means, by the words of real API servers and of what stands before
# them.
MEANINGS = [
    ((201, b'{"kind":"Status","status":"Success","code":201}'), EvictionResult.ACCEPTED),
    (status(404, "NotFound", 'pods "web-0" not found'), EvictionResult.GONE),
    (
        status(429, "TooManyRequests", BUDGET, ("DisruptionBudget", "web needs 2 healthy pods")),
        EvictionResult.BLOCKED,
    ),
    ((429, b"Too many requests, please try again later.\n"), EvictionResult.UNAVAILABLE),
    (
        webhook(429, "virt-launcher-eviction-interceptor.kubevirt.io", "it is being moved"),
        EvictionResult.DENIED,
    ),
    (
        webhook(500, "drain-cleaner.strimzi.io", "The pod will be rolled by the operator"),
        EvictionResult.DENIED,
    ),
    *(
        (webhook(code, "guard.example.com", "not now"), EvictionResult.DENIED)
        for code in (400, 403, 404, 409, 410, 422, 503)
    ),
    (status(403, "Forbidden", f"{GUARD} without explanation"), EvictionResult.DENIED),
    (
        status(403, "Forbidden", f'pods "web-0" is forbidden: {GUARD}: not now'),
        EvictionResult.DENIED,
    ),
    (
        status(500, "InternalError", f"Internal error occurred: {GUARD}: not now"),
        EvictionResult.DENIED,
    ),
    (
        status(429, "TooManyRequests", f"{GUARD}: not now", ("DisruptionBudget", "its own")),
        EvictionResult.DENIED,
    ),
    (status(400, "BadRequest", f"{GUARD}: moved\nby its operator"), EvictionResult.DENIED),
    (policy(422, "Invalid", "freeze"), EvictionResult.DENIED),
    (policy(403, "Forbidden", "freeze"), EvictionResult.DENIED),
    (rights("no rule allows it"), EvictionResult.REFUSED),
    (rights(f"{GUARD}: not now"), EvictionResult.REFUSED),
    (
        status(403, "Forbidden", 'pods "web-0" is forbidden: exceeded quota: pods'),
        EvictionResult.REFUSED,
    ),
    (
        status(400, "BadRequest", 'admission webhook "g" does not support dry run'),
        EvictionResult.REFUSED,
    ),
    (
        status(500, "", "This pod has more than one PodDisruptionBudget, which is not supported."),
        EvictionResult.REFUSED,
    ),
    (
        status(
            500,
            "",
            'Internal error occurred: failed calling webhook "g": context deadline exceeded',
        ),
        EvictionResult.UNAVAILABLE,
    ),
    (
        status(
            504, "Timeout", 'Timeout: couldn\'t update PodDisruptionBudget "web" due to conflicts'
        ),
        EvictionResult.RETRIABLE,
    ),
    (
        status(504, "Timeout", "request did not complete within the allotted timeout"),
        EvictionResult.UNAVAILABLE,
    ),
    (page(502, "Bad Gateway"), EvictionResult.UNAVAILABLE),
    (page(404, "Not Found"), EvictionResult.UNAVAILABLE),
    (
        status(409, "Conflict", f'Operation cannot be fulfilled on {GROUP} "web"'),
        EvictionResult.RETRIABLE,
    ),
    (
        status(403, "Forbidden", 'pods "web-0" is forbidden', ("NamespaceTerminating", "it goes")),
        EvictionResult.DENIED,
    ),
    (
        status(403, "Forbidden", f'{GROUP} "web" is forbidden: DisruptedPods map too big'),
        EvictionResult.RETRIABLE,
    ),
    (
        status(
            403, "Forbidden", f'{GROUP} "web" is forbidden: pdb disruptions allowed is negative'
        ),
        EvictionResult.RETRIABLE,
    ),
    (
        status(403, "Forbidden", 'User "ann" cannot create resource "pods/eviction"'),
        EvictionResult.REFUSED,
    ),
    (page(302, "Found"), EvictionResult.REFUSED),
    (
        status(
            429, "TooManyRequests", BUDGET, ("DisruptionBudget", f"needs {'9' * 5000} healthy pods")
        ),
        EvictionResult.BLOCKED,
    ),
]


@pytest.mark.parametrize(("answer", "meaning"), MEANINGS)
def test_each_answer_has_its_meaning(
    answer: tuple[int, bytes], meaning: EvictionResult, tmp_path: Path
) -> None:
    attempt = asked_once(tmp_path, answer, {})
    assert attempt.result is meaning, attempt.message


DELETIONS = [
    (
        status(403, "Forbidden", 'pods "web-0" is forbidden: User "ann" cannot delete resource'),
        EvictionResult.REFUSED,
    ),
    *(
        (webhook(code, "guard.example.com", "no"), EvictionResult.DENIED)
        for code in (400, 403, 500)
    ),
    (policy(403, "Forbidden", "freeze"), EvictionResult.DENIED),
    (
        status(
            409, "Conflict", 'Operation cannot be fulfilled on pods "web-0": Precondition failed'
        ),
        EvictionResult.RETRIABLE,
    ),
    (status(404, "NotFound", 'pods "web-0" not found'), EvictionResult.GONE),
]


@pytest.mark.parametrize(("answer", "meaning"), DELETIONS)
def test_an_answer_to_a_deletion_means_the_same(
    answer: tuple[int, bytes], meaning: EvictionResult, tmp_path: Path
) -> None:
    attempt = asked_once(tmp_path, answer, {}, DrainPolicy(disable_eviction=True))
    assert attempt.result is meaning


DENIALS = [
    (
        webhook(400, "guard.example.com", "not\nnow"),
        AdmissionDenial(DenierKind.WEBHOOK, "guard.example.com", "not now"),
    ),
    (
        status(403, "Forbidden", f"{GUARD} without explanation"),
        AdmissionDenial(DenierKind.WEBHOOK, "guard.example.com"),
    ),
    (status(400, "", f"{GUARD}:"), AdmissionDenial(DenierKind.WEBHOOK, "guard.example.com")),
    (
        policy(422, "Invalid", "freeze"),
        AdmissionDenial(DenierKind.POLICY, "freeze", "no evictions"),
    ),
    (
        webhook(401, "guard.example.com", "\x1b]0;title\x07\x1b[31mred\x1b[0m"),
        AdmissionDenial(DenierKind.WEBHOOK, "guard.example.com", "red"),
    ),
    (
        webhook(403, "guard.example.com", "x" * 10_000),
        AdmissionDenial(DenierKind.WEBHOOK, "guard.example.com", f"{'x' * 499}…"),
    ),
    (rights("no rule allows it"), None),
]


@pytest.mark.parametrize(("answer", "denial"), DENIALS)
def test_a_denial_has_its_name_and_its_message(
    answer: tuple[int, bytes], denial: AdmissionDenial | None, tmp_path: Path
) -> None:
    attempt = asked_once(tmp_path, answer, {})
    assert attempt.error is not None
    assert attempt.error.denial == denial


@pytest.mark.parametrize(
    ("answer", "headers", "seconds"),
    [
        ((429, b"Too many requests, please try again later."), {"Retry-After": "1"}, 1),
        (
            status(
                429,
                "TooManyRequests",
                BUDGET,
                ("DisruptionBudget", "web is still being processed"),
                wait=10,
            ),
            {},
            10,
        ),
        (page(503, "Service Unavailable"), {"Retry-After": "Sat, 21 Nov 2026 12:00:00 GMT"}, None),
        (page(503, "Service Unavailable"), {"Retry-After": "10"}, 10),
        (status(504, "Timeout", "not now", wait=-5), {}, None),
    ],
)
def test_whoever_asks_for_patience_is_given_it(
    answer: tuple[int, bytes], headers: dict[str, str], seconds: int | None, tmp_path: Path
) -> None:
    assert asked_once(tmp_path, answer, headers).retry_after == seconds


def test_a_lost_answer_is_recognized_as_done(server: StandaloneApi, drained: Drain) -> None:
    add_pod(server, NODE, "p", owned=RS)
    add_budget(server, "p", allowed=1)
    fault(server, FaultAnswer.LOSE_ANSWER)
    drained()
    assert pods_on(server, NODE) == set()
    assert len(statuses(server)) == 1
    assert set(disrupted(server, "p")) == {"p"}
