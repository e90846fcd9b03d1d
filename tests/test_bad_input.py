"""Each mistake ends with one clear line, exit code 2, no traceback and nothing written."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.data.loader import MINI

Write = Callable[..., Path]
needs_vllm = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")


def refuses(ended: Any, *parts: str) -> None:
    """``ended`` refused, saying all of ``parts``, in one line that also says what to do."""
    assert ended.code == 2, ended.stdout + ended.stderr
    lines = ended.stderr.strip().splitlines()
    assert len(lines) == 1, ended.stderr
    assert lines[0].startswith("ace-ray: ")
    assert ";" in lines[0], "no fix is named"
    for part in parts:
        assert part in lines[0]
    assert "Traceback" not in ended.stdout + ended.stderr


def finds(ended: Any, *parts: str) -> None:
    """``ace-ray doctor`` found the mistake that ``parts`` tell, and only that one."""
    assert ended.code == 2, ended.stdout + ended.stderr
    assert ended.stderr == ""
    failed = [line for line in ended.stdout.splitlines() if line.startswith("FAIL")]
    assert len(failed) == 1, ended.stdout
    for part in parts:
        assert part in failed[0]


def both(here: Callable[..., Any], path: Path, *parts: str) -> None:
    """``ace-ray evaluate`` refuses the config, and doctor finds the same mistake."""
    refuses(here("evaluate", path), *parts)
    finds(here("doctor", path), *parts)


def nothing_written(tmp_path: Path) -> bool:
    return not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("sampling.temprature=1", ("'sampling.temprature'", "did you mean 'temperature'?")),
        ("benchmarks.0.dta=mini", ("dta'", "did you mean 'data'?")),
        ("engine.defualt=x", ("defualt'", "did you mean 'default'?")),
        ("workers=many", ("'workers' is 'many'", "a valid integer or be 'auto'")),
        ("workers={min: 3, max: 2}", ("'workers' is ", "{min: A, max: B} with 1 <= A <= B")),
        ("output=gs://b/x", ("'gs'", "s3://bucket/prefix")),
        ("episode_timeout_s=.inf", ("'episode_timeout_s'", "finite")),
        ("run_id=../x", ("'run_id'",)),
        ("samples", ("--set", "a.b=c")),
        ("benchmarks.3.data=mini", ("--set benchmarks.3.data", "is not a section or an item")),
        ("samples=[1", ("--set samples", "not a YAML value")),
        ("benchmarks.0.name=BFLC", ("'BFLC'", "did you mean 'bfcl'?", "installed: acebench")),
        ("benchmarks.0.data=/no/data", ("/no/data",)),
        ("benchmarks.0.categories=[Multi-turn]", ("did you mean 'multi_turn'?",)),
        ("benchmarks.0.user=sam", ("benchmarks.acebench.user", "did you mean 'same'?")),
        ("benchmarks.0.ids=[normal_atom_bol_0]", ("has no entry 'normal_atom_bol_0'",)),
    ],
)
def test_a_bad_value_is_named(
    here: Callable[..., Any], config_file: Write, tmp_path: Path, override: str, parts: Any
) -> None:
    path = config_file()
    refuses(here("evaluate", path, "--set", override), *parts)
    finds(here("doctor", path, "--set", override), *parts)
    assert nothing_written(tmp_path)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (None, "cannot be read"),
        (b"", "is not a mapping"),
        (b"model: [", "is not YAML"),
        (b"\xff\xfe\x00", "is UTF-16 text, according to its byte order mark; save it as UTF-8"),
        (b"model: {source: x}", "'benchmarks' is missing"),
    ],
)
def test_a_bad_config_file_is_named(
    here: Callable[..., Any], tmp_path: Path, content: bytes | None, part: str
) -> None:
    path = tmp_path / "bad.yaml"
    if content is not None:
        path.write_bytes(content)
    refuses(here("evaluate", path), str(path), part)
    finds(here("doctor", path), part)


@needs_vllm
@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("./nowhere", ("'./nowhere' does not exist",)),
        ("nowhere.gguf", ("'nowhere.gguf' does not exist",)),
        ("org/nowhere", ("'org/nowhere' at 'main'", "HF_HUB_OFFLINE")),
        ("package:no_such_package/x.gguf", ("'no_such_package' is not installed",)),
        ("package:ace_ray/x.gguf", ("does not exist",)),
        ("package:ace_ray/api.py", ("neither a folder nor a .gguf file",)),
        ("s3://", ("names no bucket",)),
    ],
)
def test_a_missing_model_is_named(
    here: Callable[..., Any], config_file: Write, tmp_path: Path, source: str, parts: Any
) -> None:
    path = config_file(backend="vllm", model={"source": source})
    both(here, path, *parts)
    assert nothing_written(tmp_path)


@pytest.mark.nightly
@needs_vllm
def test_a_model_that_the_hub_does_not_have(cli: Any, config_file: Write, tmp_path: Path) -> None:
    path = config_file(backend="vllm", model={"source": "org/nowhere"})
    closed = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": "http://127.0.0.1:9"}
    refuses(cli("evaluate", path, env=closed), "'org/nowhere'", "check the id")


@needs_vllm
def test_a_revision_of_a_folder(
    here: Callable[..., Any], config_file: Write, model_folder: Write
) -> None:
    model = {"source": str(model_folder()), "revision": "main"}
    path = config_file(backend="vllm", model=model)
    refuses(here("evaluate", path), "model.revision", "only to Hugging Face ids")


@pytest.mark.nightly
@needs_vllm
def test_an_incomplete_model_folder(
    here: Callable[..., Any], config_file: Write, model_folder: Write
) -> None:
    folder = model_folder()
    path = config_file(backend="vllm", model={"source": str(folder)})
    (folder / "tokenizer.json").write_text("{")
    refuses(here("evaluate", path), str(folder), "tokenizer cannot be loaded")
    (folder / "config.json").write_text("{")
    refuses(here("evaluate", path), str(folder))
    (folder / "model.safetensors").unlink()
    refuses(here("evaluate", path), str(folder), "no weights")
    (folder / "config.json").unlink()
    refuses(here("evaluate", path), str(folder), "no config.json")


@pytest.mark.nightly
@needs_vllm
@pytest.mark.parametrize(
    ("template", "parts"),
    [
        (None, ("no chat template", "chat_template.jinja")),
        (
            "{{ raise_exception('no system role here') }}",
            ("rejects these messages", "no system role here"),
        ),
    ],
)
def test_a_model_without_a_chat_template_that_fits(
    here: Callable[..., Any],
    config_file: Write,
    model_folder: Write,
    tmp_path: Path,
    template: str | None,
    parts: tuple[str, ...],
) -> None:
    path = config_file(backend="vllm", model={"source": str(model_folder(template=template))})
    refuses(here("evaluate", path), *parts)
    finds(here("doctor", path), parts[-1] if template else parts[0])
    assert nothing_written(tmp_path)


@pytest.mark.nightly
@needs_vllm
def test_a_model_whose_chat_template_refuses_the_user_simulator(
    here: Callable[..., Any], config_file: Write, model_folder: Write, tmp_path: Path
) -> None:
    """Upstream's protocol sends it system messages in the middle of the chat."""
    picky = (
        "{% for m in messages %}{% if m['role'] == 'system' and not loop.first %}"
        "{{ raise_exception('system comes first') }}{% endif %}{{ m['content'] }}{% endfor %}"
    )
    source = {"source": str(model_folder(template=picky))}

    def asked(**options: Any) -> Path:
        mini = {"name": "acebench", "categories": ["agent_multi_turn"], **options}
        return config_file(backend="vllm", model=source, benchmarks=[mini])

    words = ("benchmarks.acebench.user", "system, user, system, user", "system comes first")
    both(here, asked(data=str(MINI)), *words)  # a folder of data has the official protocol
    assert nothing_written(tmp_path)
    checked = here("doctor", asked())
    assert "system comes first" not in checked.stdout + checked.stderr


