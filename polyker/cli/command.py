"""The command line: `polyker demo | run | show | cc | cache | doctor | env`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import click

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
STAGES = ("program", "isl", "passes", "schedule", "loops", "llvm", "asm", "explain")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; the entry point of `polyker` and `python -m polyker`."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None and given[:1] == ["demo"]:
        _pin_threads()
    commands(args=given, prog_name="polyker")


def _pin_threads() -> None:
    """Start anew with NumPy's BLAS on one thread: it reads these variables once, when numpy is first imported."""
    if any(os.environ.get(name) != "1" for name in THREAD_VARIABLES):
        os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
        command = [sys.executable, *sys.orig_argv[1:]]
        sys.stdout.flush()
        if os.name == "posix":
            os.execv(sys.executable, command)  # noqa: S606 (our own interpreter, no shell)
        import subprocess

        sys.exit(subprocess.run(command, check=False).returncode)  # noqa: S603


def in_our_words(command: Callable[..., None]) -> Callable[..., None]:
    """Turn the errors that a user can cause into one message on stderr and exit status 1, without a traceback."""

    @wraps(command)
    def guarded(*args: Any, **kwargs: Any) -> None:
        from polyker.errors.base import PolykerError

        try:
            command(*args, **kwargs)
        except PolykerError as error:
            names = [c.__name__ for c in type(error).__mro__ if c.__module__.startswith("polyker")]
            raise click.ClickException(f"{names[0]}: {error}") from None
        except (ValueError, TypeError, LookupError, ArithmeticError, NotImplementedError) as error:
            raise click.ClickException(f"{type(error).__name__}: {error}") from None
        except MemoryError as error:
            raise click.ClickException(f"not enough memory: {error}") from None
        except OSError as error:
            raise click.ClickException(f"{error.filename or ''}: {error.strerror or error}".lstrip(": ")) from None

    return guarded


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="polyker", message="polyker %(version)s")
def commands() -> None:
    """Tensor operators in Einstein notation, compiled to fast kernels."""


@commands.command()
@click.option("--filter", "only", metavar="TEXT", help="Only the operators whose name contains TEXT.")
@click.option("--quick", is_flag=True, help="Small sizes and short timing: a check in seconds.")
@click.option("--all-shapes", is_flag=True, help="Every published shape of the operators, up to 8 GB of memory.")
@click.option("--dtype", type=click.Choice(["f32", "f64"]), default="f32", show_default=True)
@click.option("--json", "json_path", type=click.Path(dir_okay=False), help="Write the results to this file too.")
@in_our_words
def demo(only: str | None, quick: bool, all_shapes: bool, dtype: str, json_path: str | None) -> None:
    """Compile, run, check and time 78 operators against NumPy."""
    from polyker.cli.demo_command import run_demo

    if not run_demo(only, quick=quick, every_shape=all_shapes, dtype=dtype, json_path=json_path):
        sys.exit(1)


@commands.command()
@click.argument("text")
@click.argument("arguments", nargs=-1, metavar="NAME=VALUE...")
@click.option(
    "-o", "--output", "outputs", multiple=True, metavar="[NAME=]FILE", help="Where to write an output (.npy)."
)
@in_our_words
def run(text: str, arguments: tuple[str, ...], outputs: tuple[str, ...]) -> None:
    """Run an operator on arrays: NAME=file.npy, or NAME=number for sizes and scalars.

    TEXT is an operator, or @FILE to read it from a file. Without -o the outputs are printed.

    \b
    polyker run "C[i,j] += A[i,k] * B[k,j]" A=a.npy B=b.npy -o c.npy
    """
    from polyker.cli.files import run_operator

    for line in run_operator(read_text(text), split_assignments(arguments), outputs):
        click.echo(line)


@commands.command()
@click.argument("text")
@click.argument("arguments", nargs=-1, metavar="NAME=TYPE...")
@click.option("--stage", type=click.Choice(STAGES), default="program", show_default=True)
@click.option("--passes", is_flag=True, help="The passes that changed something, what each changed, and milliseconds.")
@click.option("--after", metavar="PASS", help="What a pass made, by its name in the list of --passes.")
@click.option("--target", help="Such as cpu, cpu:x86-64-v3 or aarch64-linux-gnu.  [default: this machine]")
@in_our_words
def show(
    text: str, arguments: tuple[str, ...], stage: str, passes: bool, after: str | None, target: str | None
) -> None:
    """Print an operator at a stage of its compilation.

    TEXT is an operator, or @FILE. NAME=TYPE gives each input its type, f32[64,32] or with symbolic sizes f32[M,K];
    NAME=5 gives a size. The stage `program` needs no types.

    \b
    polyker show "C[i,j] += A[i,k] * B[k,j]" --stage asm A=f32[64,32] B=f32[32,48]
    """
    from polyker.cli.files import show_operator

    stage = "passes" if passes else f"after:{after}" if after is not None else stage
    click.echo(show_operator(read_text(text), split_assignments(arguments), stage, target))


