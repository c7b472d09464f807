"""The direction of the rooms: who may import whom, and what a light import must not load.

The layers themselves stand in pyproject.toml, where import-linter holds them; here is what they cannot say.
"""

import ast
import functools
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

import pate_jax

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pate_jax"
FILES = sorted(PACKAGE.rglob("*.py"))
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
LAYERS = [[room.removeprefix("pate_jax.") for room in layer.split(" | ")] for layer in CONTRACTS[0]["layers"]]
ROOMS = {room for layer in LAYERS for room in layer}


def room(path: Path) -> str:
    """The room a file stands in: its folder's name, or its own at the top."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Every module that a file imports anywhere."""
    return imports(path)[0]


@functools.cache
def imports(path: Path) -> tuple[set[str], set[str]]:
    """Every module that a file imports anywhere, and those outside its functions and classes."""
    whole = ast.parse(path.read_text())
    nodes = [node for node in ast.walk(whole) if isinstance(node, ast.Import | ast.ImportFrom)]
    relative = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.level]
    assert not relative, f"{path} imports relatively"
    return tuple({name for node in some for name in imported_by(node)} for some in (nodes, whole.body))


def imported_by(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    return {node.module or ""} if isinstance(node, ast.ImportFrom) else set()


def outside(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


@pytest.fixture(scope="module")
def others():
    """The packages that each room takes from outside."""
    found: dict[str, set[str]] = {}
    for path in FILES:
        found.setdefault(room(path), set()).update(outside(imported(path)))
    return found


def test_the_contracts_hold(monkeypatch):
    monkeypatch.chdir(ROOT)
    assert lint_imports(no_cache=True) == 0


def test_every_room_stands_in_the_layers():
    there = {room(path) for path in FILES} - {"__init__"}
    assert there == ROOMS
    assert len(there) + len(["__init__.py", "py.typed"]) <= 19
    assert len(LAYERS) <= 8


def test_the_maps_show_the_rooms_of_the_layers():
    pages = {"pate_jax.__doc__": pate_jax.__doc__, "CONTRIBUTING.md": (ROOT / "CONTRIBUTING.md").read_text()}
    for name, text in pages.items():
        told = re.findall(r"^ *(\w+) {2,}\S", text, re.MULTILINE)
        assert set(told) == ROOMS, name
        assert len(told) == len(ROOMS), name


@pytest.mark.long
def test_mechanisms_need_numpy_at_most(others):
    assert others["mechanisms"] <= {*sys.stdlib_module_names, "numpy", "jaxtyping", "pate_jax"}


def test_only_models_imports_flax(others):
    assert {name for name, packages in others.items() if "flax" in packages} == {"models"}


@pytest.mark.long
def test_only_ensemble_names_pmap():
    naming = {room(path) for path in FILES if any("pmap(" in line for line in code_lines(path))}
    assert naming <= {"ensemble"}, f"pmap is named in {naming}"


def code_lines(path: Path) -> list[str]:
    """A file's source without docstrings and comments."""
    return ast.unparse(_without_docstrings(ast.parse(path.read_text()))).splitlines()


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                body[0] = ast.Pass()
    return tree


def test_the_package_never_imports_experiments(others):
    assert not [name for name, packages in others.items() if "experiments" in packages]


def test_the_plot_library_is_loaded_only_when_it_draws():
    for path in FILES:
        assert "matplotlib" not in outside(imports(path)[1]), path


def test_no_pickle_anywhere():
    for path in FILES:
        assert "pickle" not in outside(imported(path)), path
        if "allow_pickle" in path.read_text() or "load(" in path.read_text():  # few files need a closer look
            source = "\n".join(code_lines(path))
            assert "allow_pickle=True" not in source, path
            written = source.count("savez") + source.count("write_array(")
            assert source.count("np.load(") == source.count("allow_pickle=False") - written, path


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import pate_jax", ["jax", "numpy", "flax"]),
        ("import pate_jax.accounting", ["jax", "flax", "optax", "matplotlib"]),
        ("from pate_jax.accounting import rdp, epsilon, statement", ["jax", "flax", "optax", "matplotlib"]),
        ("import pate_jax.aggregate", ["flax", "optax", "tensorflow_datasets", "matplotlib"]),
        ("import pate_jax.voting", ["flax", "optax", "tensorflow_datasets", "matplotlib"]),
    ],
)
@pytest.mark.long
def test_light_imports(statement, unwanted):
    script = f"import sys; {statement}; print([name for name in {unwanted} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"


def test_every_public_name_resolves():
    for name in pate_jax.__all__:
        assert getattr(pate_jax, name) is not None


def test_ci_tries_the_floors_of_pyproject():
    """.ci/lowest.txt names them all; a floor that nothing can be installed with is raised, here too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = (ROOT / ".ci/lowest.txt").read_text().splitlines()
    taken = dict(line.split()[0].split("==") for line in lines if not line.startswith("#"))
    for one in [*project["dependencies"], *project["optional-dependencies"]["test"]]:
        name, floor = one.split(">=")
        assert re.fullmatch(rf"{re.escape(floor)}(\.0)*", taken[re.sub(r"[-_.]+", "-", name)]), one
