import gzip
import hashlib
import io
import json
import os
import shutil
import sys
import tarfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.data import importer, upstream
from ace_ray.benchmarks.acebench.data.loader import MINI, load
from ace_ray.benchmarks.acebench.options import LANGUAGES
from ace_ray.benchmarks.dataset import imports_folder
from ace_ray.errors import UserError

TRAP = 'raise SystemExit("imported")\nimport no_such_module_anywhere\n'

PHRASES = '''
class Role:
    def speak(self, name):
        """Not said to anybody."""
        if name == "key":
            return ", "
        return f"You said {name}!"
'''

SCENARIO = '''
class {name}({base}):
    def __init__(self):
        """Not a state."""
        super().__init__()
        self.lamp = False
        self.box: dict = {{1: {{"label": "first"}}, 2: {{"label": "second"}}}}

    def _load_scenario(self, scenario, long_context=False):
        self.lamp = scenario.get("lamp", False)

    def light(self, room, level=3):
        """Not an answer."""
        if room not in self.box:
            return {{"status": False, "message": "No such room"}}
        self.lamp = True
        return {{"status": True, "message": f"Room {{room}} at {{level:>3}}."}}
'''


def write_checkout(root: Path) -> Path:
    shutil.copytree(MINI, root / "data_all", ignore=shutil.ignore_patterns("upstream"))
    write(root / "LICENSE.md", "Do as you like.\n")
    sources = root / "model_inference"
    for language in LANGUAGES:
        text = f'{TRAP}GREETING_{language.upper()} = """Say hello."""\n'
        write(sources / f"prompt_{language}.py", text)
    phrases = dict.fromkeys(upstream.PHRASE_MODULES, PHRASES)
    roles = dict.fromkeys(upstream.ROLE_MODULES, 'ROLE = "You are a lamp."\nLIMIT = 3\n')
    for module in {**phrases, **roles}:
        text = TRAP + phrases.get(module, "") + roles.get(module, "")
        write(sources / f"{module}.py", text)
    for loop in upstream.LOOPS:
        for language in LANGUAGES:
            for name, file in upstream.CLASS_FILES.items():
                text = SCENARIO.format(name=name, base="object" if name == "BaseApi" else "BaseApi")
                write(sources / loop / f"scenarios{language}" / file, TRAP + text)
    return root


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def checkout(tmp_path):
    return write_checkout(tmp_path / "checkout")


def left_in() -> list[str]:
    """Return the names of all imports, unfinished ones too."""
    home = imports_folder("acebench")
    return sorted(os.listdir(home)) if home.exists() else []


def refused(path, message):
    with pytest.raises(UserError, match=message) as caught:
        importer.import_checkout(path)
    assert left_in() == []
    return caught.value


def test_an_import_lands_whole_and_runs_nothing(checkout, invoke):
    before = set(sys.modules)
    result = invoke("data", "import", "acebench", checkout)
    assert not {name for name in set(sys.modules) - before if "model_inference" in name}
    (version,) = left_in()
    folder = imports_folder("acebench") / version
    assert result.stdout == f"imported: 136 rows, version {version} in {folder}\n"
    hashes = [[e.content_hash() for e in load(rows)] for rows in (folder, checkout / "data_all")]
    assert hashes[0] == hashes[1]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["version"] == version == manifest["content_sha256"][:12]
    assert (manifest["commit"], manifest["source"]) == (None, {"path": str(checkout)})
    assert manifest["rows"]["en"]["agent_multi_step"] == 4
    # An import is itself in the layout, and has the same content.
    assert importer.import_checkout(folder) == folder
    result = invoke("data", "import", "acebench", checkout / "data_all")
    assert "official prompts and apps are not available" in result.stdout.splitlines()[1]


