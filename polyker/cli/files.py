"""Arrays in files: .npy, .npz and .csv are read and written, .npy bytes on standard input and output, too."""

from __future__ import annotations

import io
import os
import re
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

import click
import numpy as np
from msgspec import Struct

from polyker.cli.given import STANDARD, standard_input
from polyker.cli.status import write_output
from polyker.errors.base import escape
from polyker.ir.dtypes import DTYPES, DType
from polyker.ir.expr import Dots
from polyker.ir.program import Program

Array: TypeAlias = np.ndarray[Any, Any]
FORMATS = (".npy", ".npz", ".csv")
MAX_SHOWN_MEMBERS = 20


class Expected(Struct, frozen=True):
    """What an operator says of an input, None where it does not: its dimensions and its element type."""

    rank: int | None = None
    dtype: DType | None = None


def expected(program: Program, name: str) -> Expected:
    """Return what a program says of an input."""
    declared = program.declaration(name)
    dtype = None if declared is None else declared.dtype
    if declared is not None and declared.shape is not None:
        return Expected(len(declared.shape), dtype)
    uses = [r.subscripts for s in program.statements() for r in s.reads() if r.tensor == name]
    uses += [s.subscripts for s in program.statements() if s.target == name]
    if not uses or any(isinstance(e, Dots) for e in uses[0]):
        return Expected(None, dtype)
    return Expected(len(uses[0]), dtype)


def read_array(name: str, path: str, wanted: Expected = Expected()) -> Array:  # noqa: B008 (it never changes)
    """Return the array in a file: FILE.npy, FILE.npz:MEMBER, FILE.csv, or - for .npy bytes on standard input.

    `wanted`: what a table's dimensions and element type are to be. Raises click.ClickException, which names the argument.
    """
    where = f"{escape(name)}={escape(path)}"
    kind = _suffix(path)
    archive = re.fullmatch(r"(.*\.npz):(.*)", path, re.IGNORECASE | re.DOTALL)
    if path == STANDARD:
        data = io.BytesIO(standard_input().read())
        found = _whole(where, lambda: np.lib.format.read_array(data, allow_pickle=False))
    elif kind == ".npy":
        found = _whole(where, lambda: _of_npy(path))
    elif kind == ".csv":
        return _of_csv(where, path, wanted)
    elif kind == ".npz":
        found = _member(where, path, None)
    elif archive is not None:
        found = _member(where, archive[1], archive[2])
    else:
        formats = ".npy, .npz (FILE.npz:MEMBER), .csv, or - for standard input"
        raise click.ClickException(f"{where}: neither a number nor a file of arrays; files of arrays: {formats}")
    if found.dtype.str == "|V2" and wanted.dtype is DTYPES["bf16"]:  # as NumPy writes an element type that it has not
        return found.view(wanted.dtype.numpy)
    return found


def _suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def _whole(where: str, read: Callable[[], Array], kind: str = ".npy file") -> Array:
    """Return what a file is read as; what is wrong with it is the user's to know, whatever NumPy or zipfile raise."""
    try:
        return read()
    except (MemoryError, click.ClickException):
        raise
    except FileNotFoundError:
        raise click.ClickException(f"{where}: there is no such file") from None
    except OSError as error:
        raise click.ClickException(f"{where}: {error.strerror or error}") from None
    except Exception:
        told = f"not a whole {kind} of numbers (pickled objects are not read)"
        raise click.ClickException(f"{where}: {told}") from None


def _of_npy(path: str) -> Array:
    with open(path, "rb") as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _member(where: str, path: str, member: str | None) -> Array:
    """Return an array of a .npz file: the one of that name, or the only one."""

    def read() -> Array:
        with zipfile.ZipFile(path) as archive:
            known = [n.removesuffix(".npy") for n in archive.namelist()]
            if member is None and len(known) != 1:
                raise click.ClickException(f"{where}: {_members(known)}; write {escape(path)}:MEMBER")
            chosen = known[0] if member is None else member
            if chosen not in known:
                raise click.ClickException(f"{where}: there is no {escape(chosen)}; {_members(known)}")
            with archive.open(archive.namelist()[known.index(chosen)]) as file:
                return np.lib.format.read_array(file, allow_pickle=False)

    return _whole(where, read, ".npz file")


def _members(known: list[str]) -> str:
    more = f" and {len(known) - MAX_SHOWN_MEMBERS} more" if len(known) > MAX_SHOWN_MEMBERS else ""
    shown = ", ".join(escape(n) for n in known[:MAX_SHOWN_MEMBERS]) or "nothing"
    return f"the file holds {shown}{more}"


def _of_csv(where: str, path: str, wanted: Expected) -> Array:
    """Return a table of numbers between commas, without a header, of the dimensions and the element type that are wanted."""

    def read() -> Array:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
        lines = text.splitlines()
        if not text.strip():
            raise click.ClickException(f"{where}: the file is empty")
        whole = re.fullmatch(r"[\s,0-9+-]*", text)
        for kind in ("i8", "u8") if whole else ("c16",) if re.search("[jJ]", text) else ("f8",):
            with suppress(ValueError):
                return np.loadtxt(lines, kind, delimiter=",", comments=None, ndmin=2)
        raise click.ClickException(f"{where}: {_wrong(lines)}")

    return _of_type(where, _of_rank(where, _whole(where, read, ".csv file"), wanted.rank), wanted.dtype)


