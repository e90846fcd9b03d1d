"""What several tests share: an S3 server, the command line, benchmark data, a tiny model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
BUCKET = "results"


ONE_AT_A_TIME = {
    "engine": (
        "faults/test_real_engine_faults.py",
        "e2e/test_adapters_run.py",
        "e2e/test_endpoint_run.py::test_a_real_server_is_the_endpoint",
    ),
    "cluster": (
        "e2e/test_elastic.py",
        "e2e/test_two_nodes.py",
        "e2e/test_job_submit.py",
        "e2e/test_spread_engine.py",
    ),
}
"""Tests that no other of their kind may be beside, in their order: a real engine takes all cores,
and Ray fixes some ports of a cluster."""


def group_of(nodeid: str) -> tuple[str, int]:
    """What a test is never apart from, and its place there. A module is one group, since its tests
    share runs, but for `ONE_AT_A_TIME`."""
    for kind, tests in ONE_AT_A_TIME.items():
        for place, test in enumerate(tests):
            if nodeid.removeprefix("tests/").startswith(test):
                return kind, place
    return nodeid.partition("::")[0], 0


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """``--dist loadgroup`` by `group_of`: xdist 3.8 finds no marked groups under pytest 9.2."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)[0]

    return Groups(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where groups are handed out, the two large ones first, and each of them by its places."""
    if not getattr(config.option, "loadgroup", False):
        return
    kinds = list(ONE_AT_A_TIME)

    def order(item: pytest.Item) -> tuple[int, int]:
        group, place = group_of(item.nodeid)
        return (kinds.index(group), place) if group in kinds else (len(kinds), 0)

    items.sort(key=order)


def pytest_configure() -> None:
    """Let signals end processes, though nohup and background jobs ignore some.

    A child inherits an ignored signal, and tests end children by signals.
    """
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGINT):
        if signal.getsignal(number) is signal.SIG_IGN:
            default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, default)


@pytest.fixture(scope="session", autouse=True)
def quiet_environment() -> Iterator[pytest.MonkeyPatch]:
    """No test reaches for the network, the user's caches or their credentials."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [n for n in os.environ if n.startswith(("AWS_", "ACE_RAY_", "RAY_"))]:
            if name not in ("ACE_RAY_SHARED", "AWS_CA_BUNDLE"):
                patch.delenv(name)
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        yield patch


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty ``ACE_RAY_CACHE`` of the test's own."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("ACE_RAY_CACHE", str(folder))
    return folder


@dataclass(frozen=True)
class S3:
    """A running S3 server; the environment points every client at it."""

    endpoint_url: str
    bucket: str
    client: Any


@pytest.fixture(scope="session")
def s3(quiet_environment: pytest.MonkeyPatch) -> Iterator[S3]:
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


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """All of ACEBench in the official layout."""
    shared = Path(os.environ.get("ACE_RAY_SHARED") or ROOT.parent / "shared")
    folder = shared / "data" / "acebench"
    if not (folder / "data_en").is_dir():
        pytest.skip("the full ACEBench data is not here; name its parent with ACE_RAY_SHARED")
    return folder


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str


Cli = Callable[..., Ended]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Runs ``ace-ray ARGUMENTS`` as a process of its own, in an empty folder."""
    folder = tmp_path / "cwd"
    folder.mkdir()

    def run(*arguments: object, env: dict[str, str] | None = None, timeout_s: float = 540) -> Ended:
        done = subprocess.run(
            [sys.executable, "-m", "ace_ray.cli", *map(str, arguments)],
            cwd=folder,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """As `cli`, in this process: for the many cases where a second of start-up adds nothing."""
    import ace_ray.cli

    def run(*arguments: object) -> Ended:
        monkeypatch.setattr("sys.argv", ["ace-ray", *map(str, arguments)])
        monkeypatch.setattr(ace_ray.cli, "supervised", lambda work: work())
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            ace_ray.cli.main()
        said = capsys.readouterr()
        return Ended(int(end.value.code or 0), said.out, said.err)

    return run


@pytest.fixture
def config_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes a config: the fake backend on two entries' worth of the mini set, plus ``changes``."""

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
    """Answers of real models, which lie beside the project."""
    folder = Path(os.environ.get("ACE_RAY_SHARED") or ROOT.parent / "shared") / "data/real_outputs"
    if not folder.is_dir():
        pytest.skip("the real outputs are not here; name their parent with ACE_RAY_SHARED")
    return folder


@pytest.fixture
def model_folder(tmp_path: Path) -> Callable[..., Path]:
    """Makes a model folder with a word tokenizer, ``template``, and one tensor of ``weights``."""

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
        settings: dict[str, Any] = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": "[UNK]",
        }
        if template is not None:
            settings["chat_template"] = template
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        (folder / "config.json").write_text(
            json.dumps(
                {
                    "architectures": ["LlamaForCausalLM"],
                    "model_type": "llama",
                    "max_position_embeddings": context,
                }
            )
        )
        tensor = {"dtype": "U8", "shape": [len(weights)], "data_offsets": [0, len(weights)]}
        header = json.dumps({"w": tensor}).encode()
        content = len(header).to_bytes(8, "little") + header + weights
        (folder / "model.safetensors").write_bytes(content)
        return folder

    return make


@pytest.fixture(scope="session")
def make_checkpoint() -> Callable[..., Path]:
    """Makes a checkpoint folder: one tensor of ``values``, and what the fake engine is to do."""
    import numpy as np

    def make(folder: Path, *values: float, tokens: str = "{}", **script: Any) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        data = np.array(values, "<f4").tobytes()
        tensor = {"dtype": "F32", "shape": [len(values)], "data_offsets": [0, len(data)]}
        header = json.dumps({"w": tensor}).encode()
        (folder / "config.json").write_text(json.dumps({"model_type": "toy"}))
        (folder / "tokenizer.json").write_text(tokens)
        (folder / "fake.json").write_text(json.dumps(script))
        content = len(header).to_bytes(8, "little") + header + data
        (folder / "model.safetensors").write_bytes(content)
        return folder

    return make


@pytest.fixture(scope="session")
def make_adapter() -> Callable[..., Path]:
    """Makes a LoRA adapter with random weights on a model folder; ``config`` wins over PEFT's, and
    ``script`` is what the fake engine is to do."""
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
        script: dict[str, Any] | None = None,
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
        own = {
            "peft_type": "LORA",
            "r": rank,
            "lora_alpha": 2 * rank,
            "target_modules": targets,
            "bias": "none",
            "base_model_name_or_path": str(base),
        }
        (folder / "adapter_config.json").write_text(json.dumps({**own, **config}))
        if script is not None:
            (folder / "fake.json").write_text(json.dumps(script))
        return folder

    return make
