"""Each mistake of a user ends with one line, exit code 2, no traceback and nothing written."""

import json
import os
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.data.loader import MINI
from ace_ray.config.schema import load_config
from ace_ray.errors import UserError
from ace_ray.pipeline.planning.manifest import make_manifest
from ace_ray.pipeline.planning.plan import make_plan
from ace_ray.pipeline.planning.preflight import make_benchmarks, resolve_model
from ace_ray.pipeline.run_folder import open_output

Write = Callable[..., Path]
Check = Callable[..., None]
nightly = partial(pytest.param, marks=pytest.mark.nightly)
needs_vllm = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")


def refuses(result: Any, *parts: str) -> None:
    """Assert that ``result`` refused, in one line with all ``parts`` and a fix."""
    assert result.code == 2, result.stdout + result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("ace-ray: ")
    assert ";" in lines[0], "no fix is named"
    for part in parts:
        assert part in lines[0]
    assert "Traceback" not in result.stdout + result.stderr


def aliases(form: str) -> bytes:
    """Return eight lines of YAML. Each repeats the line before it ten times, in ``form``."""
    lines = [f"a{n}: &a{n} {form % ', '.join([f'*a{n - 1}'] * 10)}" for n in range(1, 9)]
    return "\n".join(["", *lines]).encode()


def finds(result: Any, *parts: str) -> None:
    """Assert that ``ace-ray doctor`` found only the mistake with ``parts``."""
    assert result.code == 2, result.stdout + result.stderr
    assert result.stderr == ""
    failed = [line for line in result.stdout.splitlines() if line.startswith("FAIL")]
    assert len(failed) == 1, result.stdout
    for part in parts:
        assert part in failed[0]


@pytest.fixture
def check_both(invoke: Callable[..., Any], tmp_path: Path) -> Check:
    """Check that evaluate refuses a config, and that doctor finds the same mistake."""

    def check(path: Path, *parts: str, options: tuple[str, ...] = ()) -> None:
        refuses(invoke("evaluate", path, *options), *parts)
        finds(invoke("doctor", path, *options), *parts)
        assert not (tmp_path / "out").exists()

    return check


@pytest.fixture
def of_model(config_file: Write, model_folder: Write) -> Write:
    """Write the config of a vLLM run with the model ``source``, by default a new folder:
    ``model_fields`` as `model_folder` takes it, and ``config`` overrides its config.json."""

    def write(
        source: Path | str = "",
        model: Any = None,
        *,
        model_fields: Any = None,
        config: Any = None,
        **changes: Any,
    ) -> Path:
        if not source:
            source = model_folder(**(model_fields or {}))
            tree = json.loads((source / "config.json").read_text())
            (source / "config.json").write_text(json.dumps({**tree, **(config or {})}))
        section = {"source": str(source), **(model or {})}
        return config_file(backend="vllm", model=section, **changes)

    return write


def test_a_command_line_without_a_benchmark_is_named(invoke: Any) -> None:
    refuses(invoke("evaluate", "--model", "x", "--plan"), "no CONFIG and no --benchmark is given;")


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("sampling.temprature=1", ("'sampling.temprature'", "did you mean 'temperature'?")),
        ("workers=many", ("'workers' is 'many'", "a valid integer or be 'auto'")),
        ("output=gs://b/x", ("'gs'", "s3://bucket/prefix")),
        ("run_id=../x", ("'run_id'",)),
        ("benchmarks.0.name=BFLC", ("'BFLC'", "did you mean 'bfcl'?", "installed: acebench")),
        ("benchmarks.0.categories=[Multi-turn]", ("did you mean 'multi_turn'?",)),
        pytest.param(
            "engine={dtype: auto}",
            ("engine: dtype: only vLLM's engine has these, and backend is fake", "engine={}"),
            marks=needs_vllm,
        ),
        ("benchmarks.0.user=sam", ("benchmarks.acebench.user", "did you mean 'same'?")),
        ("benchmarks.0.ids=[normal_atom_bol_0]", ("has no entry 'normal_atom_bol_0'",)),
    ],
)
def test_a_bad_value_is_named(check_both, config_file, override, parts) -> None:
    check_both(config_file(), *parts, options=("--set", override))


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (None, "cannot be read"),
        (b"", "is not a mapping"),
        (b"model: [", "is not YAML"),
        (b"\xff\xfe\x00", "is UTF-16 text, according to its byte order mark; save it as UTF-8"),
        (b"model: {source: x}", "'benchmarks' is missing"),
        (b"a0: &a0 [y]" + aliases("[%s]"), "repeats more than 1000000 characters by aliases"),
        (b"a0: &a0 {k: y}" + aliases("{<<: [%s]}"), "repeats more than 1000000 characters"),
        (b"a0: &a0 [*a0]", "by aliases"),
        (b"limit: " + b"9" * 30, "whole number of more than 64 bits"),
    ],
)
def test_a_bad_config_file_is_named(check_both, tmp_path, content, part) -> None:
    path = tmp_path / "bad.yaml"
    if content is not None:
        path.write_bytes(content)
    check_both(path, part)