def _wrong(lines: list[str]) -> str:
    """Return what is wrong with the lines of a table, and where."""
    width = None
    for number, line in enumerate(lines, 1):
        fields = line.split(",")
        if not line.strip():
            continue
        for column, field in enumerate(fields, 1):
            try:
                complex(field)
            except ValueError:
                header = "" if width is not None else "; a header has to be removed (tail -n +2)"
                return f"line {number}, column {column}: {escape(repr(field), 60)} is no number{header}"
        if width not in (None, len(fields)):
            return f"line {number} has {len(fields)} numbers, those before it {width}"
        width = len(fields)
    return "a number is out of the range of 64 bits"


def _of_rank(where: str, table: Array, rank: int | None) -> Array:
    """Return a table as an array of so many dimensions: one is a row or a column, none a number."""
    if rank is None or rank == 2:
        return table
    if rank > 2:
        raise click.ClickException(f"{where}: a .csv file has one or two dimensions, not {rank}; .npy has any")
    rows, columns = table.shape
    if rank == 1 and 1 not in (rows, columns):
        raise click.ClickException(f"{where}: {rows} rows of {columns} numbers; one row or one column is wanted")
    if rank == 0 and table.size != 1:
        raise click.ClickException(f"{where}: {table.size} numbers; one is wanted")
    return table.reshape(-1 if rank else ())


def _of_type(where: str, array: Array, dtype: DType | None) -> Array:
    """Return numbers read as text as an element type that can hold them: floats are rounded, nothing else is changed."""
    if dtype is None or array.dtype == dtype.numpy:
        return array
    rounds = dtype.is_complex or (dtype.is_float and array.dtype.kind != "c")
    with np.errstate(all="ignore"):
        found = (array.real if dtype.kind not in "c" else array).astype(dtype.numpy)
    if not rounds and not (found == array).all():
        first = array[found != array].flat[0]
        raise click.ClickException(f"{where}: {first} is no {dtype}")
    return found


def check_output(path: str) -> None:
    """Check a path to write; raises click.UsageError where its name tells no format, ClickException without its folder."""
    if path == STANDARD:
        return
    if _suffix(path) not in FORMATS:
        formats = f"{', '.join(FORMATS)}, or - for standard output"
        raise click.UsageError(f"-o {escape(path)}: the end of the name tells the format: {formats}")
    folder = os.path.dirname(path)
    if folder and not os.path.isdir(folder):
        raise click.ClickException(f"-o {escape(path)}: there is no folder {escape(folder)}")


def is_archive(path: str) -> bool:
    """Return whether a path to write is that of a file for several arrays."""
    return _suffix(path) == ".npz"


def write_arrays(path: str, arrays: Mapping[str, Array]) -> None:
    """Write arrays by name to a .npz file, or the only one of them to a file of another format, or to standard output.

    Raises click.ClickException.
    """
    try:
        if path == STANDARD:
            _to_standard_output(*arrays.values())
            return
        with open(path, "wb") as file:
            if is_archive(path):
                _to_archive(file, arrays)
            elif _suffix(path) == ".csv":
                file.writelines(_csv_lines(path, *arrays.values()))
            else:
                for array in arrays.values():
                    _write(file, array)
    except BrokenPipeError:
        raise
    except OSError as error:
        where = "standard output" if path == STANDARD else escape(path)
        raise click.ClickException(f"{where}: {error.strerror or error}") from None


def _to_standard_output(array: Array) -> None:
    np.lib.format.write_array(cast("Any", SimpleNamespace(write=write_output)), array, allow_pickle=False)


def _write(file: Any, array: Array) -> None:
    # Through `write` alone: what is a file to NumPy gets its elements from C, and then no reason is told where that fails.
    np.lib.format.write_array(cast("Any", SimpleNamespace(write=file.write)), array, allow_pickle=False)


def _to_archive(file: Any, arrays: Mapping[str, Array]) -> None:
    # Not np.savez, whose own parameters outputs may be named as.
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                _write(member, array)


def _csv_lines(path: str, array: Array) -> list[bytes]:
    """Return the lines of a table: a row each, of one dimension a number each, which read again give the same values."""
    if array.ndim > 2:
        formats = ", ".join(f for f in FORMATS if f != ".csv")
        raise click.ClickException(f"{escape(path)}: {array.ndim} dimensions do not go into a .csv file; {formats} do")
    table = array.reshape(-1, array.shape[1] if array.ndim == 2 else 1)
    table = table.astype(np.uint8) if table.dtype == np.bool_ else table
    return [(",".join(v.strip("()") for v in row) + "\n").encode() for row in table.astype(str)]


def json_values(array: Array) -> Any:
    """Return an array as nested lists of numbers: complex ones as pairs, those that JSON has not as nan, inf, -inf in texts."""
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag], -1)
    if array.dtype.kind not in "biu":
        wide = array.astype(np.float64)
        array = wide.astype(object)
        array[~np.isfinite(wide)] = [str(v) for v in wide[~np.isfinite(wide)].tolist()]
    return array.tolist()
