"""The job that is made of a config: its command, its id, and no secrets."""

import json
import shlex
import subprocess
import sys
import tempfile
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from ace_ray.cluster.submit import CHECKOUT, TEXT_BYTES, Submission, make_submission
from ace_ray.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "my config.yaml"
    tree = {"model": {"source": "org/m"}, "benchmarks": ["acebench"], "output": "s3://b/p"}
    path.write_text(yaml.safe_dump(tree))
    return path


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    for name in ("jobs", "configs", "ace_ray"):
        (root / name).mkdir(parents=True)
    for job in ("evaluate", "sweep"):
        (root / "jobs" / f"{job}.py").touch()
    return root


def submission(config: str, job: str = "evaluate", **how: Any) -> Submission:
    checkout, overrides = how.pop("checkout", CHECKOUT), how.pop("overrides", ())
    return make_submission(job, config, overrides=overrides, values=how, checkout=checkout)


def parsed(entrypoint: str) -> Any:
    """Return the arguments of an entrypoint, as the parser of its job reads them."""
    python, script, *arguments = shlex.split(entrypoint)
    assert (python, script) == ("python", "jobs/evaluate.py")
    code = "import sys, json; from shared import config_parser; "
    code += "print(json.dumps(vars(config_parser('p').parse_args(sys.argv[1:]))))"
    command = [sys.executable, "-c", code, *arguments]
    return json.loads(subprocess.check_output(command, cwd=ROOT / "jobs", text=True))


@pytest.mark.nightly
def test_config_travels_as_text_with_options_and_local_files(config: Path, tmp_path: Path) -> None:
    template, plugin = tmp_path / "t.jinja", tmp_path / "p.py"
    template.write_text("{{ messages }}")
    plugin.write_text("x = 1")
    model = {"source": "org/m", "chat_template": str(template), "plugins": [str(plugin)]}
    section = {"name": "acebench", "prompt_file": str(template), "data": str(tmp_path)}
    tree = {**yaml.safe_load(config.read_text()), "model": model, "benchmarks": [section]}
    config.write_text(yaml.safe_dump(tree))
    options: dict[str, Any] = {"output": "s3://b/--odd", "limit": 7, "ids": ["--odd", "a/b"]}
    job = submission(
        str(config), overrides=["sampling.stop=['; rm -rf / #', \"it's\"]", "samples=2"], **options
    )
    read = parsed(job.entrypoint)
    assert read["config"] is None
    texts = dict(file.split(":", 1) for file in read["files"])
    assert sorted(texts.values()) == ["x = 1", "{{ messages }}"]
    sent = yaml.safe_load(read["config_text"])
    assert sent["benchmarks"][0].pop("prompt_file") == sent["model"]["chat_template"]
    assert {sent["model"].pop("chat_template"), *sent["model"].pop("plugins")} == {
        f"./{name}" for name in texts
    }
    assert sent == tree | options | {
        "model": {"source": "org/m"},
        "benchmarks": [{"name": "acebench", "data": str(tmp_path)}],
        "sampling": {"stop": ["; rm -rf / #", "it's"]},
        "samples": 2,
    }
    first = submission(str(config)).digest
    plugin.write_text("x = 2")
    assert submission(str(config)).digest != first


def test_a_data_file_travels_if_it_is_short(config: Path, checkout: Path) -> None:
    cases = config.with_name("cases.jsonl")
    tree = {
        **yaml.safe_load(config.read_text()),
        "benchmarks": [{"name": "calls", "data": "./cases.jsonl"}],
    }
    config.write_text(yaml.safe_dump(tree))
    for size, sent in ((10, True), (TEXT_BYTES + 1, False)):
        cases.write_text("x" * size)
        arguments = submission(str(config), checkout=checkout).arguments
        assert any(argument.endswith(f":{'x' * size}") for argument in arguments) is sent
        assert (str(cases) in arguments[0]) is not sent


def test_id_is_a_hash_of_the_resolved_config(config: Path, checkout: Path) -> None:
    def name(*overrides: str, **values: Any) -> str:
        return submission(str(config), checkout=checkout, overrides=overrides, **values).name

    first = submission(str(config), checkout=checkout)
    assert first.id(2) == f"{first.name}-2"
    assert name() == name("samples=1") == first.name, "the default"
    assert len({first.name, name("samples=2"), name(limit=5), name(output="s3://b/q")}) == 4


def packed(job: Submission) -> set[str]:
    """Return the files that travel."""
    with tempfile.TemporaryDirectory() as folder:
        return set(zipfile.ZipFile(job.runtime_env(folder)["working_dir"]).namelist())


