"""The rooms of ARCHITECTURE.md: what may import what, and what each may do."""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "canary"

MATHEMATICS = {
    "errors", "constraints", "values", "types", "numerics", "environments", "networks", "rollout", "algorithms",
}  # fmt: skip
FROZEN = MATHEMATICS | {"evaluation"}  # what a policy needs that is not trained any more
# What a feature needs to work on a run
RUNS = {
    "config", "identity", "runs.directory", "runs.files", "runs.checkpoint", "runs.environment",
    "runs.policies",
}  # fmt: skip

# What each room may import besides itself. A room that works on runs has a pure core, under its own
# name, and modules that touch the disk, which are named here as well; `runs.directory` allows one
# module of a room.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "constraints": {"errors", "values"},
    "values": {"errors"},
    "types": {"errors", "constraints", "values"},
    "numerics": {"errors", "constraints", "types"},
    "host": {"errors", "export.numpy_policy"},  # environments outside JAX; a worker process imports this room and no other
    "environments": {"errors", "constraints", "values", "types", "numerics", "host"},
    "checking": {"errors", "constraints", "values", "types", "numerics", "environments", "host"},
    "networks": {"types", "numerics", "environments"},
    "rollout": {"types", "numerics", "environments", "networks"},
    "algorithms": {"errors", "constraints", "values", "types", "numerics", "environments", "networks", "rollout"},
    "training": MATHEMATICS,
    "host_loop": MATHEMATICS | {"host", "training"},
    "evaluation": MATHEMATICS | {"host_loop"},
    "identity": MATHEMATICS | {"export.numpy_policy"},
    "exploration": FROZEN | {"config"},
    "certification": FROZEN | {"identity"},
    "exact": {"errors", "values", "types", "numerics", "environments"},
    "theory": {"errors", "numerics", "exact"},
    "export": FROZEN | {"identity"},
    "rendering": {"errors", "environments", "host"},
    "config": {"errors", "constraints", "values", "types", "environments", "algorithms", "host", "checking"},
    "terminal": {
        "errors", "constraints", "types", "numerics", "certification", "runs.files",
        "runs.settings",
    },
    "watching": {"errors", "constraints", "runs.files"},
    "reporting": {
        "errors", "constraints", "numerics", "runs.files", "runs.directory", "runs.settings", "runs.tables",
    },
    "runs": FROZEN | {
        "host", "identity", "exploration", "training", "host_loop", "checking", "config", "terminal.formatting",
        "terminal.progress", "reporting.diagnosis", "watching",
    },
    "certification.page": {"certification", "constraints", "terminal"},
    "certification.signature": {"errors", "certification", "runs.files"},
    "certification.run": RUNS | {
        "errors", "constraints", "values", "environments", "certification", "certification.page", "certification.signature",
        "terminal",
    },
    "certification.verify": RUNS | {
        "errors", "constraints", "environments", "certification", "certification.page", "certification.run",
        "certification.signature", "terminal",
    },
    "certification.best": RUNS | {
        "errors", "constraints", "values", "environments", "certification", "certification.run", "terminal",
    },
    "exact.figure": {"errors", "runs.files", "terminal", "reporting.figures"},
    "exact.run": RUNS | MATHEMATICS | {"exact"},
    "export.run": RUNS | {"errors", "constraints", "environments", "export"},
    "rendering.run": RUNS | {"errors", "constraints", "environments", "evaluation", "rendering", "terminal"},
    "studies": RUNS | {
        "errors", "constraints", "numerics", "environments", "runs", "reporting", "exact", "exact.run", "theory",
        "terminal.console", "terminal.formatting", "training", "studies.paper.estimators",
    },
    "studies.paper.estimators": MATHEMATICS,
    "reporting.page": {
        "errors", "constraints", "numerics", "reporting", "runs.directory", "runs.files",
        "runs.settings", "studies.store", "studies.table", "terminal.formatting",
    },
    "api": RUNS | {
        "errors", "constraints", "values", "types", "environments", "training", "exploration", "runs", "reporting", "export",
        "export.run", "rendering", "rendering.run", "certification", "certification.run", "certification.best",
        "certification.signature", "watching", "terminal", "checking",
    },
    "cli": {
        "errors", "constraints", "values", "environments", "algorithms", "checking", "config", "runs", "terminal", "studies",
        "api", "reporting.page",
        "certification", "certification.best", "certification.signature", "certification.verify", "reporting",
        "exact.run", "exact.figure", "export.run", "rendering.run",
    },
    "__main__": {"cli"},
}  # fmt: skip
PURE = FROZEN | {
    "identity", "training", "checking", "certification", "exact", "theory", "export", "rendering",
}  # fmt: skip
# Their results are bytes, and a reader that works without canary opens them
FILE_FORMATS = {"export", "rendering"}
METHODS = {"canary", "cantelli_cpo", "cpo", "cvar_cpo", "ppo_lagrangian", "cppo"}
FILES = sorted(SOURCE.rglob("*.py"))


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): ast.parse(path.read_text(), str(path)) for path in FILES}


