"""tilescope --version names the commit of a checkout, however git keeps it."""

import re
import subprocess

import pytest

from tilescope import __version__
from tilescope.cli import run, version_text
from tilescope.cli.version_text import checkout_commit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git_folder(path, **files):
    for name, text in files.items():
        file = path / name.replace("__", "/").replace("_", "-")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def test_a_branch_a_packed_branch_and_a_detached_head(tmp_path):
    git_folder(tmp_path / ".git", HEAD="ref: refs/heads/main\n", refs__heads__main=f"{COMMIT}\n")
    assert checkout_commit(tmp_path) == COMMIT
    (tmp_path / ".git" / "refs" / "heads" / "main").unlink()
    git_folder(tmp_path / ".git", packed_refs=f"# pack-refs with: peeled\n{COMMIT} refs/heads/main\n")
    assert checkout_commit(tmp_path) == COMMIT
    git_folder(tmp_path / ".git", HEAD=f"{COMMIT}\n")
    assert checkout_commit(tmp_path) == COMMIT


def test_a_worktree(tmp_path):
    git_folder(tmp_path / "main" / ".git", refs__heads__side=f"{COMMIT}\n")
    git_folder(tmp_path / "main" / ".git" / "worktrees" / "side", HEAD="ref: refs/heads/side\n", commondir="../..\n")
    (tmp_path / "side").mkdir()
    (tmp_path / "side" / ".git").write_text(f"gitdir: {tmp_path / 'main' / '.git' / 'worktrees' / 'side'}\n")
    assert checkout_commit(tmp_path / "side") == COMMIT


def test_a_folder_that_git_does_not_know(tmp_path):
    assert checkout_commit(tmp_path) == ""


def test_what_is_printed(capsys, monkeypatch, tmp_path):
    git_folder(tmp_path / ".git", HEAD=f"{COMMIT}\n")
    (tmp_path / "src" / "tilescope").mkdir(parents=True)
    monkeypatch.setattr(version_text, "_CHECKOUT", tmp_path)
    assert version_text.version_text() == f"{__version__} (commit 0123456789)"
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"tilescope {__version__} (commit 0123456789)\n"


def test_the_commit_is_gits(capsys):
    checkout = version_text._CHECKOUT
    if not (checkout / ".git").exists():
        pytest.skip("the package is not in a checkout")
    wanted = subprocess.check_output(["git", "-C", checkout, "rev-parse", "HEAD"], text=True).strip()
    run(["--version"])
    assert re.search(r"\(commit (\w+)\)", capsys.readouterr().out)[1] == wanted[:10]
