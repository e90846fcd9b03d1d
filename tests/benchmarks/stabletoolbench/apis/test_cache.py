"""Recorded answers: upstream's files, our own, and files that are not as they should be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.stabletoolbench.apis import cache_file
from ace_ray.benchmarks.stabletoolbench.apis import lock as lock_module
from ace_ray.benchmarks.stabletoolbench.apis.cache import CacheFolder, CacheService, check_folder
from ace_ray.benchmarks.stabletoolbench.apis.cache_file import own_file, recorded_file
from ace_ray.benchmarks.stabletoolbench.apis.values import (
    MAX_DEPTH,
    Unusable,
    arguments_of,
    canonical_of_upstream,
    load,
    nesting,
    upstream_key,
)
from ace_ray.errors import RowError, UserError

NAMES = ("Data", "clique", "player")
RECORDED = "Data/clique_for_Data/player.json"
HEAD = '{"format": 2, "category": "Data", "tool": "clique", "api": "player"}\n'
ANSWER = json.dumps({"error": "", "response": {"n": 1}, "origin": "simulator", "by": ""})


def record(root: Path, content: Any, place: str = RECORDED) -> Path:
    path = root / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def upstream(*pairs: tuple[dict[str, Any], Any]) -> dict[str, Any]:
    return {str(said): {"error": "", "response": response} for said, response in pairs}


def response(folder: CacheFolder, arguments: Any, names: tuple[str, str, str] = NAMES) -> Any:
    found = folder.get(*names, json.dumps(arguments))
    return None if found is None else json.loads(found)["response"]


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        ({}, {}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": None, "b": True}, {"b": True, "a": None}),
        ({"a": "it's"}, {"a": "it's"}),
        ({"q": "\"both\" and 'these'", "n": [1, {"x": -2.5}]},) * 2,
        ({"b": "line\nbreak\\", "a": "ü 中"}, {"a": "ü 中", "b": "line\nbreak\\"}),
    ],
)
def test_upstreams_keys_are_found_by_value(tmp_path: Path, stored: Any, asked: Any) -> None:
    record(tmp_path, upstream((stored, "yes")))
    assert response(CacheFolder(str(tmp_path), "read"), asked) == "yes"


def test_keys_of_the_same_characters_are_told_apart(tmp_path: Path) -> None:
    record(tmp_path, upstream(*(({"x": f"{n:03}"}, n) for n in range(1000))))
    folder = CacheFolder(str(tmp_path), "read")
    assert [response(folder, {"x": f"{n:03}"}) for n in range(1000)] == list(range(1000))
    assert response(folder, {"x": "1000"}) is None
    (tmp_path / RECORDED).write_text(json.dumps({"{'b': 1, 'a': 2}": {"error": "", "response": 0}}))
    again = CacheFolder(str(tmp_path), "read")
    assert response(again, {"a": 1, "b": 2}) is None
    assert response(again, {"a": 2, "b": 1}) == 0


def test_arguments_of_another_type_are_another_call(tmp_path: Path) -> None:
    record(tmp_path, upstream(({"id": 5}, "number"), ({"id": "5"}, "text")))
    folder = CacheFolder(str(tmp_path), "read")
    assert response(folder, {"id": 5}) == "number"
    assert response(folder, {"id": "5"}) == "text"
    assert response(folder, {"id": 5.0}) is None
    assert response(folder, {"id": True}) is None


def test_the_exact_upstream_key_comes_before_one_of_equal_value(tmp_path: Path) -> None:
    record(tmp_path, upstream(({"a": 1, "b": 2}, "ab"), ({"b": 2, "a": 1}, "ba")))
    folder = CacheFolder(str(tmp_path), "read")
    assert response(folder, {"b": 2, "a": 1}) == "ba"
    assert response(folder, {"a": 1, "b": 2}) == "ab"


def test_an_answer_is_kept_and_read_again(tmp_path: Path) -> None:
    first = CacheFolder(str(tmp_path / "new"), "readwrite")
    assert first.get(*NAMES, '{"b": 1, "a": 2}') is None
    assert first.put(*NAMES, '{"b": 1, "a": 2}', ANSWER) == ANSWER
    assert response(first, {"a": 2, "b": 1}) == {"n": 1}
    assert first.stats() == {
        "hits": 1,
        "misses": 1,
        "corrupt": 0,
        "recorded": 1,
        "not_recorded": 0,
        "files_read": 1,
        "problems": [],
    }
    first.close()
    again = CacheFolder(str(tmp_path / "new"), "read")
    assert json.loads(again.get(*NAMES, '{"a": 2, "b": 1}') or "") == json.loads(ANSWER)


def test_an_answer_of_another_shape_is_not_written(tmp_path: Path) -> None:
    folder = CacheFolder(str(tmp_path), "readwrite")
    with pytest.raises(ValueError, match="another shape"):
        folder.put(*NAMES, "{}", '{"error": "", "response": 1}')
    assert not (tmp_path / own_file(NAMES)).exists()
    folder.close()


def test_of_two_answers_the_first_stays(tmp_path: Path) -> None:
    folder = CacheFolder(str(tmp_path), "readwrite")
    second = ANSWER.replace('"n": 1', '"n": 2')
    assert folder.put(*NAMES, '{"a": 1, "b": 2}', ANSWER) == ANSWER
    assert folder.put(*NAMES, '{"b": 2, "a": 1}', second) == ANSWER
    folder.close()


def test_upstreams_files_are_never_written(tmp_path: Path) -> None:
    path = record(tmp_path, upstream(({"a": 1}, "theirs")))
    before = path.read_bytes()
    folder = CacheFolder(str(tmp_path), "readwrite")
    folder.put(*NAMES, '{"a": 2}', ANSWER)
    assert (response(folder, {"a": 1}), response(folder, {"a": 2})) == ("theirs", {"n": 1})
    assert path.read_bytes() == before
    folder.close()
    shared = CacheFolder(str(tmp_path), "read", recorded=str(tmp_path))
    assert response(shared, {"a": 2}) == {"n": 1}


def test_reading_changes_nothing(tmp_path: Path) -> None:
    record(tmp_path, upstream(({"a": 1}, "x")))
    before = sorted(tmp_path.rglob("*"))
    folder = CacheFolder(str(tmp_path), "read")
    why = json.loads(folder.put(*NAMES, '{"a": 9}', ANSWER))
    assert why == {"unrecorded": "the cache is only read"}
    assert response(folder, {"a": 9}) is None
    assert folder.stats()["not_recorded"] == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "content",
    [
        '{"{}": {"error": "", "resp',
        "",
        "[]",
        "null",
        '"text"',
        '{"{}": {"error": "", "response": 1}, "{}": {"error": "", "response": 2}}',
        '{"{}": {"error": "", "response": ' + "[" * 5000 + "]" * 5000 + "}}",
        '{"{}": {"error": "", "response": ' + "[" * 100_000,
        '{"{}": {"error": "", "response": ' + "9" * 5000 + "}}",
    ],
    ids=["cut", "empty", "list", "null", "text", "twice", "deep", "bomb", "digits"],
)
def test_a_corrupt_file_is_no_miss(tmp_path: Path, content: str) -> None:
    record(tmp_path, content)
    folder = CacheFolder(str(tmp_path), "readwrite")
    found = json.loads(folder.get(*NAMES, "{}") or "{}")
    assert found["corrupt"].startswith(RECORDED)
    assert folder.check([NAMES, ("Data", "clique", "other")]) == [found["corrupt"]]
    folder.put(*NAMES, "{}", ANSWER)
    stats = folder.stats()
    assert (stats["corrupt"], stats["misses"], stats["not_recorded"]) == (1, 0, 1)
    assert stats["problems"] == [found["corrupt"]]
    assert not (tmp_path / own_file(NAMES)).exists()
    folder.close()


def test_bytes_that_are_no_text_are_corrupt(tmp_path: Path) -> None:
    record(tmp_path, "x").write_bytes(b'{"{}": "\xff"}')
    assert CacheFolder(str(tmp_path), "read").check([NAMES])


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    path = record(tmp_path, "")
    with path.open("wb") as file:
        file.truncate(50 << 20)
    (problem,) = CacheFolder(str(tmp_path), "read").check([NAMES])
    assert "52,428,800 bytes" in problem


def test_one_odd_answer_leaves_the_others(tmp_path: Path) -> None:
    record(tmp_path, {"{'a': 1}": {"result": 1}, "{'a': 2}": {"error": None, "response": [1]}})
    folder = CacheFolder(str(tmp_path), "read")
    assert "corrupt" in json.loads(folder.get(*NAMES, '{"a": 1}') or "")
    assert json.loads(folder.get(*NAMES, '{"a": 2}') or "") == {
        "error": "",
        "response": [1],
        "origin": "recorded",
        "by": "",
    }


def test_what_json_does_not_know_becomes_text(tmp_path: Path) -> None:
    content = '{"{}": {"error": "", "response": [NaN, -Infinity, 1e999, 1.5, "\\ud800"]}}'
    record(tmp_path, content)
    found = CacheFolder(str(tmp_path), "read").get(*NAMES, "{}")
    assert json.loads(found or "", parse_constant=pytest.fail)["response"] == [
        "NaN",
        "-Infinity",
        "1e999",
        1.5,
        "\ud800",
    ]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("cut {", "no file of this API's answers"),
        (HEAD.replace("2", "3"), "no file of this API's answers"),
        (HEAD.replace("player", "other"), "no file of this API's answers"),
        (f"{HEAD}{{}}\t{ANSWER[:-9]}\n{{}}\t{ANSWER}\n", "line 2 is no answer"),
        (f"{HEAD}{{}}\t{ANSWER}\n\n", "line 3 is no answer"),
        (f"{HEAD}{{}} {ANSWER}\n", "line 2 is no answer"),
        (f"{HEAD}{{}}\t[]\n", "line 2 is no answer"),
        (f"{HEAD}\t{ANSWER}\n", "line 2 is no answer"),
        (f'{HEAD}{{}}\t{{"error": "", "response": 1}}\n', "line 2 is no answer"),
        (f"{HEAD}{{}}\t{ANSWER}\n".encode() + b"{\xff}\t{}\n", "line 3 is no answer"),
    ],
)
def test_own_files_are_checked_too(tmp_path: Path, content: str | bytes, what: str) -> None:
    path = record(tmp_path, "", own_file(NAMES))
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    before = path.read_bytes()
    folder = CacheFolder(str(tmp_path), "readwrite")
    (problem,) = folder.check([NAMES])
    assert problem.startswith(f"{own_file(NAMES)}: ")
    assert what in problem
    assert "unrecorded" in folder.put(*NAMES, "{}", ANSWER)
    assert path.read_bytes() == before
    folder.close()


def test_an_answer_is_appended_to_those_that_are_there(tmp_path: Path) -> None:
    path = tmp_path / own_file(NAMES)
    folder = CacheFolder(str(tmp_path), "readwrite")
    found = [b""]
    for number in range(3):
        folder.put(*NAMES, json.dumps({"a": number}), ANSWER)
        found.append(path.read_bytes())
        assert found[-1].startswith(found[-2])
    assert found[1] == f'{HEAD}{{"a":0}}\t{ANSWER}\n'.encode()
    assert found[3].count(b"\n") == 4
    folder.close()


def test_a_line_that_was_cut_off_is_no_answer(tmp_path: Path) -> None:
    """Wherever a writer dies: readers see whole answers, and the next writer goes on from there."""
    folder = CacheFolder(str(tmp_path), "readwrite")
    for number in range(2):
        folder.put(*NAMES, json.dumps({"a": number}), ANSWER)
    folder.close()
    path = tmp_path / own_file(NAMES)
    whole = path.read_bytes()
    for end in range(len(whole) + 1):
        path.write_bytes(whole[:end])
        reader = CacheFolder(str(tmp_path), "read")
        answers = whole[:end].count(b"\n") - 1
        seen = [response(reader, {"a": number}) for number in range(2)]
        assert seen == [{"n": 1} if number < answers else None for number in range(2)]
        assert reader.check([NAMES]) == []
        if end % 20:
            continue
        writer = CacheFolder(str(tmp_path), "readwrite")
        for number in range(2):
            writer.put(*NAMES, json.dumps({"a": number}), ANSWER)
        writer.close()
        assert path.read_bytes() == whole


def test_a_file_that_somebody_else_has_written_is_left_alone(tmp_path: Path) -> None:
    folder = CacheFolder(str(tmp_path), "readwrite")
    folder.put(*NAMES, '{"a": 1}', ANSWER)
    path = tmp_path / own_file(NAMES)
    path.write_bytes(path.read_bytes() + b"{}\t")
    before = path.read_bytes()
    why = json.loads(folder.put(*NAMES, '{"a": 2}', ANSWER))["unrecorded"]
    assert "written by another process" in why
    assert path.read_bytes() == before
    folder.close()


def test_an_answer_nested_too_deep_to_be_read_again_is_not_recorded(tmp_path: Path) -> None:
    deep, most = ("[" * depth + "]" * depth for depth in (MAX_DEPTH, MAX_DEPTH - 1))
    folder = CacheFolder(str(tmp_path), "readwrite")
    texts = [ANSWER.replace('{"n": 1}', value) for value in (deep, most)]
    assert "nested" in json.loads(folder.put(*NAMES, '{"a": 1}', texts[0]))["unrecorded"]
    assert folder.put(*NAMES, '{"a": 2}', texts[1]) == texts[1]
    folder.close()
    again = CacheFolder(str(tmp_path), "read")
    assert again.check([NAMES]) == []
    assert response(again, {"a": 2}) == json.loads(most)


def test_what_a_run_has_recorded_does_not_hide_upstreams_answers(tmp_path: Path) -> None:
    """Only those are in a run's identity."""
    folder = CacheFolder(str(tmp_path), "readwrite")
    for simulator_id in ("sim", ""):
        by = json.dumps({**json.loads(ANSWER), "by": simulator_id})
        assert folder.put(*NAMES, '{"a": 1, "b": 2}', by) == by
    folder.close()
    record(tmp_path, upstream(({"b": 2, "a": 1}, "theirs")))
    for mode in ("read", "readwrite"):
        again = CacheFolder(str(tmp_path), mode)
        found = again.get(*NAMES, '{"a": 1, "b": 2}', "sim")
        assert json.loads(found or "{}")["response"] == "theirs"
        again.close()
    (tmp_path / RECORDED).unlink()
    alone = CacheFolder(str(tmp_path), "read")
    for simulator_id in ("sim", ""):
        assert (
            json.loads(alone.get(*NAMES, '{"a": 1, "b": 2}', simulator_id) or "{}")["by"]
            == simulator_id
        )


