"""Take the newest version of the workbook, and keep what the reader wrote.

usage: update.py

Notebooks are worked on in place. One that the new version leaves alone stays as it is,
with its answers and outputs. One that the new version changes is kept in
notebooks/kept/, and the new one takes its place; results and guesses are in the
reader's own folder, where no version touches them.

Standard library and git only.
"""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = Path("notebooks")
KEPT = NOTEBOOKS / "kept"


class GitFailed(Exception):
    """Why, in git's own words."""


def git(root: Path, *arguments: str) -> str:
    """What a git command prints; GitFailed where it fails."""
    command = ["git", "-C", str(root), *arguments]
    try:
        completed = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise GitFailed(f"git can't be started: {error}") from error
    if completed.returncode:
        words = " ".join(completed.stderr.split())
        raise GitFailed(words or f"`git {arguments[0]}` failed")
    return completed.stdout


def changed(root: Path) -> list[Path]:
    """The notebooks that differ from the last commit."""
    listed = git(root, "diff", "--name-only", "HEAD", "--", f"{NOTEBOOKS}/*.ipynb")
    return [Path(line) for line in listed.splitlines()]


def update(root: Path, today: date) -> list[str]:
    """Bring the folder to the newest version; a sentence for each thing that was done.

    Raises GitFailed, with everything as it was before, where there is no newer version
    to be had or the reader changed another file that it changes.
    """
    git(root, "fetch", "--quiet")
    upstream = git(root, "rev-parse", "@{upstream}").strip()
    if git(root, "rev-parse", "HEAD").strip() == upstream:
        return ["This is the newest version already."]
    own = {path: (root / path).read_bytes() for path in changed(root)}
    before = {path: git(root, "rev-parse", f"HEAD:{path}") for path in own}
    try:
        if own:
            git(root, "checkout", "--quiet", "HEAD", "--", *map(str, own))
        git(root, "merge", "--quiet", "--ff-only", upstream)
    except GitFailed:
        for path, content in own.items():
            (root / path).write_bytes(content)
        raise
    said = [f"Now at {git(root, 'log', '-1', '--format=%h of %cs').strip()}."]
    for path, content in own.items():
        if _blob(root, path) == before[path]:
            (root / path).write_bytes(content)
        else:
            kept = _keep(root, path, content, today)
            said.append(f"{path} is new; yours, with your answers, is {kept}.")
    return said


def _blob(root: Path, path: Path) -> str:
    """Git's name of a file's content in the last commit; "" where it has none."""
    try:
        return git(root, "rev-parse", f"HEAD:{path}")
    except GitFailed:
        return ""


def _keep(root: Path, path: Path, content: bytes, today: date) -> Path:
    """Write a reader's notebook into notebooks/kept/, beside what is there already."""
    (root / KEPT).mkdir(exist_ok=True)
    kept = KEPT / f"{path.stem}_{today}.ipynb"
    count = 1
    while (root / kept).exists():
        count += 1
        kept = KEPT / f"{path.stem}_{today}_{count}.ipynb"
    (root / kept).write_bytes(content)
    return kept


def fail(sentence: str) -> NoReturn:
    """End with one sentence and exit status 1."""
    sys.exit(f"Nothing was changed. {sentence}")


def main() -> None:
    """Update ROOT."""
    if not (ROOT / ".git").exists():
        fail(
            "This folder was downloaded without git: download the new version into"
            " another folder, and open your notebooks from this one."
        )
    try:
        said = update(ROOT, date.today())
    except GitFailed as error:
        fail(f"Git says: {error}")
    print("\n".join(said))


if __name__ == "__main__":
    main()
