"""Recorded answers: the SQLite file, and the JSON files that are imported and exported."""

from __future__ import annotations

import json
import os
import pickle
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.stabletoolbench.apis.answers import (
    MAX_DEPTH,
    Unusable,
    arguments_of,
    load,
)
from ace_ray.benchmarks.stabletoolbench.apis.cache import (
    FILE,
    AnswerCache,
    names_key,
    recorded_sha256,
)
from ace_ray.benchmarks.stabletoolbench.apis.json_files import export_answers, import_answers, main
from ace_ray.errors import RowError, UserError

API = names_key("Data", "clique", "player")
RECORDED = "Data/clique_for_Data/player.json"
ANSWER = '{"error":"","response":{"n":1}}'


def record(root: Path, content: Any, place: str = RECORDED) -> Path:
    path = root / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def upstream(*pairs: tuple[Any, Any]) -> dict[str, Any]:
    return {str(said): {"error": "", "response": response} for said, response in pairs}


def imported(root: Path, *pairs: tuple[Any, Any]) -> AnswerCache:
    """Make a cache of these upstream answers."""
    record(root / "json", upstream(*pairs))
    import_answers(root / "json", root / "cache")
    return AnswerCache(str(root / "cache"), "read")


def response(cache: AnswerCache, arguments: Any, simulator_id: str = "sim", api: str = API) -> Any:
    found = cache.call("get", api, json.dumps(arguments), simulator_id)
    return None if found is None else json.loads(found[0])["response"]


def test_an_answer_is_kept_and_read_again(tmp_path: Path) -> None:
    first = AnswerCache(str(tmp_path / "new"), "readwrite")
    assert first.call("get", API, '{"b": 1, "a": 2}', "sim") is None
    assert first.call("put", API, '{"b": 1, "a": 2}', "sim", ANSWER, 0) == [ANSWER, "sim", 0]
    second = ANSWER.replace("1", "2")
    assert first.call("put", API, '{"a": 2, "b": 1}', "sim", second, 0)[0] == ANSWER, "the first"
    other = AnswerCache(str(tmp_path / "new"), "readwrite")  # of another run, at the same time
    assert other.call("put", API, '{"c": 1}', "sim", second, 0)[0] == second
    first.close()
    again: AnswerCache = pickle.loads(pickle.dumps(AnswerCache(str(tmp_path / "new"), "read")))
    assert response(again, {"c": 1}) == {"n": 2}
    assert response(again, {"a": 2, "b": 1}) == {"n": 1}
    assert response(again, {"a": 2, "b": 1}, "another") is None
    before = (tmp_path / "new" / FILE).read_bytes()
    assert again.call("put", API, '{"a": 9}', "sim", ANSWER, 0) is None, "reading changes nothing"
    assert (tmp_path / "new" / FILE).read_bytes() == before


def test_imported_answers_come_first_and_have_a_hash(tmp_path: Path) -> None:
    cache = AnswerCache(str(tmp_path / "cache"), "readwrite")
    for maker in ("sim", ""):
        cache.call("put", API, '{"a": 1, "b": 2}', maker, ANSWER, 0)
    assert recorded_sha256(tmp_path / "cache", [API]) is None
    assert response(imported(tmp_path, ({"b": 2, "a": 1}, "theirs")), {"a": 1, "b": 2}) == "theirs"
    first = recorded_sha256(tmp_path / "cache", [API])
    cache.call("put", API, '{"a": 2}', "sim", ANSWER, 0)
    assert recorded_sha256(tmp_path / "cache", [API, "other"]) == first
    assert recorded_sha256(tmp_path / "cache", ["other"]) is None
    imported(tmp_path, ({"b": 2, "a": 1}, "changed"))
    assert recorded_sha256(tmp_path / "cache", [API]) != first


def test_a_full_disk_loses_the_record_and_not_the_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = AnswerCache(str(tmp_path), "readwrite")
    cache.open()
    with sqlite3.connect(tmp_path / FILE) as database:
        database.execute(
            "CREATE TRIGGER full BEFORE INSERT ON answers BEGIN "
            "SELECT RAISE(FAIL, 'database or disk is full'); END"
        )
    for _ in range(2):
        assert cache.call("put", API, "{}", "sim", ANSWER, 0) is None
    assert len(caplog.records) == 1
    assert "disk is full" in caplog.text


def test_an_unusable_cache_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such cache"):
        AnswerCache(str(tmp_path / "none"), "read").open()
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be used"):
        AnswerCache(str(tmp_path / "file"), "readwrite").open()
    (tmp_path / FILE).write_text("no database")
    for mode in ("read", "readwrite"):
        with pytest.raises(UserError, match=f"{FILE}: cannot be used as a cache"):
            AnswerCache(str(tmp_path), mode).open()
    with pytest.raises(RowError, match="cannot be used"):
        AnswerCache(str(tmp_path), "read").call("get", API, "{}", "")


def test_examples_are_imported_ones_and_bounded(tmp_path: Path) -> None:
    cache = imported(tmp_path, *(({"a": n}, "x" * 10) for n in range(9)))
    own = AnswerCache(str(tmp_path / "cache"), "readwrite")
    own.call("put", API, '{"own": 1}', "sim", ANSWER, 0)
    assert [key for key, _ in cache.call("examples", API)] == [f"{{'a': {n}}}" for n in range(5)]
    long = imported(tmp_path / "long", *(({"a": n}, "x" * 900) for n in range(9)))
    assert len(long.call("examples", API)) == 2


