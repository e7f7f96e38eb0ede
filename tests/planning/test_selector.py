import pytest

from rollout.errors import UsageError
from rollout.lab.api.selectors import matches_labels, parse_labels
from rollout.lab.api.statuses import StatusError
from rollout.planning.eligibility.selector import parse_selector

LABELS = {"app": "web", "cores": "16", "odd": "1_6", "huge": "99999999999999999999", "debug": "", "in": "a"}


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
    # the lab's server reads them with a parser of its own
    assert matches_labels(parse_labels(selector), {"metadata": {"labels": LABELS}}) is matches


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        ("=", "from '='"),
        ("a=b=c", "from '=c'"),
        ("a in (b", "it ends too early"),
        (",", "from ','"),
        ("a in ()x", "from 'x'"),
        ("a/b/c", "the prefix 'a/b'"),
        ("Example.com/a", "the prefix 'Example.com'"),
        (f"{'p' * 254}/a", "the prefix"),
        ("a>b", "'b' is not a whole number"),
        ("a>9223372036854775808", "not a whole number"),
        ("a\u00e9", "from"),
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
    with pytest.raises(StatusError):
        parse_labels(selector)
