"""The rooms of ARCHITECTURE.md: which may import which, and what pure rooms may not do."""

import ast
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "canary"

# From the bottom to the top: a room imports rooms of lower layers only. Most rooms are a folder or
# a file; a module that is named here, such as `exact.run`, is a room of its own.
LAYERS = [
    {"errors", "exporting.numpy_policy", "runs.settings", "terminal.formatting"},
    {"values", "host", "runs.files"},
    {"constraints", "runs.directory"},
    {"types", "watching", "certification.plan"},
    {"numerics", "environments", "runs.tables"},
    {"networks", "checking", "exact", "reporting.diagnosis"},
    {"rollout", "reporting", "theory"},
    {"algorithms", "identity", "studies.store"},
    {"training", "config", "exporting", "studies.table", "studies.paper.estimators"},
    {"host_loop", "reporting.page"},
    {"evaluation"},
    {"exploration", "certification", "rendering"},
    {"terminal", "certification.signature"},
    {"certification.page", "exact.figure", "terminal.progress"},
    {"runs"},
    {"exact.run", "exporting.run", "rendering.run", "certification.run"},
    {"certification.best", "certification.verify", "studies"},
    {"api"},
    {"cli"},
    {"__main__"},
]
ROOMS = set().union(*LAYERS)
PURE = {
    "errors", "constraints", "values", "types", "numerics", "environments", "networks", "rollout",
    "algorithms", "identity", "training", "evaluation", "checking", "certification", "exact", "theory",
    "exporting", "rendering",
}  # fmt: skip
# Their results are bytes, and a reader that works without canary opens them
FILE_FORMATS = {"exporting", "rendering"}
METHODS = {"canary", "cantelli_cpo", "cpo", "cvar_cpo", "ppo_lagrangian", "cppo"}


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): ast.parse(path.read_text(), str(path)) for path in SOURCE.rglob("*.py")}


def room(module: str) -> str:
    """The longest name in `LAYERS` that the module is in; "" for `canary` itself."""
    inside = module.partition(".")[2]
    homes = [name for name in ROOMS if f"{inside}.".startswith(f"{name}.")]
    return max(homes, key=len, default=inside)


def imported(tree: ast.AST) -> Iterator[str]:
    """Full names of all imports below a node; `from a import b` as a.b for a module of ours."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in MODULES else str(node.module)


def packages(tree: ast.AST) -> set[str]:
    return {name.partition(".")[0] for name in imported(tree)}


def calls(tree: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def test_every_room_imports_lower_layers_only():
    assert {room(module) for module in MODULES} - {""} == ROOMS
    wrong = []
    for module, tree in MODULES.items():
        below = set().union(*takewhile(lambda layer, m=module: room(m) not in layer, LAYERS))
        needed = {name for name in imported(tree) if name.startswith("canary.")}
        allowed = below | {room(module)}
        wrong += [f"{module} imports {name}" for name in needed if room(name) not in allowed]
    assert not wrong


def test_no_algorithm_and_no_shared_update_imports_a_method():
    methods = {f"canary.algorithms.{name}" for name in METHODS}
    assert methods <= set(MODULES)
    for module, tree in MODULES.items():
        if module.startswith("canary.algorithms."):
            assert not (methods - {module}) & set(imported(tree)), module


def test_reporting_needs_no_jax():
    """Nor does anything that importing it imports."""
    seen: set[str] = set()
    todo = [module for module in MODULES if room(module) == "reporting"]
    while todo:
        module = todo.pop()
        if module in seen:
            continue
        seen.add(module)
        # Not what functions import, nor `if TYPE_CHECKING`
        top = [
            each for each in MODULES[module].body if isinstance(each, ast.Import | ast.ImportFrom)
        ]
        names = {name for statement in top for name in imported(statement)}
        assert not {"jax", "equinox", "optax"} & {name.split(".")[0] for name in names}, module
        parents = {name.rpartition(".")[0] for name in names}
        todo += [name for name in names | parents if name in MODULES]
    assert len(seen) > 2


def test_pure_rooms_neither_print_nor_open_files_nor_read_clocks():
    for module, tree in MODULES.items():
        if room(module) not in PURE:
            continue
        forbidden = {"time", "datetime", "logging", "subprocess", "rich"}
        called = {ast.unparse(call.func) for call in calls(tree)}
        assert not {"print", "input", "breakpoint"} & called, module
        if room(module) not in FILE_FORMATS:
            forbidden |= {"io", "tempfile", "shutil"}
            assert "open" not in called, module
        assert not forbidden & packages(tree), module


def test_nothing_is_unpickled_or_evaluated():
    pickles = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
    for module, tree in MODULES.items():
        assert not pickles & packages(tree), module
        for call in calls(tree):
            assert ast.unparse(call.func) not in {"eval", "exec", "compile"}, module
            for keyword in call.keywords:
                if keyword.arg == "allow_pickle":
                    assert ast.unparse(keyword.value) == "False", module
