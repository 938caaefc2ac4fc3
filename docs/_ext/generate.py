"""Pages that are generated from tables of the code, into docs/_generated, before Sphinx reads its sources."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
OUT = DOCS / "_generated"


def setup(app: Any) -> dict[str, Any]:
    """Tell Sphinx when to write the pages."""
    app.connect("builder-inited", lambda _: write_all())
    app.connect("autodoc-process-docstring", _as_rest)
    return {"parallel_read_safe": True}


def _as_rest(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Write a docstring of the code as reStructuredText: code is between single backticks there, and a star is a star."""
    for number, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            parts = re.split(r"(`[^`]*`)", line)
            lines[number] = "".join(f"`{p}`" if p.startswith("`") else p.replace("*", r"\*") for p in parts)


def write_all() -> None:
    """Write all generated pages; a page that did not change is left alone."""
    import results

    pages: dict[str, Callable[[], str]] = {
        "errors.md": errors,
        "command_line.md": command_line,
        "environment.md": environment,
        "options.md": options,
        "functions.md": functions,
        "targets.md": targets,
        "limits.md": limits,
        "passes.md": passes,
        "folders.md": folders,
        "layers.svg": layers,
        "api.md": api,
    }
    for name, page in pages.items():
        write(OUT / name, page())
    for path in sorted((DOCS / "results").glob("*.json")):
        write(OUT / "results" / f"{path.stem}.md", results.page(path, OUT / "results"))


def write(path: Path, text: str) -> None:
    """Write a file where it is not as it should be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table of Markdown; elements are Markdown, on one line each."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_element(c) for c in line) + " |" for line in lines) + "\n"


def _element(value: object) -> str:
    return " ".join(str(value).split()).replace("|", r"\|")


def plain(text: str) -> str:
    """Return a text of the code as Markdown that shows it as it is, code between backticks."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([<>*_\[\]\\{}])", r"\\\1", p) for p in parts)


def paragraph(text: str | None) -> str:
    """Return the first paragraph of a docstring on one line."""
    return " ".join(inspect.cleandoc(text or "").split("\n\n")[0].split())


def sources() -> Iterator[tuple[str, Path]]:
    """Yield the name and the file of every module of polyker."""
    for top in ("polyker", "codegen", "einsum_frontend"):
        for path in sorted((ROOT / top).rglob("*.py")):
            if any(p.is_symlink() for p in path.parents) or "__pycache__" in path.parts:
                continue
            parts = path.relative_to(ROOT).with_suffix("").parts
            parts = parts if parts[0] == "polyker" else ("polyker", *parts)
            yield ".".join(parts).removesuffix(".__init__"), path


GROUPS = {
    "PK1": "The text of an operator",
    "PK2": "Gradients",
    "PK3": "Shapes and ranges",
    "PK4": "Element types",
    "PK5": "Schedules and gathers",
    "PK6": "The compiler and its targets",
    "PK7": "Calls and arguments",
    "PK8": "The interpreter",
    "PK9": "Exporting kernels",
}


def errors() -> str:
    """Return the catalogue of errors, by the first digit of their codes."""
    for name, path in sources():
        if re.search(r"\bregister\(\s*\"PK", path.read_text(encoding="utf-8")):
            importlib.import_module(name)
    from polyker.errors import CATALOGUE

    groups: dict[str, list[tuple[object, ...]]] = {}
    for code, entry in sorted(CATALOGUE.items()):
        row = (f"`{code}`", f"`{entry.cls.__name__}`", plain(entry.message), plain(entry.hint or ""))
        groups.setdefault(code[:3], []).append(row)
    head = ("code", "class", "message", "hint")
    parts = [f"## {GROUPS.get(g, 'Others')} ({g}xx)\n\n{table(head, rows)}" for g, rows in groups.items()]
    return f"{len(CATALOGUE)} errors have a code.\n\n" + "\n".join(parts)


def command_line() -> str:
    """Return the commands with their arguments and options, as `--help` prints them."""
    import click

    from polyker.cli.command import commands

    def pages(path: str, command: click.Command) -> Iterator[str]:
        settings: Any = commands.context_settings
        context = click.Context(command, info_name=path, **{**settings, "terminal_width": 100})
        yield f"## `{path}`\n\n{fenced(command.get_help(context))}"
        if isinstance(command, click.Group):
            for name, each in command.commands.items():
                yield from pages(f"{path} {name}", each)

    return "\n".join(pages("polyker", commands))


def fenced(text: str, language: str = "text") -> str:
    """Return a text in a fence."""
    return f"```{language}\n{text.rstrip()}\n```\n"


def environment() -> str:
    """Return the environment variables that are read."""
    from polyker.cli.doctor import VARIABLES

    return table(("variable", "meaning"), ((f"`{n}`", plain(m)) for n, m in VARIABLES.items()))


def options() -> str:
    """Return the options with their defaults, in the words of the class's docstring."""
    from polyker.options import NAMES, Options

    text = " ".join(inspect.cleandoc(Options.__doc__ or "").split())
    found = dict(re.findall(r"`(\w+)`: (.*?)(?= `\w+`: |$)", text))
    default = dict(zip(Options.__struct_fields__, Options.__struct_defaults__, strict=True))
    rows = ((f"`{n}`", f"`{default[n]!r}`", plain(found.get(n, ""))) for n in NAMES)
    return table(("option", "default", "meaning"), rows)


