"""The tool that compares the code of kept programs: what it writes and what it says of a change."""

import json

import pytest

from tests.tools.kept import compare, main
from tests.tools.kept_programs import FUZZ_CASES, kept

ONLY = "*notation/m*"  # two examples, for the processor and for a GPU


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "digests.json"
    assert main(["write", str(path), "--only", ONLY]) == 0
    return path


def test_every_kept_program_has_a_name_of_its_own():
    keys = [one.key for one in kept()]
    assert len(set(keys)) == len(keys)
    llvm = [key for key in keys if key.startswith("llvm ")]
    assert len(llvm) >= 894
    assert sum("fuzz/" in key for key in llvm) == FUZZ_CASES
    assert 40 <= sum(key.startswith("threads benchmark/") for key in keys) <= 90
    assert sum(key.startswith("cuda benchmark/") for key in keys) >= 24


def test_digests_that_are_made_again_are_the_same(written, capsys):
    assert main(["compare", str(written), "--only", ONLY]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "4 compared (2 LLVM texts, 2 CUDA texts), 0 differ, 0 new or gone"


def test_a_changed_digest_is_reported(written, capsys):
    data = json.loads(written.read_text())
    changed, gone, *_ = data["digests"]
    data["digests"][changed] = "0" * 40
    data["digests"]["llvm notation/many"] = data["digests"].pop(gone)
    written.write_text(json.dumps(data))
    assert main(["compare", str(written), "--only", ONLY]) == 1
    lines = capsys.readouterr().out.splitlines()[-4:]
    assert lines[:3] == [f"differs: {changed}", f"new: {gone}", "gone: llvm notation/many"]
    assert lines[3].startswith("3 compared ")


def test_programs_that_are_left_out_are_not_gone(written, capsys):
    assert main(["compare", str(written), "--only", "cuda notation/m*"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 compared (2 CUDA texts), 0 differ, 0 new or gone"


def test_new_and_gone_programs_do_not_differ():
    lines, differ = compare({"llvm a": "1", "llvm b": "2"}, {"llvm b": "2", "llvm c": "3"})
    assert lines[:2] == ["new: llvm c", "gone: llvm a"]
    assert not differ


def test_digests_of_another_machine_are_not_compared(written, capsys):
    data = json.loads(written.read_text())
    written.write_text(json.dumps({**data, "machine": "another"}))
    assert main(["compare", str(written), "--only", ONLY]) == 2
    assert "is of another machine" in capsys.readouterr().err
