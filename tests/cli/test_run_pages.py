"""The pages of `operate` and `status --web`, from the journals on this machine."""

import os
from pathlib import Path

import pytest

from rollout.adapters import journal
from rollout.adapters.journal import journal_of, list_journals, runs_directory
from rollout.cli.settings.schema import Settings
from rollout.cli.stages import web
from rollout.cli.stages.journals import RecordedRun, read_recorded_run
from rollout.cli.stages.web import RunPages
from tests.report.journals import as_lines, fleet

# The run of `tests/report/journals`.
RUNS = tuple(f"{number:016x}" for number in range(25))


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def write(run: str, at: int, lines: bytes) -> Path:
    file = journal_of(run)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(lines)
    os.utime(file, (at, at))
    return file


def night(cluster: str = "berlin") -> bytes:
    records = fleet(4, 2).records()
    return as_lines({**entry, "cluster_name": cluster} for entry in records)


@pytest.fixture
def pages() -> RunPages:
    return RunPages(Settings())


def html(pages: RunPages, path: str = "/") -> str:
    page = pages.page(path, refreshes=True)
    assert page is not None
    return page.html


def test_without_a_journal_there_is_a_page_that_says_so(pages: RunPages) -> None:
    assert "No rollout is recorded" in html(pages)


def test_the_latest_run_comes_first_and_every_other_has_a_page(pages: RunPages) -> None:
    write(RUNS[1], 100, night("berlin"))
    write(RUNS[2], 200, night("madrid"))
    assert "<h1>madrid" in html(pages)
    for run in RUNS[1:3]:
        assert f'<a href="/runs/{run}">' in html(pages)
    past = pages.page(f"/runs/{RUNS[1]}", refreshes=True)
    assert past is not None
    assert "<h1>berlin" in past.html
    assert past.refresh == 0


@pytest.mark.parametrize(
    "path", ["/runs/", "/runs", "/index.html", f"/runs/{RUNS[9]}", "/runs/../runs", f"/{RUNS[1]}"]
)
def test_no_other_path_has_a_page(path: str, pages: RunPages) -> None:
    write(RUNS[1], 100, night())
    assert pages.page(path, refreshes=True) is None


def test_a_file_beside_the_journals_is_no_run(pages: RunPages) -> None:
    write(RUNS[1], 100, night())
    (runs_directory() / "secret.txt").write_text("a password")
    (runs_directory() / "..jsonl").write_text("a password")
    assert pages.page("/runs/secret.txt", refreshes=True) is None
    assert pages.page("/runs/.", refreshes=True) is None


def test_a_page_is_made_at_most_once_in_a_while(
    pages: RunPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    monkeypatch.setattr(web, "_FRESH_SECONDS", 60.0)

    def count(file: Path) -> RecordedRun:
        read.append(file)
        return read_recorded_run(file)

    monkeypatch.setattr(web, "read_recorded_run", count)
    write(RUNS[1], 100, night())
    for _ in range(5):
        html(pages)
    assert len(read) == 1


def test_a_running_journal_is_read_once_for_a_page(
    pages: RunPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []

    def read_and_grow(file: Path) -> RecordedRun:
        read.append(file)
        run = read_recorded_run(file)
        with file.open("ab") as growing:
            growing.write(b"\n")
        return run

    monkeypatch.setattr(web, "read_recorded_run", read_and_grow)
    file = write(RUNS[1], 100, night())
    html(pages)
    assert read == [file]


def test_the_journals_are_listed_once_for_many_requests(
    pages: RunPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []

    def count() -> tuple[Path, ...]:
        listed.append("once")
        return list_journals()

    monkeypatch.setattr(web, "_FRESH_SECONDS", 60.0)
    pages = RunPages(Settings())
    monkeypatch.setattr(journal, "list_journals", count)
    write(RUNS[1], 100, night())
    for path in ("/", f"/runs/{RUNS[1]}", "/runs/unknown", f"/runs/{RUNS[9]}"):
        pages.page(path, refreshes=True)
    assert len(listed) == 1


def test_only_the_own_page_of_the_latest_run_is_made_anew_soon(
    pages: RunPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "_FRESH_SECONDS", 0.0)
    monkeypatch.setattr(web, "_SHARE", float("inf"))
    pages = RunPages(Settings())
    files = [write(RUNS[at], at, night("berlin")) for at in (1, 2)]
    paths = [f"/runs/{RUNS[at]}" for at in (1, 2)]
    for path in paths:
        assert "<h1>berlin" in html(pages, path)
    for at, file in enumerate(files):
        write(file.stem, at + 1, night("madrid"))
    assert "<h1>berlin" in html(pages, paths[0])
    assert "<h1>madrid" in html(pages, paths[1])


def test_journals_that_there_is_no_time_for_are_read_for_the_next_page(
    pages: RunPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at, run in enumerate(RUNS[:3]):
        write(run, at + 1, night())
    monkeypatch.setattr(web, "_READING_SECONDS", 0.0)
    page = html(pages)
    assert page.count('<a href="/runs/') == 1
    assert page.count("see: rollout report ") == 2
    monkeypatch.setattr(web, "_READING_SECONDS", 60.0)
    page = html(pages, f"/runs/{RUNS[0]}")
    assert page.count('<a href="/runs/') == 3


def test_of_many_runs_the_latest_are_listed(pages: RunPages) -> None:
    for at, run in enumerate(RUNS):
        write(run, at + 1, night())
    assert html(pages).count('<a href="/runs/') == 20
    assert pages.page(f"/runs/{RUNS[0]}", refreshes=True) is None


def test_a_journal_that_is_too_large_or_damaged_is_only_named(
    pages: RunPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(RUNS[1], 100, night())
    write(RUNS[2], 200, night() * 40)
    write(RUNS[3], 300, b"no journal\n")
    monkeypatch.setattr(web, "_LARGEST_JOURNAL", len(night()) + 1)
    page = html(pages)
    for run in RUNS[2:4]:
        assert f"see: rollout report {run}" in page
        assert f'href="/runs/{run}"' not in page
        assert pages.page(f"/runs/{run}", refreshes=True) is None
    assert f'href="/runs/{RUNS[1]}"' in page


def test_a_latest_run_whose_journal_is_too_large_is_not_called_missing(
    pages: RunPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(RUNS[1], 100, night())
    monkeypatch.setattr(web, "_LARGEST_JOURNAL", 1)
    page = html(pages)
    assert "No rollout is recorded" not in page
    assert "The latest run is listed in the history below" in page
    assert f"see: rollout report {RUNS[1]}" in page


def test_a_link_to_no_journal_hides_no_other_run(pages: RunPages) -> None:
    write(RUNS[1], 100, night())
    journal_of(RUNS[2]).symlink_to(journal_of(RUNS[3]))
    assert "<h1>berlin" in html(pages)


def test_what_the_cluster_shows_is_text(pages: RunPages) -> None:
    pages = RunPages(Settings(), lambda: "wave 1 of 2\n  <b>worker-1</b>: draining")
    page = html(pages)
    assert "wave 1 of 2\n  &lt;b&gt;worker-1&lt;/b&gt;: draining" in page


def test_a_run_that_goes_on_is_refreshed_more_often(pages: RunPages) -> None:
    write(RUNS[1], 100, night())
    page = pages.page("/", refreshes=True)
    assert page is not None
    assert page.refresh == 30
    assert "Refreshes every 30 s" in page.html
    still = pages.page("/", refreshes=False)
    assert still is not None
    assert still.refresh == 0
    assert "Refreshes every" not in still.html
