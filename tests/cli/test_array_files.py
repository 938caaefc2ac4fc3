"""Arrays on the command line: the formats that are read and written, and what is said of files that hold none."""

import json
import os
import zipfile

import ml_dtypes
import numpy as np
import pytest

COPY = "O[i] = x[i]"
ODD = {
    "f2": np.array([1.5, np.inf, 65504], "f2"),
    "f4": np.array([0.1, -0.0, np.nan, 3e38, 1e-45], "f4"),
    "f8": np.array([0.1, 1e300, -np.inf, 5e-324]),
    "i1": np.array([-128, 127], "i1"),
    "u8": np.array([0, 2**64 - 1], "u8"),
    "c8": np.array([1 + 2j, -3.5j, complex(np.nan, 1)], "c8"),
    "b1": np.array([True, False]),
    "one": np.array([7], "i4"),
}


@pytest.mark.parametrize("suffix", ["npy", "npz", "csv"])
@pytest.mark.parametrize("kind", ODD)
def test_what_is_written_reads_again_as_the_same_values(polyker, tmp_path, kind, suffix):
    np.save(tmp_path / "x.npy", ODD[kind])
    assert polyker("run", COPY, "x=x.npy", "-o", f"o.{suffix}").exit_code == 0
    name = {"f": f"f{8 * ODD[kind].itemsize}", "c": "c64", "b": "bool"}.get(ODD[kind].dtype.kind)
    name = name or f"{ODD[kind].dtype.kind}{8 * ODD[kind].itemsize}"
    text = f"f(x: {name}[N]) -> O:\n    O[i] = x[i]"
    assert polyker("run", text, f"x=o.{suffix}", "-o", "again.npy").exit_code == 0
    again = np.load(tmp_path / "again.npy")
    assert again.dtype == ODD[kind].dtype
    np.testing.assert_array_equal(again, ODD[kind])
    if suffix != "csv":
        assert again.tobytes() == ODD[kind].tobytes()


def test_an_input_declared_bf16_takes_what_numpy_writes_of_it(polyker, tmp_path):
    values = np.array([1.5, -2, 0.1], ml_dtypes.bfloat16)
    np.save(tmp_path / "x.npy", values)
    text = "f(x: bf16[N]) -> O:\n    O[i] = x[i]"
    assert polyker("run", text, "x=x.npy", "-o", "o.npy").exit_code == 0
    assert np.load(tmp_path / "o.npy").tobytes() == values.tobytes()
    assert json.loads(polyker("run", text, "x=o.npy", "--json").output)["outputs"][0]["value"] == values.tolist()


@pytest.mark.parametrize(
    ("table", "dtype", "values"),
    [
        ("1,2\n3,4\n", "int64", [[1, 2], [3, 4]]),
        ("1, 2\r\n\r\n3,4.5", "float64", [[1, 2], [3, 4.5]]),
        ("\ufeff1,2\n", "int64", [[1, 2]]),
        ("1\n2\n", "int64", [[1], [2]]),
        ("1+2j,0\n", "complex128", [[1 + 2j, 0]]),
    ],
)
def test_a_table_has_the_type_of_its_numbers(polyker, tmp_path, table, dtype, values):
    (tmp_path / "t.csv").write_text(table, encoding="utf-8", newline="")
    assert polyker("run", "O[i,j] = x[i,j]", "x=t.csv", "-o", "o.npy").exit_code == 0
    found = np.load(tmp_path / "o.npy")
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("table", ["1,2,3\n", "1\n2\n3\n"])
def test_an_input_with_one_index_takes_a_row_or_a_column(polyker, tmp_path, table):
    (tmp_path / "t.csv").write_text(table)
    assert polyker("run", COPY, "x=t.csv", "-o", "o.csv").exit_code == 0
    assert (tmp_path / "o.csv").read_text() == "1\n2\n3\n"
    (tmp_path / "s.csv").write_text("5")
    assert polyker("run", "O[i] = a * x[i]", "x=t.csv", "a=s.csv", "-o", "o.csv").exit_code == 0
    assert (tmp_path / "o.csv").read_text() == "5\n10\n15\n"


def test_indices_for_a_gather_come_from_a_table(polyker, tmp_path):
    (tmp_path / "t.csv").write_text("10,20,30")
    (tmp_path / "idx.csv").write_text("2,0,2,1")
    assert polyker("run", "E[b] = T[idx[b]]", "T=t.csv", "idx=idx.csv", "-o", "e.csv").exit_code == 0
    assert (tmp_path / "e.csv").read_text() == "30\n10\n30\n20\n"