def functions() -> str:
    """Return the table of functions, with the errors that the page on accuracy shows."""
    from polyker.ir.functions import TABLE

    lines = (DOCS / "accuracy.md").read_text(encoding="utf-8").splitlines()
    cells = ([c.strip() for c in line.split("|")[1:-1]] for line in lines if line.startswith("| "))
    errors = {row[0]: (row[1], row[3]) for row in cells if row[0] in TABLE and len(row) > 3}
    head = ("function", "takes", "complex", "f32", "f64", "special values")
    rows = []
    for f in TABLE.values():
        takes = f"{f.arity} {f.takes}s" if f.arity > 1 else f"{f.takes}s"
        rows.append((f"`{f.name}`", takes, "yes" if f.complex else "no", *errors.get(f.name, ("", "")), plain(f.about)))
    return table(head, rows)


LISTS = (
    ("program", "FIRST", "Program level: first", "They run once, before the alternatives for large temporaries."),
    ("program", "CPU", "Program level: a processor", "They run for each of these alternatives."),
    ("program", "TIME", "Program level: time loops", "They prepare statements that may share loops."),
    ("program", "FOR_COMMON_LOOPS", "Program level: common loops", "Each is kept only where common loops need it."),
    ("program", "GPU", "Program level: a GPU", "They take the place of the lists above."),
    ("program", "TEXT", "Program level: the order of the text", "They prepare a schedule that a person edits."),
    ("kernel", "CPU", "Kernel level: a processor", "Work is counted, and printed as `loops`, around these."),
    ("kernel", "MACHINE", "Kernel level: the machine's form", "They run just before LLVM IR is written."),
    ("gpu", "KERNEL", "Kernel level: a GPU", "They run before CUDA C is written."),
)


def targets() -> str:
    """Return the tables of processors, one row a file of polyker/machine."""
    from polyker.machine.known import instruction_sets, known

    def alike(one: Any) -> list[str]:
        """Return the other names of an instruction set: of systems, and without one."""
        facts = (one.cpu, one.features, one.vector_bytes)
        return [
            f"`{t.name}`"
            for t in known().values()
            if (t.cpu, t.features, t.vector_bytes) == facts and t.name != one.name
        ]

    rounding = {"fused": "rounded once", "none": "rounded twice", "either": "rounded once or twice"}
    rows = []
    for one in map(known().__getitem__, instruction_sets()):
        width = f"{one.vector_registers} of {8 * one.vector_bytes} bits" if one.vector_bytes > 1 else "none"
        width += ", masked" if one.masked else ""
        rows.append(
            (f"`{one.name}`", ", ".join(alike(one)), width, rounding[one.fma], "yes" if one.half else "by integers")
        )
    head = ("target", "the same instructions", "vectors", "multiply-adds", "f16 conversions")
    cores: dict[str, list[str]] = {}
    for one in known().values():
        if one.name == f"cpu:{one.cpu}" and one.name not in instruction_sets():
            facts = (one.triple, one.vector_bytes, one.masked, one.fma)
            found = map(known().__getitem__, instruction_sets())
            level = next(t.name for t in found if (t.triple, t.vector_bytes, t.masked, t.fma) == facts)
            cores.setdefault(level, []).append(f"`{one.name}`")
    named = table(
        ("cores", "instructions of"), ((", ".join(names), f"`{level}`") for level, names in sorted(cores.items()))
    )
    return f"{table(head, rows)}\n{named}"


def passes() -> str:
    """Return the catalogue of passes, list by list in the order in which they run."""
    parts = []
    for module, name, title, about in LISTS:
        found = importlib.import_module(f"polyker.pipeline.{module}")
        parts.append(f"## {title}\n\n`polyker.pipeline.{module}.{name}`. {about}\n")
        for one in getattr(found, name):
            parts.append(_one_pass(one))
    return "\n".join(parts)


def _one_pass(one: Any) -> str:
    function = worker(one.run)
    module = inspect.getmodule(function) if function else None
    about = plain(paragraph(module.__doc__)) if module else ""
    place = f"`{module.__name__}.{function.__name__}`" if module and function else "in the list's own module"
    after = ", ".join(f"`{a}`" for a in one.after) or "none"
    facts = [
        f"Level: {one.level.value}.",
        f"Runs after: {after}.",
        f"Why there: {plain(one.why)}." if one.why else "",
        "It asks the target." if one.machine else "It gives the same for every target.",
        "" if one.keeps_loops else "It may join or split the text's loops.",
        f"Code: {place}.",
    ]
    return f"**{one.name}**\n: {about}\n\n  {' '.join(f for f in facts if f)}\n".replace("\n: \n\n  ", "\n: ")