def test_files_with_names_of_keys_and_untracked_files_stay_behind(config, checkout) -> None:
    code = {"jobs/evaluate.py", "jobs/sweep.py", "ace_ray/util/secrets.py", "with blank.py"}
    keys = [".env", "prod.env", ".ssh/config", "server.pem", "sub/id_rsa", "secrets/prod.txt"]
    keys += ["X.PEM", "id_ecdsa", ".git-credentials", "a.pfx", "hf_token", ".kaggle/kaggle.json"]
    for name in (*code, *keys, ".venv/x", "runs/rows.parquet"):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("x")
    assert packed(submission(str(config), checkout=checkout)) == code
    for arguments in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", "-C", str(checkout), *arguments], check=True)
    (checkout / ".git/info/exclude").write_text("ignored.txt\n")
    links = {"jobs/configs": "../configs", "mine.txt": "mine/diary.txt", "away": str(ROOT / "docs")}
    links |= {"jobs/code": "../ace_ray/util", "key.txt": "../.env", "up": ".", "chain": "chained"}
    (checkout / "chained").mkdir()
    for name, target in {**links, "chained/link": "../mine"}.items():
        (checkout / name).symlink_to(target)
    subprocess.run(["git", "-C", str(checkout), "add", *links, "chained"], check=True)
    for name in ("notes [1].txt", "mine/diary.txt", "configs/mine.yaml", "ignored.txt", "trail "):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(config.read_text())
    job = submission(str(checkout / "configs/mine.yaml"), checkout=checkout)
    assert packed(job) == code | {"jobs/code/secrets.py"}


def test_untracked_files_of_a_folder_in_a_repository_and_of_submodules_stay_behind(
    config: Path, checkout: Path
) -> None:
    def git(folder: Path, *arguments: str) -> None:
        who = ("-c", "user.name=n", "-c", "user.email=e", "-c", "protocol.file.allow=always")
        subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True)

    parent = checkout.parent
    git(parent, "init", "-q")
    submodule = parent / "other"
    submodule.mkdir()
    git(submodule, "init", "-q")
    git(submodule, "commit", "-qm", "empty", "--allow-empty")
    git(parent, "add", checkout.name)
    git(parent, "submodule", "add", "-q", str(submodule), f"{checkout.name}/part")
    tracked = packed(submission(str(config), checkout=checkout))
    for name in ("diary.txt", "part/diary.txt"):
        (checkout / name).write_text("x")
    assert packed(submission(str(config), checkout=checkout)) == tracked


def test_a_checkout_whose_files_git_does_not_list_is_refused(config: Path, checkout: Path) -> None:
    (checkout / ".git").write_text("gitdir: /nowhere")
    with pytest.raises(UserError, match="git does not list its files: fatal"):
        submission(str(config), checkout=checkout)


def test_mistakes_are_refused_before_anything_is_sent(config: Path, tmp_path: Path) -> None:
    for override, words in (
        ("sampels=2", "did you mean 'samples'"),
        ("output=runs", "'runs' is relative, but a job's folder is temporary"),
        ("output=../x", "temporary"),
        ("output=s3:/typo", "temporary"),
        (f"benchmarks=['{tmp_path}/mine.py:Mine']", "cannot be read: No such file"),
    ):
        with pytest.raises(UserError, match=words):
            submission(str(config), overrides=[override])
    (tmp_path / "p.py").write_text("KEY = 'AKIAIOSFODNN7EXAMPLE'")
    with pytest.raises(UserError, match=r"p.py: line 1 looks like a secret"):
        submission(str(config), overrides=[f"model.plugins=['{tmp_path}/p.py']"])
    with pytest.raises(UserError, match="sent as text"):
        submission(str(config), ids=["x" * TEXT_BYTES])
    with pytest.raises(UserError, match="cannot be read"):
        submission("nothing.yaml")
    with pytest.raises(UserError, match="not installed from a checkout"):
        submission(str(config), checkout=tmp_path)


def test_sweep_with_a_relative_path_is_refused(checkout: Path, tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    tree = {"checkpoints": "/data/run", "watch": True, "stop_file": "/data/stop"}
    path.write_text(yaml.safe_dump(tree | {"benchmarks": ["acebench"]}))
    submit = partial(submission, str(path), "sweep", checkout=checkout)
    with pytest.raises(UserError, match=r"output: 'runs' is relative, .* name an absolute path"):
        submit()
    submit(output="s3://b/p")
    for override in ("checkpoints=run-7", "stop_file=stop"):
        with pytest.raises(UserError, match="is relative"):
            submit(output="s3://b/p", overrides=[override])


MARKED = """
from pathlib import Path
from ace_ray.benchmarks.base import Benchmark

Path({mark!r}).touch()

class Mine(Benchmark):
    name = "mine"
"""


def test_dry_run_runs_no_local_benchmark(invoke: Any, tmp_path: Path) -> None:
    mark, code = tmp_path / "mark", tmp_path / "mine.py"
    code.write_text(MARKED.format(mark=str(mark)))
    tree = {"benchmarks": [{"name": f"{code}:Mine"}], "output": "s3://b/p"}
    single = tree | {"model": {"source": "org/m"}}
    forms = ({"schema_version": 1, "config": single}, tree | {"models": [{"source": "org/m"}]})
    path = tmp_path / "run.json"
    for form in (single, *forms):
        path.write_text(json.dumps(form))
        job = ["--job", "sweep"] if "models" in form else []
        result = invoke("submit", path, "--dry-run", *job)
        assert result.code == 0, result.stderr
        assert "class Mine(Benchmark)" in result.stdout
        assert not mark.exists()
