"""Shared fixtures: an S3 server, a local Ray, the command line, benchmark data, model folders."""

from __future__ import annotations

import itertools
import json
import logging
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.faults.fault_runs import Run

ROOT = Path(__file__).resolve().parents[1]
BUCKET = "results"
NUMBERS = itertools.count()


def pytest_configure() -> None:
    """Set the environment before test modules are imported."""
    # Hugging Face's client reads the variable once, when it is imported.
    os.environ["HF_HUB_OFFLINE"] = "1"
    # Tests start hundreds of Python processes. Without bytecode each compiles the package anew,
    # and pytest rewrites the assertions of every test file anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # Under nohup and in background jobs some signals are ignored. Children inherit that, and tests
    # end children with these signals.
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGINT):
        if signal.getsignal(number) is signal.SIG_IGN:
            default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, default)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put runs first, then tests that import vLLM.

    xdist gives one process the first tests, so one process starts Ray and imports vLLM.
    """

    def position(item: pytest.Item) -> int:
        if item.get_closest_marker("ray"):
            return 0
        return 1 if "vllm" in getattr(item, "fixturenames", ()) else 2

    items.sort(key=position)


@pytest.fixture(scope="session", autouse=True)
def quiet_environment() -> Iterator[pytest.MonkeyPatch]:
    """Remove credentials and settings of the user from the environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [n for n in os.environ if n.startswith(("AWS_", "ACE_RAY_", "RAY_"))]:
            if name not in ("ACE_RAY_SHARED", "AWS_CA_BUNDLE"):
                patch.delenv(name)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        yield patch


@pytest.fixture
def log_lines() -> Iterator[list[str]]:
    """Collect the texts of log lines (`ace_ray.util.log`), instead of printing them."""
    lines: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger = logging.getLogger("ace_ray")
    handlers, level = logger.handlers, logger.level
    logger.handlers = [Collector()]
    logger.setLevel(logging.INFO)
    yield lines
    logger.handlers = handlers
    logger.setLevel(level)


@pytest.fixture(scope="session")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the parent of all cache folders. `mktemp` lists it on each call: use `cache`."""
    return tmp_path_factory.mktemp("caches")


@pytest.fixture(autouse=True)
def cache(caches: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create an empty cache folder for the test and name it in ``ACE_RAY_CACHE``."""
    folder = caches / str(next(NUMBERS))
    folder.mkdir()
    monkeypatch.setenv("ACE_RAY_CACHE", str(folder))
    return folder


@dataclass(frozen=True)
class S3:
    """A running S3 server. The environment points every client at it."""

    endpoint_url: str
    bucket: str
    client: Any


@pytest.fixture(scope="session")
def s3(quiet_environment: pytest.MonkeyPatch) -> Iterator[S3]:
    """Start the S3 server of the session."""
    boto3 = pytest.importorskip("boto3")
    server_module = pytest.importorskip("moto.server")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    quiet_environment.setenv("AWS_ACCESS_KEY_ID", "testing")
    quiet_environment.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    quiet_environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
    quiet_environment.setenv("AWS_ENDPOINT_URL", endpoint)
    client = boto3.client("s3")
    client.create_bucket(Bucket=BUCKET)
    yield S3(endpoint, BUCKET, client)
    server.stop()


@pytest.fixture
def local(tmp_path: Path) -> Any:
    """Return an empty store on a disk."""
    from ace_ray.storage.object_store import LocalStore

    return LocalStore(str(tmp_path / "run"))


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Return an empty store on a disk, and one on S3."""
    from ace_ray.storage.object_store import open_store

    if request.param == "local":
        return request.getfixturevalue("local")
    bucket = request.getfixturevalue("s3").bucket
    return open_store(f"s3://{bucket}/{tmp_path.name}/run")


@pytest.fixture(scope="session")
def vllm() -> Any:
    """Import vLLM in this process, which takes some seconds."""
    return pytest.importorskip("vllm")


def shared_folder(name: str) -> Path:
    """Return a folder of data that lies beside the project, or skip the test."""
    folder = Path(os.environ.get("ACE_RAY_SHARED") or ROOT.parent / "shared") / "data" / name
    if not folder.is_dir():
        pytest.skip(f"data/{name} is not here; name its parent with ACE_RAY_SHARED")
    return folder


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the full ACEBench data, in the official layout."""
    return shared_folder("acebench/data_en").parent


@pytest.fixture(scope="session")
def bfcl_copy() -> Any:
    """Return a copy of bfcl-eval: the one that ``BFCL_DATA`` names, or the installed one."""
    from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage
    from ace_ray.errors import UserError

    try:
        copy = UpstreamPackage.locate(os.environ.get("BFCL_DATA", "installed"))
    except UserError as error:
        pytest.skip(str(error))
    return UpstreamPackage.locate(str(copy.root))


