"""Commands as processes: pipes, closed and full files, interrupts, and the statuses that a shell sees."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

POLYKER = [sys.executable, "-m", "polyker"]
posix = pytest.mark.skipif(os.name != "posix", reason="signals and FIFOs of POSIX")


@pytest.fixture
def shell(tmp_path):
    """Return a function that runs a line of bash in an empty folder, in which `polyker` is the command."""

    def run(line, **given):
        lines = f'set -o pipefail\npolyker() {{ "{sys.executable}" -m polyker "$@"; }}\n{line}\n'
        return subprocess.run(
            ["bash", "-c", lines], capture_output=True, cwd=tmp_path, timeout=120, check=False, **given
        )

    return run


def test_arrays_go_through_pipes(shell, files):
    line = (
        """echo 'C[i,j] += A[i,k] * B[k,j]' | polyker run - A=a.npy B=b.npy -o - """
        """| polyker run 'D[i] += C[i,j]; E[j] += C[i,j]' C=- -o D=- -o E=e.npy > d.npy"""
    )
    done = shell(line)
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"" and done.stderr == b"E = float32[5] -> e.npy\n"
    folder = os.fspath(shell("pwd").stdout.decode().strip())
    product = files[0] @ files[1]
    np.testing.assert_array_equal(np.load(f"{folder}/d.npy"), product.sum(1))
    np.testing.assert_array_equal(np.load(f"{folder}/e.npy"), product.sum(0))


def test_standard_input_is_read_once_and_has_to_be_an_array(polyker, refused, files):
    refused(polyker("run", "-", "x=-", input="O[i] = x[i]"), "read once", status=2)
    refused(polyker("run", "O[i] = x[i] + y[i]", "x=-", "y=-"), "read once", status=2)
    for given in (b"", b"\x93NUMPY", b"1,2\n"):
        refused(polyker("run", "O[i] = x[i]", "x=-", input=given), "x=-: not a whole .npy file", status=1)
    refused(polyker("run", "-", input=b"\xff"), "standard input: not a text in UTF-8", status=1)
    refused(polyker("run", "-", input=b"#" * (1 << 20) + b"\n"), "1048576 bytes", status=1)
    assert polyker("show", "-", input="C[i,j] += A[i,k] * B[k,j]").output.startswith("C[i, j]")


@posix
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "command",
    [
        """run 'O[i,j] = exp(x[i,j])' x=x.npy -o -""",
        """run 'O[i,j] = exp(x[i,j])' x=x.npy --json""",
        """show "$(for n in $(seq 1 4000); do echo "O[$n] = x[$n]"; done)" """,
    ],
)
def test_a_reader_that_has_seen_enough_ends_the_command_quietly(shell, tmp_path, command, unbuffered):
    np.save(tmp_path / "x.npy", np.ones((300, 200)))
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = shell(f"polyker {command} | head -c 9 > seen", env=environment)
    assert done.returncode == 128 + signal.SIGPIPE
    assert done.stderr == b"" and len((tmp_path / "seen").read_bytes()) == 9


@posix
def test_help_to_a_closed_pipe_ends_quietly(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*POLYKER, "--help"], stdout=writer, stderr=subprocess.PIPE, cwd=tmp_path, timeout=60, check=False
    )
    os.close(writer)
    assert done.returncode == 128 + signal.SIGPIPE and done.stderr == b""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize("command", ["run 's += x[i]' x=x.npy", "run 'O[i] = x[i]' x=x.npy -o -"])
def test_a_full_disk_is_told(shell, tmp_path, command):
    np.save(tmp_path / "x.npy", np.ones(3))
    done = shell(f"polyker {command} > /dev/full")
    assert done.returncode == 1
    assert done.stderr.startswith(b"Error: ") and done.stderr.endswith(b"No space left on device\n")
    assert done.stderr.count(b"\n") == 1


@posix
def test_closed_files_are_told(shell, tmp_path):
    np.save(tmp_path / "x.npy", np.ones(3))
    done = shell("polyker run 'O[i] = x[i]' x=x.npy -o - >&-")
    assert (done.returncode, done.stderr) == (1, b"Error: standard output is closed\n")
    done = shell("polyker run 'O[i] = x[i]' x=- <&-")
    assert (done.returncode, done.stderr) == (1, b"Error: standard input is closed\n")


def interrupted(started, wait):
    """Interrupt a command once `wait` returns; check that it ends at once, with the status of that and no word."""
    wait()
    started.send_signal(signal.SIGINT)
    out, error = started.communicate(timeout=60)
    assert (started.returncode, out, error) == (130, b"", b"")


@posix
def test_an_interrupt_while_reading_ends_with_130(tmp_path):
    os.mkfifo(tmp_path / "text")
    command = [*POLYKER, "run", "@text"]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path)
    ends = []
    interrupted(started, lambda: ends.append(os.open(tmp_path / "text", os.O_WRONLY)))  # opens once it is open to read
    os.close(ends[0])


@posix
def test_an_interrupt_while_compiling_ends_with_130(tmp_path):
    count = 400
    chain = "; ".join(f"T{n}[i,j] += T{n - 1}[i,k] * W{n}[k,j]" for n in range(1, count))
    types = [f"W{n}=f32[64,64]" for n in range(1, count)]
    command = [*POLYKER, "show", chain, "--stage", "asm", "T0=f32[64,64]", *types]
    dump = tmp_path / "dump"
    environment = {**os.environ, "POLYKER_DUMP": str(dump)}
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, env=environment)

    def compiling():
        end = time.monotonic() + 60
        while not (dump.is_dir() and any(dump.rglob("*.*"))) and time.monotonic() < end:
            time.sleep(0.02)

    interrupted(started, compiling)
