"""What is printed: rows, the least of each group, and how the bars stand; and the file of JSON lines beside it."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import IO, Any

_GOALS = (
    ("matmul-nn-4096", "x torch", 0.80),
    ("reduction", "of roof", 0.85),
    ("row-wise", "of roof", 0.85),
    ("transpose", "of roof", 0.80),
    ("contraction", "geometric mean x torch", 1.1),
)
# What is to be reached, by what stands in the device's name: (cases, figure, at least).
BARS: dict[str, tuple[tuple[str, str, float], ...]] = {"H100": _GOALS, "H200": _GOALS}


def bars_of(device: str) -> tuple[tuple[str, str, float], ...]:
    """Return the bars of a device, none where it has none."""
    return next((bars for name, bars in BARS.items() if name in device), ())


def roof(figures: Mapping[str, Any], rates: Mapping[str, float | None]) -> float | None:
    """Return the least time of a case in seconds: its bytes at the rate of a copy, its operations at that of their unit."""
    copy, unit = rates.get("copy"), rates.get(figures["unit"])
    if not copy:
        return None
    return max(figures["moved"] / copy, figures["flop"] / unit if unit else 0.0)


def share(figures: Mapping[str, Any]) -> float | None:
    """Return the share of the roof that polyker reached."""
    return figures["roof"] / figures["polyker"] if figures.get("roof") and figures.get("polyker") else None


def ratio(figures: Mapping[str, Any], peer: str) -> float | None:
    """Return how many times as long a peer took."""
    return figures[peer] / figures["polyker"] if figures.get(peer) and figures.get("polyker") else None


def heading(peers: Sequence[str]) -> str:
    """Return the line above the rows."""
    heads = "".join(f" {name + ' ms':>10} {'ratio':>6}" for name in peers)
    return f"{'case':24} {'polyker ms':>10} {'of roof':>8} {'host us':>8}{heads}"


def line(figures: Mapping[str, Any], peers: Sequence[str]) -> str:
    """Return the row of a case."""
    if figures["status"] != "ok":
        return f"{figures['case']:24} {figures['status'].upper()}: {figures['message']}"
    part = share(figures)
    host = figures.get("host", 0.0)
    row = f"{figures['case']:24} {1e3 * figures['polyker']:10.3f} {f'{part:.1%}' if part else '-':>8} {1e6 * host:8.0f}"
    for name in peers:
        if f"{name} eager" in figures:
            row += f" {'eager':>10} {'-':>6}"
        elif figures.get(name) is None:
            row += f" {'-':>10} {'-':>6}"
        else:
            times = ratio(figures, name)
            row += f" {1e3 * figures[name]:10.3f} {f'{times:.2f}' if times else '-':>6}"
        graphs = figures.get(f"{name} graphs")
        if graphs and (graphs > 1 or figures.get(f"{name} breaks")):
            row += f" ({graphs} graphs)"
    notes = "; ".join(f"{text}" if name == "types" else f"{name}: {text}" for name, text in figures["notes"].items())
    return f"{row}  {notes}".rstrip()


def summary(figures: Sequence[Mapping[str, Any]], device: str) -> list[str]:
    """Return the least shares and ratios of each group, and how they stand to the bars of the device."""
    lines = []
    good = [f for f in figures if f["status"] == "ok"]
    for group in dict.fromkeys(f["group"] for f in good):
        members = [f for f in good if f["group"] == group]
        ratios = _known(ratio(f, "torch") for f in members)
        text = f"{group}: {len(members)} cases" + (
            f", {statistics.geometric_mean(ratios):.2f} x torch" if ratios else ""
        )
        least = min((f for f in members if share(f)), key=lambda f: share(f) or 0.0, default=None)
        if least is not None:
            text += f"; least {share(least):.1%} of its roof ({least['case']})"
        lines.append(text)
    for name, what, bar in bars_of(device):
        members = [f for f in good if name in (f["case"], f["group"])]
        values = _known(share(f) if what == "of roof" else ratio(f, "torch") for f in members)
        if values:
            value = statistics.geometric_mean(values) if what.startswith("geo") else min(values)
            lines.append(f"bar: {name} {value:.2f} {what}, {'reached' if value >= bar else 'NOT reached'} ({bar:.2f})")
    for status in ("wrong", "error", "dead", "hung", "left", "skip"):
        names = [f["case"] for f in figures if f["status"] == status]
        if names:
            lines.append(f"{status}: {', '.join(names)}")
    return lines


def _known(values: Any) -> list[float]:
    return [v for v in values if v]


class Journal:
    """Prints lines, and writes one line of JSON for each to a file, so that a run that is ended has both up to its end."""

    def __init__(self, path: str | None) -> None:
        self._file: IO[str] | None = open(path, "w", encoding="utf-8") if path else None  # noqa: SIM115  # until it is closed

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def note(self, text: str, found: Mapping[str, Any] | None = None) -> None:
        """Print a text, and write what was found if there is anything."""
        if text:
            print(text, flush=True)
        if self._file is not None and found is not None:
            self._file.write(json.dumps(found) + "\n")
            self._file.flush()
