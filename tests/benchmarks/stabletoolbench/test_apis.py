"""API answers: recorded ones, real APIs, and a model as simulator."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import pickle
import sqlite3
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.benchmarks.stabletoolbench.apis.answers import (
    BAD_ARGUMENTS,
    MAX_DEPTH,
    Answered,
    Unusable,
    arguments_of,
    load,
    observation,
)
from ace_ray.benchmarks.stabletoolbench.apis.cache import (
    FILE,
    AnswerCache,
    CacheClient,
    names_key,
    recorded_sha256,
)
from ace_ray.benchmarks.stabletoolbench.apis.json_files import export_answers, import_answers, main
from ace_ray.benchmarks.stabletoolbench.apis.real import (
    MAX_BYTES,
    TIMEOUT_S,
    RealApis,
    RealConfig,
    check_real,
    read_key,
    usable,
)
from ace_ray.benchmarks.stabletoolbench.apis.simulator import (
    ATTEMPTS,
    FAILED,
    MAX_CHARS,
    OWN_SYSTEM,
    SCHEMA,
    Form,
    Simulator,
    SystemText,
    form_of,
    messages,
    read_answer,
    system_text,
)
from ace_ray.benchmarks.stabletoolbench.apis.sources import ApiCaller
from ace_ray.errors import (
    EngineDead,
    PromptRefused,
    PromptTooLong,
    RequestFailed,
    RowError,
    UserError,
)
from ace_ray.models.http import HttpRequest, Reply
from ace_ray.types import Sampling
from tests.benchmarks.stabletoolbench.builders import API, role_of, write
from tests.scripted_model import ScriptedModel

PLAYER = names_key("Data", "clique", "player")
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


def response(
    cache: AnswerCache, arguments: Any, simulator_id: str = "sim", api: str = PLAYER
) -> Any:
    found = cache.call("get", api, json.dumps(arguments), simulator_id)
    return None if found is None else json.loads(found[0])["response"]


def test_an_answer_is_kept_and_read_again(tmp_path: Path) -> None:
    first = AnswerCache(str(tmp_path / "new"), "readwrite")
    assert first.call("get", PLAYER, '{"b": 1, "a": 2}', "sim") is None
    assert first.call("put", PLAYER, '{"b": 1, "a": 2}', "sim", ANSWER, 0) == [ANSWER, "sim", 0]
    second = ANSWER.replace("1", "2")
    assert first.call("put", PLAYER, '{"a": 2, "b": 1}', "sim", second, 0)[0] == ANSWER, "the first"
    other = AnswerCache(str(tmp_path / "new"), "readwrite")  # of another run, at the same time
    assert other.call("put", PLAYER, '{"c": 1}', "sim", second, 0)[0] == second
    first.close()
    again: AnswerCache = pickle.loads(pickle.dumps(AnswerCache(str(tmp_path / "new"), "read")))
    assert response(again, {"c": 1}) == {"n": 2}
    assert response(again, {"a": 2, "b": 1}) == {"n": 1}
    assert response(again, {"a": 2, "b": 1}, "another") is None
    before = (tmp_path / "new" / FILE).read_bytes()
    assert again.call("put", PLAYER, '{"a": 9}', "sim", ANSWER, 0) is None, (
        "reading changes nothing"
    )
    assert (tmp_path / "new" / FILE).read_bytes() == before


def test_imported_answers_come_first_and_have_a_hash(tmp_path: Path) -> None:
    cache = AnswerCache(str(tmp_path / "cache"), "readwrite")
    for maker in ("sim", ""):
        cache.call("put", PLAYER, '{"a": 1, "b": 2}', maker, ANSWER, 0)
    assert recorded_sha256(tmp_path / "cache", [PLAYER]) is None
    assert response(imported(tmp_path, ({"b": 2, "a": 1}, "theirs")), {"a": 1, "b": 2}) == "theirs"
    first = recorded_sha256(tmp_path / "cache", [PLAYER])
    cache.call("put", PLAYER, '{"a": 2}', "sim", ANSWER, 0)
    assert recorded_sha256(tmp_path / "cache", [PLAYER, "other"]) == first
    assert recorded_sha256(tmp_path / "cache", ["other"]) is None
    imported(tmp_path, ({"b": 2, "a": 1}, "changed"))
    assert recorded_sha256(tmp_path / "cache", [PLAYER]) != first


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
        assert cache.call("put", PLAYER, "{}", "sim", ANSWER, 0) is None
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
        AnswerCache(str(tmp_path), "read").call("get", PLAYER, "{}", "")


def test_examples_are_imported_ones_and_bounded(tmp_path: Path) -> None:
    cache = imported(tmp_path, *(({"a": n}, "x" * 10) for n in range(9)))
    own = AnswerCache(str(tmp_path / "cache"), "readwrite")
    own.call("put", PLAYER, '{"own": 1}', "sim", ANSWER, 0)
    assert [key for key, _ in cache.call("examples", PLAYER)] == [f"{{'a': {n}}}" for n in range(5)]
    long = imported(tmp_path / "long", *(({"a": n}, "x" * 900) for n in range(9)))
    assert len(long.call("examples", PLAYER)) == 2


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
    own.call("put", PLAYER, '{"b": 2, "a": 1}', "sim", ANSWER, 0)
    own.call("put", PLAYER, '{"a": 1, "b": 2}', "other", ANSWER.replace("1", "2"), 0)
    own.call("put", PLAYER, '{"c": 1}', "sim", ANSWER, 1)  # a failure is no answer
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
        ours.call("put", PLAYER, json.dumps(given), "sim", ANSWER, 0)
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


GOOD = '{"error": "", "response": {"x": 1.5, "u": "\\ud800", "n": null}}'
VALUE = {"x": 1.5, "u": "\ud800", "n": None}
SYSTEM = SystemText("you are a server", "own")
KEY = 'very"secret/key'
URL = "https://tools.api.test/rapidapi"


class Recorded:
    """A transport that gives one reply."""

    def __init__(self, status: int, body: bytes = b"", error: Exception | None = None) -> None:
        self.reply, self.error = Reply(status, {}, body), error
        self.asked: list[HttpRequest] = []

    async def fetch(self, request: HttpRequest) -> Reply:
        self.asked.append(request)
        if self.error:
            raise self.error
        return self.reply


def real(transport: Any, key: str = KEY) -> RealApis:
    return RealApis(RealConfig(service_url=URL), transport, key)


def simulator(model: ScriptedModel, form: Form = "own", /, **identity: Any) -> Simulator:
    return Simulator(role_of(model, **identity), form, SYSTEM)


def caller(folder: Path, asked: Simulator, real: RealApis | None = None) -> ApiCaller:
    """Return the caller of a run with a cache in this folder."""
    cache = AnswerCache(str(folder), "readwrite")

    async def call(method: str, *values: Any) -> Any:
        return cache.call(method, *values)

    client = CacheClient(call, writes=True, simulator_id=asked.simulator_id)
    return ApiCaller(cache=client, real=real, simulator=asked)


def call(apis: ApiCaller, arguments: Any) -> Answered:
    return asyncio.run(apis.call(API, arguments))


# The order of the sources.


@pytest.mark.parametrize(
    "said", [{"b": [1, {"c": None}], "a": 2}, "[1]", "null", '"a text"', '{"a": NaN, "b": 1e400}']
)
def test_a_second_run_makes_no_model_call_and_gives_equal_answers(
    tmp_path: Path, said: Any
) -> None:
    model = ScriptedModel(GOOD)
    first = call(caller(tmp_path, simulator(model)), said)
    again = call(caller(tmp_path, simulator(model)), said)
    assert len(model.asked) == 1
    assert first.response == again.response == VALUE
    assert observation(first) == observation(again)
    assert (first.source, again.source, again.origin) == ("simulator", "cache", "simulator")
    # MirrorAPI takes objects only.
    mirror = ApiCaller(simulator=simulator(model, "mirror"))
    is_object = not isinstance(said, str) or said.startswith("{")
    assert call(mirror, said).failure == ("" if is_object else "arguments")


def test_the_order_is_cache_real_simulator(tmp_path: Path) -> None:
    answering, dead = Recorded(200, b'{"error": "", "response": "x"}'), Recorded(504)
    model = ScriptedModel(GOOD)
    first = caller(tmp_path, simulator(model), real(answering))
    assert call(first, {"a": 1}).source == "real"
    second = call(first, {"a": 1})
    assert (second.source, second.origin, len(answering.asked)) == ("cache", "real", 1)
    assert call(caller(tmp_path, simulator(model), real(dead)), {"a": 2}).source == "simulator"
    assert (len(dead.asked), len(model.asked)) == (1, 1)
    alone = call(ApiCaller(real=real(dead)), {})
    assert (alone.error, alone.source, alone.failure) == ("Timeout error...", "real", "real")
    for said in ("{", "nothing", '{"a": ' + "[" * 99, "x" * 99_999):
        answered = call(ApiCaller(real=real(answering)), said)
        assert (answered.error, answered.source) == (BAD_ARGUMENTS, "none")
        assert answered.failure == "arguments"


def test_imported_examples_reach_the_simulator(tmp_path: Path) -> None:
    path = tmp_path / "json/News_Media/clique_for_News_Media/player_details.json"
    write(path, {"{'a': 1}": {"error": "", "response": "shown"}})
    import_answers(tmp_path / "json", tmp_path)
    model = ScriptedModel(GOOD)
    call(caller(tmp_path, simulator(model)), {"a": 2})
    call(caller(tmp_path, simulator(model, "mirror")), {"a": 2})
    assert ["shown" in chat[1]["content"] for chat in model.chats] == [True, False]


def test_failures_of_a_model_are_recorded_only_if_it_gave_no_answer(tmp_path: Path) -> None:
    for error in (RequestFailed("x"), EngineDead("x")):
        with pytest.raises(type(error)):
            call(caller(tmp_path, simulator(ScriptedModel(error))), {})
    for refusal in (PromptTooLong("x"), PromptRefused("x")):
        assert call(caller(tmp_path, simulator(ScriptedModel(refusal))), {}).failure == "prompt"
    silent = ScriptedModel(GOOD)
    first = call(caller(tmp_path, simulator(ScriptedModel("no"), model="a")), {})
    again = call(caller(tmp_path, simulator(silent, model="a")), {})
    assert (first.failure, first.source) == ("simulator", "simulator")
    assert (again.failure, again.source, again.origin) == ("simulator", "cache", "simulator")
    assert (observation(first), silent.asked) == (observation(again), [])
    assert call(caller(tmp_path, simulator(ScriptedModel(GOOD), model="b")), {}).response == VALUE


# Real APIs; tests/models/test_http.py tests the transport's limits.


def test_the_service_is_asked_in_toolbenchs_form() -> None:
    transport = Recorded(200, b'{"error": "", "response": {"a": 1}}')
    answered = call(ApiCaller(real=real(transport)), {"player_id": "7"})
    assert (answered.error, answered.response, answered.failure) == ("", {"a": 1}, "")
    assert (answered.source, answered.origin) == ("real", "real")
    (request,) = transport.asked
    assert (request.method, request.url) == ("POST", URL)
    assert (request.timeout_s, request.max_bytes) == (TIMEOUT_S, MAX_BYTES) == (15, 1 << 20)
    assert request.headers["Accept-Encoding"] == "identity"
    assert request.headers["toolbench_key"] == KEY
    names = {"category": "News_Media", "tool_name": "clique", "api_name": "player_details"}
    given = {"tool_input": {"player_id": "7"}, "strip": "", "toolbench_key": KEY}
    assert json.loads(request.body or b"") == names | given
    assert KEY not in repr(request)
    call(ApiCaller(real=real(transport, key="")), {})
    assert "toolbench_key" not in transport.asked[1].headers


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Recorded(200, b"<html>"), "request invalid, data error"),
        (Recorded(200, b'{"error": 1}'), "request invalid, data error"),
        (Recorded(200, b'{"error": "", "response": ""}'), ""),
        (Recorded(302), "Message error..."),
        (Recorded(404, b"{}"), "API not working error..."),
        (Recorded(0, error=TimeoutError("slow")), "Timeout error..."),
        (Recorded(0, error=OSError("http://secret")), "request invalid, data error"),
    ],
)
def test_a_failure_has_upstreams_error(reply: Recorded, error: str) -> None:
    answered = call(ApiCaller(real=real(reply)), {})
    assert (answered.failure, answered.error, answered.response) == ("real", error, "")


def test_an_answer_is_used_by_what_its_text_contains() -> None:
    used = (
        {"name": "Messi"},
        "got an unexpected keyword argument 'parameter'",
        "service not found",
    )
    assert all(usable("", response) and not usable("e", response) for response in used)
    refused = {"message": "API doesn't exists"}
    for response in ("", {"price": 1500}, "Rate Limit reached", refused, "Service Not Found"):
        assert not usable("", response)


def test_keys_are_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"headers": {"key": KEY}, "url": "https://x/?k=very%22secret%2Fkey", KEY: [KEY]}
    body = json.dumps({"error": "", "response": said}).encode()
    answered = call(ApiCaller(real=real(Recorded(200, body))), {})
    assert "secret" not in json.dumps(answered.response)
    assert answered.response["***"] == ["***"]
    for url in ("tools.test/x?key=hidden", "tools.test/x#hidden", "me:hidden@tools.test/x"):
        with pytest.raises(UserError, match=r"^real\.service_url: ") as caught:
            check_real(RealConfig(service_url=f"https://{url}"), "real")
        assert "hidden" not in str(caught.value)
    for value in ("  ", "a\nb", "ü"):
        monkeypatch.setenv("SPORTS_KEY", value)
        with pytest.raises(UserError, match=r"real\.key_env: .*SPORTS_KEY"):
            read_key(RealConfig(service_url=URL, key_env="SPORTS_KEY"), "real")
    # A run is scored without the key, and does not start without it.
    options = {"apis": ["real"], "real": {"key_env": "SPORTS_KEY", "service_url": URL}}
    made = make_benchmark("stabletoolbench", {"data": "mini", "judge": "none", **options})
    made.entries()
    made.ready(named=False)
    with pytest.raises(UserError, match=r"real\.key_env: .*'SPORTS_KEY' does not contain a key"):
        made.service()


# The simulator.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"Sure!\n```\n{GOOD}```\nAnything else?", ("", VALUE)),
        (f"Here it is: {GOOD} I hope it helps", ("", VALUE)),
        ('{"error": "bad id", "response": ""}', ("bad id", "")),
        ('{"response": 0}', ("", 0)),
        ('{"error": {"code": 4}}', ('{"code": 4}', "")),
        ('{"error": "", "response": NaN}', ("", "NaN")),
        ('{"error": "", "response": ' + "[" * 500 + "]" * 500 + "}", None),
    ],
)
def test_answers_are_read_with_tolerance(text: str, expected: Any) -> None:
    assert read_answer(text) == expected


def test_other_texts_are_not_answers() -> None:
    long = '{"error": "", "response": "' + "x" * MAX_CHARS + '"}'
    empty = '{"error": "", "response": ""}'
    for text in ("I cannot do that", "{}", empty, '{"name": "Messi"}', "{" * 60_000, long):
        assert read_answer(text) is read_answer(text, loose=True) is None
    cut = '{"error": "", "response": "cut'
    assert (read_answer(cut), read_answer(cut, loose=True)) == (None, ("", "cut"))


@pytest.mark.parametrize(
    ("form", "name"), [("mirror", "Player Details"), ("mirror_cache", "player_details")]
)
def test_mirrorapi_gets_the_form_it_was_trained_on(form: Form, name: str) -> None:
    chat = messages(form, SYSTEM, API, {"is_from": "it's", "n": None, "toolbench_key": "k"})
    assert [message["role"] for message in chat] == ["system", "user"]
    label, document, blank, request, arguments = chat[1]["content"].split("\n")
    assert (label, blank, request) == ("API doc:", "", "Request:")
    assert arguments == """{'is_from': "it's", 'n': None}"""
    texts = {"api_name": name, "api_description": "Details of a player."}
    parameters = {"required_parameters": API.required, "optional_parameters": API.optional}
    tool = {"tool_description": "All about sports.", "tool_name": "clique"}
    expected = {**texts, **parameters, **tool, "tool_category": "News_Media"}
    assert list(ast.literal_eval(document).items()) == list(expected.items())


def test_the_own_form_is_bounded_and_shows_examples() -> None:
    parameter = {"name": "p" * 9000, "type": "STRING", "description": "d" * 9000, "default": "x"}
    long = {"api_description": "d" * 50_000, "tool_description": "t" * 50_000}
    wordy = replace(API, **long, optional=[parameter] * 500, template="s" * 50_000)
    chat = messages("own", SYSTEM, wordy, {"a": 1}, [("{'a': 2}", "e" * 9000)])
    assert len(chat[1]["content"]) < 100_000
    assert "{'a': 2}" in chat[1]["content"]


def test_mirrorapis_text_is_read_from_a_checkout_and_not_run(tmp_path: Path) -> None:
    assert system_text("mirror", None) == SystemText(OWN_SYSTEM, "own")
    assert system_text("own", str(tmp_path)) == SystemText(OWN_SYSTEM, "own")
    ran, path = tmp_path / "ran", tmp_path / "server" / "system_prompts.py"
    write(path, f'import pathlib\npathlib.Path({str(ran)!r}).touch()\nSFT_SYSTEM = "t"')
    assert system_text("mirror", str(tmp_path)) == SystemText("t", "upstream")
    assert not ran.exists()
    for source in ("SFT_SYSTEM = f'{1}'", "x = 1", "def (", "(" * 5000):
        write(path, source)
        with pytest.raises(UserError, match="system_prompts"):
            system_text("mirror_cache", str(tmp_path))


@pytest.mark.parametrize(
    ("name", "form", "schema"),
    [
        ("stabletoolbench/MirrorAPI", "mirror", ""),
        ("/models/mirrorapi_cache/", "mirror_cache", ""),
        ("Qwen/Qwen2.5-7B-Instruct", "own", json.dumps(SCHEMA)),
    ],
)
def test_the_form_and_the_schema_follow_the_models_name(name: str, form: Form, schema: str) -> None:
    assert form_of(name) == form
    model = ScriptedModel(GOOD)
    bound = role_of(model, Sampling(temperature=0.3, seed=7), model=name, revision="r")
    simulator = Simulator(bound, form, SYSTEM)
    assert call(ApiCaller(simulator=simulator), {}).response == VALUE
    assert [request.sampling.schema for request in model.asked] == [schema]
    found = simulator.identity()
    assert (found["model"], found["revision"], found["form"]) == (name, "r", form)
    assert (found["temperature"], found["seed"]) == (0.3, 7)
    assert ("schema_sha256" in found) is bool(schema)
    other = Simulator(bound, form, SystemText("other", "own"))
    assert other.simulator_id != simulator.simulator_id


@pytest.mark.parametrize(
    ("sampling", "drawn"),
    [
        (None, [(42, 0.1), (43, 0.1), (44, 0.1)]),
        (Sampling(), [(0, 0.0), (1, 0.5), (2, 0.5)]),  # a greedy retry would repeat the answer
    ],
)
def test_retries_draw_with_other_seeds(sampling: Sampling | None, drawn: Any) -> None:
    for replies, expected in ((("no", "{", GOOD), ("", "")), (("no",), (FAILED, "simulator"))):
        model = ScriptedModel(*replies)
        asked = Simulator(role_of(model, sampling), "own", SYSTEM)
        answered = call(ApiCaller(simulator=asked), {})
        assert (answered.error, answered.failure) == expected
        assert [(one.sampling.seed, one.sampling.temperature) for one in model.asked] == drawn
        assert asked.identity()["retry_temperature"] == drawn[1][1]
        assert asked.identity()["attempts"] == ATTEMPTS == len(drawn)


@pytest.mark.parametrize("error", [PromptTooLong("x"), PromptRefused("x")])
def test_a_refused_prompt_is_tried_without_examples(error: Exception) -> None:
    for replies, examples, failure, shown in (
        ((error, GOOD), [("{'a': 1}", "b")], "", [True, False]),
        ((error,), [], "prompt", [False]),
        (("no", "no", error), [("{'a': 1}", "b")], "prompt", [True] * 3),
        ((error, "no"), [("{'a': 1}", "b")], "simulator", [True, False, False]),
    ):
        model = ScriptedModel(*replies)
        answered = asyncio.run(simulator(model).answer(API, {}, examples))
        assert answered.failure == failure
        assert ["Earlier" in chat[1]["content"] for chat in model.chats] == shown
