from rollout.report.columns import Column, table_text

COLUMNS = (
    Column("NODE"),
    Column("ZONE", leaves=1),
    Column("PODS", leaves=2, right=True),
    Column("NODES", wraps=True),
    Column("WHY", note=True),
)
ROWS = [
    (
        "worker-1",
        "eu-1a",
        "12",
        "a-long-name-1, a-long-name-2, a-long-name-3",
        "as many as may be away at once by the rules",
    ),
    ("worker-2", "eu-1b", "3", "a-long-name-4", ""),
]


def longest(text: str) -> int:
    return max(map(len, text.splitlines()))


def test_where_there_is_room_everything_stands_in_its_row() -> None:
    for width in (None, 150):
        heading, first, second = table_text(COLUMNS, ROWS, width).splitlines()
        assert heading.split() == ["NODE", "ZONE", "PODS", "NODES", "WHY"]
        assert first.endswith("by the rules")
        assert second.endswith("a-long-name-4")


def test_lists_and_notes_are_broken_between_words_before_anything_leaves() -> None:
    text = table_text(COLUMNS, ROWS, 90)
    assert longest(text) <= 90
    assert text.splitlines()[0].split() == ["NODE", "ZONE", "PODS", "NODES", "WHY"]
    assert len(text.splitlines()) == 5


def test_then_the_note_goes_below_its_row() -> None:
    heading, first, note, _ = table_text(COLUMNS, ROWS, 76).splitlines()
    assert heading.split() == ["NODE", "ZONE", "PODS", "NODES"]
    assert first.endswith("a-long-name-3")
    assert note == "    as many as may be away at once by the rules"


def test_then_columns_leave_in_their_stated_order_and_are_named() -> None:
    one = table_text(COLUMNS, ROWS, 40).splitlines()
    assert one[0].split() == ["NODE", "PODS", "NODES"]
    assert one[-1] == "(ZONE: -o wide)"
    two = table_text(COLUMNS, ROWS, 34).splitlines()
    assert two[0].split() == ["NODE", "NODES"]
    assert two[-1] == "(ZONE, PODS: -o wide)"
    assert max(map(len, two)) <= 34


def test_at_every_width_that_holds_what_stays_no_line_is_longer_and_nothing_is_lost() -> None:
    for width in range(32, 160):
        text = table_text(COLUMNS, ROWS, width)
        assert longest(text) <= width
        words = text.replace(",", " ").split()
        assert {f"a-long-name-{number}" for number in range(1, 5)} <= set(words)
        assert "rules" in words
