"""What no kubectl can be asked: reasons, all the warnings, selectors, and rules that depend on the
time.
"""

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from rollout.errors import UsageError
from rollout.model.cluster import DaemonSet, OwnerRef, Pod, PodPhase
from rollout.model.drain_finding import (
    DaemonSetGone,
    LocalStorage,
    NotSelected,
    UnmanagedPod,
    VerdictReason,
)
from rollout.model.policy import CompletionFallback, CompletionPolicy, DrainPolicy
from rollout.model.selectors import parse_selector
from rollout.model.warning_finding import PodWarning
from rollout.planning.drain.verdicts import Action, DrainRules, judge
from rollout.wording import cause_of
from rollout.wording.drain import why_not_evicted
from tests.planning import builders

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


DS = OwnerRef("apps/v1", "DaemonSet", "agent", "u2")


AGENT = DaemonSet("default", "agent", "u2")


def pod(**changes: Any) -> Pod:
    return structs.replace(builders.pod("p", "n"), **changes)


def rules(*daemon_sets: DaemonSet, **flags: Any) -> DrainRules:
    return DrainRules.of(DrainPolicy(**flags), daemon_sets, now=NOW)


def test_all_reasons_of_a_refusal_are_told() -> None:
    verdict = judge(pod(owner=None, has_empty_dir=True), rules(delete_emptydir_data=False))
    assert verdict.action == Action.REFUSE
    assert verdict.reason == VerdictReason.LOCAL_STORAGE
    assert verdict.because == (LocalStorage(), UnmanagedPod())
    message = why_not_evicted(verdict.because)
    assert "--delete-emptydir-data" in message
    assert "--force" in message
    gone = judge(pod(owner=DS, has_empty_dir=True, mirror=True), rules(delete_emptydir_data=False))
    assert gone.action == Action.REFUSE
    assert gone.reason == VerdictReason.DAEMONSET_GONE
    assert gone.because == (DaemonSetGone("agent"), LocalStorage())


@pytest.mark.parametrize(
    ("age", "left"), [(-30, False), (0, False), (20, False), (21, True), (100, True)]
)
def test_overdue_counts_whole_seconds_and_strictly(age: int, *, left: bool) -> None:
    deleted = datetime.fromtimestamp(NOW.timestamp() - age, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    verdict = judge(pod(deleted_at=deleted), rules(skip_wait_for_delete_timeout=20))
    assert (verdict.action is Action.LEAVE) == left
    assert bool(verdict.warnings) == left
    assert judge(pod(deleted_at=deleted), rules()).action is Action.EVICT


def test_what_the_selector_leaves_is_told_where_the_reboot_would_end_it() -> None:
    chosen = rules(AGENT, pod_selector="tier=web")
    assert judge(pod(labels={"tier": "web"}), chosen).action is Action.EVICT
    left = judge(pod(), chosen)
    assert left.action == Action.LEAVE
    assert left.reason == VerdictReason.NOT_SELECTED
    assert left.warnings == (PodWarning(NotSelected()),)
    assert "the reboot stops it" in cause_of(left.warnings[0])
    assert judge(pod(owner=DS), chosen).warnings == ()


LABELS = {
    "app": "web",
    "cores": "16",
    "odd": "1_6",
    "huge": "99999999999999999999",
    "debug": "",
    "in": "a",
}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("", True),
        ("app", True),
        ("app=web", True),
        ("app!=web", False),
        ("debug=", True),
        ("absent!=x", True),
        ("example.com/role=worker,!gone", False),
        ("app in (web, api),cores notin (8)", True),
        ("app in (,web)", True),
        ("debug in ()", True),
        ("in in (a)", True),
        ("cores>8", True),
        ("cores<016", False),
        ("huge>1", False),
        (f"{'a' * 63}!={'b' * 63}", True),
        (f"{'p' * 63}.{'q' * 63}/{'a' * 63}", False),
    ],
)
def test_selectors_as_kubectl_takes_them(selector: str, *, matches: bool) -> None:
    assert parse_selector(selector).matches(LABELS) is matches


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        ("=", "from '='"),
        ("a=b=c", "from 'a=b=c'"),
        ("x,a in (b", "from 'a in (b'"),
        ("a,", "it ends too early"),
        (",", "from ','"),
        ("a in ()x", "from 'a in ()x'"),
        ("a/b/c", "the prefix 'a/b'"),
        ("Example.com/a", "the prefix 'Example.com'"),
        (f"{'p' * 254}/a", "the prefix"),
        ("a>b", "'b' is not a whole number"),
        ("a>9223372036854775808", "not a whole number"),
        ("a\u00e9", "'a\u00e9' is not a label's name"),
        ("a=b-", "'b-' is not a label's value"),
        (f"{'a' * 64}=b", "the name 'aaaaaaaaaaaaaaaaaaaa…' is 64 characters long, of at most 63"),
        (f"a={'b' * 64}", "the value 'bbbbbbbbbbbbbbbbbbbb…' is 64 characters long, of at most 63"),
        (f"a in (b,{'c' * 70})", "70 characters long"),
    ],
)
def test_what_is_no_selector(selector: str, why: str) -> None:
    with pytest.raises(UsageError, match="is not a label selector: ") as caught:
        parse_selector(selector)
    assert why in caught.value.message
    assert "role=worker" in caught.value.hint


OF_JOB = {"job-name": "train-7"}
COMPLETION = CompletionPolicy(("app=game", "job-name"))


@pytest.mark.parametrize(
    ("changes", "action"),
    [
        ({"labels": OF_JOB}, Action.WAIT),
        ({"labels": {"app": "game"}}, Action.WAIT),
        ({"labels": {"app": "web"}}, Action.EVICT),
        ({"labels": OF_JOB, "phase": PodPhase.SUCCEEDED}, Action.EVICT),
        ({"labels": OF_JOB, "deleted_at": "2026-01-01T11:59:50Z"}, Action.EVICT),
        ({"labels": OF_JOB, "mirror": True}, Action.LEAVE),
        ({"labels": OF_JOB, "owner": DS, "namespace": "default"}, Action.LEAVE),
    ],
)
def test_selected_pods_that_still_run_are_waited_for(
    changes: dict[str, Any], action: Action
) -> None:
    assert judge(pod(**changes), rules(AGENT, completion=COMPLETION)).action is action


@pytest.mark.parametrize(
    ("fallback", "action"),
    [(CompletionFallback.RETURN, Action.WAIT), (CompletionFallback.EVICT, Action.REFUSE)],
)
def test_pods_that_may_be_evicted_at_last_are_refused_like_others(
    fallback: CompletionFallback, action: Action
) -> None:
    completion = replace(COMPLETION, fallback=fallback)
    assert judge(pod(labels=OF_JOB, owner=None), rules(completion=completion)).action is action
