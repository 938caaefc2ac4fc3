"""Where the disk cache lies, and whether it may be read and written.

A folder that another user could write to is not used, as what lies in it would be run; nor is one that cannot be made.
"""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

from polyker.errors.base import escape, failure
from polyker.errors.calls import BAD_OPTION

MODES = ("off", "ro", "rw")
_logger = logging.getLogger("polyker.cache")
_warned: set[str] = set()


def mode() -> str:
    """Return the mode that POLYKER_CACHE sets, "rw" by default; raises ArgumentError where it is none."""
    chosen = os.environ.get("POLYKER_CACHE") or "rw"
    if chosen not in MODES:
        raise failure(BAD_OPTION, name="POLYKER_CACHE", value=escape(repr(chosen)), accepted="off, ro, rw")
    return chosen


def path() -> Path:
    """Return the folder that POLYKER_CACHE_DIR names, else the user's own for caches; raises OSError where there is none."""
    named = os.environ.get("POLYKER_CACHE_DIR")
    if named:
        return Path(named)
    from platformdirs import user_cache_path

    try:
        return user_cache_path("polyker")
    except (KeyError, RuntimeError) as error:  # a user that the system does not know
        raise OSError(f"there is no home folder: {error}") from error


def folder(*, make: bool) -> Path | None:
    """Return the folder, made with `make` if it is not there; None where there is none that is this user's alone to write."""
    try:
        found = path()
        if make:
            found.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = os.lstat(found)
    except FileNotFoundError:
        if make:
            warn_once("no folder", "nothing is kept on disk: its folder cannot be made")
        return None
    except (OSError, ValueError) as error:
        warn_once("folder", f"nothing is kept on disk: {error}")
        return None
    if not stat.S_ISDIR(about.st_mode):
        warn_once(str(found), f"nothing is kept on disk: {found} is a link or no folder")
        return None
    if not is_own(about):
        warn_once(str(found), f"nothing is kept on disk: others may write to {found}")
        return None
    return found


def is_own(about: os.stat_result) -> bool:
    """Whether a file or folder belongs to this user, who alone may write to it."""
    return not hasattr(os, "getuid") or (about.st_uid == os.getuid() and not about.st_mode & 0o022)


def warn_once(subject: str, text: str) -> None:
    """Log a warning, once a process for each subject."""
    if subject not in _warned:
        _warned.add(subject)
        _logger.warning("%s", text)
