"""What comes of several sources together, and what of it stands on a Node."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.detection import (
    Detection,
    Sign,
    Source,
    SourceAnswer,
    read_targets,
    targets_text,
)
from rollout.model.host import EngineTrouble, Host, HostFacts, UpdateOperation, UpdateStatus
from rollout.model.node_marks import (
    annotation_sign,
    earlier_ineffective_reboots,
    ineffective_reboots,
)
from tests.planning.builders import node

NEEDED = Sign(Source.REBOOT_REQUIRED, SourceAnswer.NEEDED, "/run/reboot-required")


CLEAR = Sign(Source.RPM_OSTREE, SourceAnswer.NOT_NEEDED, "no deployment is staged")


ABSENT = Sign(Source.RPM_OSTREE, SourceAnswer.ABSENT, "rpm-ostree is not on this host")


SILENT = Sign(Source.COMMAND, SourceAnswer.NONE, "detect.command did not finish in time")


@pytest.mark.parametrize(
    ("signs", "needed", "unanswered"),
    [
        ((NEEDED,), True, ()),
        ((CLEAR, NEEDED), True, ()),
        # whoever asks for a reboot is heard, whatever another could not say
        ((SILENT, NEEDED), True, ()),
        ((CLEAR,), False, ()),
        ((CLEAR, SILENT), False, (SILENT,)),
        # a host of another kind has not what it cannot have; but something it has to have
        ((ABSENT, replace(CLEAR, source=Source.REBOOT_REQUIRED)), False, ()),
        ((ABSENT,), False, (ABSENT,)),
        ((ABSENT, SILENT), False, (SILENT,)),
        ((), False, ()),
    ],
)
def test_a_reboot_is_needed_where_any_says_so(
    signs: tuple[Sign, ...], *, needed: bool, unanswered: tuple[Sign, ...]
) -> None:
    detection = Detection(signs)
    assert detection.needs_reboot == needed
    assert detection.unanswered == unanswered


def facts(update: UpdateStatus, os_id: str = "flatcar", **changes: object) -> HostFacts:
    plain = HostFacts(Host("w-1", "192.0.2.1"), update, os_id, "1.0", "", "b", "m", False, True)
    return replace(plain, **changes)


@pytest.mark.parametrize(
    ("update", "os_id", "answer"),
    [
        (UpdateStatus(UpdateOperation.NEED_REBOOT, "2.0"), "flatcar", SourceAnswer.NEEDED),
        (UpdateStatus(UpdateOperation.NEED_REBOOT), "flatcar", SourceAnswer.NEEDED),
        (UpdateStatus(UpdateOperation.DOWNLOADING), "flatcar", SourceAnswer.NOT_NEEDED),
        (UpdateStatus(UpdateOperation.UNKNOWN, message="denied"), "flatcar", SourceAnswer.NONE),
        # on Flatcar it has to be there
        (
            UpdateStatus(UpdateOperation.UNKNOWN, message="gone", trouble=EngineTrouble.MISSING),
            "flatcar",
            SourceAnswer.NONE,
        ),
        (
            UpdateStatus(UpdateOperation.UNKNOWN, message="gone", trouble=EngineTrouble.MISSING),
            "ubuntu",
            SourceAnswer.ABSENT,
        ),
        (UpdateStatus(UpdateOperation.UNKNOWN, message="denied"), "ubuntu", SourceAnswer.NONE),
    ],
)
def test_update_engine_is_a_source_like_any_other(
    update: UpdateStatus, os_id: str, answer: SourceAnswer
) -> None:
    (sign,) = facts(update, os_id).detection.signs
    assert sign.source == Source.UPDATE_ENGINE
    assert sign.answer == answer
    assert sign.version == (update.new_version if answer is SourceAnswer.NEEDED else "")


FLUO, CLUO = (prefix + "reboot-needed" for prefix in (marks.FLUO_PREFIX, marks.CLUO_PREFIX))


OWN = "node-rollout.dev/reboot-needed"


@pytest.mark.parametrize(
    ("annotations", "answer", "detail"),
    [
        ({}, SourceAnswer.NOT_NEEDED, "no annotation reboot-needed"),
        ({FLUO: "true"}, SourceAnswer.NEEDED, f"annotation {FLUO}"),
        (
            {FLUO: "true", CLUO: "true", OWN: "true"},
            SourceAnswer.NEEDED,
            f"annotation {OWN}, {FLUO}, {CLUO}",
        ),
        (
            {FLUO: "false", CLUO: "", OWN: "false"},
            SourceAnswer.NOT_NEEDED,
            "no annotation reboot-needed",
        ),
        # the words are theirs; of our own another word is a mistake, and no response
        ({OWN: "True"}, SourceAnswer.NONE, f"its annotation {OWN} is neither true nor false"),
        # they tell of a reboot that is under way, or over
        ({marks.KURED_IN_PROGRESS: "true"}, SourceAnswer.NOT_NEEDED, "no annotation reboot-needed"),
        (
            {"weave.works/kured-most-recent-reboot-needed": "2026"},
            SourceAnswer.NOT_NEEDED,
            "no annotation reboot-needed",
        ),
    ],
)
def test_the_word_on_a_node(annotations: dict[str, str], answer: SourceAnswer, detail: str) -> None:
    sign = annotation_sign(node("w-1", annotations=annotations))
    assert sign.answer == answer
    assert sign.detail == detail


def test_what_was_detected_stands_on_the_node_but_for_update_engines_which_is_marked_anyway() -> (
    None
):
    assert targets_text({Source.UPDATE_ENGINE: "2.0"}) == targets_text({}) == ""
    targets = {Source.UPDATE_ENGINE: "2.0", Source.ANNOTATION: ""}
    assert read_targets(targets_text(targets)) == targets
    assert read_targets("{}") == {}
    for text in ("", "[]", '{"other": ""}', '{"annotation": 1}', "[" * 5000):
        assert read_targets(text) is None


# How often in a row a host's reboots have brought no other version, by what the last one left on
# its Node.


NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def left(**words: str) -> Node:
    result = {
        "outcome": "succeeded",
        "at": NOW.isoformat(),
        "version": "4081.2.0",
        "unmoved": "2",
        **words,
    }
    return node("worker-1", annotations={marks.LAST_RESULT: json.dumps(result)})


def test_the_last_result_tells_it() -> None:
    assert earlier_ineffective_reboots(left(), "4081.2.0", NOW) == 2
    assert earlier_ineffective_reboots(node("worker-1"), "4081.2.0", NOW) == 0


@pytest.mark.parametrize("ahead", [-2.9, -1, 1, 2.9])
def test_a_clock_that_is_a_day_off_ends_no_row(ahead: float) -> None:
    """Whoever wrote it had another clock, and the longest rest is a day."""
    assert earlier_ineffective_reboots(left(), "4081.2.0", NOW + timedelta(days=ahead)) == 2


@pytest.mark.parametrize("ahead", [-3.1, 3.1])
def test_a_reboot_now_and_then_is_no_row(ahead: float) -> None:
    assert earlier_ineffective_reboots(left(), "4081.2.0", NOW + timedelta(days=ahead)) == 0


@pytest.mark.parametrize(
    "words", [{"unmoved": "many"}, {"unmoved": "-1"}, {"unmoved": "٣"}, {"unmoved": "9" * 5000}]
)
def test_what_is_no_number_counts_as_none(words: dict[str, str]) -> None:
    assert ineffective_reboots(left(**words)) == 0