@pytest.mark.parametrize("place", [RECORDED, "Data/Clique/Player.json"])
def test_both_layouts_are_imported(tmp_path: Path, place: str) -> None:
    odd = {"{'a': 1}": {"result": 1}, "{'a': 2}": {"error": None, "response": [1]}}
    record(tmp_path / "json", odd, place)
    assert import_answers(tmp_path / "json", tmp_path) == 1, "an odd answer leaves the others"
    cache = AnswerCache(str(tmp_path), "read")
    assert (response(cache, {"a": 1}), response(cache, {"a": 2})) == (None, [1])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"{}": {"error": "", "resp', RECORDED),
        ("[]", RECORDED),
        ('{"{}": ' + "[" * 5000, RECORDED),
        ("link", "symbolic link"),
        ("pipe", "not a plain file"),
    ],
)
def test_a_file_that_cannot_be_imported_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserError, match="holds no"):
        import_answers(tmp_path, tmp_path / "cache")
    record(tmp_path / "json", upstream(({}, 1)), "Data/a/a.json")
    path = record(tmp_path / "json", text)
    if said != RECORDED:
        path.unlink()
        os.mkfifo(path) if text == "pipe" else path.symlink_to(tmp_path / "json/Data/a/a.json")
    with pytest.raises(UserError, match=said):
        import_answers(tmp_path / "json", tmp_path / "cache")
    cache = AnswerCache(str(tmp_path / "cache"), "read")
    assert response(cache, {}, api=names_key("Data", "a", "a")) is None, "all files or none"


def test_exported_answers_can_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(action: str, *folders: str) -> str:
        monkeypatch.setattr(sys, "argv", ["x", action, *(str(tmp_path / one) for one in folders)])
        main()
        return capsys.readouterr().out

    pairs = [({"b": 1, "a": None}, ["x", 1.5]), ([1], "list"), ({"u": "ü\ud800"}, "\ud800")]
    imported(tmp_path, *pairs)
    own = AnswerCache(str(tmp_path / "cache"), "readwrite")
    own.call("put", API, '{"b": 2, "a": 1}', "sim", ANSWER, 0)
    own.call("put", API, '{"a": 1, "b": 2}', "other", ANSWER.replace("1", "2"), 0)
    own.call("put", API, '{"c": 1}', "sim", ANSWER, 1)  # a failure is no answer
    for name in ("..", "a/b", "a\0b"):  # names that must not leave the folder
        own.call("put", names_key(name, name, name), "{}", "", ANSWER, 0)
    assert command("export", "cache", "deep/out") == "7 answers\n"
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]
    found = json.loads((tmp_path / "deep/out" / RECORDED).read_text())
    assert found["{'b': 2, 'a': 1}"] == {"error": "", "response": {"n": 1}}
    assert found["{'b': 1, 'a': None}"]["response"] == ["x", 1.5]
    assert not any("'c'" in key for key in found)
    command("import", "deep/out", "again")
    again = AnswerCache(str(tmp_path / "again"), "read")
    assert [response(again, said) for said, _ in pairs] == [said for _, said in pairs]
    with pytest.raises(UserError, match="not an empty folder"):
        export_answers(tmp_path / "cache", tmp_path / "deep")


# Keys that upstream's server made of these texts (server/main.py at aa4ed9f).
UPSTREAMS_KEYS = {
    '{"id": null, "x": "5", "y": 5, "z": true}': "{'id': None, 'x': '5', 'y': 5, 'z': True}",
    '{"y": "5", "z": true, "x": "5", "id": null}': "{'id': None, 'x': '5', 'y': '5', 'z': True}",
    '{"a": NaN, "b": [Infinity, -Infinity]}': "{'a': nan, 'b': [inf, -inf]}",
    '{"a": 1e400, "c": 1.50, "d": -0.0}': "{'a': inf, 'c': 1.5, 'd': -0.0}",
    '[1, {"a": "x"}]': "[1, {'a': 'x'}]",
    "null": "None",
    '"a text"': "a text",
    "": "{}",
}


def test_a_call_has_upstreams_key(tmp_path: Path) -> None:
    keys = {key: number for number, key in enumerate(UPSTREAMS_KEYS.values())}
    theirs = imported(tmp_path, *keys.items())
    ours = AnswerCache(str(tmp_path / "ours"), "readwrite")
    for said, key in UPSTREAMS_KEYS.items():
        given = arguments_of(said)
        assert response(theirs, given) == keys[key]
        assert response(ours, given) is None, "no other call has the answer"
        ours.call("put", API, json.dumps(given), "sim", ANSWER, 0)
        assert response(ours, given) == {"n": 1}
    for other in ({"a": "inf"}, "None", "{}", {"id": None, "x": "5", "y": 5.0, "z": True}):
        assert response(ours, other) is None


def test_arguments_are_bounded() -> None:
    assert arguments_of("") == arguments_of({}) == {}
    assert list(arguments_of('{"b": 1, "a": 2}').items()) == [("b", 1), ("a", 2)]
    texts = [" ", "{'a': 1}", '{"a": ' + "[" * 70 + "]" * 70 + "}", "x" * 40_000]
    for bad in (*texts, {"a": object()}, {"a": "x" * 40_000}):
        with pytest.raises(Unusable):
            arguments_of(bad)
    assert load("[" * MAX_DEPTH + "]" * MAX_DEPTH, 1000)