HOSTILE = ["..", ".", "", "a/b", "../../etc", "a\\b", "a\0b", "/etc", "a\n", "ä" * 200, "~", ".git"]


@pytest.mark.parametrize("name", [*HOSTILE, "x" * 5000, "\ud800", "con ", "-rf"])
def test_no_name_leaves_the_folder(tmp_path: Path, name: str) -> None:
    root = tmp_path / "cache"
    folder = CacheFolder(str(root), "readwrite")
    for names in [(name, "t", "a"), ("c", name, "a"), ("c", "t", name), (name, name, name)]:
        assert recorded_file(names) is None or name == "con "
        assert folder.get(*names, "{}") is None
        folder.put(*names, "{}", ANSWER)
        assert response(folder, {}, names) == {"n": 1}
    folder.close()
    again = CacheFolder(str(root), "read")
    assert response(again, {}, (name, name, name)) == {"n": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache"]
    assert [path.name for path in root.iterdir()] == ["ace_ray"]


def test_names_of_upstream_have_their_files() -> None:
    percent = "Artificial%20Intelligence%2FMachine%20Learning"
    assert recorded_file((percent, "get_4chan_feed", "is_from")) == (
        f"{percent}/get_4chan_feed_for_{percent}/is_from.json"
    )
    assert recorded_file(("Data", "天气", "a^b")) == "Data/天气_for_Data/a^b.json"
    assert recorded_file(("ace_ray", "t", "a")) is None


@pytest.mark.parametrize("link", ["Data", "Data/clique_for_Data", RECORDED])
def test_links_are_not_followed(tmp_path: Path, link: str) -> None:
    outside, root = tmp_path / "outside", tmp_path / "cache"
    record(outside, upstream(({}, "secret")))
    (root / link).parent.mkdir(parents=True)
    (root / link).symlink_to(outside / link)
    found = CacheFolder(str(root), "read").get(*NAMES, "{}")
    assert "symbolic link" in json.loads(found or "")["corrupt"]


@pytest.mark.parametrize("link", ["ace_ray", "ace_ray/answers", "ace_ray/answers/Data"])
def test_nothing_is_written_through_links(tmp_path: Path, link: str) -> None:
    outside, root = tmp_path / "outside", tmp_path / "cache"
    outside.mkdir()
    (outside / "kept").touch()
    (root / link).parent.mkdir(parents=True)
    (root / link).symlink_to(outside)
    if link == "ace_ray":
        with pytest.raises(UserError, match="symbolic link"):
            CacheFolder(str(root), "readwrite")
    else:
        folder = CacheFolder(str(root), "readwrite")
        folder.put(*NAMES, "{}", ANSWER)
        assert folder.stats()["recorded"] == 0
        folder.close()
    assert [path.name for path in outside.iterdir()] == ["kept"]


@pytest.mark.parametrize("name", ["lock.json", "lock.guard"])
def test_a_lock_that_is_a_link_is_not_written(tmp_path: Path, name: str) -> None:
    (tmp_path / "ace_ray").mkdir()
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (tmp_path / "ace_ray" / name).symlink_to(victim)
    with pytest.raises(UserError):
        CacheFolder(str(tmp_path), "readwrite")
    assert victim.read_text() == "kept"


def test_a_pipe_in_place_of_a_file_does_not_block(tmp_path: Path) -> None:
    path = tmp_path / RECORDED
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    assert CacheFolder(str(tmp_path), "read").check([NAMES]) == [f"{RECORDED}: is not a plain file"]


def test_a_write_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = CacheFolder(str(tmp_path), "readwrite")
    folder.put(*NAMES, '{"a": 1}', ANSWER)
    before = (tmp_path / own_file(NAMES)).read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert "No space left" in json.loads(folder.put(*NAMES, '{"a": 2}', ANSWER))["unrecorded"]
    monkeypatch.undo()
    assert (tmp_path / own_file(NAMES)).read_bytes() == before
    assert folder.stats()["not_recorded"] == 1
    assert "No space left" in folder.stats()["problems"][0]
    # It was not recorded, so it is a miss: memory and disk say the same.
    assert response(folder, {"a": 2}) is None
    assert folder.put(*NAMES, '{"a": 3}', ANSWER) == ANSWER
    folder.close()
    again = CacheFolder(str(tmp_path), "read")
    assert [response(again, {"a": n}) for n in (1, 2, 3)] == [{"n": 1}, None, {"n": 1}]


def test_a_file_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_file, "MAX_FILE_BYTES", 2000)
    folder = CacheFolder(str(tmp_path), "readwrite")
    for number in range(40):
        folder.put(*NAMES, json.dumps({"a": number}), ANSWER)
    stats = folder.stats()
    assert 0 < stats["recorded"] < 40
    assert stats["recorded"] + stats["not_recorded"] == 40
    huge = json.dumps({"error": "", "response": "x" * (2 << 20), "origin": "real", "by": ""})
    assert "characters" in folder.put("Data", "clique", "big", "{}", huge)[:80]
    assert not (tmp_path / own_file(("Data", "clique", "big"))).exists()
    folder.close()
    assert response(CacheFolder(str(tmp_path), "read"), {"a": 0}) == {"n": 1}


