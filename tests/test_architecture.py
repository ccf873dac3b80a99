"""The rooms of ARCHITECTURE.md: what may import what, and what each may do."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "canary"

# From the ground up: a room may import itself and the rooms on lower floors, never sideways or up.
FLOORS = (
    ("errors",),
    ("types",),
    ("numerics",),
    ("environments",),
    ("networks",),
    ("rollout",),
    ("algorithms",),
    ("training", "evaluation", "exact", "trained_policy"),
    ("certification",),
    ("export", "rendering"),
    ("experiments",),
    ("reporting",),
    ("output", "listing"),
    ("api", "reproduction"),
    ("commands",),
    ("cli",),
    ("__main__",),
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
SILENT = FLOOR["experiments"]  # below this floor nothing prints, opens a file or reads a clock
FILE_FORMATS = {"export", "rendering"}
METHODS = {"canary", "cpo", "cvar_cpo", "ppo", "cppo"}
FILES = sorted(SOURCE.rglob("*.py"))


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): ast.parse(path.read_text(), str(path)) for path in FILES}


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imported(tree: ast.AST) -> Iterator[str]:
    """Full names of all imports below a node; `from a import b` as a.b where that is a module of ours."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in MODULES else str(node.module)


def at_the_top(tree: ast.Module) -> Iterator[str]:
    """What importing the module imports: not what its functions or `if TYPE_CHECKING` do."""
    for statement in tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            yield from imported(statement)


def test_every_file_belongs_to_a_room_that_is_known():
    assert {room(module) for module in MODULES} - {""} == set(FLOOR)


@pytest.mark.parametrize("module", [module for module in MODULES if room(module)])
def test_imports_go_down(module):
    for name in imported(MODULES[module]):
        if name.split(".")[0] == "canary" and room(name):
            here, there = room(module), room(name)
            assert here == there or FLOOR[there] < FLOOR[here], f"{module} may not import {name}"


@pytest.mark.parametrize("name", sorted(METHODS))
def test_an_algorithm_never_imports_another(name):
    tree = MODULES.get(f"canary.algorithms.{name}")
    assert tree is not None, f"there is no {name}"
    others = {f"canary.algorithms.{other}" for other in METHODS - {name}}
    assert not others & set(imported(tree))


def test_shared_updates_do_not_know_the_methods():
    methods = {f"canary.algorithms.{name}" for name in METHODS}
    for module, tree in MODULES.items():
        if module.startswith("canary.algorithms.") and module not in methods:
            assert not methods & set(imported(tree)), module


def test_reporting_needs_no_jax():
    """Nor does anything that importing it imports."""
    heavy = {"jax", "equinox", "optax"}
    seen: set[str] = set()
    todo = [module for module in MODULES if room(module) == "reporting"]
    while todo:
        module = todo.pop()
        if module in seen:
            continue
        seen.add(module)
        names = set(at_the_top(MODULES[module]))
        assert not heavy & {name.split(".")[0] for name in names}, module
        parents = {name.rpartition(".")[0] for name in names}
        todo += [name for name in names | parents if name in MODULES]
    assert len(seen) > 2


@pytest.mark.parametrize(
    "module", [module for module in MODULES if room(module) and FLOOR[room(module)] < SILENT]
)
def test_below_experiments_nothing_prints_opens_files_or_reads_clocks(module):
    forbidden = {"time", "datetime", "logging", "io", "tempfile", "shutil", "subprocess", "rich"}
    if (
        room(module) in FILE_FORMATS
    ):  # portable formats are bytes, and a reader that works without canary opens them
        forbidden = {"time", "datetime", "logging", "subprocess", "rich"}
    tree = MODULES[module]
    assert not forbidden & {name.split(".")[0] for name in imported(tree)}
    calls = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not {"print", "input", "breakpoint"} & calls
    if room(module) not in FILE_FORMATS:
        assert "open" not in calls


@pytest.mark.parametrize("module", list(MODULES))
def test_nothing_is_unpickled_or_evaluated(module):
    tree = MODULES[module]
    packages = {name.split(".")[0] for name in imported(tree)}
    assert not {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"} & packages
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            assert not (isinstance(node.func, ast.Name) and node.func.id in {"eval", "exec", "compile"})
            for keyword in node.keywords:
                if keyword.arg == "allow_pickle":
                    assert isinstance(keyword.value, ast.Constant)
                    assert keyword.value.value is False


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_files_are_short(path):
    assert len(path.read_text().splitlines()) <= 300