@pytest.mark.nightly
@needs_vllm
@pytest.mark.parametrize(("role", "option"), [("system", "system"), ("tool", "results")])
def test_a_model_whose_chat_template_refuses_what_bfcl_sends(
    here: Callable[..., Any],
    config_file: Write,
    model_folder: Write,
    tmp_path: Path,
    role: str,
    option: str,
) -> None:
    picky = (
        f"{{% for m in messages %}}{{% if m['role'] == '{role}' %}}"
        f"{{{{ raise_exception('no {role} here') }}}}{{% endif %}}{{{{ m['content'] }}}}"
        "{% endfor %}"
    )
    source = {"source": str(model_folder(template=picky))}

    def asked(**options: Any) -> Path:
        mini = {"name": "bfcl", "categories": ["multi_turn_base"], **options}
        return config_file(backend="vllm", model=source, benchmarks=[mini])

    words = ("multi_turn_base", f"no {role} here", f"benchmarks.bfcl.{option}: user")
    both(here, asked(), *words)
    assert nothing_written(tmp_path)
    checked = here("doctor", asked(**{option: "user"}))
    assert f"no {role} here" not in checked.stdout + checked.stderr


@pytest.mark.nightly
@needs_vllm
@pytest.mark.parametrize("mode", ["native", "prompt"])
def test_a_model_whose_chat_template_shows_no_tools(
    here: Callable[..., Any], config_file: Write, model_folder: Write, mode: str
) -> None:
    source = {"source": str(model_folder()), "tool_parser": "hermes"}
    mini = {"name": "bfcl", "categories": ["multiple"], "mode": mode}
    path = config_file(backend="vllm", model=source, benchmarks=[mini])
    if mode == "native":
        refuses(here("evaluate", path), "ignores tools", "mode: prompt")
    else:
        checked = here("doctor", path)
        assert "ignores tools" not in checked.stdout + checked.stderr