def test_memory_is_bounded(tmp_path: Path) -> None:
    names = [("Data", "clique", f"api_{number}") for number in range(20)]
    for name in names:
        content = upstream(({"a": 1}, "x" * 5000))
        record(tmp_path, content, f"Data/clique_for_Data/{name[2]}.json")
    folder = CacheFolder(str(tmp_path), "readwrite", memory_bytes=30_000)
    for name in names * 2:
        assert response(folder, {"a": 1}, name) == "x" * 5000
        folder.put(*name, '{"a": 2}', ANSWER)
        assert response(folder, {"a": 2}, name) == {"n": 1}
    assert folder.stats()["files_read"] == 40
    assert folder._held_bytes <= 30_000
    assert folder._held_bytes == sum(file.size_bytes for file in folder._files.values())
    folder.close()


def test_examples_are_upstreams_and_bounded(tmp_path: Path) -> None:
    record(tmp_path, upstream(*(({"a": n}, "x" * 10) for n in range(9)), ({"b": 1}, "y")))
    folder = CacheFolder(str(tmp_path), "readwrite")
    folder.put(*NAMES, '{"own": 1}', ANSWER)
    found = folder.examples(*NAMES)
    assert [key for key, _ in found] == [f"{{'a': {n}}}" for n in range(5)]
    record(tmp_path, upstream(*(({"a": n}, "x" * 900) for n in range(9))))
    assert len(CacheFolder(str(tmp_path), "read").examples(*NAMES)) == 2
    record(tmp_path, upstream(({"a": 1}, "x" * 9000), ({"a": 2}, "")))
    assert len(CacheFolder(str(tmp_path), "read").examples(*NAMES)) == 1
    folder.close()


