"""The page on the command line, and the commands of the README: they run and print what stands there."""

import doctest
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "command_line.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def words(line):
    """Return the words of a line of a shell, in which | and > are words of their own."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|>")
    lexer.whitespace_split = True
    return list(lexer)


def run_line(polyker, line, folder):
    """Return what a line prints: commands of polyker in a pipe, the last maybe into a file."""
    commands, given, file = [[]], b"", None
    parts = iter(words(line))
    for word in parts:
        if word == "|":
            commands.append([])
        elif word == ">":
            file = next(parts)
        else:
            commands[-1].append(word)
    for name, *arguments in commands:
        assert name == "polyker"
        result = polyker(*arguments, input=given)
        assert result.exit_code == 0, f"{line}\n{result.output}"
        given = result.stdout_bytes
    if file is None:
        return given.decode()
    (folder / file).write_bytes(given)
    return ""


def examples():
    """Return the lines of the page's sessions, each with what it prints."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, printed = part.partition("\n")
            found.append((line, printed))
    return found


def test_the_sessions_of_the_page_are_true(polyker, tmp_path):
    assert len(examples()) >= 10
    for line, printed in examples():
        found = run_line(polyker, line, tmp_path)
        assert doctest.OutputChecker().check_output(printed, found, doctest.ELLIPSIS), f"{line}\n{found}"


def test_the_readmes_commands_run(polyker, files, tmp_path):
    lines = re.findall(r"^(polyker (?:run|show|env).*?)(?: +#.*)?$", README, re.MULTILINE)
    assert len(lines) >= 4
    for line in lines:
        run_line(polyker, line, tmp_path)
    np.testing.assert_array_equal(np.load(tmp_path / "c.npy"), files[0] @ files[1])


@pytest.mark.parametrize("name", ["run", "show"])
def test_the_page_names_what_the_json_objects_hold(polyker, files, name):
    given = {
        "run": ("run", "S[i] += A[i,k]", "A=a.npy", "--json"),
        "show": ("show", "S[i] += A[i,k]", "A=f32[4,3]", "--json", "--stage", "schedule"),
    }[name]
    for key in json.loads(polyker(*given).output):
        assert f"`{key}`" in PAGE