@needs_vllm
@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("./nowhere", ("nowhere' does not exist",)),
        ("nowhere.gguf", ("'nowhere.gguf' does not exist",)),
        ("org/nowhere", ("'org/nowhere' at 'main'", "HF_HUB_OFFLINE")),
        ("package:no_such_package/x.gguf", ("'no_such_package' is not installed",)),
        ("package:ace_ray/x.gguf", ("does not exist",)),
        ("package:ace_ray/api.py", ("neither a folder nor a .gguf file",)),
        ("s3://", ("names no bucket",)),
    ],
)
def test_a_missing_model_is_named(check_both, of_model, source, parts) -> None:
    check_both(of_model(source), *parts)


@pytest.mark.nightly
@needs_vllm
def test_a_model_that_the_hub_does_not_have_is_named(cli: Any, of_model: Write) -> None:
    closed = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": "http://127.0.0.1:9"}
    refuses(cli("evaluate", of_model("org/nowhere"), env=closed), "'org/nowhere'", "check the id")


BFCL = {"name": "bfcl", "categories": ["multi_turn_base"]}
AGENT = {"name": "acebench", "categories": ["agent_multi_turn"]}
OFFICIAL = {**AGENT, "data": str(MINI)}
"""A folder of data has the official prompts, with system messages inside a chat."""


def picky(condition: str) -> dict[str, str]:
    """Return a chat template that raises under a condition."""
    stop = f"{{% if {condition} %}}{{{{ raise_exception('not here') }}}}{{% endif %}}"
    return {"template": f"{{% for m in messages %}}{stop}{{{{ m.content }}}}{{% endfor %}}"}


@pytest.mark.nightly
@needs_vllm
@pytest.mark.parametrize(
    ("model_fields", "changes", "parts"),
    [
        ({"template": None}, {}, ("no chat template",)),
        (
            {"template": "{{ raise_exception('no system role here') }}"},
            {},
            ("no system role here",),
        ),
        (picky("m.role == 'system'"), {"benchmarks": [BFCL]}, ("benchmarks.bfcl.system: user",)),
        (picky("m.role == 'tool'"), {"benchmarks": [BFCL]}, ("benchmarks.bfcl.results: user",)),
        (
            picky("m.role == 'system' and not loop.first"),
            {"benchmarks": [OFFICIAL]},
            ("benchmarks.acebench.user", "system, user, system, user", "not here"),
        ),
        ({"context": 16}, {"engine": {"max_model_len": 8}}, ("no prompt fits", "context is 8")),
    ],
)
def test_a_chat_template_or_context_that_does_not_fit_is_named(
    check_both: Check, of_model: Write, model_fields: Any, changes: Any, parts: tuple[str, ...]
) -> None:
    check_both(of_model(model_fields=model_fields, **changes), *parts)


