"""Recorded answers: the SQLite file, and the JSON files that are imported and exported."""

from __future__ import annotations

import json
import os
import pickle
import sqlite3
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
from ace_ray.benchmarks.stabletoolbench.apis.json_files import export_answers, import_answers
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
    """A cache of these upstream answers."""
    record(root / "json", upstream(*pairs))
    import_answers(root / "json", root / "cache")
    return AnswerCache(str(root / "cache"), "read")


def response(cache: AnswerCache, arguments: Any, simulator_id: str = "sim", api: str = API) -> Any:
    found = cache.call("get", api, json.dumps(arguments), simulator_id)
    return None if found is None else json.loads(found[0])["response"]


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        ({}, {}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": None, "b": True}, {"b": True, "a": None}),
        ({"q": "\"both\" and 'these'", "n": [1, {"x": -2.5}]},) * 2,
        ({"b": "line\nbreak\\", "a": "ü 中"}, {"a": "ü 中", "b": "line\nbreak\\"}),
    ],
)
def test_imported_keys_are_found_by_value(tmp_path: Path, stored: Any, asked: Any) -> None:
    assert response(imported(tmp_path, (stored, "yes")), asked) == "yes"


def test_arguments_of_another_type_are_another_call(tmp_path: Path) -> None:
    cache = imported(tmp_path, ({"id": 5}, "number"), ({"id": "5"}, "text"))
    assert response(cache, {"id": 5}) == "number"
    assert response(cache, {"id": "5"}) == "text"
    assert response(cache, {"id": 5.0}) is None
    assert response(cache, {"id": True}) is None


def test_an_answer_is_kept_and_read_again(tmp_path: Path) -> None:
    first = AnswerCache(str(tmp_path / "new"), "readwrite")
    assert first.call("get", API, '{"b": 1, "a": 2}', "sim") is None
    assert first.call("put", API, '{"b": 1, "a": 2}', "sim", ANSWER, 0) == [ANSWER, "sim", 0]
    second = ANSWER.replace("1", "2")
    assert first.call("put", API, '{"a": 2, "b": 1}', "sim", second, 0)[0] == ANSWER, "the first"
    first.close()
    again: AnswerCache = pickle.loads(pickle.dumps(AnswerCache(str(tmp_path / "new"), "read")))
    assert response(again, {"a": 2, "b": 1}) == {"n": 1}
    assert response(again, {"a": 2, "b": 1}, "another") is None


def test_two_runs_write_one_file(tmp_path: Path) -> None:
    runs = [AnswerCache(str(tmp_path), "readwrite") for _ in range(2)]
    for number in range(20):
        runs[number % 2].call("put", API, json.dumps({"a": number}), "sim", ANSWER, 0)
    assert all(response(run, {"a": number}) for run in runs for number in range(20))


def test_what_a_run_has_recorded_does_not_hide_imported_answers(tmp_path: Path) -> None:
    """Only those are in a run's identity."""
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


def test_a_cache_that_cannot_be_is_the_users_mistake(tmp_path: Path) -> None:
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


def test_reading_changes_nothing(tmp_path: Path) -> None:
    cache = imported(tmp_path, ({"a": 1}, "x"))
    before = (tmp_path / "cache" / FILE).read_bytes()
    assert response(cache, {"a": 1}) == "x"
    assert cache.call("put", API, '{"a": 9}', "sim", ANSWER, 0) is None
    assert (tmp_path / "cache" / FILE).read_bytes() == before


def test_examples_are_imported_ones_and_bounded(tmp_path: Path) -> None:
    cache = imported(tmp_path, *(({"a": n}, "x" * 10) for n in range(9)))
    own = AnswerCache(str(tmp_path / "cache"), "readwrite")
    own.call("put", API, '{"own": 1}', "sim", ANSWER, 0)
    assert [key for key, _ in cache.call("examples", API)] == [f"{{'a': {n}}}" for n in range(5)]
    long = imported(tmp_path / "long", *(({"a": n}, "x" * 900) for n in range(9)))
    assert len(long.call("examples", API)) == 2


