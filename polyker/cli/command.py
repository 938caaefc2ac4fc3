"""The command line: `polyker demo | run | show | cc | cache | doctor | env`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from polyker.cli.status import Commands, in_our_words, print_text, run_to_end
from polyker.options import MOST_THREADS

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
STAGES = ("program", "isl", "passes", "schedule", "loops", "llvm", "asm", "cuda", "ptx", "explain")
FORMATS = ".npy, .npz or .csv"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; the entry point of `polyker` and `python -m polyker`."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None and given[:1] == ["demo"]:
        _pin_threads()
    run_to_end(commands, given)


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


def options_of_kernels(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of how a kernel is made, measured and told of."""
    given = (
        click.option(
            "--target",
            show_default="POLYKER_TARGET, or cpu: this machine",
            help="Such as cpu, cpu:x86-64-v3, aarch64-linux-gnu or cuda:sm_80.",
        ),
        click.option(
            "--threads",
            type=click.IntRange(1, MOST_THREADS),
            show_default="POLYKER_NUM_THREADS, or one a core",
            help="Most threads that run the kernel.",
        ),
        click.option(
            "--schedule",
            metavar="FILE",
            show_default="polyker's own",
            help="A schedule in JSON, of `Schedule.to_json` or of `polyker show --stage schedule --json`.",
        ),
        click.option(
            "--time", "timed", is_flag=True, help="Run the kernel for half a second and print the median time."
        ),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text."),
    )
    for option in reversed(given):
        command = option(command)
    return command


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
)
@click.version_option(package_name="polyker", message="polyker %(version)s")
def commands() -> None:
    """Compile tensor operators in Einstein notation to fast kernels.

    \b
    polyker run "C[i,j] += A[i,k] * B[k,j]" A=a.npy B=b.npy -o c.npy

    The exit status is 0, 2 where the command line is wrong, and 1 for everything else that goes wrong.
    """


@commands.command()
@click.option("--filter", "only", metavar="TEXT", help="Only the operators whose name contains TEXT.")
@click.option("--quick", is_flag=True, help="Small sizes and short timing: a check in seconds.")
@click.option("--all-shapes", is_flag=True, help="Every published shape of the operators, up to 8 GB of memory.")
@click.option("--dtype", type=click.Choice(["f32", "f64"]), default="f32", help="The operators' element type.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False), help="Write the results to this file too.")
@in_our_words
def demo(only: str | None, quick: bool, all_shapes: bool, dtype: str, json_path: str | None) -> None:
    """Compile, run, check and time 78 operators against NumPy.

    \b
    polyker demo --quick --filter softmax
    """
    from polyker.cli.demo_command import run_demo

    if not run_demo(only, quick=quick, every_shape=all_shapes, dtype=dtype, json_path=json_path):
        sys.exit(1)


@commands.command()
@click.argument("text")
@click.argument("arguments", nargs=-1, metavar="NAME=VALUE...")
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    metavar="[NAME=]FILE",
    help=f"Where to write an output, {FORMATS}, or - for standard output; one .npz takes all.",
)
@options_of_kernels
@in_our_words
def run(
    text: str,
    arguments: tuple[str, ...],
    outputs: tuple[str, ...],
    timed: bool,
    as_json: bool,
    **how: Any,
) -> None:
    """Run an operator on arrays in files and on numbers.

    TEXT is an operator, @FILE to read it from a file, or - to read it from standard input. NAME=VALUE gives an input or
    a size: a number, FILE.npy, FILE.npz:MEMBER, FILE.csv, or - for .npy bytes on standard input. Without -o the outputs
    are printed.

    \b
    polyker run "C[i,j] += A[i,k] * B[k,j]" A=a.npy B=data.npz:B -o c.npy
    polyker run "s[i] += A[i,k]; m[i] max= A[i,k]" A=table.csv -o both.npz
    polyker run "B[i,j] = exp(A[i,j])" A=a.npy -o - | polyker run "s += B[i,j]" B=-
    """
    from polyker.cli.given import KernelOptions, check_standard_input, read_text, split_assignments
    from polyker.cli.run import run_operator

    values = split_assignments(arguments)
    check_standard_input([text, *values.values()])
    run_operator(read_text(text), values, outputs, KernelOptions(**how), timed=timed, as_json=as_json)


