"""Every block of code in README.md and docs/ runs: Python as it stands, commands through the
command line.

Training is made small (a small lake, tiny networks, a few updates), and on simulated robots it
stops once everything is built. Placeholders such as RUN or `my_policy` are filled in. A block of
another kind (a picture, an answer) says so behind its fence: ```text.
"""

import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import canary
from attacks.warm import warm
from canary.cli import main
from canary.config.config import make_config
from canary.config.run_config import RunConfig
from canary.environments.icy_lake import IcyLake
from runs.untrained_runs import untrained_run

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LAKE = IcyLake(map="SFF/FHF/FFG", horizon=12)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELL = {"", "sh", "bash", "shell", "console"}
# Programs that are not run here
OTHERS = {"make", "python", "curl", "ray", "pip", "git", "uv", "mkdocs", "pre-commit"}
FILLED_IN = {
    '"runs/NAME"': "str(run)",
    # A lake's state is one number
    "x, y = episode.states.inner[now]": "x = episode.states.inner[now]",
}


MANY_STEPS, FEWER_STEPS = "600000", "600"  # one update more than a small training has


class Block(NamedTuple):
    page: str
    line: int
    kind: str
    text: str


class Built(SystemExit):
    """Everything that a training needs was built. The command line lets only this pass."""


def blocks() -> list[Block]:
    found = []
    for page in (page for page in PAGES if page.exists()):
        text = page.read_text()
        for match in BLOCK.finditer(text):
            line = text[: match.start()].count("\n") + 1
            found.append(Block(page.relative_to(ROOT).as_posix(), line, match[1], match[2]))
    return found


PYTHON = [block for block in blocks() if block.kind == "python"]
COMMANDS = [
    (f"{block.page}:{block.line}", command.split("  #")[0].strip())
    for block in blocks()
    if block.kind in SHELL
    for command in block.text.replace("\\\n", " ").splitlines()
    if command.strip() and not command.lstrip().startswith(("#", "{", "..."))
]


def small_config(*choices: Any, **more: Any) -> RunConfig:
    """The configuration asked for, on a small lake with tiny networks and for two updates."""
    config = make_config(*choices, **more)
    if not isinstance(config.environment, IcyLake):
        raise Built
    small = {"environments": 4, "rollout_length": 50, "total_steps": 400, "merge_capacity": 0}
    estimation = replace(config.algorithm.estimation, hidden=(8, 8))
    return replace(
        config,
        environment=LAKE,
        algorithm=replace(config.algorithm, estimation=estimation),
        training=replace(config.training, seeds=config.training.seeds[:2], **small),
    )


def stop(*arguments: Any, **more: Any) -> None:
    raise Built


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a run in it, and its policy in every format."""
    folder = tmp_path_factory.mktemp("documents")
    run = untrained_run(
        folder / "runs", env="IcyLake", overrides=("env.map=SFF/FHF/FFG", "env.horizon=12")
    )
    for kind, name in (("numpy", "policy.npz"), ("onnx", "policy.onnx")):
        assert main(["export", str(run), "--format", kind, "--file", str(folder / name)]) == 0
    shutil.copytree(ROOT / "examples", folder / "examples")
    shutil.copytree(ROOT / "results" / "methods", folder / "results" / "methods")
    return folder


@pytest.fixture(autouse=True)
def small(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Trainings are small, and those with the same settings share their programs."""
    monkeypatch.chdir(place)
    monkeypatch.setattr("canary.api.make_config", small_config)
    monkeypatch.setattr("canary.studies.runner.new_run", stop)
    with warm():
        yield


def placeholders(place: Path) -> dict[str, Any]:
    """What the pages leave to the reader."""
    (run, *_) = sorted((place / "runs").iterdir())
    chain = np.zeros((2, 2, 2))
    chain[:, 0, 0] = chain[:, 1, 1] = 1.0
    dear = np.zeros((2, 2, 2))
    dear[:, 1, 1] = 1.0
    seen = np.eye(9, dtype=np.float32)[0]
    return {
        "canary": canary, "run": run, "mine": LAKE, "P": chain, "R": chain, "C": dear,
        "terminal": np.zeros(2, bool), "initial": np.array([1.0, 0.0]), "my_policy": np.full((16, 101, 4), 0.25),
        "done": False, "observation": seen, "step": lambda action: (seen, 1.0, True),
        "env": canary.to_gymnasium(LAKE), "discount": np.ones(1, np.float32), "spent": np.zeros(1, np.float32),
    }  # fmt: skip


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: f"{block.page}:{block.line}")
def test_python_blocks_run(block: Block, place: Path):
    text = block.text
    for placeholder, value in FILLED_IN.items():
        text = text.replace(placeholder, value)
    names = placeholders(place)
    try:
        exec(compile(text, f"{block.page}:{block.line}", "exec"), names)
    except Built:
        assert "train" in text


@pytest.mark.parametrize(
    ("where", "command"), COMMANDS, ids=lambda text: re.sub(r"\s+", " ", text)[:70]
)
def test_commands_run(where: str, command: str, place: Path, capsys: pytest.CaptureFixture[str]):
    words = shlex.split(command)
    if words[0] in OTHERS:
        for word in words[1:]:
            assert not word.endswith(".py") or (ROOT / word).exists(), f"{where} names {word}"
        return
    assert words[0] == "canary", (
        f"{where}: what kind of command is {command!r}? If none, fence it as ```text."
    )
    run = str(sorted((place / "runs").iterdir())[0])
    # A synopsis: FORMAT|FORMAT and what is in brackets are choices.
    words = [
        re.sub(r"^RUN\b", run, word).split("|")[0]
        for word in shlex.split(re.sub(r"\[.*?\]", "", command))
    ]
    if "--verify" in words and not (Path(run) / "certificate.json").exists():
        main(["certify", run, "--episodes", "50", "--quiet"])
    words = [run if word == "latest" and words[1] != "train" else word for word in words]
    words = [FEWER_STEPS if word == MANY_STEPS else word for word in words]
    try:
        code = main(words[1:])
    except Built:
        assert words[1] in ("train", "reproduce", "sweep")
    else:
        assert code in (0, 1), f"{where}: {capsys.readouterr().err}"


def test_there_are_blocks_and_make_targets():
    assert len(PYTHON) > 10
    assert len(COMMANDS) > 10
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {command.split()[1] for _, command in COMMANDS if command.startswith("make ")} <= targets


@pytest.mark.parametrize("example", sorted(path.name for path in (ROOT / "examples").glob("*.py")))
def test_every_example_has_a_page_that_includes_it(example: str):
    """The marker as the site reads it, which a formatter may break."""
    marker = f'\n--8<-- "examples/{example}"\n'
    (page,) = [page for page in PAGES if marker in page.read_text()]
    assert page.parent.name == "examples"