def test_a_missing_folder_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        CacheFolder(str(tmp_path / "none"), "read")
    with pytest.raises(UserError, match="no such folder"):
        CacheFolder(str(tmp_path), "read", recorded=str(tmp_path / "none"))
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be made"):
        CacheFolder(str(tmp_path / "file"), "readwrite")


class TestLock:
    """Two runs, one folder."""

    def test_a_second_writer_is_refused_in_one_line(self, tmp_path: Path) -> None:
        first = CacheFolder(str(tmp_path), "readwrite", holder="run-a")
        with pytest.raises(UserError, match="being written by process") as refused:
            CacheFolder(str(tmp_path), "readwrite", holder="run-b")
        assert str(os.getpid()) in str(refused.value)
        assert "\n" not in str(refused.value)
        CacheFolder(str(tmp_path), "read")
        first.close()
        CacheFolder(str(tmp_path), "readwrite").close()
        assert not (tmp_path / "ace_ray" / "lock.json").exists()

    def test_without_a_holder_nobody_is_the_same(self, tmp_path: Path) -> None:
        first = CacheFolder(str(tmp_path), "readwrite")
        with pytest.raises(UserError):
            CacheFolder(str(tmp_path), "readwrite")
        first.close()

    def test_an_owner_started_again_takes_its_lock_and_the_old_one_stops_writing(
        self, tmp_path: Path
    ) -> None:
        old = CacheFolder(str(tmp_path), "readwrite", holder="run-a")
        new = CacheFolder(str(tmp_path), "readwrite", holder="run-a")
        old.put(*NAMES, '{"a": 1}', ANSWER)
        assert old.stats()["recorded"] == 0
        assert "taken the cache over" in old.stats()["problems"][0]
        new.put(*NAMES, '{"a": 1}', ANSWER)
        assert new.stats()["recorded"] == 1
        old.close()  # not its own any more: stays
        assert (tmp_path / "ace_ray" / "lock.json").exists()
        new.close()

    def test_a_dead_process_holds_nothing(self, tmp_path: Path) -> None:
        script = (
            "import os, sys\n"
            "from ace_ray.benchmarks.stabletoolbench.apis.cache import CacheFolder\n"
            f"folder = CacheFolder({str(tmp_path)!r}, 'readwrite')\n"
            "os._exit(0)"
        )
        subprocess.run([sys.executable, "-c", script], check=True)
        assert (tmp_path / "ace_ray" / "lock.json").exists()
        CacheFolder(str(tmp_path), "readwrite").close()

    @pytest.mark.parametrize("content", ["", "{", "[" * 5000, '{"pid": 1}', '{"pid": -1}', "[1]"])
    def test_a_lock_of_another_machine_expires(self, tmp_path: Path, content: str) -> None:
        lock = tmp_path / "ace_ray" / "lock.json"
        lock.parent.mkdir()
        lock.write_text(content)
        with pytest.raises(UserError):
            CacheFolder(str(tmp_path), "readwrite")
        old = lock.stat().st_mtime - lock_module.TTL_S - 5
        os.utime(lock, (old, old))
        CacheFolder(str(tmp_path), "readwrite").close()

    def test_the_lock_is_renewed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lock_module, "BEAT_S", 0.01)
        folder = CacheFolder(str(tmp_path), "readwrite")
        lock = tmp_path / "ace_ray" / "lock.json"
        os.utime(lock, (0, 0))
        for _ in range(500):
            if lock.stat().st_mtime > 0:
                break
            time.sleep(0.01)
        assert lock.stat().st_mtime > 0
        folder.close()


