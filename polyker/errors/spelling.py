"""Names that were probably meant: by spelling, or as other libraries call the same thing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

# Keywords of calls and compiles as others call them.
KEYWORDS = {
    "num_threads": "threads", "n_threads": "threads", "nthreads": "threads", "n_jobs": "threads", "num_workers": "threads",
    "workers": "threads", "device": "target", "backend": "target", "arch": "target", "platform": "target", "dst": "out",
    "output": "out", "result": "out", "accumulator": "acc", "acc_dtype": "acc", "acc_type": "acc", "accumulate": "acc",
    "accum": "acc", "dtype": "acc", "fast": "fastmath", "unsafe_math": "fastmath", "specialise": "specialize",
    "reproducible": "deterministic",
    "time_limit": "timeout", "maxsize": "cache_size", "workspace": "scratch_bytes",
}  # fmt: skip


def near(word: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate at edit distance one (an insertion, deletion, change or swap of neighbours), or None.

    >>> near("epx", ["exp", "log"])
    'exp'
    """
    return next((c for c in candidates if _distance_is_one(word, c)), None)


def meant_name(word: str, candidates: Iterable[str], elsewhere: Mapping[str, str] = KEYWORDS) -> str | None:
    """Return the candidate that a word is in other letters' case or without `_`, that it is elsewhere, or that is near; or None.

    >>> meant_name("Fast_Math", ["threads", "fastmath"]), meant_name("num_threads", ["threads"])
    ('fastmath', 'threads')
    """
    known, plain = tuple(candidates), _plain(word)
    if word in known:
        return None
    found = next((c for c in known if _plain(c) == plain), None)
    if found is None:
        found = elsewhere.get(word.lower())
    return found if found in known else near(word, known)


def suggestion(word: str, candidates: Iterable[str], elsewhere: Mapping[str, str] = KEYWORDS) -> str:
    """Return the beginning of a hint that names what was meant, the empty text where nothing is like it."""
    found = meant_name(word, candidates, elsewhere)
    return "" if found is None else f"did you mean `{found}`? "


def _plain(word: str) -> str:
    return word.lower().replace("_", "").replace("-", "")


def _distance_is_one(a: str, b: str) -> bool:
    if a == b or abs(len(a) - len(b)) > 1 or len(a) < 2:
        return False
    head = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    a, b = a[head:], b[head:]
    return a[1:] == b or a == b[1:] or a[1:] == b[1:] or (a[2:] == b[2:] and a[:2] == b[:2][::-1])