@pytest.mark.parametrize(
    ("text", "table", "words"),
    [
        (COPY, "a,b\n1,2\n", ["line 1, column 1: 'a' is no number", "header"]),
        (COPY, "1,2\n\n3,\x1b[0m\n", ["line 3, column 2: '\\x1b[0m' is no number"]),
        (COPY, "1,2\n3\n", ["line 2 has 1 numbers, those before it 2"]),
        (COPY, "1,2,\n", ["line 1, column 3: '' is no number"]),
        (COPY, "1,2\n3,4\n", ["2 rows of 2 numbers; one row or one column"]),
        (COPY, " \n", ["the file is empty"]),
        (COPY, "99999999999999999999,1\n", ["out of the range of 64 bits"]),
        ("O[i,j] = x[i,j,0]", "1,2", ["one or two dimensions, not 3"]),
        ("O[i] = x * i for i in 0:3", "1,2", ["2 numbers; one is wanted"]),
        ("f(x: i8[N]) -> O:\n O[i] = x[i]", "1,300", ["300 is no i8"]),
        ("f(x: bool[N]) -> O:\n O[i] = x[i]", "1,2", ["2 is no bool"]),
        ("f(x: i32[N]) -> O:\n O[i] = x[i]", "1,0.5", ["0.5 is no i32"]),
        ("f(x: f32[N]) -> O:\n O[i] = x[i]", "1,2j", ["2j", "is no f32"]),
    ],
)
def test_a_table_that_does_not_fit_is_refused(polyker, tmp_path, refused, text, table, words):
    (tmp_path / "t.csv").write_text(table)
    refused(polyker("run", text, "x=t.csv"), "x=t.csv: ", *words, status=1)


def test_a_member_of_an_archive_is_named(polyker, tmp_path, refused):
    np.savez(tmp_path / "two.npz", first=np.ones(3), second=np.arange(3.0))
    np.savez_compressed(tmp_path / "only.npz", np.arange(3.0))
    assert polyker("run", COPY, "x=two.npz:second", "-o", "o.csv").exit_code == 0
    assert (tmp_path / "o.csv").read_text() == "0.0\n1.0\n2.0\n"
    assert polyker("run", COPY, "x=only.npz", "-o", "o.csv").exit_code == 0
    refused(polyker("run", COPY, "x=two.npz"), "the file holds first, second; write two.npz:MEMBER", status=1)
    refused(polyker("run", COPY, "x=two.npz:third"), "there is no third; the file holds first, second", status=1)
    np.savez(tmp_path / "many.npz", **{f"m{n}": np.ones(1) for n in range(30)})
    refused(polyker("run", COPY, "x=many.npz"), "m0, m1", "m19 and 10 more", status=1)
    np.savez(tmp_path / "none.npz")
    refused(polyker("run", COPY, "x=none.npz"), "the file holds nothing", status=1)


def _broken(folder):
    """Write files that are no arrays; return their names."""
    np.save(folder / "x.npy", np.ones((4, 4)))
    whole = (folder / "x.npy").read_bytes()
    for cut in (0, 7, 60, 128, 250):
        (folder / f"cut{cut}.npy").write_bytes(whole[:cut])
    (folder / "shape.npy").write_bytes(whole.replace(b"(4, 4)", b"(-4,4)"))
    (folder / "code.npy").write_bytes(whole.replace(b"'<f8'", b"f(8,)"))
    (folder / "brackets.npy").write_bytes(whole[:10] + b"(" * 117 + b"\n" + whole[128:])
    np.save(folder / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez(folder / "objects.npz", np.array([{}], dtype=object), allow_pickle=True)
    np.savez(folder / "cut.npz", np.ones((40, 40)))
    (folder / "cut.npz").write_bytes((folder / "cut.npz").read_bytes()[:-30])
    with zipfile.ZipFile(folder / "text.npz", "w") as archive:
        archive.writestr("a.npy", "no array")
    (folder / "bytes.csv").write_bytes(b"\xff\xfe1,2")
    for suffix in ("npy", "npz", "csv"):
        (folder / f"folder.{suffix}").mkdir()
    return [p.name for p in folder.iterdir() if p.name != "x.npy"]


def test_files_that_hold_no_array_are_refused(polyker, tmp_path, refused):
    names = _broken(tmp_path)
    assert len(names) >= 16
    for name in [*names, "none.npy", "none.npz", "none.npz:a", "none.csv", "folder.npz:a"]:
        result = polyker("run", "O[i,j] = x[i,j]", f"x={name}")
        refused(result, f"x={name}: ", status=1)
        assert result.output.count("\n") == 1


def test_a_shape_that_no_memory_holds_is_refused(polyker, tmp_path, refused):
    np.save(tmp_path / "x.npy", np.ones(3))
    whole = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(whole.replace(b"(3,), }" + b" " * 13, b"(3000000000000,), }  "))
    refused(polyker("run", COPY, "x=x.npy"), status=1)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="this user may read and write everything")