class TestService:
    """The owner behind a door."""

    def test_it_opens_with_the_first_call(self, tmp_path: Path) -> None:
        made = CacheService(str(tmp_path / "new"), "readwrite")
        assert not (tmp_path / "new").exists()
        assert made.call("get", *NAMES, "{}") is None
        assert made.call("put", *NAMES, "{}", ANSWER) == ANSWER
        assert made.call("stats")["recorded"] == 1
        assert made.call("check", [NAMES]) == made.call("examples", *NAMES) == []
        with pytest.raises(KeyError):
            made.call("close")
        second = CacheService(str(tmp_path / "new"), "readwrite")
        with pytest.raises(RowError, match="being written by process"):
            second.call("stats")
        made.close()
        assert second.call("get", *NAMES, "{}") == ANSWER.replace(": ", ":").replace(", ", ",")
        second.close()

    def test_what_is_wrong_is_said_before_the_run(self, tmp_path: Path) -> None:
        check_folder(str(tmp_path), "readwrite", [NAMES], where="cache")
        CacheFolder(str(tmp_path), "readwrite").close()
        record(tmp_path, "{")
        record(tmp_path, "{", "Data/clique_for_Data/other.json")
        names = [NAMES, ("Data", "clique", "other"), ("Data", "clique", "none")]
        with pytest.raises(UserError, match=rf"^cache .*: {RECORDED}: .* \(and 1 more\); restore"):
            check_folder(str(tmp_path), "read", names, where="cache")
        writer = CacheFolder(str(tmp_path), "readwrite")
        with pytest.raises(UserError, match="being written"):
            check_folder(str(tmp_path), "readwrite", [], where="cache")
        writer.close()