@needs_vllm
def test_a_variable_that_the_chat_template_does_not_have_is_named(
    invoke: Any, of_model: Write, model_folder: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ace_ray.cli.doctor.ask_vllm", lambda *_, **__: "not asked here")
    template = "{% if enable_thinking %}think{% endif %}{{ messages[0]['content'] }}"
    folder = model_folder(template=template)

    def variables(**values: Any) -> dict[str, Any]:
        return {"chat_template_kwargs": values}

    wrong = of_model(folder, variables(enable_thinkng=False))
    finds(invoke("doctor", wrong), "template_kwargs.enable_thinkng", "does not use enable_thinkng")
    assert invoke("doctor", of_model(folder, variables(enable_thinking=False))).code == 0
    effort = {"reasoning_effort": "low"}
    assert invoke("doctor", of_model(folder, sampling=effort)).code == 0, "it switches thinking"
    second = of_model(model_folder(name="other"), sampling=effort)
    finds(invoke("doctor", second), "sampling.reasoning_effort", "does not use reasoning_effort")


@needs_vllm
@pytest.mark.parametrize(
    ("engine", "config", "words"),
    [
        ({"max_model_len": 99_999}, {}, "99999"),
        nightly({"dtype": "float99"}, {}, "'float32'"),
        nightly({}, {"architectures": ["FancyForCausalLM"]}, "FancyForCausalLM"),
        nightly({"speculative_config": {"method": "x", "num_speculative_tokens": 2}}, {}, "method"),
    ],
    ids=["context", "dtype", "architecture", "speculation"],
)
@pytest.mark.parametrize("command", ["doctor", nightly("plan")])
def test_an_engine_that_vllm_refuses_is_named(
    invoke: Any, of_model: Write, engine: Any, config: Any, words: str, command: str
) -> None:
    path, refusal = of_model(engine=engine, config=config), "engine: vLLM refuses this engine: "
    if command == "doctor":
        finds(invoke("doctor", path), refusal, words)
    else:
        refuses(invoke("evaluate", path, "--plan"), refusal, words)


@needs_vllm
@pytest.mark.parametrize(
    ("engine", "model", "parts"),
    [
        ({"max_model_length": 8}, {}, ("max_model_length'", "did you mean 'max_model_len'?")),
        ({"max_tokens": 3, "tool_parser": "x"}, {}, ("2 unknown keys", "belongs under 'model'")),
        ({"override_generation_config": {"max_new_tokens": 3}}, {}, ("has no effect here",)),
        ({"model": "x"}, {}, ("engine.model", "use model.source")),
        ({"dtype": "fp8"}, {}, ("engine.dtype", "use engine.quantization for weights")),
        ({"max_lora_rank": 16}, {}, ("engine.max_lora_rank", "use model.adapter")),
        ({"max_num_seqs": 0}, {}, ("engine.max_num_seqs: 0 is not",)),
        ({"data_parallel_size": 4}, {}, ("engine.data_parallel_size", "use workers")),
        ({"prefill_context_parallel_size": 2}, {}, ("use tensor_parallel_size",)),
        ({}, {"reasoning_parser": "deepseek_r2"}, ("'deepseek_r2'", "mean 'deepseek_r1'?")),
    ],
)
def test_a_bad_argument_of_the_engine_or_the_model_is_named(invoke, of_model, engine, model, parts):
    refuses(invoke("evaluate", of_model(engine=engine, model=model)), *parts)


@pytest.mark.nightly
@pytest.mark.ray
def test_an_output_that_cannot_be_written_is_named(invoke, check_both, config_file, tmp_path):
    (tmp_path / "file").write_text("")
    for output in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nowhere")):
        check_both(config_file(output=str(output)), str(output), "cannot write")
    assert (tmp_path / "file").read_text() == ""
    if os.geteuid():  # root may write everywhere
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o500)
        refuses(invoke("evaluate", config_file(output=str(closed))), "Permission denied")


def manifest(identity: Any) -> str:
    return json.dumps({"schema_version": 1, "identity": identity})


@pytest.mark.nightly
@pytest.mark.ray
@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("notes.txt", "mine", ("files that do not belong to a run", "notes.txt")),
        ("run.json", manifest({"model": "other"}), ("run.json that is not a run's",)),
        ("../run.json", manifest({}), ("is itself a run",)),
    ],
)
def test_an_output_that_holds_other_files_is_named(
    invoke: Any, config_file: Write, tmp_path: Path, name: str, content: str, parts: tuple[str, ...]
) -> None:
    folder = tmp_path / "out" / "mine"
    folder.mkdir(parents=True)
    (folder / name).write_text(content)
    path = config_file(run_id="mine")
    refuses(invoke("evaluate", path), *parts)
    finds(invoke("doctor", path), *parts)
    contents = {p.name: p.read_text() for p in (tmp_path / "out").rglob("*") if p.is_file()}
    assert contents == {Path(name).name: content}


def test_a_run_of_another_config_is_refused_and_may_be_replaced(invoke, config_file, tmp_path):
    path = config_file(run_id="mine")
    config = load_config(str(path))
    plan = make_plan(config, resolve_model(config)[0], make_benchmarks(config))
    folder = tmp_path / "out" / "mine"
    folder.mkdir(parents=True)
    second = make_manifest(plan, {})
    second["identity"] = {**second["identity"], "model": "other"}
    (folder / "run.json").write_text(json.dumps(second))
    with pytest.raises(UserError, match=r"a different run .*model"):
        open_output(plan)
    assert open_output(plan, fresh=True)[1] is None
    assert invoke("doctor", config_file(run_id="beside")).code == 0
    for content, why in ((manifest({"model": "other"}), "not a run's"), (None, "do not belong")):
        (folder / "notes.txt").write_text("mine")
        (folder / "run.json").write_text(content) if content else (folder / "run.json").unlink()
        with pytest.raises(UserError, match=why):
            open_output(plan, fresh=True)


def test_a_bucket_that_does_not_exist_is_named(invoke, check_both, config_file, of_model, s3):
    check_both(config_file(output="s3://nowhere/runs"), "bucket nowhere does not exist")
    if find_spec("vllm") is not None:
        refuses(invoke("evaluate", of_model("s3://nowhere/model")), "bucket nowhere does not exist")
        path = of_model(f"s3://{s3.bucket}/nothing")
        refuses(invoke("evaluate", path), "config.json is missing under this prefix")


def test_missing_credentials_are_named(invoke, config_file, s3, monkeypatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    path = config_file(output=f"s3://{s3.bucket}/runs")
    refuses(invoke("evaluate", path), "Unable to locate credentials")