class TestImport:
    """JSON files of others."""

    @pytest.mark.parametrize(
        "place", ["Data/clique_for_Data/player.json", "Data/Clique/Player.json"]
    )
    def test_both_layouts_under_published_names(self, tmp_path: Path, place: str) -> None:
        record(tmp_path / "json", upstream(({}, "x")), place)
        assert import_answers(tmp_path / "json", tmp_path) == 1
        assert response(AnswerCache(str(tmp_path), "read"), {}) == "x"

    @pytest.mark.parametrize(
        "content",
        ['{"{}": {"error": "", "resp', "", "[]", '{"{}": ' + "[" * 5000 + "]" * 5000 + "}"],
        ids=["cut", "empty", "list", "deep"],
    )
    def test_a_broken_file_is_named_and_nothing_imported(
        self, tmp_path: Path, content: str
    ) -> None:
        record(tmp_path / "json", upstream(({}, 1)), "Data/a/a.json")
        record(tmp_path / "json", content)
        with pytest.raises(UserError, match=RECORDED):
            import_answers(tmp_path / "json", tmp_path)
        cache = AnswerCache(str(tmp_path), "read")
        assert response(cache, {}, api=names_key("Data", "a", "a")) is None

    def test_links_are_not_followed(self, tmp_path: Path) -> None:
        record(tmp_path / "outside", upstream(({}, "secret")))
        (tmp_path / "json").mkdir()
        (tmp_path / "json" / "Data").symlink_to(tmp_path / "outside" / "Data")
        with pytest.raises(UserError, match="symbolic link"):
            import_answers(tmp_path / "json", tmp_path)

    def test_a_pipe_in_place_of_a_file_does_not_block(self, tmp_path: Path) -> None:
        path = record(tmp_path / "json", "")
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(UserError, match="not a plain file"):
            import_answers(tmp_path / "json", tmp_path)

    def test_an_odd_answer_leaves_the_others(self, tmp_path: Path) -> None:
        odd = {"{'a': 1}": {"result": 1}, "{'a': 2}": {"error": None, "response": [1]}}
        record(tmp_path / "json", odd)
        assert import_answers(tmp_path / "json", tmp_path) == 1
        cache = AnswerCache(str(tmp_path), "read")
        assert (response(cache, {"a": 1}), response(cache, {"a": 2})) == (None, [1])

    def test_a_folder_without_answers(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="holds no"):
            import_answers(tmp_path, tmp_path / "cache")


class TestExport:
    """The same files again."""

    def test_what_is_exported_can_be_imported(self, tmp_path: Path) -> None:
        pairs = [({"b": 1, "a": None}, ["x", 1.5]), ([1], "list"), ({"u": "ü\ud800"}, "\ud800")]
        imported(tmp_path, *pairs)
        own = AnswerCache(str(tmp_path / "cache"), "readwrite")
        own.call("put", API, '{"b": 2, "a": 1}', "sim", ANSWER, 0)
        own.call("put", API, '{"a": 1, "b": 2}', "other", ANSWER.replace("1", "2"), 0)
        own.call("put", API, '{"c": 1}', "sim", ANSWER, 1)
        assert export_answers(tmp_path / "cache", tmp_path / "out") == 4
        found = json.loads((tmp_path / "out" / RECORDED).read_text())
        assert found["{'b': 2, 'a': 1}"] == {"error": "", "response": {"n": 1}}
        assert found["{'b': 1, 'a': None}"]["response"] == ["x", 1.5]
        assert not any("'c'" in key for key in found), "a failure is no answer"
        import_answers(tmp_path / "out", tmp_path / "again")
        again = AnswerCache(str(tmp_path / "again"), "read")
        assert [response(again, said) for said, _ in pairs] == [said for _, said in pairs]

    def test_it_stays_in_its_folder(self, tmp_path: Path) -> None:
        cache = AnswerCache(str(tmp_path / "cache"), "readwrite")
        for name in ("..", "a/b", "/etc", "a\0b"):
            cache.call("put", names_key(name, name, name), "{}", "", ANSWER, 0)
        export_answers(tmp_path / "cache", tmp_path / "deep" / "out")
        assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]
        assert len(list((tmp_path / "deep" / "out").glob("*/*/*.json"))) >= 3

    def test_a_folder_that_holds_something_is_left_alone(self, tmp_path: Path) -> None:
        imported(tmp_path, ({}, 1))
        with pytest.raises(UserError, match="not an empty folder"):
            export_answers(tmp_path / "cache", tmp_path / "json")


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


# The keys are those that upstream's server made of these texts (server/main.py at aa4ed9f).
@pytest.mark.parametrize(
    ("said", "key"),
    [
        ('{"id": null, "x": "5", "y": 5, "z": true}', "{'id': None, 'x': '5', 'y': 5, 'z': True}"),
        ('{"a": NaN, "b": [Infinity, -Infinity]}', "{'a': nan, 'b': [inf, -inf]}"),
        ('{"a": 1e400, "c": 1.50, "d": -0.0}', "{'a': inf, 'c': 1.5, 'd': -0.0}"),
        ('[1, {"a": "x"}]', "[1, {'a': 'x'}]"),
        ("null", "None"),
        ('"a text"', "a text"),
        ("", "{}"),
    ],
)
def test_a_call_has_upstreams_key(tmp_path: Path, said: str, key: str) -> None:
    record(tmp_path / "json", {key: {"error": "", "response": "theirs"}})
    import_answers(tmp_path / "json", tmp_path / "cache")
    assert response(AnswerCache(str(tmp_path / "cache"), "read"), arguments_of(said)) == "theirs"

    ours = AnswerCache(str(tmp_path / "ours"), "readwrite")
    ours.call("put", API, json.dumps(arguments_of(said)), "sim", ANSWER, 0)
    assert response(ours, arguments_of(said)) == {"n": 1}
    others = [{}, {"a": "NaN"}, {"a": "inf"}, [], [1], "None", "{}"]
    assert all(response(ours, other) is None for other in others if other != arguments_of(said)), (
        "no other call has the answer"
    )