@pytest.mark.parametrize(
    ("text", "depth"),
    [
        ("[" * 64 + "]" * 64, 0),
        ("[" * 65 + "]" * 65, 65),
        ("[{}]" * 5000, 2),
        ('{"a": "' + "[" * 500 + '"}', 1),
        ('"\\"' + "[" * 100 + '"', 0),
        ('"' + "[" * 100, 0),
        ("[" * 100, 100),
        ("]" * 100 + "[" * 100, 100),
        (('{"a":[' * 33 + "]}" * 33 + ",") * 50, 65),
    ],
)
def test_nesting_is_never_taken_for_less(text: str, depth: int) -> None:
    assert nesting(text) == depth


def test_an_owner_that_opens_keeps_others_out_before_it_is_asked_anything(tmp_path: Path) -> None:
    first, second = (CacheService(str(tmp_path), "readwrite", holder=name) for name in "ab")
    first.open()
    with pytest.raises(UserError, match="being written by process"):
        second.open()
    first.close()
    second.open()
    assert second.call("get", *NAMES, "{}") is None
    second.close()


def test_arguments_are_bounded() -> None:
    assert arguments_of("") == arguments_of({}) == {}
    assert list(arguments_of('{"b": 1, "a": 2}').items()) == [("b", 1), ("a", 2)]
    for bad in [" ", "{", "{'a': 1}", '{"a": ' + "[" * 70 + "]" * 70 + "}", "x" * 40_000]:
        with pytest.raises(Unusable):
            arguments_of(bad)
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    for value in [{"a": deep}, {"a": object()}, {"a": "x" * 40_000}]:
        with pytest.raises(Unusable):
            arguments_of(value)
    assert load("[" * MAX_DEPTH + "]" * MAX_DEPTH, 1000)


