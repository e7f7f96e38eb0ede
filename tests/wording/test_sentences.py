"""No code reads a sentence that the program wrote: findings decide, and sentences are for people."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import rollout

ROOT = Path(rollout.__file__).parent
# Fields that hold sentences, in the model, in documents and in errors.
SENTENCES = {
    *("message", "cause", "fix", "brief", "because", "note", "basis", "effect", "hint"),
    *("why", "sentence"),
}
READERS = {
    *("startswith", "endswith", "removeprefix", "removesuffix", "index", "find", "rfind", "count"),
    *("partition", "rpartition", "split", "rsplit", "splitlines"),
}
PATTERNS = {"search", "match", "fullmatch", "findall", "finditer", "sub", "split"}


def is_sentence(value: ast.expr) -> bool:
    match value:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in SENTENCES
        case ast.Call(func=ast.Name(id="printable" | "str"), args=[argument]):
            return is_sentence(argument)
        case ast.Call(func=ast.Attribute(attr=name, value=inner)) if name in READERS:
            return is_sentence(inner)
        case _:
            return False


def is_read(found: ast.AST) -> bool:
    """Whether this code splits, searches or compares a part of a sentence."""
    match found:
        case ast.Call(func=ast.Attribute(attr=method, value=value), args=arguments):
            is_split = method in READERS and is_sentence(value)
            return is_split or (method in PATTERNS and any(map(is_sentence, arguments)))
        case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[value]):
            return is_sentence(value)
        case ast.Subscript(value=value, slice=ast.Slice()):
            return is_sentence(value)
        case _:
            return False


def readings(source: str) -> Iterator[int]:
    """Yield the lines at which code reads a sentence."""
    for found in ast.walk(ast.parse(source)):
        if isinstance(found, ast.expr) and is_read(found):
            yield found.lineno


# Files that read what another program wrote: ansible, CEL, the API server, sudo, msgspec, typer.
FOREIGN = {
    "adapters/ansible/answers.py",
    "adapters/cel.py",
    "cli/failures.py",
    "execution/drain/eviction.py",
    "gather/cluster/documents.py",
    "gather/cluster/failure.py",
    "gather/hosts/sudo.py",
    "lab/scenario.py",
    "planning/plan/document.py",
}


def test_no_code_splits_or_searches_a_sentence_of_the_program() -> None:
    found = [
        file
        for file in (path.relative_to(ROOT).as_posix() for path in sorted(ROOT.rglob("*.py")))
        for _line in readings((ROOT / file).read_text())
        if file not in FOREIGN
    ]
    assert found == []


@pytest.mark.parametrize(
    "reading",
    [
        'what, _, fix = rival.message.partition(": ")',
        'exclusion.message.endswith("paused")',
        're.search("version (.*) is held", node.message)',
        '_PATTERN.sub("", cause)',
        '"refused" in error.message',
        'printable(hint).removeprefix("See: ")',
        "finding.because[:20]",
    ],
)
def test_the_scan_finds_each_way_to_read_a_sentence(reading: str) -> None:
    assert list(readings(reading))


@pytest.mark.parametrize(
    "code", ['blocker.object.startswith("node/")', "joined(cause, fix)", "message == other.message"]
)
def test_the_scan_leaves_names_and_whole_sentences_alone(code: str) -> None:
    assert not list(readings(code))


def sentences(source: str) -> Iterator[str]:
    """Yield the long texts of code, without docstrings."""
    tree = ast.parse(source)
    docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if node not in docstrings:
                if len(text.split()) >= WORDS:
                    yield text.strip()
            case _:
                pass


WORDS = 8
# The list of commands is read without the commands, and pools have settings of their own.
WRITTEN_TWICE = {
    "Serve the FleetLock protocol for hosts that run Zincati.",
    "Reboot this many nodes first, one at a time",
    "How long to wait for pods to terminate",
    "How long to wait for a host to come back",
    "How long to wait for a node to become Ready",
}


def test_each_sentence_is_written_once() -> None:
    counts = Counter[str]()
    for path in ROOT.rglob("*.py"):
        if "lab" not in path.relative_to(ROOT).parts:
            counts.update(sentences(path.read_text()))
    assert {text for text, count in counts.items() if count > 1} <= WRITTEN_TWICE