@commands.command()
@click.argument("files", nargs=-1, metavar="FILE... NAME=TYPE...")
@click.option("-o", "--output", required=True, metavar="FILE", help=".o .a .so .dylib .dll .ll .cu .wasm .html")
@click.option(
    "--target", help="Such as cpu, cpu:x86-64-v3, aarch64-linux-gnu, wasm32, cuda:sm_80.  [default: this machine]"
)
@click.option("-O", "level", type=click.IntRange(0, 3), default=3, show_default=True, help="LLVM's effort.")
@click.option(
    "--threads",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Most threads of the caller's.",
)
@click.option("--static-scratch", is_flag=True, help="Temporaries lie in the library; one call at a time may run.")
@click.option(
    "--abi", type=click.Choice(["c", "dlpack", "tvm-ffi"]), default="c", show_default=True, help="Beside C's entry."
)
@click.option(
    "--const", "constants", multiple=True, metavar="NAME=FILE.npy", help="An input that becomes part of the library."
)
@in_our_words
def cc(  # noqa: PLR0913 (the options that users give)
    files: tuple[str, ...],
    output: str,
    target: str | None,
    level: int,
    threads: int,
    static_scratch: bool,
    abi: str,
    constants: tuple[str, ...],
) -> None:
    """Compile operators to a library for programs without Python, with a C header beside it.

    FILE holds an operator; of several each becomes a function, named in its text or else after its file. NAME=TYPE gives inputs
    their types where the text does not, f32[64,32] or with symbolic sizes f32[M,K]; NAME=5 gives a size.

    \b
    polyker cc mm.ein -o mm.o A=f32[M,K] B=f32[K,N]
    polyker cc conv.ein softmax.ein -o libnet.a --target aarch64-linux-gnu
    """
    from polyker.cli.export import export_files, read_files, split_files

    paths, arguments = split_files(files)
    options = {"target": target, "level": level, "threads": threads, "static_scratch": static_scratch, "abi": abi}
    texts = read_files(paths, read_text)
    for line in export_files(texts, split_assignments(arguments), output, options, split_assignments(constants)):
        click.echo(line)


@commands.command()
@click.option(
    "--measure", is_flag=True, help="Measure this core: its pipes, caches, memory, prefetching. Some seconds."
)
@click.option("--save", is_flag=True, help="With --measure: save what was found for schedules and `explain`.")
@in_our_words
def doctor(measure: bool, save: bool) -> None:
    """Print versions, the processor and what is missing, and try a kernel."""
    if save and not measure:
        raise click.UsageError("--save saves what --measure finds: give both")
    from polyker.cli.doctor import examine

    healthy = True
    for line in examine(measure=measure, save=save):
        click.echo(line.text)
        healthy = healthy and line.healthy
    if not healthy:
        sys.exit(1)


@commands.command()
def env() -> None:
    """Print the environment variables that polyker reads, with their values."""
    from polyker.cli.doctor import VARIABLES
    from polyker.errors.base import escape

    for name, meaning in VARIABLES.items():
        value = os.environ.get(name)
        click.echo(f"{name}={'(not set)' if value is None else escape(value)}\n    {meaning}")


@commands.group()
def cache() -> None:
    """Look at, check and empty the kernels that are kept on disk."""


@cache.command(name="path")
@in_our_words
def cache_path() -> None:
    """Print the folder."""
    from polyker.store.folder import path

    click.echo(path())


@cache.command(name="ls")
@in_our_words
def cache_list() -> None:
    """Print a line an entry, the last used first: what it is, bytes, when it was used, what it was made of."""
    from polyker.cli.cache import listed

    for line in listed():
        click.echo(line)


@cache.command(name="verify")
@in_our_words
def cache_verify() -> None:
    """Read every entry; damaged ones are named and deleted, and the exit status is 1."""
    from polyker.cli.cache import verified

    lines, sound = verified()
    for line in lines:
        click.echo(line)
    if not sound:
        sys.exit(1)


@cache.command(name="clear")
@in_our_words
def cache_clear() -> None:
    """Delete all entries."""
    from polyker.cli.cache import cleared

    click.echo(cleared())


def read_text(text: str, limit: int = 1 << 20) -> str:
    """Return the operator's text, from the file where it is `@FILE`; raises click.UsageError where there is none."""
    if not text.startswith("@"):
        return text
    with open(text[1:], "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise click.ClickException(f"{text[1:]}: an operator's text is not over {limit} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise click.ClickException(f"{text[1:]}: not a text in UTF-8") from None


def split_assignments(arguments: Sequence[str]) -> dict[str, str]:
    """Return `NAME=VALUE` arguments as a dictionary; raises click.UsageError on others and on a name given twice."""
    from polyker.errors.base import escape

    result: dict[str, str] = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals or not name or not value:
            raise click.UsageError(f"{escape(argument)!r} is not NAME=VALUE")
        if name in result:
            raise click.UsageError(f"{escape(name)!r} is given twice")
        result[name] = value
    return result