def room(module: str) -> str:
    """`canary.exact.run` is a room of its own, `canary.exact.mdp` belongs to `exact`, `canary`
    itself to none."""
    inside = module.partition(".")[2]
    return inside if inside in ALLOWED else inside.split(".")[0]


def imported(tree: ast.AST) -> Iterator[str]:
    """Full names of all imports below a node; `from a import b` as a.b where that is a module of
    ours."""
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
    assert {room(module) for module in MODULES} - {""} == set(ALLOWED)


def test_every_import_is_allowed():
    wrong = [
        f"{module} imports {name}"
        for module, tree in MODULES.items()
        for name in imported(tree)
        if room(module) and name.startswith("canary.") and room(name) != room(module)
        if not {room(name), name.removeprefix("canary.")} & ALLOWED[room(module)]
    ]
    assert not wrong


def test_no_import_leads_back():
    order: list[str] = []
    todo = {
        module: {name for name in at_the_top(tree) if name in MODULES and room(name)}
        for module, tree in MODULES.items()
        if room(module)
    }
    while todo:
        ready = [module for module, needs in todo.items() if needs <= set(order)]
        assert ready, f"imports go in a circle among {sorted(todo)}"
        order += ready
        for module in ready:
            del todo[module]


def test_no_algorithm_and_no_shared_update_imports_a_method():
    methods = {f"canary.algorithms.{name}" for name in METHODS}
    assert methods <= set(MODULES)
    for module, tree in MODULES.items():
        if module.startswith("canary.algorithms."):
            assert not (methods - {module}) & set(imported(tree)), module


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


def test_pure_rooms_neither_print_nor_open_files_nor_read_clocks():
    for module, tree in MODULES.items():
        if room(module) not in PURE:
            continue
        forbidden = {"time", "datetime", "logging", "subprocess", "rich"}
        calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        assert not {"print", "input", "breakpoint"} & calls, module
        if room(module) not in FILE_FORMATS:
            forbidden |= {"io", "tempfile", "shutil"}
            assert "open" not in calls, module
        assert not forbidden & {name.split(".")[0] for name in imported(tree)}, module


def test_tables_are_printed_in_one_room():
    """A command prints a path or a sentence by itself; what has columns or colours is the
    terminal's."""
    for module, tree in MODULES.items():
        if room(module) != "terminal":
            assert "rich" not in {name.split(".")[0] for name in imported(tree)}, module


def test_nothing_is_unpickled_or_evaluated():
    pickles = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
    for module, tree in MODULES.items():
        assert not pickles & {name.split(".")[0] for name in imported(tree)}, module
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            assert ast.unparse(call.func) not in {"eval", "exec", "compile"}, module
            for keyword in call.keywords:
                if keyword.arg == "allow_pickle":
                    assert ast.unparse(keyword.value) == "False", module
