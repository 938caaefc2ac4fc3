"""Commands in this process, in an empty folder."""

import numpy as np
import pytest
from click.testing import CliRunner

import polyker.cli.command as cli


@pytest.fixture
def polyker(tmp_path, monkeypatch):
    """Return a function that runs a command in an empty directory."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments, **given: CliRunner().invoke(
        cli.commands, list(map(str, arguments)), prog_name="polyker", **given
    )


@pytest.fixture
def files(tmp_path):
    """Write A (4 by 3) and B (3 by 5) and return them."""
    A = np.arange(12, dtype=np.float32).reshape(4, 3) % 5
    B = np.arange(15, dtype=np.float32).reshape(3, 5) % 7
    np.save(tmp_path / "a.npy", A)
    np.save(tmp_path / "b.npy", B)
    return A, B


@pytest.fixture
def refused():
    """Return a function that checks that a command failed with a message that holds words, and without a traceback."""

    def check(result, *words, status=None):
        assert result.exit_code in ((1, 2) if status is None else (status,)), result.output
        assert result.exception is None or isinstance(result.exception, SystemExit)
        assert "Traceback" not in result.output
        assert result.stdout == ""
        for word in words:
            assert word in result.output

    return check