def worker(run: Any, depth: int = 0) -> FunctionType | None:
    """Return the function of rewrite or codegen that a pass's `run` calls: by its names, its closure, or helpers beside it."""
    if not isinstance(run, FunctionType) or depth > 3:
        return None
    if run.__module__.startswith(("polyker.rewrite", "polyker.codegen.passes", "polyker.schedule")):
        return run
    inside = [c.cell_contents for c in run.__closure__ or ()]
    named = [run.__globals__.get(n) for n in run.__code__.co_names]
    return next((w for f in (*inside, *named) if (w := worker(f, depth + 1)) is not None), None)


def folders() -> str:
    """Return the packages as a tree, each with the first sentence of its docstring."""
    lines = []
    for name, path in sorted(sources()):
        if path.name == "__init__.py" and name != "polyker":
            about = paragraph(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))))
            count = len([p for p in path.parent.glob("*.py") if p.name != "__init__.py"])
            files = "" if not count else f" ({count} file{'s' * (count > 1)})"
            lines.append(f"{'  ' * (name.count('.') - 1)}- `{name}`{files}: {plain(about)}")
    return "\n".join(lines) + "\n"


def layers() -> str:
    """Return a picture of the layers of import-linter's first contract; those side by side do not import each other."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = config["tool"]["importlinter"]["contracts"][0]
    width, height, gap = 560, 30, 6
    parts = []
    for row, layer in enumerate(contract["layers"]):
        names = [n.strip() for n in re.split("[:|]", layer)]
        each = (width - gap * (len(names) - 1)) / len(names)
        for column, name in enumerate(names):
            x, y = column * (each + gap), row * (height + gap)
            parts.append(f'<rect x="{x:.0f}" y="{y}" width="{each:.0f}" height="{height}" rx="4"/>')
            parts.append(f'<text x="{x + each / 2:.0f}" y="{y + 20}">{name}</text>')
    total = len(contract["layers"]) * (height + gap)
    style = "rect{fill:#dfe8f5;stroke:#47689b}text{font:14px sans-serif;text-anchor:middle;fill:#12233f}"
    box = f'viewBox="-1 -1 {width + 2} {total + 2}" width="{width + 2}" height="{total + 2}"'
    inside = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box}><style>{style}</style>\n{inside}\n</svg>\n'


def limits() -> str:
    """Return the limits of the notation."""
    from polyker.einsum_frontend import einsum_string, names

    rows = [
        ("characters of a text", names.MAX_TEXT_CHARACTERS),
        ("characters of a statement", names.MAX_STATEMENT_CHARACTERS),
        ("characters of a name", names.MAX_IDENTIFIER_CHARACTERS),
        ("statements", names.MAX_STATEMENTS),
        ("inputs; outputs", names.MAX_OPERANDS),
        ("indices of a statement, those of loops and inline reductions around it included", names.MAX_INDICES),
        ("brackets inside brackets", names.MAX_NESTING),
        ("items in one pair of brackets", names.MAX_ITEMS),
        ("depth of an expression, in operators", names.TREE_DEPTH),
        ("parts of an expression", names.TREE_SIZE),
        ("coefficients of indices, divisors and offsets in subscripts", "2^31"),
        ("integers in bounds, conditions and shapes", "2^62"),
        ("operands of `pk.einsum`", einsum_string.MAX_OPERANDS),
    ]
    return table(("what", "limit"), ((what, f"{n:,}" if isinstance(n, int) else n) for what, n in rows))


def _members(value: type, kind: str) -> str:
    """Return the options by which a class is shown with its methods, those of polyker's classes that it inherits from, too."""
    if kind != "Classes":
        return ""
    foreign = [b.__name__ for b in value.__mro__ if not b.__module__.startswith("polyker")]
    own = [b for b in value.__mro__[1:] if b.__module__.startswith("polyker")]
    return "\n   :members:" + (f"\n   :inherited-members: {', '.join(foreign)}" if own else "")


def api() -> str:
    """Return directives of autodoc for the public names of polyker."""
    import polyker as pk

    kinds: dict[str, list[str]] = {"Functions": [], "Classes": [], "Errors": [], "Element types": [], "Others": []}
    for name in sorted(pk.__all__, key=str.lower):
        value = getattr(pk, name)
        if inspect.isclass(value):
            kinds["Errors" if issubclass(value, BaseException) else "Classes"].append(name)
        elif inspect.isfunction(value) or inspect.isbuiltin(value):
            kinds["Functions"].append(name)
        elif type(value).__name__ == "DType":
            kinds["Element types"].append(f"`pk.{name}`")
        elif name not in ("__version__", "errors"):
            kinds["Others"].append(f"`pk.{name}`: {plain(paragraph(type(value).__doc__))}")
    directive = {"Functions": "autofunction", "Classes": "autoclass", "Errors": "autoexception"}
    parts = []
    for kind, names in kinds.items():
        parts.append(f"## {kind}\n")
        if kind not in directive:
            parts.append((", " if kind == "Element types" else "\n\n").join(names) + "\n")
            continue
        body = "\n\n".join(f".. {directive[kind]}:: polyker.{n}{_members(getattr(pk, n), kind)}" for n in names)
        parts.append(f"```{{eval-rst}}\n{body}\n```\n")
    return "\n".join(parts)
