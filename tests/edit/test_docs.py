"""The examples of docs/schedules.md give what stands there."""

import doctest
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs" / "schedules.md"


def test_the_examples_are_true():
    found = doctest.testfile(str(DOCS), module_relative=False, parser=_Fenced())
    assert found.failed == 0
    assert found.attempted > 15


class _Fenced(doctest.DocTestParser):
    """The examples without the fences around them."""

    def get_examples(self, string, name="<string>"):
        return super().get_examples(string.replace("```", "   "), name)

    def get_doctest(self, string, globs, name, filename, lineno):
        return super().get_doctest(string.replace("```python", "").replace("```", ""), globs, name, filename, lineno)
