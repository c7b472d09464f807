"""The size of the house: no circles of imports, and no file, function or class that nobody can read at once.

What is above a limit today is written down with its size, and may only get smaller: take out what is mended.
"""

import ast
import functools
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "pate_jax"
MOST_MODULES = 388
LINES_OF_A_FILE, LINES_OF_A_FUNCTION, MEMBERS_OF_A_CLASS = 400, 60, 10

FILES = {"student.released.predict": 634}
FUNCTIONS = {
    "ensemble.teacher.teacher": 61,
}
CLASSES = {
    "accounting.statement.Statement": 15,
    "audit.attacks.poisoned_crowds.PoisonedCrowd": 15,
    "runs.crowds.inputs.Crowd": 29,
    "runs.directory.RunDirectory": 15,
    "runs.record.Settings": 17,
    "sweep.compare.ground.Ground": 15,
}


@functools.cache
def trees():
    """The syntax of each module, by its name within the package."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts): ast.parse(path.read_text())
        for path in paths
    }


def at_run_time(node):
    """All nodes below, but for what only a type checker reads."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)):
            yield child
            yield from at_run_time(child)


def imported(name, known):
    """The modules that a module imports, at its top or inside a function."""
    for node in at_run_time(known[name]):
        if isinstance(node, ast.ImportFrom) and node.module:
            wanted = [(f"{node.module}.{alias.name}", node.module) for alias in node.names]
        elif isinstance(node, ast.Import):
            wanted = [(alias.name,) for alias in node.names]
        else:
            continue
        for names in wanted:
            inside = [one.removeprefix("pate_jax.") for one in names if one.startswith("pate_jax.")]
            yield from [one for one in inside if one in known and one != name][:1]


def in_circles(graph):
    """The nodes from which a path leads back to them.

    >>> sorted(in_circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}))
    ['b', 'c']
    """
    reached, before = {name: set(others) for name, others in graph.items()}, None
    while before != (before := sum(map(len, reached.values()))):
        for others in reached.values():
            others.update(*(reached[other] for other in others))
    return {name for name, others in reached.items() if name in others}


def above(sizes, most, known):
    """What is larger than the limit, and than what is known of it."""
    return {name: size for name, size in sizes.items() if size > max(most, known.get(name, 0))}


def definitions(kind):
    """Every function or class of the package, by its full name."""
    for name, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, kind):
                yield f"{name}.{node.name}", node


def test_no_modules_import_each_other_in_a_circle():
    known = {name: tree for name, tree in trees().items() if not name.endswith("__init__")}
    assert in_circles({name: set(imported(name, known)) for name in known}) == set()


def test_a_circle_is_found_also_inside_functions():
    one = ast.parse("def late():\n    from pate_jax.b import name")
    two = ast.parse("from pate_jax import a\nif TYPE_CHECKING:\n    from pate_jax import c")
    known = {"a": one, "b": two, "c": ast.parse("from pate_jax import b")}
    graph = {name: set(imported(name, known)) for name in known}
    assert graph == {"a": {"b"}, "b": {"a"}, "c": {"b"}} and in_circles(graph) == {"a", "b"}


def test_files_functions_and_classes_can_be_read_at_once():
    lines = {
        name: len((PACKAGE / f"{name.replace('.', '/')}.py").read_text().splitlines()) for name in trees()
    }
    assert above(lines, LINES_OF_A_FILE, FILES) == {}
    functions = {name: node.end_lineno - node.lineno + 1 for name, node in definitions(ast.FunctionDef)}
    assert above(functions, LINES_OF_A_FUNCTION, FUNCTIONS) == {}
    members = {
        name: sum(isinstance(one, ast.FunctionDef) and not one.name.startswith("_") for one in node.body)
        for name, node in definitions(ast.ClassDef)
    }
    assert above(members, MEMBERS_OF_A_CLASS, CLASSES) == {}


def test_the_house_does_not_grow():
    assert len(trees()) <= MOST_MODULES