def test_prompts_and_app_specs_are_read_as_literals(checkout):
    prompts = upstream.read_prompts(checkout)
    assert prompts["GREETING_EN"] == "Say hello."
    assert prompts["multi_turn/APIModel_user:speak#0"] == "You said "
    assert len(prompts) == 2 + 5 + 4
    assert upstream.read_app_specs(checkout)["multi_step"]["zh"]["MessageApi"] == {
        "bases": ["BaseApi"],
        "state": {
            "__init_calls__": ["super().__init__()"],
            "lamp": False,
            "box": {1: {"label": "first"}, 2: {"label": "second"}},
        },
        "int_key_attrs": ["box"],
        "load_scenario": {"lamp": {"key": "lamp", "default": False}},
        "methods": {
            "light": {
                "params": [{"name": "room", "default": None}, {"name": "level", "default": "3"}],
                "texts": ["Room {room} at {level:>3}.", "No such room"],
            }
        },
    }


LAMP = "self.lamp = False"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (LAMP, "self.lamp = open('/etc/passwd').read()", r"travel.py:8: is code that would"),
        (LAMP, "self.lamp = {1: 0, '1': 0}", "the key '1' appears tw"),
        ("class Travel", "class Journey", "has no class Travel"),
        ("def __init__", "def _other", r"Travel.__init__ assigns no literals"),
    ],
    ids=["call", "key twice", "missing class", "missing state"],
)
def test_a_hostile_source_of_an_app_is_refused(checkout, old, new, message):
    path = checkout / "model_inference" / "multi_turn" / "scenariosen" / "travel.py"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    refused(checkout, message)


def test_a_hostile_source_of_prompts_is_refused(checkout):
    path = checkout / "model_inference" / "prompt_zh.py"
    for source, message in (
        ("x = 3\n", "assigns no text constants"),
        ("x = " + "-" * 200_000 + "1", "is not Python source that can be read"),
        ("#" * (3 << 20), "more than the limit of 2,097,152"),
    ):
        path.write_text(source)
        assert "prompt_zh.py" in str(refused(checkout, message))


def test_damaged_rows_links_pipes_and_huge_files_are_refused(checkout, tmp_path):
    path = checkout / "data_all" / "data_zh" / "data_special_irrelevant.json"
    path.write_text("{}\n")
    error = refused(checkout, r'data_special_irrelevant.json:1: "id" is missing')
    assert error.where == f"{path}:1"
    path.parent.rename(tmp_path / "elsewhere")
    path.parent.symlink_to(tmp_path / "elsewhere")
    refused(checkout, r"data_zh: is a symbolic link")
    path = checkout / "data_all" / "data_en" / "data_agent_multi_step.json"
    with path.open("r+b") as file:
        file.truncate(65 << 20)
    refused(checkout, "68,157,440 bytes, more than the limit of 67,108,864")
    path.unlink()
    os.mkfifo(path)
    refused(checkout, "is not a plain file")
    refused(tmp_path / "elsewhere", "has neither data_all nor data_en")


