"""What a how-to page says is done: a copy of the package with its blocks applied, in which code runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"```\{code-block\} python\n:caption: ([^\n]+)\n(.*?)```\n", re.DOTALL)
_PLACES = (
    ("at the end of (\\w+)", r"(^{0}\b[^\n]*= \(\n(?:.*\n)*?)(?=\))"),
    ("in (\\w+) after (\\w+)", r"(^{0}\b[^\n]*= \(\n(?:.*\n)*?    {1},\n)"),
    ("after the (imports)", r"((?:^from .*\n)+)"),
)


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the captions of a page's blocks, and their code."""
    return _BLOCK.findall(page.read_text(encoding="utf-8"))


def applied(page: Path, folder: Path) -> str:
    """Make a copy of the package in a folder, of links but for what the page's blocks change; return the page's session."""
    (folder / "polyker").symlink_to(ROOT / "polyker")
    session = ""
    for caption, code in blocks(page):
        if caption == "a session":
            session += code
            continue
        path, _, place = caption.partition(", ")
        file = _own(folder, path if path.startswith("polyker/") else f"polyker/{path}")
        file.write_text(_inserted(file.read_text(encoding="utf-8"), place, code) if place else code, encoding="utf-8")
    return session


def _own(folder: Path, path: str) -> Path:
    """Return a file of the copy that is no link, nor in a linked folder."""
    *folders, name = Path(path).parts
    here = folder
    for part in folders:
        here /= part
        if here.is_symlink():
            source = here.resolve()
            here.unlink()
            here.mkdir()
            for one in source.iterdir():
                if one.name != "__pycache__":
                    (here / one.name).symlink_to(one.resolve())
    file = here / name
    if file.is_symlink():
        text = file.read_text(encoding="utf-8")
        file.unlink()
        file.write_text(text, encoding="utf-8")
    return file


def _inserted(text: str, place: str, code: str) -> str:
    for said, pattern in _PLACES:
        if found := re.fullmatch(said, place):
            made, count = re.subn(pattern.format(*found.groups()), lambda m: m[1] + code, text, count=1, flags=re.M)
            assert count == 1, place
            return made
    raise AssertionError(f"no such place: {place}")


def run(folder: Path, code: str) -> str:
    """Run code with the copy of the package in a folder, and the tests; return what it prints."""
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", f"import polyker\nassert polyker.__file__.startswith({str(folder)!r})\n{code}"]
    found = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return found.stdout