@pytest.mark.parametrize(
    "key", ["x", "{1: 2}", "{'a': b}", "{'a': {1: 2, 'b': 3}}", "[1]", "{", ""]
)
def test_keys_that_are_no_arguments_are_left_alone(key: str) -> None:
    assert canonical_of_upstream(key) is None


# The keys are those that upstream's server made of these texts (server/main.py at aa4ed9f).
@pytest.mark.parametrize(
    ("said", "key"),
    [
        ('{"id": null, "x": "5", "y": 5, "z": true}', "{'id': None, 'x': '5', 'y': 5, 'z': True}"),
        ('{"a": NaN, "b": [Infinity, -Infinity]}', "{'a': nan, 'b': [inf, -inf]}"),
        (
            '{"a": 1e400, "b": -1E400, "c": 1.50, "d": -0.0}',
            "{'a': inf, 'b': -inf, 'c': 1.5, 'd': -0.0}",
        ),
        ('[1, {"a": "x"}]', "[1, {'a': 'x'}]"),
        ("null", "None"),
        ('"a text"', "a text"),
        ("5", "5"),
        ("", "{}"),
    ],
)
def test_a_call_has_upstreams_key(tmp_path: Path, said: str, key: str) -> None:
    assert upstream_key(arguments_of(said)) == key
    record(tmp_path / "theirs", {key: {"error": "", "response": "theirs"}})
    theirs = CacheFolder(str(tmp_path / "theirs"), "read")
    assert response(theirs, arguments_of(said)) == "theirs"

    ours = CacheFolder(str(tmp_path / "ours"), "readwrite")
    ours.put(*NAMES, json.dumps(arguments_of(said)), ANSWER)
    ours.close()
    again = CacheFolder(str(tmp_path / "ours"), "read")
    assert response(again, arguments_of(said)) == {"n": 1}
    others = [{}, {"a": "NaN"}, {"a": "inf"}, [], [1], "None", "5", "{}"]
    assert all(response(again, other) is None for other in others if other != arguments_of(said)), (
        "no other call has the answer"
    )