def test_files_without_permission_are_refused(polyker, tmp_path, refused):
    np.save(tmp_path / "x.npy", np.ones(3))
    np.save(tmp_path / "secret.npy", np.ones(3))
    (tmp_path / "secret.npy").chmod(0)
    refused(polyker("run", COPY, "x=secret.npy"), "Permission denied", status=1)
    refused(polyker("run", COPY, "x=x.npy", "-o", "secret.npy"), "Permission denied", status=1)


BOTH = "total[i] += A[i,k]; most[i] max= A[i,k]"


@pytest.mark.parametrize(
    ("text", "targets", "status", "words"),
    [
        (BOTH, ["c.npy"], 2, ["write NAME=FILE, where NAME is one of total, most", ".npz"]),
        (BOTH, ["totl=c.npy"], 2, ["totl is no output", "total, most", "did you mean `total`?"]),
        (BOTH, ["A=c.npy"], 2, ["A is no output", "total, most"]),
        (BOTH, ["total=c.npy", "most=c.npy"], 2, ["given twice"]),
        (BOTH, ["total=c.npy", "total=d.npy"], 2, ["given twice"]),
        (BOTH, ["all.npz", "total=d.npy"], 2, ["given twice"]),
        (BOTH, ["total=-", "most=-"], 2, ["given twice"]),
        (BOTH, ["total=c.txt"], 2, ["c.txt", ".npy, .npz, .csv, or -"]),
        (BOTH, ["total="], 2, ["no file"]),
        (BOTH, ["total=nowhere/c.npy"], 1, ["there is no folder nowhere"]),
        (BOTH, ["total=folder.npy"], 1, ["folder.npy: Is a directory"]),
        ("C[i,k,j] = A[i,k] * A[j,k]", ["c.csv"], 1, ["c.csv: 3 dimensions do not go into a .csv file; .npy, .npz do"]),
    ],
)
def test_outputs_that_cannot_be_written_are_refused(polyker, files, tmp_path, refused, text, targets, status, words):
    (tmp_path / "folder.npy").mkdir()
    options = [word for target in targets for word in ("-o", target)]
    refused(polyker("run", text, "A=a.npy", *options), *words, status=status)
    assert not [p for p in tmp_path.glob("*.npy") if p.is_file() and p.name not in ("a.npy", "b.npy")]


def test_several_outputs_go_to_one_archive_or_to_files_of_their_own(polyker, files, tmp_path):
    A = files[0]
    for targets in (["all.npz"], ["total=all.npz", "most=all.npz"]):
        result = polyker("run", BOTH, "A=a.npy", *(word for target in targets for word in ("-o", target)))
        assert result.output == "total = float32[4] -> all.npz\nmost = float32[4] -> all.npz\n"
        with np.load(tmp_path / "all.npz") as found:
            assert list(found) == ["total", "most"]
            np.testing.assert_array_equal(found["total"], A.sum(1))
            np.testing.assert_array_equal(found["most"], A.max(1))
        (tmp_path / "all.npz").unlink()
    result = polyker("run", BOTH, "A=a.npy", "-o", "most=./x=y.csv")
    assert result.output == "most = float32[4] -> ./x=y.csv\n"
    assert (tmp_path / "x=y.csv").read_text() == "".join(f"{v}\n" for v in A.max(1))


def test_an_output_may_be_named_as_a_parameter_of_numpy(polyker, files, tmp_path):
    assert polyker("run", "file[i] += A[i,k]; allow_pickle[i] max= A[i,k]", "A=a.npy", "-o", "all.npz").exit_code == 0
    with np.load(tmp_path / "all.npz") as found:
        np.testing.assert_array_equal(found["file"], files[0].sum(1))


def test_run_prints_one_json_object(polyker, files, tmp_path, refused):
    np.save(tmp_path / "x.npy", np.array([1.5, np.nan, -np.inf]))
    np.save(tmp_path / "z.npy", np.array([1 + 2j]))
    said = json.loads(
        polyker("run", "y[i] = x[i]; c[i] = z[i] * 2; n max= x[0] > 1", "x=x.npy", "z=z.npy", "--json").output
    )
    assert said["operator"].startswith("y[i] = x[i]") and said["measured"] is None
    assert said["outputs"] == [
        {"name": "y", "type": "f64[3]", "value": [1.5, "nan", "-inf"]},
        {"name": "c", "type": "c128[1]", "value": [[2.0, 4.0]]},
        {"name": "n", "type": "bool[]", "value": True},
    ]
    said = json.loads(polyker("run", BOTH, "A=a.npy", "-o", "most=m.npy", "--json").output)
    assert [o.get("file") for o in said["outputs"]] == [None, "m.npy"]
    assert not any("value" in o for o in said["outputs"])
    refused(polyker("run", BOTH, "A=a.npy", "-o", "most=-", "--json"), "both write to standard output", status=2)
