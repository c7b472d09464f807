"""The direction of the rooms: who may import whom, and what a light import must not load."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pate_jax"
FILES = sorted(PACKAGE.rglob("*.py"))
ROOMS_OF_TRAINING = {"ensemble", "models", "student"}
MAY_SEE_BOTH = {"pipeline", "stages", "cli", "verify"}


def room(path: Path) -> str:
    """The room a file stands in: its module name, or its folder's."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Every module that a file imports anywhere, with our own as `pate_jax.room`."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return names


def rooms_of(names: set[str]) -> set[str]:
    return {name.split(".")[1] for name in names if name.startswith("pate_jax.")}


def outside(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


@pytest.fixture(scope="module")
def graph():
    found: dict[str, tuple[set[str], set[str]]] = {}
    for path in FILES:
        names = imported(path)
        rooms, others = found.setdefault(room(path), (set(), set()))
        rooms |= rooms_of(names) & {room(file) for file in FILES} - {room(path)}
        others |= outside(names)
    return found


def test_mechanisms_stand_on_the_standard_library(graph):
    assert graph["mechanisms"][0] == {"errors"}
    assert graph["mechanisms"][1] <= {*sys.stdlib_module_names, "pate_jax"}


def test_accounting_never_imports_an_accelerator_library(graph):
    rooms, others = graph["accounting"]
    assert not others & {"jax", "jaxlib", "flax", "optax", "orbax", "chex"}
    assert rooms <= {"errors", "mechanisms", "laws", "plots", "artefact", "progress"}


def test_laws_are_numpy_only(graph):
    rooms, others = graph["laws"]
    assert rooms <= {"errors", "mechanisms"}
    assert others <= {*sys.stdlib_module_names, "numpy", "jaxtyping", "pate_jax"}


def test_only_models_imports_flax(graph):
    assert {name for name, (_, others) in graph.items() if "flax" in others} == {"models"}


def test_only_ensemble_names_pmap_and_orbax():
    for word in ("pmap(", "orbax"):
        naming = {room(path) for path in FILES if any(word in line for line in code_lines(path))}
        assert naming <= {"ensemble"}, f"{word} is named in {naming}"


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


def test_only_the_pipeline_sees_training_and_accounting(graph):
    for name, (rooms, _) in graph.items():
        if name not in MAY_SEE_BOTH:
            assert not (rooms & ROOMS_OF_TRAINING and "accounting" in rooms), name


def test_nothing_imports_the_command_line(graph):
    assert not [name for name, (rooms, _) in graph.items() if "cli" in rooms]


def test_the_package_never_imports_experiments():
    assert not [path for path in FILES if "experiments" in outside(imported(path))]


def test_no_circle_between_rooms(graph):
    def reached(name: str, seen: set[str]) -> set[str]:
        for following in graph[name][0] - seen:
            seen |= {following} | reached(following, seen | {following})
        return seen

    circles = [name for name in graph if name in reached(name, set())]
    assert not circles, circles


def test_the_plot_library_is_loaded_only_when_it_draws():
    for path in FILES:
        top = {name for node in ast.parse(path.read_text()).body for name in imported_by(node)}
        assert "matplotlib" not in {name.split(".")[0] for name in top}, path


def imported_by(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    return {node.module or ""} if isinstance(node, ast.ImportFrom) else set()


def test_no_pickle_anywhere():
    for path in FILES:
        source = "\n".join(code_lines(path))
        assert "pickle" not in outside(imported(path)), path
        assert "allow_pickle=True" not in source, path
        if "np.load(" in source:
            assert source.count("np.load(") == source.count("allow_pickle=False") - source.count("savez"), (
                path
            )


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
def test_light_imports(statement, unwanted):
    script = f"import sys; {statement}; print([name for name in {unwanted} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"


def test_every_public_name_resolves():
    import pate_jax

    for name in pate_jax.__all__:
        assert getattr(pate_jax, name) is not None
