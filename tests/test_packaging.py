"""The repository's own rules: what is packaged, what is imported where, how long files are."""

import ast
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted(p for top in ("polyker", "codegen", "einsum_frontend") for p in (ROOT / top).rglob("*.py"))
# The two symlinks are for editors: what they show is already there at the top level.
SOURCES = [p for p in SOURCES if not any(q.is_symlink() for q in p.parents)]
HEAVY = ("islpy", "llvmlite", "lark", "sympy", "click", "rich", "opt_einsum", "platformdirs")


def module(path):
    """Return the module name that a source file installs as."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "polyker" else ("polyker", *parts)
    return ".".join(parts).removesuffix(".__init__")


def imports(path):
    """Yield the full names of the modules that a file imports anywhere."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module


def python(*arguments, **kwargs):
    """Run this interpreter outside the repository, so that what is installed is imported."""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120, **kwargs)


def test_every_folder_with_an_init_is_a_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert sorted(project["tool"]["setuptools"]["packages"]) == sorted(
        module(p) for p in SOURCES if p.name == "__init__.py"
    )


def test_the_symlinks_for_editors_point_at_the_top_level_folders():
    for name in ("codegen", "einsum_frontend"):
        link = ROOT / "polyker" / name
        assert link.is_symlink()
        assert link.resolve() == ROOT / name


def test_no_file_is_over_500_lines():
    long = {str(p.relative_to(ROOT)): n for p in SOURCES if (n := len(p.read_text().splitlines())) > 500}
    assert not long


def test_a_folder_has_at_most_16_files_and_says_what_it_is_for():
    folders = {p.parent for p in SOURCES}
    assert not {str(f.relative_to(ROOT)): n for f in folders if (n := len(list(f.glob("*.py")))) > 16}
    silent = [
        str(f.relative_to(ROOT)) for f in folders if not ast.get_docstring(ast.parse((f / "__init__.py").read_text()))
    ]
    assert not silent


@pytest.mark.parametrize("path", SOURCES, ids=module)
def test_a_module_has_no_way_to_run_data_as_code(path):
    assert not {"pickle", "marshal", "shelve", "dill", "cloudpickle"} & {name.split(".")[0] for name in imports(path)}
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("eval", "exec", "__import__"), f"line {node.lineno}"
        if isinstance(node, ast.keyword) and node.arg in ("allow_pickle", "shell"):
            assert isinstance(node.value, ast.Constant) and node.value.value is False, f"line {node.value.lineno}"


def test_islpy_and_llvmlite_have_few_doors():
    doors = {
        "islpy": re.compile(
            r"polyker\.(poly|cost|rewrite|schedule|edit|exchange|grad|viz)(\..*)?|polyker\.codegen\.lowering\..*"
        ),
        "llvmlite": re.compile(r"polyker\.codegen\.llvm\.jit\.\w+"),
    }
    for path in SOURCES:
        for name in imports(path):
            top = name.split(".")[0]
            assert top not in doors or doors[top].fullmatch(module(path)), f"{module(path)} imports {name}"


def test_no_regular_expression_reads_llvm_text_again():
    users = {module(p) for p in SOURCES if "re" in imports(p) and module(p).startswith("polyker.codegen.llvm.")}
    assert users == {"polyker.codegen.llvm.jit.build"}  # it checks the names of what a module calls


def test_importing_polyker_loads_nothing_heavy(tmp_path):
    code = f"import sys, polyker; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    run = python("-c", code, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == []


def test_importing_polyker_is_quick(tmp_path):
    # A loose bound, for a busy machine; the promise is 30 ms, of which the least of several runs is a fair measure.
    code = "import numpy, time; t = time.perf_counter(); import polyker; print(time.perf_counter() - t)"
    assert min(float(python("-c", code, cwd=tmp_path).stdout) for _ in range(7)) < 0.06


def test_every_environment_variable_is_listed():
    from polyker.cli.doctor import VARIABLES

    used = {name for p in SOURCES for name in re.findall(r"POLYKER_[A-Z_]+", p.read_text())}
    assert used == set(VARIABLES)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build wheel and sdist of a copy of the tree, with a setuptools that pyproject asks for."""
    base = tmp_path_factory.mktemp("build")
    tools, tree = base / "tools", base / "tree"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    requires = [*project["build-system"]["requires"], "wheel"]
    install = python(
        "-m", "pip", "install", "-q", "--no-input", "--retries=1", "--timeout=10", "--target", str(tools), *requires
    )
    if install.returncode:
        pytest.skip("no package index to take setuptools from")
    tree.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    for name in ("polyker", "codegen", "einsum_frontend"):
        shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    code = f"""
import sys; sys.path.insert(0, {str(tools)!r})
from setuptools import build_meta as b
print(b.build_wheel('out')); print(b.build_sdist('out'))
"""
    run = python("-c", code, cwd=tree)
    assert run.returncode == 0, run.stderr[-2000:]
    (wheel,), (sdist,) = (tree / "out").glob("*.whl"), (tree / "out").glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as z, tarfile.open(sdist) as t:
        return set(z.namelist()), {name.split("/", 1)[1] for name in t.getnames() if "/" in name}


def test_wheel_and_sdist_hold_every_file(built):
    wheel, sdist = built
    data = [
        *ROOT.glob("polyker/data/*.*[!y]"),
        *ROOT.glob("einsum_frontend/*.lark"),
        ROOT / "polyker/py.typed",
    ]
    assert len(data) >= 4
    for path in [*SOURCES, *data]:
        name = str(path.relative_to(ROOT))
        assert name in sdist
        assert (name if name.startswith("polyker/") else "polyker/" + name) in wheel


def test_the_wheel_installs_no_other_top_level_name(built):
    wheel, _ = built
    assert {name.split("/")[0].split("-")[0] for name in wheel} == {"polyker"}


def test_the_readme_shows_the_two_commands_that_ci_runs():
    readme, ci = (ROOT / "README.md").read_text(), (ROOT / ".ci" / "run").read_text()
    for name in ("demo", "tests"):
        assert re.search(rf"^<!-- command: {name} -->\n```sh\n[^\n`]+\n```$", readme, re.MULTILINE)
    assert "readme_command tests" in ci


def test_each_package_keeps_to_its_budget_of_lines():
    from tests.tools.lines import over

    assert not over()