@pytest.mark.nightly
@needs_vllm
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architectures": ["FancyForCausalLM"]}, "vLLM knows no architecture FancyForCausalLM"),
        ({"architectures": None}, "names no 'architectures'"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "quantization bitsandbytes"),
    ],
)
def test_a_model_that_vllm_cannot_load(
    here: Callable[..., Any],
    config_file: Write,
    model_folder: Write,
    changes: dict[str, Any],
    words: str,
) -> None:
    folder = model_folder()
    path = config_file(backend="vllm", model={"source": str(folder)})
    assert here("evaluate", path, "--plan").code == 0
    tree = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**tree, **changes}))
    both(here, path, f"{folder}/config.json", words)
    refuses(here("evaluate", path, "--plan"), f"{folder}/config.json", words)


@needs_vllm
def test_attention_heads_that_engines_cannot_share_evenly(
    here: Callable[..., Any], config_file: Write, model_folder: Write
) -> None:
    folder = model_folder()
    tree = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**tree, "num_attention_heads": 9}))
    path = config_file(
        backend="vllm", model={"source": str(folder)}, engine={"tensor_parallel_size": 2}
    )
    both(here, path, "engine.tensor_parallel_size: the model's 9 attention heads")
    refuses(here("evaluate", path, "--plan"), "set a divisor of 9")


@needs_vllm
def test_weights_that_git_lfs_did_not_fetch(
    here: Callable[..., Any], config_file: Write, model_folder: Write, tmp_path: Path
) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 16060556376\n"
    folder = model_folder()
    (folder / "model.safetensors").write_bytes(pointer)
    path = config_file(backend="vllm", model={"source": str(folder)})
    both(here, path, "model.safetensors: is a git-lfs pointer", "run git lfs pull")
    (tmp_path / "m.gguf").write_bytes(pointer)
    path = config_file(backend="vllm", model={"source": str(tmp_path / "m.gguf")})
    both(here, path, "m.gguf: is a git-lfs pointer")


@pytest.mark.nightly
@needs_vllm
def test_no_prompt_fits_the_context(
    here: Callable[..., Any], config_file: Write, model_folder: Write, tmp_path: Path
) -> None:
    model = {"source": str(model_folder(context=16))}
    path = config_file(backend="vllm", model=model)
    refuses(here("evaluate", path), "no prompt fits", "the context holds 16")
    path = config_file(backend="vllm", model=model, engine={"max_model_len": 8})
    finds(here("doctor", path), "no prompt fits", "the context holds 8")
    path = config_file(engine={"max_model_len": 8})
    refuses(here("evaluate", path), "no prompt fits", "the context holds 8")
    assert nothing_written(tmp_path)


@needs_vllm
@pytest.mark.parametrize(
    ("engine", "parts"),
    [
        ({"max_model_length": 8}, ("max_model_length'", "did you mean 'max_model_len'?")),
        ({"model": "x"}, ("engine.model", "use model.source")),
        ({"tensor_parallel_size": "two"}, ("'tensor_parallel_size' is 'two'",)),
        ({"max_num_seqs": 0}, ("'max_num_seqs' is 0",)),
    ],
)
def test_a_bad_engine_argument_is_named(
    here: Callable[..., Any], config_file: Write, model_folder: Write, engine: Any, parts: Any
) -> None:
    source = str(model_folder())
    path = config_file(backend="vllm", model={"source": source}, engine=engine)
    both(here, path, *parts)