@commands.command()
@click.argument("text")
@click.argument("arguments", nargs=-1, metavar="NAME=TYPE...")
@click.option("--stage", type=click.Choice(STAGES), default="program", help="The stage, program to ptx, or explain.")
@click.option("--passes", is_flag=True, help="The passes that changed something, what each changed, and milliseconds.")
@click.option("--after", metavar="PASS", help="What a pass made, by its name in the list of --passes.")
@options_of_kernels
@in_our_words
def show(
    text: str,
    arguments: tuple[str, ...],
    stage: str,
    passes: bool,
    after: str | None,
    timed: bool,
    as_json: bool,
    **how: Any,
) -> None:
    """Print an operator at a stage of its compilation.

    TEXT is an operator, @FILE to read it from a file, or - to read it from standard input. NAME=TYPE gives each input
    its type, f32[64,32] or with symbolic sizes f32[M,K]; NAME=5 gives a size, of the operator or in the types. The stage
    `program` needs no types. GPUs have the stages cuda and ptx, which need no GPU (ptx needs NVRTC or nvcc), the others
    llvm. --time takes random inputs.

    \b
    polyker show "C[i,j] += A[i,k] * B[k,j]" --stage asm A=f32[64,32] B=f32[32,48]
    polyker show "C[i,j] += A[i,k] * B[k,j]" --stage ptx --target cuda:sm_80 A=f32[M,K] B=f32[K,N]
    polyker show "C[i,j] += A[i,k] * B[k,j]" --stage explain --time A=f32[N,N] B=f32[N,N] N=500
    """
    from polyker.cli.given import KernelOptions, read_text, split_assignments
    from polyker.cli.show import show_operator

    others = [s for s in ("passes" if passes else None, None if after is None else f"after:{after}") if s]
    if len(others) > 1 or (others and stage != "program"):
        raise click.UsageError("give one of --stage, --passes and --after")
    chosen, given = (others or [stage])[0], split_assignments(arguments)
    print_text(show_operator(read_text(text), given, chosen, KernelOptions(**how), timed=timed, as_json=as_json))


@commands.command()
@click.argument("files", nargs=-1, metavar="FILE... NAME=TYPE...")
@click.option("-o", "--output", required=True, metavar="FILE", help=".o .a .so .dylib .dll .ll .cu .wasm .html")
@click.option(
    "--target",
    show_default="this machine; wasm32 for .wasm and .html",
    help="Such as cpu, cpu:x86-64-v3, aarch64-linux-gnu, wasm32, cuda:sm_80.",
)
@click.option("-O", "level", type=click.IntRange(0, 3), default=3, help="LLVM's effort.")
@click.option(
    "--threads",
    type=click.IntRange(1, MOST_THREADS),
    default=1,
    help="Most threads of the caller's.",
)
@click.option("--static-scratch", is_flag=True, help="Temporaries lie in the library; one call at a time may run.")
@click.option("--abi", type=click.Choice(["c", "dlpack", "tvm-ffi"]), default="c", help="Beside C's entry.")
@click.option(
    "--const", "constants", multiple=True, metavar="NAME=FILE", help="An input that becomes part of the library."
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
    """Compile operators to a library for programs without Python.

    A C header is written beside it.

    FILE holds an operator; of several each becomes a function, named in its text or else after its file. NAME=TYPE gives inputs
    their types where the text does not, f32[64,32] or with symbolic sizes f32[M,K]; NAME=5 gives a size.

    \b
    polyker cc mm.ein -o mm.o A=f32[M,K] B=f32[K,N]
    polyker cc conv.ein softmax.ein -o libnet.a --target aarch64-linux-gnu
    """
    from polyker.cli.export import export_files, read_files, split_files
    from polyker.cli.given import read_text, split_assignments

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
    """Print versions, the processor and what is missing.

    A kernel is tried, too; the exit status is 1 where something does not work.

    \b
    polyker doctor --measure --save
    """
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
    """Print the environment variables that polyker reads.

    \b
    polyker env
    """
    from polyker.cli.doctor import VARIABLES
    from polyker.errors.base import escape

    for name, meaning in VARIABLES.items():
        value = os.environ.get(name)
        click.echo(f"{name}={'(not set)' if value is None else escape(value)}\n    {meaning}")


@commands.group()
def cache() -> None:
    """Look at, check and empty the kernels that are kept on disk.

    \b
    polyker cache ls
    """


@cache.command(name="path")
@in_our_words
def cache_path() -> None:
    """Print the folder.

    \b
    du -h $(polyker cache path)
    """
    from polyker.store.folder import path

    click.echo(path())


@cache.command(name="ls")
@in_our_words
def cache_list() -> None:
    """Print a line an entry, the last used first.

    It says what the entry is, its bytes, when it was used, and what it was made of.

    \b
    polyker cache ls | head
    """
    from polyker.cli.cache import listed

    for line in listed():
        click.echo(line)


@cache.command(name="verify")
@in_our_words
def cache_verify() -> None:
    """Read every entry, and delete those that are damaged.

    They are named, and the exit status is 1.

    \b
    polyker cache verify
    """
    from polyker.cli.cache import verified

    lines, sound = verified()
    for line in lines:
        click.echo(line)
    if not sound:
        sys.exit(1)


@cache.command(name="clear")
@in_our_words
def cache_clear() -> None:
    """Delete all entries.

    \b
    polyker cache clear
    """
    from polyker.cli.cache import cleared

    click.echo(cleared())
