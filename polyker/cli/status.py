"""How a command ends: for what a user can cause one message and an exit status, never a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any

import click

INTERRUPTED, READER_GONE = 130, 141  # what a shell reports of SIGINT and of SIGPIPE


class Commands(click.Group):
    """Commands that Ctrl-C and a closed pipe end as they end other tools: quietly, with the status of the signal."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Read the arguments of a command."""
        with _ended_by_signals():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        with _ended_by_signals():
            return super().invoke(ctx)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise click.exceptions.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        _discard_output()
        raise click.exceptions.Exit(READER_GONE) from None


def run_to_end(command: click.Command, arguments: Sequence[str]) -> None:
    """Run a command and end the process with its status; what it printed has reached standard output then."""
    status: Any = 0
    try:
        command(args=list(arguments), prog_name="polyker")
    except SystemExit as end:
        status = end.code
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        status = READER_GONE
    except OSError as error:  # a full disk
        _discard_output()
        if not status:
            click.echo(f"Error: standard output: {error.strerror}", err=True)
            status = 1
    sys.exit(status)


def write_output(data: bytes) -> None:
    """Write bytes to standard output; raises click.ClickException where it is closed, OSError where it takes no more.

    With PYTHONUNBUFFERED it may take a part of them at a time, which NumPy and click know nothing of.
    """
    if sys.stdout is None:
        raise click.ClickException("standard output is closed")
    rest = memoryview(data)
    while rest:
        rest = rest[sys.stdout.buffer.write(rest) :]
    sys.stdout.flush()


def print_text(text: str) -> None:
    """Print a text of any length, and the end of its line, on standard output, if there is any."""
    if sys.stdout is not None:
        sys.stdout.flush()
        write_output(f"{text}\n".encode(sys.stdout.encoding or "utf-8", "backslashreplace"))


def _discard_output() -> None:
    """Let what is still to be written to standard output go nowhere: Python tries once more when it ends, and complains."""
    with suppress(OSError, ValueError, AttributeError):  # standard output may be no file
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


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
            raise click.ClickException(f"not enough memory: {error}" if str(error) else "not enough memory") from None
        except BrokenPipeError:
            raise
        except OSError as error:
            raise click.ClickException(f"{error.filename or ''}: {error.strerror or error}".lstrip(": ")) from None

    return guarded