@needs_vllm
@pytest.mark.parametrize(
    ("engine", "parts"),
    [
        ({"data_parallel_size": 4}, ("'data_parallel_size' is 4", "'workers' says how many")),
        ({"prefill_context_parallel_size": 2}, ("and a worker holds one engine",)),
        ({"reasoning_parser": "qwen3"}, ("use model.reasoning_parser",)),
    ],
)
def test_engine_arguments_that_the_run_decides(
    here: Callable[..., Any],
    config_file: Write,
    model_folder: Write,
    engine: dict[str, Any],
    parts: tuple[str, ...],
) -> None:
    model = {"source": str(model_folder())}
    refuses(here("evaluate", config_file(backend="vllm", model=model, engine=engine)), *parts)


@needs_vllm
def test_an_unknown_reasoning_parser(
    here: Callable[..., Any], config_file: Write, model_folder: Write
) -> None:
    model = {"source": str(model_folder()), "reasoning_parser": "deepseek_r2"}
    path = config_file(backend="vllm", model=model)
    refuses(here("evaluate", path), "'deepseek_r2'", "did you mean 'deepseek_r1'?")


@pytest.mark.nightly
@needs_vllm
def test_a_chat_template_that_does_not_compile(
    here: Callable[..., Any], config_file: Write, model_folder: Write, tmp_path: Path
) -> None:
    template = tmp_path / "mine.jinja"
    source = {"source": str(model_folder()), "chat_template": str(template)}
    path = config_file(backend="vllm", model=source)
    refuses(here("evaluate", path), "mine.jinja", "cannot be read")
    template.write_text("{% for m in messages %}")
    refuses(here("evaluate", path), "the chat template rejects these messages", "endfor")
    assert nothing_written(tmp_path)


@needs_vllm
def test_a_variable_that_the_chat_template_does_not_have(
    here: Callable[..., Any], config_file: Write, model_folder: Write
) -> None:
    template = "{% if enable_thinking %}think{% endif %}{{ messages[0]['content'] }}"
    file = model_folder(template=template)

    def asked(**changes: Any) -> Path:
        variables = {"chat_template_kwargs": changes.pop("variables", {})}
        return config_file(backend="vllm", model={"source": f"{file}", **variables}, **changes)

    finds(
        here("doctor", asked(variables={"enable_thinkng": False})),
        "model.chat_template_kwargs.enable_thinkng",
        "knows no enable_thinkng",
    )
    # An effort is a switch of thinking, too.
    for known in (
        {"variables": {"enable_thinking": False}},
        {"sampling": {"reasoning_effort": "low"}},
    ):
        assert here("doctor", asked(**known)).code == 0
    file = model_folder(name="other")
    finds(
        here("doctor", asked(sampling={"reasoning_effort": "low"})),
        "sampling.reasoning_effort",
        "knows no reasoning_effort",
    )


