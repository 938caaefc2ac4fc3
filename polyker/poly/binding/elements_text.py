"""Sets of elements as text for messages: some elements one by one, or the condition that they meet."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from polyker.poly import isl
from polyker.process.jobs import load

MAX_LISTED = 3  # elements that a message lists (chosen)
_MAX_SET_CHARACTERS = 400  # of a condition in a message: longer ones nobody reads (chosen)


def elements_text(tensor: str, elements: Any, names: Sequence[str], relabel: Callable[[str], str]) -> str:
    """Return elements as text: the first ones and how many more where these are numbers, else their condition.

    `elements`: a set of c0, c1, …; `names`: the subscripts by which the condition calls these; `relabel` puts the user's names
    in place of generated ones.

    >>> show = lambda text: elements_text("L", isl.read_set(text), ("i", "j"), str)
    >>> show("{ [c0, c1] : c0 = 0 and 1 <= c1 <= 2 }")
    'L[0, 1] and L[0, 2]'
    >>> show("{ [c0, c1] : 0 <= c0 < c1 < 10 }")
    'L[0, 1], L[0, 2], L[0, 3] and 42 more'
    >>> show("[n0] -> { [c0, c1] : 0 <= c0 < c1 < n0 }")
    'L[i, j] with i >= 0 and i < j < n0'
    """
    elements = elements.coalesce()
    if elements.dim(isl.dim.param) == 0 and elements.is_bounded():
        return _listed(tensor, elements)
    elements = elements.gist_params(elements.params())
    for k in range(elements.dim(isl.dim.set)):
        elements = elements.set_dim_name(isl.dim.set, k, f"c{k}")
    if len(str(elements)) > _MAX_SET_CHARACTERS:
        return f"{_element(tensor, elements.lexmin().sample_point(), elements)} and others"
    return "; ".join(_conditions(tensor, str(elements), names, relabel))


def _listed(tensor: str, elements: Any) -> str:
    shown: list[str] = []
    rest = elements
    while len(shown) < MAX_LISTED and not rest.is_empty():
        first = rest.lexmin()
        shown.append(_element(tensor, first.sample_point(), elements))
        rest = rest.subtract(first)
    if rest.is_empty():
        return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
    load("polyker.poly.count")
    from polyker.poly.count import count

    number = count(rest).number
    return f"{', '.join(shown)} and {'others' if number is None else f'{number} more'}"


def _element(tensor: str, point: Any, elements: Any) -> str:
    at = [point.get_coordinate_val(isl.dim.set, k).to_python() for k in range(elements.dim(isl.dim.set))]
    return f"{tensor}[{', '.join(map(str, at))}]" if at else tensor


def _conditions(tensor: str, text: str, names: Sequence[str], relabel: Callable[[str], str]) -> Iterator[str]:
    """Yield what isl's text of a set says of each of its pieces."""
    # The user's names come last: one of them may look like a generated one.
    marks = {f"c{k}": f"\0{k}\0" for k in range(len(names))}
    for piece in text[text.index("{") + 1 : text.rindex("}")].split(";"):
        found = re.sub(r"\bc\d+ = (?=[^\]]*\])", "", piece.strip())  # isl prints a fixed dimension inside the tuple
        found = re.sub(r"(?<![A-Za-z_'])(\d*)(c\d+)\b", lambda m: (f"{m[1]}*" if m[1] else "") + marks[m[2]], found)
        found = re.sub(r"\0(\d+)\0", lambda m: names[int(m[1])], relabel(found))
        head, _, condition = found.partition(" : ")
        inside = head.strip().strip("[]").strip()
        shown = f"{tensor}[{inside}]" if inside else tensor
        yield f"{shown} with {condition}" if condition else shown
