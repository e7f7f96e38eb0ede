"""A Dockerfile's steps on clean roots, where there is no container engine: a fresh Debian stands in for the base.

Finished stages are kept outside the tree, as an engine keeps its layers: under the hash of all that
went into them.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.image.dockerfile import Stage, Step, copied

# Debian's images are made by debootstrap, too: https://github.com/debuerreotype/debuerreotype
_SUITES = {"debian:13": "trixie"}
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# As in an engine: what a step may need and what is no part of what is built. That is also the
# authorities that this machine trusts, for a network that looks into TLS; the locks' hashes hold
# all the same.
_RUN = """
set -e
mount -t proc proc "$0/proc"
mount --bind /etc/resolv.conf "$0/etc/resolv.conf"
mount -t tmpfs tmpfs "$0/tmp"
cp /etc/ssl/certs/ca-certificates.crt "$0/tmp"
exec chroot "$0" env -i "$@"
"""


@dataclass(frozen=True, slots=True)
class Image:
    """What is left of a build: a root, and how it is started."""

    root: Path
    user: str
    folder: str
    environment: dict[str, str]
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]


def missing() -> str:
    """Why nothing can be built here; empty where it can."""
    if os.geteuid() != 0:
        return "needs root"
    absent = [
        name
        for name in ("debootstrap", "unshare", "chroot", "setpriv")
        if shutil.which(name) is None
    ]
    return f"needs {', '.join(absent)}" if absent else ""


class Roots:
    """Builds the stages of one Dockerfile from one source tree."""

    def __init__(self, stages: Sequence[Stage], source: Path, cache: Path) -> None:
        self._stages = stages
        self._source = source
        self._cache = cache
        self._built: dict[str, Path] = {}

    def build(self) -> Image:
        """All stages; the last is the image."""
        self._cache.mkdir(parents=True, exist_ok=True)
        with (self._cache / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for stage in self._stages:
                self._built[stage.name] = self._stage(stage)
        return self._image()

    def _stage(self, stage: Stage) -> Path:
        base = self._built.get(stage.base) or self._clean(stage.base)
        place = f"{stage.name or 'last'}-{self._key(base, stage)}"
        if not (self._cache / place).exists():
            for old in self._cache.glob(f"{stage.name or 'last'}-*"):
                shutil.rmtree(old)
            building = self._cache / f"building-{place}"
            shutil.rmtree(building, ignore_errors=True)
            _run("cp", "--archive", "--reflink=auto", str(base), str(building))
            self._carry_out(stage, building)
            building.rename(self._cache / place)
        return self._cache / place

    def _clean(self, image: str) -> Path:
        suite = next(suite for name, suite in _SUITES.items() if image.startswith(name))
        root = self._cache / f"clean-{suite}"
        if not root.exists():
            building = self._cache / f"building-{suite}"
            shutil.rmtree(building, ignore_errors=True)
            _run("debootstrap", "--variant=minbase", suite, str(building))
            building.rename(root)
        return root

    def _key(self, base: Path, stage: Stage) -> str:
        digest = hashlib.sha256(base.name.encode())
        for step in stage.steps:
            digest.update(f"\n{step.word} {step.text}".encode())
            for path in self._files(step):
                digest.update(f"\n{path}\n".encode() + path.read_bytes())
        return digest.hexdigest()[:16]

    def _files(self, step: Step) -> Iterator[Path]:
        """The files that it copies; of another stage's, the name says all."""
        if step.word != "COPY":
            return
        copy = copied(step)
        for source in () if copy.stage else copy.sources:
            path = self._source / source
            yield from sorted(_sources_under(path)) if path.is_dir() else [path]
        if copy.stage:
            yield from self._built[copy.stage].glob("etc/hostname")

    def _carry_out(self, stage: Stage, root: Path) -> None:
        folder = self._folder_of(stage.base)
        for step in stage.steps:
            match step.word:
                case "RUN":
                    variables = [f"PATH={_PATH}", "HOME=/root", "PIP_CERT=/tmp/ca-certificates.crt"]
                    shell = ["sh", "-c", 'cd "$0" && eval "$1"', folder, step.text]
                    _run("unshare", "--mount", "sh", "-c", _RUN, str(root), *variables, *shell)
                case "WORKDIR":
                    folder = step.text
                    (root / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
                case "COPY":
                    self._copy(step, root, folder)
                case _:
                    pass  # says how the image is started

    def _folder_of(self, name: str) -> str:
        """Where the steps of a stage end; those that are made of it begin there."""
        stage = next((stage for stage in self._stages if stage.name == name), None)
        if stage is None:
            return "/"
        folders = stage.all_of("WORKDIR")
        return folders[-1].text if folders else self._folder_of(stage.base)

    def _copy(self, step: Step, root: Path, folder: str) -> None:
        copy = copied(step)
        origin = self._built[copy.stage] if copy.stage else self._source
        target = root / os.path.join(folder, copy.target).lstrip("/")  # noqa: PTH118 - an absolute target wins
        for source in copy.sources:
            path = origin / source.lstrip("/")
            if path.is_dir():
                ignored = None if copy.stage else shutil.ignore_patterns("__pycache__")
                shutil.copytree(path, target, symlinks=True, ignore=ignored, dirs_exist_ok=True)
            else:
                shutil.copy2(path, target)

    def _image(self) -> Image:
        last = self._stages[-1]
        variables = {
            name: value for step in last.all_of("ENV") for name, value in step.pairs.items()
        }
        return Image(
            self._built[last.name],
            last.all_of("USER")[-1].text,
            self._folder_of(last.name),
            {"PATH": _PATH, **variables},
            tuple(last.all_of("ENTRYPOINT")[-1].words),
            tuple(last.all_of("CMD")[-1].words),
        )


def usual_cache() -> Path:
    """Where roots are kept: `$ROLLOUT_IMAGE_CACHE`, else beside other temporary files."""
    return Path(
        os.environ.get("ROLLOUT_IMAGE_CACHE", Path(tempfile.gettempdir()) / "rollout-image-cache")
    )


def _sources_under(path: Path) -> Iterator[Path]:
    return (file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts)


def _run(*command: str) -> None:
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{ended.stdout[-3000:]}{ended.stderr[-3000:]}")
