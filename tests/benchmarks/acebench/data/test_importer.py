import json
import os
import sys

import pytest

from ace_ray.benchmarks.acebench.data import importer
from ace_ray.benchmarks.acebench.data.loader import load
from ace_ray.benchmarks.acebench.data.upstream import read_app_specs, read_prompts
from ace_ray.benchmarks.dataset import imports_folder
from ace_ray.errors import UserError
from tests.benchmarks.acebench.synthetic_checkout import left_in, write_checkout


@pytest.fixture
def checkout(tmp_path):
    return write_checkout(tmp_path / "checkout")


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def refused(path, cache, message):
    with pytest.raises(UserError, match=message) as caught:
        importer.import_checkout(path, cache=cache)
    assert left_in(cache) == []
    return caught.value


def test_an_import_lands_whole_and_runs_nothing(checkout, cache):
    said: list[str] = []
    before = set(sys.modules)
    folder = importer.import_checkout(checkout, cache=cache, say=said.append)
    assert not {name for name in set(sys.modules) - before if "model_inference" in name}
    assert left_in(cache) == [folder.name]
    assert [e.content_hash() for e in load(folder)] == [
        e.content_hash() for e in load(checkout / "data_all")
    ]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["version"] == folder.name == manifest["content_sha256"][:12]
    assert manifest["commit"] is None
    assert manifest["source"] == {"path": str(checkout)}
    assert manifest["rows"]["en"]["agent_multi_step"] == 1
    assert manifest["rows"]["zh"]["normal_multi_turn_user_adjust"] == 2
    assert len(manifest["files"]) == 2 * 2 * 17 + 3
    assert said == [f"imported: 38 rows, version {folder.name} in {folder}"]


def test_the_same_contents_are_imported_once(checkout, cache):
    folder = importer.import_checkout(checkout, cache=cache)
    stamp = (folder / "manifest.json").stat().st_mtime_ns
    said: list[str] = []
    # An import is itself in the layout, and has the same content.
    for source in (checkout, folder):
        assert importer.import_checkout(source, cache=cache, say=said.append) == folder
    assert said[0].startswith("already imported, nothing to do: 38 rows")
    assert (folder / "manifest.json").stat().st_mtime_ns == stamp
    path = checkout / "model_inference" / "prompt_en.py"
    path.write_text(path.read_text().replace("hello", "good morning"))
    second = importer.import_checkout(checkout, cache=cache)
    assert left_in(cache) == sorted([folder.name, second.name])
    with pytest.raises(UserError, match="not the expected 0000"):
        importer.import_checkout(checkout, cache=cache, expect_sha256="0" * 64)


def test_prompts_are_read_as_literals(checkout):
    prompts = read_prompts(checkout)
    assert prompts["GREETING_EN"] == "Say hello."
    assert prompts["multi_step/APIModel_agent:ROLE"] == "You are a lamp."
    phrase = {name: text for name, text in prompts.items() if "#" in name}
    assert phrase["multi_turn/APIModel_user:speak#0"] == "You said "
    assert len(phrase) == 4
    assert len(prompts) == 2 + 5 + 4


def test_app_specs_are_read_as_literals(checkout):
    app_specs = read_app_specs(checkout)
    assert app_specs["multi_step"]["zh"]["MessageApi"] == {
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


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 3\n", "assigns no text constants"),
        ("def broken(:\n", "is not Python source that can be read"),
        ("x = " + "-" * 200_000 + "1", "is not Python source that can be read"),
        ("#" * (3 << 20), "more than the 2,097,152 that are read"),
    ],
)
def test_hostile_sources_are_refused(checkout, cache, source, message):
    (checkout / "model_inference" / "prompt_zh.py").write_text(source)
    assert "prompt_zh.py" in str(refused(checkout, cache, message))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("self.lamp = False", "self.lamp = open('/etc/passwd').read()", r":8: a literal was exp"),
        ("self.lamp = False", "self.lamp = {1, 2}", "JSON cannot"),
        ("self.lamp = False", "self.lamp = {1: 0, '1': 0}", "the key '1' appears tw"),
        ('scenario.get("lamp", False)', 'scenario.get("lamp")', "with a key and a default"),
        ("class Travel", "class Journey", "has no class Travel"),
        ("def __init__", "def _other", r"Travel.__init__ assigns no literals"),
    ],
)
def test_hostile_scenarios_are_refused(checkout, cache, old, new, message):
    path = checkout / "model_inference" / "multi_turn" / "scenariosen" / "travel.py"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    refused(checkout, cache, message)


def test_links_pipes_and_huge_files_are_refused(checkout, cache, tmp_path):
    path = checkout / "data_all" / "data_en" / "data_agent_multi_step.json"
    (checkout / "data_all" / "data_zh").rename(tmp_path / "elsewhere")
    (checkout / "data_all" / "data_zh").symlink_to(tmp_path / "elsewhere")
    refused(checkout, cache, r"data_zh: is a symbolic link")
    with path.open("r+b") as file:
        file.truncate(65 << 20)
    refused(checkout, cache, "68,157,440 bytes, more than the 67,108,864")
    path.unlink()
    path.symlink_to("/dev/null")
    refused(checkout, cache, "is a symbolic link")
    path.unlink()
    os.mkfifo(path)
    refused(checkout, cache, "is not a plain file")


def test_bad_rows_and_missing_files_are_named(checkout, cache):
    path = checkout / "data_all" / "data_zh" / "data_special_irrelevant.json"
    path.write_text("{}\n")
    error = refused(checkout, cache, r'data_special_irrelevant.json:1: "id" is missing')
    assert error.where == f"{path}:1"
    (checkout / "data_all/data_en/possible_answer/data_normal_preference.json").unlink()
    refused(checkout, cache, r"possible_answer/data_normal_preference.json: cannot be")


def test_other_folders_are_no_checkout(tmp_path, cache):
    refused(tmp_path, cache, "has neither data_all nor data_en")
    refused(tmp_path / "nowhere", cache, "no such folder")
    (tmp_path / "archive.zip").write_bytes(b"PK")
    refused(tmp_path / "archive.zip", cache, "is a file; unpack it")


def test_the_command_says_what_the_import_says(checkout, cache, here, monkeypatch):
    monkeypatch.setenv("ACE_RAY_CACHE", str(cache))
    ended = here("data", "import", "acebench", checkout)
    (line,) = ended.stdout.splitlines()
    assert line.startswith("imported: 38 rows")
    (version,) = left_in(cache)
    assert version in line
    ended = here("data", "import", "acebench", checkout / "data_all")
    assert "official prompts and apps are not available" in ended.stdout.splitlines()[1]
    (second,) = set(left_in(cache)) - {version}
    assert not (imports_folder("acebench", cache) / second / "upstream").exists()
