"""What passes did, as data: explain prints what they decided and took, and a search varies it."""

from __future__ import annotations

from msgspec import Struct

# How a printed decision begins that says what was not done, and why.
REFUSED = "not done: "


class Decision(Struct, frozen=True):
    """One decision of a pass.

    `subject`: the statement, or "" where it is of the whole program. `chosen`: what is done; or `refused`: what is not, and why.
    `made_by`: the pass, set by the driver. `cost`: what the chosen form takes, as a part of the other one's cycles, where the
    model compared them. Texts name statements, tensors and indices as the typed program does.
    """

    subject: str
    chosen: str = ""
    refused: str = ""
    made_by: str = ""
    cost: float | None = None

    def __str__(self) -> str:
        about = f"{self.subject}: " if self.subject else ""
        return about + self.chosen if self.chosen else REFUSED + about + self.refused


class PassRun(Struct, frozen=True):
    """One run of a pass: its name, level, time in seconds, whether it changed its unit, and the alternative it was a part of.

    Passes of an alternative that was given up are marked so.
    """

    name: str
    level: str
    seconds: float
    changed: bool
    alternative: str = ""
    given_up: bool = False
