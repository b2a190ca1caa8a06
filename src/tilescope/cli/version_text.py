"""The text of `tilescope --version`: the version, and the commit if it is known.

A checkout has its commit in .git, a package that pip installed from a repository in its record (PEP 610). A wheel from
an index has no commit; its version is enough.
"""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from tilescope import __version__

_SHORT = 10  # characters of a commit
_CHECKOUT = Path(__file__).resolve().parents[3]


def version_text() -> str:
    """The version, such as "0.1.0 (commit 1f3a5c7e90)" in a checkout."""
    commit = checkout_commit(_CHECKOUT) if _is_own_checkout(_CHECKOUT) else installed_commit()
    return f"{__version__} (commit {commit[:_SHORT]})" if commit else __version__


def _is_own_checkout(root: Path) -> bool:
    """Whether the package is imported from `src` of a checkout, and not from an environment inside another project."""
    return (root / "src" / "tilescope").is_dir() and (root / ".git").exists()


def checkout_commit(root: Path) -> str:
    """The commit that a checkout is at; empty if .git cannot be read."""
    try:
        folder = _git_folder(root / ".git")
        head = (folder / "HEAD").read_text("utf-8").strip()
        if not head.startswith("ref: "):
            return head
        return _commit_of_branch(folder, head.removeprefix("ref: "))
    except OSError:
        return ""


def _git_folder(git: Path) -> Path:
    """The folder of a checkout's data: .git, or where the file .git of a worktree points."""
    return git if git.is_dir() else git.parent / git.read_text("utf-8").removeprefix("gitdir:").strip()


def _commit_of_branch(folder: Path, branch: str) -> str:
    common = folder / "commondir"
    shared = folder / common.read_text("utf-8").strip() if common.exists() else folder
    if (shared / branch).exists():
        return (shared / branch).read_text("utf-8").strip()
    lines = (shared / "packed-refs").read_text("utf-8").splitlines()
    return next((line.split()[0] for line in lines if line.endswith(f" {branch}")), "")


def installed_commit() -> str:
    """The commit that pip recorded, if it installed the package from a repository."""
    try:
        record = distribution("tilescope").read_text("direct_url.json")
    except PackageNotFoundError:
        return ""
    commit = json.loads(record or "{}").get("vcs_info", {}).get("commit_id", "")
    return commit if isinstance(commit, str) else ""