class Server(BaseHTTPRequestHandler):
    """Answer any path with the body. ``declared``: further bytes, None for no length at all."""

    status, body, silence_s = 200, b"", 0.0
    declared: int | None = 0

    def do_GET(self):
        self.send_response(self.status)
        if self.declared is not None:
            self.send_header("Content-Length", str(len(self.body) + self.declared))
        self.end_headers()
        self.wfile.write(self.body)
        self.wfile.flush()
        time.sleep(self.silence_s)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    handler: Any = type("Handler", (Server,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        running.daemon_threads = True
        handler.url = f"http://127.0.0.1:{running.server_port}/archive"
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield handler
        running.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """Pack the synthetic checkout as a tar.gz with one folder around it."""
    root = write_checkout(tmp_path_factory.mktemp("src") / "ACEBench-0123")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
        tar.add(root, arcname=root.name)
    return buffer.getvalue()


def sha(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def not_pulled(server, message, *, sha256=None):
    with pytest.raises(UserError, match=message) as caught:
        importer.pull(url=server.url, sha256=sha256 or sha(server.body))
    assert "\n" not in str(caught.value)
    assert left_in() == []


def test_a_pull_imports_the_archive_with_pinned_contents(server, packed, monkeypatch):
    server.body = packed
    not_pulled(server, f"the archive has sha256 {sha(packed)}, not aa", sha256="aa")
    with pytest.raises(UserError, match=r"archive: the contents have the hash \w+, not the expec"):
        importer.pull(url=server.url)
    assert importer.OFFICIAL_URL.endswith(importer.OFFICIAL_COMMIT)
    for declared in (0, None):
        server.declared = declared
        folder = importer.pull(url=server.url, sha256=sha(packed).upper())
        source = json.loads((folder / "manifest.json").read_text())["source"]
        assert source == {"url": server.url, "archive_sha256": sha(packed)}
    assert left_in() == [folder.name]
    monkeypatch.setattr(importer, "OFFICIAL_URL", server.url)
    with pytest.raises(UserError, match="not the expected"):
        importer.pull(url=server.url, sha256=sha(packed))


def test_a_download_that_fails_is_one_line(server, packed, monkeypatch):
    failures: list[tuple[dict[str, Any], str]] = [
        ({"status": 404}, r"/archive: the download failed \(HTTPError: HTTP Error 404: Not"),
        ({"declared": 100}, r"the download broke off after [\d,]+ of [\d,]+ bytes"),
        ({"declared": 100, "silence_s": 1.0}, r"the download failed \(TimeoutError: timed out\)"),
        ({"declared": 10**12}, "the archive is larger than 67,108,864 bytes"),
        ({"url": "file:///etc/passwd"}, r"--url: 'file:///etc/passwd' is not an http\(s\) address"),
    ]
    monkeypatch.setattr(importer, "SILENCE_TIMEOUT_S", 0.4)
    sound = {"url": server.url, "status": 200, "declared": 0, "silence_s": 0.0, "body": packed}
    for changes, message in failures:
        for name, value in {**sound, **changes}.items():
            setattr(server, name, value)
        not_pulled(server, message)


def test_a_pull_is_bounded_in_time_and_size(server, packed, monkeypatch):
    server.body, server.declared = packed, None
    monkeypatch.setattr(importer, "ARCHIVE_LIMIT_BYTES", len(packed) - 1)
    not_pulled(server, "the archive is larger than")
    monkeypatch.setattr(importer, "ARCHIVE_LIMIT_BYTES", len(packed))
    monkeypatch.setattr(importer, "UNPACKED_LIMIT_BYTES", 1_000)
    server.body = gzip.compress(bytes(1_001))
    not_pulled(server, "unpacks to more than 1,000 bytes")
    monkeypatch.setattr(importer, "TOTAL_TIMEOUT_S", -1.0)
    not_pulled(server, "the download took over")


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("a/../../escaped", tarfile.REGTYPE, "a path outside the folder: 'a/../../escaped'"),
        ("/tmp/escaped", tarfile.REGTYPE, "a path outside the folder"),
        ("a", tarfile.SYMTYPE, "a link or device: 'a'"),
        (".", tarfile.REGTYPE, "is damaged or not a tar.gz"),
    ],
    ids=["relative path", "absolute path", "link", "file in place of the folder"],
)
def test_a_hostile_archive_is_refused(server, tmp_path, name, kind, message):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("top/a"))
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, "/etc/passwd"
        tar.addfile(info)
    server.body = buffer.getvalue()
    not_pulled(server, message)
    assert not list(tmp_path.rglob("escaped"))


def test_a_damaged_archive_is_refused(server, packed):
    plain = gzip.decompress(packed)
    half = gzip.compress(plain[: len(plain) // 2 + 7])
    server.body = packed[: len(packed) // 2]
    not_pulled(server, r"is damaged or not a tar.gz .*; download it again")
    server.body = half
    not_pulled(server, "is damaged or not a tar.gz|cannot be read")