@pytest.fixture(scope="session")
def local_ray(quiet_environment: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Start the local Ray of the session. Yields the environment variables that join it."""
    pytest.importorskip("ray")
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
    with subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / "local_ray.py")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **token, "RAY_ADDRESS": "local"},
    ) as head:
        assert head.stdout is not None
        address = next((line for line in head.stdout if line.startswith("address ")), "")
        assert address, "no local Ray started"
        yield {**token, "RAY_ADDRESS": address.split()[1]}
        head.terminate()


@pytest.fixture
def make_run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Make runs of the fake engine, each with a folder of its own.

    Their processes end with the test.
    """
    numbers = itertools.count()
    with ExitStack() as stack:

        def make(output: str | None = None, **changes: Any) -> Run:
            folder = tmp_path / str(next(numbers))
            folder.mkdir()
            return stack.enter_context(Run(folder, output, **changes))

        yield make


@dataclass(frozen=True)
class Ended:
    """Exit code and output of a command."""

    code: int
    stdout: str
    stderr: str

    def ok(self) -> Ended:
        """Check that the command succeeded; return this result."""
        assert self.code == 0, self.stdout + self.stderr
        return self

    def refused(self, *parts: str) -> None:
        """Check that the command refused, in one line with all ``parts`` and a fix."""
        assert self.code == 2, self.stdout + self.stderr
        (line,) = self.stderr.strip().splitlines()
        assert line.startswith("ace-ray: ")
        assert ";" in line, "no fix is named"
        for part in parts:
            assert part in line
        assert "Traceback" not in self.stdout + self.stderr


Cli = Callable[..., Ended]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Run ``ace-ray ARGUMENTS`` as a new process, in an empty folder."""
    folder = tmp_path / "cwd"
    folder.mkdir()

    def run(*arguments: object, env: dict[str, str] | None = None, timeout_s: float = 540) -> Ended:
        result = subprocess.run(
            [sys.executable, "-m", "ace_ray.cli.main", *map(str, arguments)],
            cwd=folder,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return Ended(result.returncode, result.stdout, result.stderr)

    return run


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run ``ace-ray ARGUMENTS`` in this process, which saves a second of start-up."""
    from ace_ray.cli.main import main

    def run(*arguments: object) -> Ended:
        monkeypatch.setattr("sys.argv", ["ace-ray", *map(str, arguments)])
        monkeypatch.setattr("ace_ray.cli.run.run_supervised", lambda work: work())
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        output = capsys.readouterr()
        return Ended(int(end.value.code or 0), output.out, output.err)

    return run


@pytest.fixture
def config_file(tmp_path: Path) -> Callable[..., Path]:
    """Write a config of the fake backend on two entries of the mini set, with ``changes``."""

    def write(**changes: Any) -> Path:
        tree: dict[str, Any] = {
            "model": {"source": "none"},
            "backend": "fake",
            "benchmarks": [{"name": "acebench", "languages": ["en"]}],
            "limit": 2,
            "output": str(tmp_path / "out"),
        }
        path = tmp_path / "config.yaml"
        path.write_text(json.dumps({**tree, **changes}))
        return path

    return write


CHAT = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture(scope="session")
def real_outputs() -> Path:
    """Return the folder of real models' answers."""
    return shared_folder("real_outputs")


def one_tensor(dtype: str, count: int, data: bytes) -> bytes:
    """Return a safetensors file with one tensor."""
    tensor = {"dtype": dtype, "shape": [count], "data_offsets": [0, len(data)]}
    header = json.dumps({"w": tensor}).encode()
    return len(header).to_bytes(8, "little") + header + data


@pytest.fixture
def model_folder(tmp_path: Path) -> Callable[..., Path]:
    """Make a model folder with a word tokenizer, a chat template, and one tensor of ``weights``."""

    def make(
        *, template: str | None = CHAT, context: int = 4096, weights: bytes = b"w", name: str = "m"
    ) -> Path:
        tokenizers = pytest.importorskip("tokenizers")
        folder = tmp_path / name
        folder.mkdir()
        tokenizer = tokenizers.Tokenizer(
            tokenizers.models.WordLevel({"[UNK]": 0, "the": 1}, unk_token="[UNK]")
        )
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        tokenizer.save(str(folder / "tokenizer.json"))
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"}
        if template is not None:
            settings["chat_template"] = template
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        config: dict[str, Any] = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
        config["max_position_embeddings"] = context
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "model.safetensors").write_bytes(one_tensor("U8", len(weights), weights))
        return folder

    return make


@pytest.fixture(scope="session")
def make_checkpoint() -> Callable[..., Path]:
    """Make a checkpoint folder: one tensor of ``values``, and a script for the fake engine."""
    import numpy as np

    def make(folder: Path, *values: float, tokens: str = "{}", **script: Any) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        data = np.array(values, "<f4").tobytes()
        (folder / "config.json").write_text(json.dumps({"model_type": "toy"}))
        (folder / "tokenizer.json").write_text(tokens)
        (folder / "fake.json").write_text(json.dumps(script))
        (folder / "model.safetensors").write_bytes(one_tensor("F32", len(values), data))
        return folder

    return make


@pytest.fixture(scope="session")
def make_adapter() -> Callable[..., Path]:
    """Make a LoRA adapter with random weights for a model folder; ``config`` overrides PEFT's."""
    import numpy as np

    from ace_ray.models.checkpoints import tensors_of

    numpy_files = pytest.importorskip("safetensors.numpy")
    targets = ["q_proj", "v_proj", "down_proj"]

    def make(
        folder: Path,
        base: Path,
        seed: int = 0,
        *,
        rank: int = 4,
        scale: float = 0.3,
        **config: Any,
    ) -> Path:
        folder.mkdir(parents=True)
        random = np.random.default_rng(seed)
        shapes = {name: tensor.shape for name, tensor in tensors_of(base).items()}
        chosen = {name: s for name, s in shapes.items() if name.split(".")[-2:][0] in targets}
        tensors = {}
        for name, (out, inner) in (chosen or {"w.weight": (2, 2)}).items():
            for part, shape in (("A", (rank, inner)), ("B", (out, rank))):
                key = f"base_model.model.{name.removesuffix('.weight')}.lora_{part}.weight"
                tensors[key] = random.normal(0, scale, shape).astype(np.float32)
        numpy_files.save_file(tensors, folder / "adapter_model.safetensors")
        settings = {
            "peft_type": "LORA",
            "r": rank,
            "lora_alpha": 2 * rank,
            "target_modules": targets,
            "bias": "none",
            "base_model_name_or_path": str(base),
        }
        (folder / "adapter_config.json").write_text(json.dumps({**settings, **config}))
        return folder

    return make