@pytest.mark.nightly
@pytest.mark.ray
def test_an_output_that_cannot_be_written(
    here: Callable[..., Any], config_file: Write, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    for output in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nowhere")):
        path = config_file(output=str(output))
        both(here, path, str(output), "cannot write")
    assert (tmp_path / "file").read_text() == ""


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_output_without_permission(
    here: Callable[..., Any], config_file: Write, tmp_path: Path
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    refuses(here("evaluate", config_file(output=str(closed))), str(closed), "Permission denied")


def manifest(identity: Any) -> str:
    return json.dumps({"schema_version": 1, "identity": identity})


@pytest.mark.nightly
@pytest.mark.ray
@pytest.mark.parametrize(
    ("files", "parts"),
    [
        ({"notes.txt": "mine"}, ("files that are no run", "notes.txt")),
        ({"run.json": manifest({"model": "other"})}, ("run.json that is not a run's",)),
        ({"run.json": "{"}, ("run.json that is not a run's",)),
        ({"../run.json": manifest({})}, ("is itself a run",)),
    ],
)
def test_an_output_that_holds_something_else(
    here: Callable[..., Any],
    config_file: Write,
    tmp_path: Path,
    files: dict[str, str],
    parts: Any,
) -> None:
    folder = tmp_path / "out" / "mine"
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    path = config_file(run_id="mine")
    both(here, path, *parts)
    left = {p.name: p.read_text() for p in (tmp_path / "out").rglob("*") if p.is_file()}
    assert left == {Path(name).name: text for name, text in files.items()}


def test_other_runs_in_the_output_folder_are_no_mistake(
    here: Callable[..., Any], config_file: Write, tmp_path: Path
) -> None:
    other = tmp_path / "out" / "other"
    other.mkdir(parents=True)
    (other / "run.json").write_text(manifest({}))
    assert here("doctor", config_file()).code == 0


def test_a_bucket_that_does_not_exist(
    here: Callable[..., Any], config_file: Write, s3: Any
) -> None:
    path = config_file(output="s3://nowhere/runs")
    refuses(here("evaluate", path), "bucket nowhere does not exist", "create it")
    finds(here("doctor", path), "bucket nowhere does not exist")


@needs_vllm
def test_a_bucket_on_the_way_to_a_model(
    here: Callable[..., Any], config_file: Write, s3: Any
) -> None:
    path = config_file(backend="vllm", model={"source": "s3://nowhere/model"})
    refuses(here("evaluate", path), "bucket nowhere does not exist")
    path = config_file(backend="vllm", model={"source": f"s3://{s3.bucket}/nothing"})
    refuses(here("evaluate", path), "config.json is missing under this prefix")


@pytest.fixture
def guarded(s3: Any) -> Iterator[Any]:
    """The S3 server with its access control switched on; yields a key that may do nothing."""
    import urllib.request

    import boto3

    iam = boto3.client("iam")
    iam.create_user(UserName="stranger")
    key = iam.create_access_key(UserName="stranger")["AccessKey"]

    def allow(unchecked: str) -> None:
        url = f"{s3.endpoint_url}/moto-api/reset-auth"
        kind = {"Content-Type": "text/plain"}
        urllib.request.urlopen(urllib.request.Request(url, unchecked.encode(), kind))

    allow("0")
    yield key
    allow("inf")


def test_credentials_that_the_store_refuses(
    here: Callable[..., Any],
    config_file: Write,
    s3: Any,
    guarded: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = config_file(output=f"s3://{s3.bucket}/runs")
    refuses(here("evaluate", path), "the access key is unknown", "check the credentials")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", guarded["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", guarded["SecretAccessKey"])
    refuses(here("evaluate", path), f"access to bucket {s3.bucket} is denied", "check")
    finds(here("doctor", path), f"access to bucket {s3.bucket} is denied")


def test_no_credentials(
    here: Callable[..., Any], config_file: Write, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    path = config_file(output=f"s3://{s3.bucket}/runs")
    refuses(here("evaluate", path), "Unable to locate credentials")


@pytest.mark.nightly
@pytest.mark.ray
def test_a_store_that_refuses_the_connection(
    here: Callable[..., Any], config_file: Write, s3: Any
) -> None:
    path = config_file(output="s3://b/runs", store={"endpoint_url": "http://127.0.0.1:9"})
    refuses(here("evaluate", path), "cannot be reached", "store.endpoint_url")


@pytest.mark.nightly
def test_a_store_that_never_answers(here: Callable[..., Any], config_file: Write, s3: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        endpoint = f"http://127.0.0.1:{mute.getsockname()[1]}"
        path = config_file(output="s3://b/runs", store={"endpoint_url": endpoint})
        finds(here("doctor", path), "cannot be reached")


def test_a_run_to_be_replaced_is_opened_but_foreign_files_are_not(
    config_file: Write, tmp_path: Path
) -> None:
    from ace_ray.config.schema import load_config
    from ace_ray.errors import UserError
    from ace_ray.pipeline.planning.plan import make_manifest, make_plan
    from ace_ray.pipeline.planning.preflight import make_benchmarks, open_output, resolve_model

    config = load_config(str(config_file(run_id="mine")))
    plan = make_plan(config, resolve_model(config), make_benchmarks(config))
    folder = tmp_path / "out" / "mine"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="files that are no run"):
        open_output(plan, fresh=True)
    (folder / "run.json").write_text(manifest({"model": "other"}))
    with pytest.raises(UserError, match="that is not a run's"):
        open_output(plan, fresh=True)
    other = make_manifest(plan, {})
    other["identity"] = {**other["identity"], "model": "other"}
    (folder / "run.json").write_text(json.dumps(other))
    assert open_output(plan, fresh=True)[1] is None
    with pytest.raises(UserError, match="a different run"):
        open_output(plan)
