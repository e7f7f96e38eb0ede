"""The documents say what the code says, their links lead somewhere, and their lines can be read."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs import reference, schemas
from tests.docs.example import EXAMPLE, LARGEST, made
from tests.docs.pages import DOCS, ROOT, SCHEMAS, TABLES, block

LARGEST_README = 5120


MOST_WORDS = 2000


# of one release; a feature that no release has yet has one line, which is changed with it
MOST_WORDS_OF_A_RELEASE = 1000


WIDEST_LINE = 100


PAGES = sorted([*ROOT.glob("*.md"), *DOCS.glob("*.md")])


ANEW = "write it anew: python -m tests.docs.pages"


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def without_code(text: str) -> str:
    return re.sub(
        r"^```.*?^```$",
        lambda match: "\n" * match[0].count("\n"),
        text,
        flags=re.DOTALL | re.MULTILINE,
    )


def anchors(page: Path) -> set[str]:
    """The ids that headings get, on the site as on the forges."""
    headings = re.findall(r"^#+ (.+)$", without_code(text_of(page)), re.MULTILINE)
    return {
        re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


def links(page: Path) -> Iterator[str]:
    yield from (
        target
        for target in re.findall(r"\]\(([^)\s]+)\)", without_code(text_of(page)))
        if not target.startswith(("https:", "http:", "mailto:"))
    )


def test_the_readme_is_read_in_a_few_minutes() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= LARGEST_README


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_a_page_is_read_to_its_end(page: Path) -> None:
    """What is generated is looked up, and may be longer; so may what is to be copied."""
    by_hand = re.sub(
        r"<!-- begin (.+?) -->.*?<!-- end \1 -->", "", without_code(text_of(page)), flags=re.DOTALL
    )
    assert len(by_hand.split()) <= MOST_WORDS


def test_the_notes_of_a_release_are_read_to_their_end() -> None:
    releases = re.split(r"^## ", text_of(ROOT / "CHANGELOG.md"), flags=re.MULTILINE)[1:]
    assert [
        notes.splitlines()[0] for notes in releases if len(notes.split()) > MOST_WORDS_OF_A_RELEASE
    ] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_of_prose_fit_on_a_screen(page: Path) -> None:
    """Tables and code are excepted, and lines that one link makes long."""
    lines = without_code(text_of(page)).splitlines()
    wide = [line for line in lines if len(line) > WIDEST_LINE and not line.startswith("|")]
    assert [line for line in wide if not re.search(r"\]\([^)]{60,}\)|https?://\S{60,}", line)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_pages_and_headings(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link}"


@pytest.mark.parametrize("name", sorted(TABLES))
def test_each_table_is_that_of_this_code(name: str) -> None:
    assert block(name) == TABLES[name]().strip(), ANEW


def test_every_fixed_word_is_explained() -> None:
    assert reference.unexplained() == []


@pytest.mark.parametrize("command", sorted(schemas.DOCUMENTS))
def test_each_schema_is_that_of_this_code(command: str) -> None:
    assert text_of(SCHEMAS / f"{command}.json") == schemas.written(command), ANEW


def test_every_field_is_explained_and_nothing_else() -> None:
    assert list(schemas.unexplained()) == []
    assert list(schemas.stale_meanings()) == []


def test_the_examples_with_jq_name_fields_of_what_they_read() -> None:
    """Where jq is not installed nothing else tries them."""
    text = text_of(DOCS / "json.md").replace(" \\\n  |", " |")
    examples = re.findall(r"^rollout (.+) \| jq .*'(.+)'$", text, re.MULTILINE)
    assert len(examples) > 8
    for command, path in examples:
        name = "status-run" if "--run" in command else command.split()[0]
        properties = set(re.findall(r'"(\w+)": \{', text_of(SCHEMAS / f"{name}.json")))
        assert set(re.findall(r"\.(\w+)", path)) <= properties, path


def test_the_pictures_of_the_rooms_are_what_the_linter_enforces() -> None:
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))
    contracts = [
        contract["layers"]
        for contract in project["tool"]["importlinter"]["contracts"]
        if "layers" in contract
    ]
    pictures = re.findall(
        r"^```\n(.*?)\n```$", text_of(DOCS / "architecture.md"), re.DOTALL | re.MULTILINE
    )
    assert [re.sub(r"\brollout\.", "", "\n".join(layers)) for layers in contracts] == pictures[
        -len(contracts) :
    ]


def test_every_directory_of_tests_is_listed() -> None:
    told = set(
        re.findall(
            r"`tests/(\w+)`",
            text_of(ROOT / "CONTRIBUTING.md").partition("## Tests, by directory\n")[2],
        )
    )
    assert {path.parent.name for path in (ROOT / "tests").glob("*/*.py")} <= told


def test_tests_that_the_threat_model_has_exist() -> None:
    table = text_of(ROOT / "CONTRIBUTING.md").partition("| rule | files |")[2].partition("\n\n")[0]
    names = re.findall(r"`([\w/]+\.py)`", table)
    assert len(names) > 10
    folder = ROOT / "tests" / "security"
    assert not [
        name for name in names if not (ROOT / name if "/" in name else folder / name).exists()
    ]


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted(DOCS.glob("*.md"))], ids=lambda page: page.name
)
def test_no_page_sends_its_readers_to_the_tests(page: Path) -> None:
    """Operators have no clone, or do not read it. Comments are not seen."""
    seen = re.sub(r"<!--.*?-->", "", text_of(page), flags=re.DOTALL)
    assert re.findall(r"\btest_\w+(?:\.py|\b)", seen) == []


def test_every_page_is_on_the_site() -> None:
    navigation = text_of(ROOT / "mkdocs.yml").partition("\nnav:\n")[2]
    assert set(re.findall(r"[\w-]+\.md", navigation)) == {page.name for page in DOCS.glob("*.md")}


def test_the_two_commands_of_the_readme_are_what_ci_runs() -> None:
    commands = re.findall(r"^python3 -m venv .*$", text_of(ROOT / "README.md"), re.MULTILINE)
    assert ["pytest" in command for command in commands] == [False, True]
    assert commands[0].endswith("rollout demo")


# The report that the documents show is what this code makes of its journal: `python -m
# tests.docs.example`.


@pytest.mark.usefixtures("utc")
def test_the_example_is_that_of_this_code() -> None:
    assert EXAMPLE.read_text(encoding="utf-8") == made(), (
        "make it anew: python -m tests.docs.example"
    )
    assert EXAMPLE.stat().st_size < LARGEST


# The pipelines of docs/examples are valid, and keep their secrets as the page says.


EXAMPLES = DOCS / "examples"


CHECK = Path(sys.executable).parent / "check-jsonschema"


WRITE = "Write the secrets and settings to files"


def document(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((EXAMPLES / name).read_text())
    return loaded


@pytest.mark.parametrize(
    ("name", "schema"), [("github-nodes.yml", "github-workflows"), ("gitlab-ci.yml", "gitlab-ci")]
)
def test_it_is_valid(name: str, schema: str) -> None:
    command = [str(CHECK), "--builtin-schema", f"vendor.{schema}", str(EXAMPLES / name)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


def test_both_jobs_have_the_same_secrets_and_remove_them_whatever_happens() -> None:
    first, second = (job["steps"] for job in document("github-nodes.yml")["jobs"].values())
    assert [step for step in first if step.get("name") == WRITE] == [
        step for step in second if step.get("name") == WRITE
    ]
    assert first[-1]["if"] == second[-1]["if"] == "always()"
    page = document("gitlab-ci.yml")
    assert not any(
        key in page[job] for job in ("plan", "apply") for key in ("before_script", "after_script")
    )


@pytest.mark.parametrize("inventory", ["", "all: {hosts: {worker-1: }}"])
@pytest.mark.parametrize("name", ["github-nodes.yml", "gitlab-ci.yml"])
def test_the_jobs_give_rollout_the_settings_and_the_inventory_if_there_is_one(
    tmp_path: Path, name: str, inventory: str
) -> None:
    """In GitLab, a secret's variable has the name of a file."""
    (tmp_path / "rollout.toml").write_text("[waves]\nmax-unavailable = 2\n")
    (tmp_path / "secret").write_text(inventory)
    folder = tmp_path / "rollout"
    paths = {"FOLDER": str(folder), "RUNNER_TEMP": str(tmp_path), "GITHUB_ENV": "job-env"}
    is_github = name.startswith("github")
    secret = inventory if is_github else "secret"
    keys = ("CLUSTER_KUBECONFIG", "HOSTS_SSH_KEY", "HOSTS_KNOWN_HOSTS")
    secrets = {**dict.fromkeys(keys, secret), "HOSTS_INVENTORY": secret if inventory else ""}
    if is_github:
        steps = document(name)["jobs"]["plan"]["steps"]
        (script,) = [step["run"] for step in steps if step.get("name") == WRITE]
        script += "cat job-env\n"
    else:
        _, *lines = document(name)[".rollout"]["before_script"]
        script = "\n".join((*lines, "env"))
    ended = subprocess.run(
        ["bash", "-euc", script],
        cwd=tmp_path,
        env={**paths, **secrets, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    told = dict(re.findall(r"^(ROLLOUT_\w+)=(.*)$", ended.stdout, re.MULTILINE))
    assert "max-unavailable" in Path(told["ROLLOUT_CONFIG"]).read_text()
    assert ("ROLLOUT_INVENTORY" in told) == bool(inventory)
    assert not [file for file in folder.iterdir() if file.stat().st_mode & 0o077]
