"""API answers: recorded ones, real APIs, and a model as simulator."""

import ast
import asyncio
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.benchmarks.stabletoolbench.apis.answers import (
    BAD_ARGUMENTS,
    ApiAnswer,
    arguments_of,
    observation,
)
from ace_ray.benchmarks.stabletoolbench.apis.cache import AnswerCache, names_key, recorded_sha256
from ace_ray.benchmarks.stabletoolbench.apis.json_files import export_answers, import_answers
from ace_ray.benchmarks.stabletoolbench.apis.real import RealApis, RealConfig, is_usable
from ace_ray.benchmarks.stabletoolbench.apis.simulator import (
    MAX_CHARS,
    SCHEMA,
    Form,
    Simulator,
    form_of,
    mirror_system,
    read_answer,
    request_text,
)
from ace_ray.benchmarks.stabletoolbench.apis.sources import ApiCaller
from ace_ray.cli.main import main
from ace_ray.errors import EngineDead, PromptRefused, PromptTooLong, RequestFailed, UserError
from ace_ray.models.http import HttpRequest, Reply
from tests.benchmarks.stabletoolbench.builders import API, role_of, write
from tests.scripted_model import ScriptedModel

PLAYER = names_key("Data", "clique", "player")
RECORDED = "Data/clique_for_Data/player.json"
ANSWER = '{"error":"","response":{"n":1}}'


def record(root: Path, content: Any, name: str = RECORDED) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def upstream(*pairs: tuple[Any, Any]) -> dict[str, Any]:
    return {str(arguments): {"error": "", "response": response} for arguments, response in pairs}


def imported(root: Path, *pairs: tuple[Any, Any]) -> AnswerCache:
    """Make a cache of these upstream answers."""
    record(root / "json", upstream(*pairs))
    import_answers(root / "json", root / "cache")
    return AnswerCache(str(root / "cache"), "read")


def response(
    cache: AnswerCache, arguments: Any, simulator_id: str = "sim", api: str = PLAYER
) -> Any:
    answer = cache.call("get", api, json.dumps(arguments), simulator_id)
    return None if answer is None else json.loads(answer[0])["response"]


def test_an_answer_is_kept_and_read_again(tmp_path: Path) -> None:
    first = AnswerCache(str(tmp_path / "new"), "readwrite")
    assert first.call("get", PLAYER, '{"b": 1, "a": 2}', "sim") is None
    assert first.call("put", PLAYER, '{"b": 1, "a": 2}', "sim", ANSWER, 0) == [ANSWER, "sim", 0]
    second = ANSWER.replace("1", "2")
    assert first.call("put", PLAYER, '{"a": 2, "b": 1}', "sim", second, 0)[0] == ANSWER, "the first"
    peer = AnswerCache(str(tmp_path / "new"), "readwrite")  # of another run, at the same time
    assert peer.call("put", PLAYER, '{"c": 1}', "sim", second, 0)[0] == second
    again: AnswerCache = pickle.loads(pickle.dumps(AnswerCache(str(tmp_path / "new"), "read")))
    assert response(again, {"c": 1}) == {"n": 2}
    assert response(again, {"a": 2, "b": 1}, "another") is None
    assert again.call("put", PLAYER, '{"a": 9}', "sim", ANSWER, 0) is None
    assert response(again, {"a": 9}) is None, "reading changes nothing"


def test_imported_answers_come_first_and_have_a_hash(tmp_path: Path) -> None:
    cache = AnswerCache(str(tmp_path / "cache"), "readwrite")
    for maker in ("sim", ""):
        cache.call("put", PLAYER, '{"a": 1, "b": 2}', maker, ANSWER, 0)
    assert recorded_sha256(tmp_path / "cache", [PLAYER]) is None
    assert response(imported(tmp_path, ({"a": 1, "b": 2}, "theirs")), {"a": 1, "b": 2}) == "theirs"
    first = recorded_sha256(tmp_path / "cache", [PLAYER])
    imported(tmp_path, ({"a": 1, "b": 2}, "changed"))
    assert recorded_sha256(tmp_path / "cache", [PLAYER]) != first


def test_a_file_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="contains no"):
        import_answers(tmp_path, tmp_path / "cache")
    # The other layout; an odd answer leaves the others.
    odd = {"{'a': 1}": {"result": 1}, "{'a': 2}": {"error": None, "response": [1]}}
    fine = record(tmp_path / "fine", odd, "Data/Clique/Player.json")
    assert import_answers(tmp_path / "fine", tmp_path) == 1
    cache = AnswerCache(str(tmp_path), "read")
    assert (response(cache, {"a": 1}), response(cache, {"a": 2})) == (None, [1])
    record(tmp_path / "json", upstream(({}, 1)), "Data/a/a.json")
    path = record(tmp_path / "json", "")
    for fault in ('{"{}": {"error": "", "resp', "[]", '{"{}": ' + "[" * 5000, "link", "pipe"):
        path.unlink()
        if fault == "link":
            path.symlink_to(fine)
        elif fault == "pipe":
            os.mkfifo(path)
        else:
            path.write_text(fault)
        with pytest.raises(UserError, match=RECORDED):
            import_answers(tmp_path / "json", tmp_path / "cache")
        cache = AnswerCache(str(tmp_path / "cache"), "read")
        assert response(cache, {}, api=names_key("Data", "a", "a")) is None, "all files or none"


def test_exported_answers_can_be_imported(tmp_path, capsys) -> None:
    def command(action: str, folder: str, cache: str) -> str:
        folders = [str(tmp_path / folder), "--cache-folder", str(tmp_path / cache)]
        with pytest.raises(SystemExit) as system_exit:
            main(["data", "answers", action, *folders])
        assert system_exit.value.code == 0
        return capsys.readouterr().out

    pairs = [({"b": 1, "a": None}, ["x", 1.5]), ([1], "list"), ({"u": "ü\ud800"}, "\ud800")]
    imported(tmp_path, *pairs)
    cache = AnswerCache(str(tmp_path / "cache"), "readwrite")
    cache.call("put", PLAYER, '{"b": 2, "a": 1}', "sim", ANSWER, 0)
    cache.call("put", PLAYER, '{"b": 2, "a": 1}', "other", ANSWER.replace("1", "2"), 0)
    cache.call("put", PLAYER, '{"c": 1}', "sim", ANSWER, 1)  # a failure is not exported
    # Each API has a file of its own, or none: a name must not lead out of the folder.
    odd = [names_key(category, "t", "") for category in ("A.B", "A_B")]
    for api in (names_key("..", "t", "a"), names_key("A", "t", "a" * 300), *odd):
        cache.call("put", api, "{}", "", json.dumps({"error": "", "response": api}), 0)
    assert command("export", "deep/out", "cache").startswith("exported 6 answers from ")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]
    answers = json.loads((tmp_path / "deep/out" / RECORDED).read_text())
    assert answers["{'b': 2, 'a': 1}"] == {"error": "", "response": {"n": 1}}
    assert command("import", "deep/out", "again").startswith("imported 6 answers from ")
    again = AnswerCache(str(tmp_path / "again"), "read")
    assert [response(again, args) for args, _ in pairs] == [arguments for _, arguments in pairs]
    assert [response(again, {}, api=api) for api in odd] == odd
    with pytest.raises(UserError, match="not an empty folder"):
        export_answers(tmp_path / "cache", tmp_path / "deep")


# Keys that upstream's server made of these texts (server/main.py at aa4ed9f).
UPSTREAMS_KEYS = {
    '{"id": null, "x": "5", "y": 5, "z": true}': "{'id': None, 'x': '5', 'y': 5, 'z': True}",
    '{"a": NaN, "b": [Infinity, -Infinity]}': "{'a': nan, 'b': [inf, -inf]}",
    '{"a": 1e400, "c": 1.50, "d": -0.0}': "{'a': inf, 'c': 1.5, 'd': -0.0}",
    "null": "None",
    "[1, null]": "[1, None]",
    '{"b": 2, "a": "1"}': "{'b': 2, 'a': '1'}",
    "\"{'b': 2}\"": "{'b': 2}",
    '{"b": 2}': "{'b': 2}",
    '"a text"': "a text",
    "": "{}",
}


def test_a_call_has_upstreams_key(tmp_path: Path) -> None:
    keys = {key: number for number, key in enumerate(UPSTREAMS_KEYS.values())}
    theirs = imported(tmp_path, *keys.items())
    ours = AnswerCache(str(tmp_path / "ours"), "readwrite")
    for call_text, key in UPSTREAMS_KEYS.items():
        arguments = arguments_of(call_text)
        assert response(theirs, arguments) == keys[key]
        assert response(ours, arguments) is None, "no other call has the answer"
        ours.call("put", PLAYER, json.dumps(arguments), "sim", ANSWER, 0)
        assert response(ours, arguments) == {"n": 1}
    for text in ('{"a": "inf"}', '"None"', '"{}"', '{"id": null, "x": "5", "y": 5.0, "z": true}'):
        assert response(ours, json.loads(text)) is None
    for text in ('{"a": "1", "b": 2}', '{"b": 2, "a": 1}', '"key {}"'):
        assert response(theirs, json.loads(text)) is None, "order and types of arguments matter"


GOOD = '{"error": "", "response": {"x": 1.5, "u": "\\ud800", "n": null}}'
VALUE = {"x": 1.5, "u": "\ud800", "n": None}
SYSTEM = "you are a server"
KEY = 'very"secret/key'
URL = "https://tools.api.test/rapidapi"


class Recorded:
    """A transport that gives one reply."""

    def __init__(self, status: int, body: bytes = b"", error: Exception | None = None) -> None:
        self.reply, self.error = Reply(status, {}, body), error
        self.requests: list[HttpRequest] = []

    async def fetch(self, request: HttpRequest) -> Reply:
        self.requests.append(request)
        if self.error:
            raise self.error
        return self.reply


def real(transport: Any, key: str = KEY) -> RealApis:
    return RealApis(RealConfig(service_url=URL), transport, key)


def simulator(model: ScriptedModel, form: Form = "own", /, **identity: Any) -> Simulator:
    return Simulator(role_of(model, **identity), form, SYSTEM)


def caller(folder: Path, judge_model: Simulator, real: RealApis | None = None) -> ApiCaller:
    """Return the caller of a run with a cache in this folder."""
    cache = AnswerCache(str(folder), "readwrite")

    async def call(method: str, *values: Any) -> Any:
        return cache.call(method, *values)

    return ApiCaller(call, writes=True, real=real, simulator=judge_model)


def call(apis: ApiCaller, arguments: Any) -> ApiAnswer:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return asyncio.run(apis.call(API, text))


# The order of the sources.


def test_a_second_run_makes_no_model_call_and_gives_equal_answers(tmp_path: Path) -> None:
    model, is_object = ScriptedModel(GOOD), '{"a": NaN, "b": 1e400}'
    for count, arguments in enumerate(({"b": [1, {"c": None}]}, "[1]", is_object), 1):
        first, again = (call(caller(tmp_path, simulator(model)), arguments) for _ in range(2))
        assert len(model.requests) == count
        assert first.response == again.response == VALUE
        assert observation(first) == observation(again)
        assert (first.source, again.source, again.origin) == ("simulator", "cache", "simulator")
        # MirrorAPI takes objects only.
        mirror = ApiCaller(simulator=simulator(ScriptedModel(GOOD), "mirror"))
        failure = "" if isinstance(arguments, dict) or arguments is is_object else "arguments"
        assert call(mirror, arguments).failure == failure


def test_the_order_is_cache_real_simulator(tmp_path: Path) -> None:
    answering, dead = Recorded(200, b'{"error": "", "response": "x"}'), Recorded(504)
    model = ScriptedModel(GOOD)
    first = caller(tmp_path, simulator(model), real(answering))
    assert call(first, {"a": 1}).source == "real"
    second = call(first, {"a": 1})
    assert (second.source, second.origin, len(answering.requests)) == ("cache", "real", 1)
    assert call(caller(tmp_path, simulator(model), real(dead)), {"a": 2}).source == "simulator"
    assert (len(dead.requests), len(model.requests)) == (1, 1)
    alone = call(ApiCaller(real=real(dead)), {})
    assert (alone.error, alone.source, alone.failure) == ("Timeout error...", "real", "real")
    deep = '{"a": ' + "[" * 70 + "]" * 70 + "}"
    for arguments in ("{", deep, f'{{"a": "{"x" * 40_000}"}}'):
        answered = call(ApiCaller(real=real(answering)), arguments)
        assert (answered.error, answered.source) == (BAD_ARGUMENTS, "none")
        assert answered.failure == "arguments"


def test_imported_examples_reach_the_simulator(tmp_path: Path) -> None:
    path = tmp_path / "json/News_Media/clique_for_News_Media/player_details.json"
    write(path, upstream(*(({"a": n}, "shown") for n in range(9))))
    import_answers(tmp_path / "json", tmp_path)
    model = ScriptedModel(GOOD)
    for _ in range(2):  # the answers of runs are not examples
        call(caller(tmp_path, simulator(model)), {"b": len(model.requests)})
    call(caller(tmp_path, simulator(model, "mirror")), {"a": 9})
    assert [chat[1]["content"].count("shown") for chat in model.chats] == [5, 5, 0]
    write(path, upstream(*(({"a": n}, "x" * 900) for n in range(9))))
    import_answers(tmp_path / "json", tmp_path)
    call(caller(tmp_path, simulator(model)), {"a": 10})
    assert model.chats[3][1]["content"].count("\n-> ") == 2


def test_failures_of_a_model_are_recorded_only_if_it_gave_no_answer(tmp_path: Path) -> None:
    for error in (RequestFailed("x"), EngineDead("x")):
        with pytest.raises(type(error)):
            call(caller(tmp_path, simulator(ScriptedModel(error))), {})
    for refusal in (PromptTooLong("x"), PromptRefused("x")):
        assert call(caller(tmp_path, simulator(ScriptedModel(refusal))), {}).failure == "prompt"
        # It is tried again without examples.
        model = ScriptedModel("no", refusal, GOOD)
        answered = asyncio.run(simulator(model).answer(API, {}, [("{'a': 1}", "b")]))
        assert answered.response == VALUE
        assert ["Earlier" in chat[1]["content"] for chat in model.chats] == [True, True, False]
    silent = ScriptedModel(GOOD)
    first = call(caller(tmp_path, simulator(ScriptedModel("no"), model="a")), {})
    again = call(caller(tmp_path, simulator(silent, model="a")), {})
    assert (first.failure, first.source) == ("simulator", "simulator")
    assert (again.failure, again.source, again.origin) == ("simulator", "cache", "simulator")
    assert (observation(first), silent.requests) == (observation(again), [])
    assert call(caller(tmp_path, simulator(ScriptedModel(GOOD), model="b")), {}).response == VALUE


# Real APIs; tests/models/test_http.py tests the transport's limits.


def test_the_service_is_asked_in_toolbenchs_form() -> None:
    transport = Recorded(200, b'{"error": "", "response": {"a": 1}}')
    answered = call(ApiCaller(real=real(transport)), {"player_id": "7"})
    assert (answered.error, answered.response, answered.failure) == ("", {"a": 1}, "")
    assert (answered.source, answered.origin) == ("real", "real")
    (request,) = transport.requests
    assert (request.method, request.url) == ("POST", URL)
    assert (request.timeout_s, request.max_bytes) == (15, 1 << 20)
    assert request.headers["toolbench_key"] == KEY
    names = {"category": "News_Media", "tool_name": "clique", "api_name": "player_details"}
    form_fields = {"tool_input": {"player_id": "7"}, "strip": "", "toolbench_key": KEY}
    assert json.loads(request.body or b"") == names | form_fields
    assert KEY not in repr(request)
    call(ApiCaller(real=real(transport, key="")), {})
    assert "toolbench_key" not in transport.requests[1].headers


def test_a_failure_has_upstreams_error() -> None:
    for reply, error in (
        (Recorded(200, b"<html>"), "request invalid, data error"),
        (Recorded(200, b'{"error": "", "response": ""}'), ""),
        (Recorded(302), "Message error..."),
        (Recorded(404, b"{}"), "API not working error..."),
        (Recorded(0, error=OSError("http://secret")), "request invalid, data error"),
    ):
        answered = call(ApiCaller(real=real(reply)), {})
        assert (answered.failure, answered.error, answered.response) == ("real", error, "")


def test_an_answer_is_used_by_what_its_text_contains() -> None:
    for good in ({"name": "Messi"}, "service not found"):
        assert is_usable("", good) > is_usable("e", good)
    for bad in ("", {"price": 1500}, "Rate Limit reached", {"message": "API doesn't exists"}):
        assert not is_usable("", bad)


def test_keys_are_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    payload = {"headers": {"key": KEY}, "url": "https://x/?k=very%22secret%2Fkey", KEY: [KEY]}
    body = json.dumps({"error": "", "response": payload}).encode()
    answered = call(ApiCaller(real=real(Recorded(200, body))), {})
    assert "secret" not in json.dumps(answered.response)
    assert answered.response["***"] == ["***"]
    real_options = {"key_env": "SPORTS_KEY", "service_url": URL}
    options = {"data": "mini", "judge": "none", "apis": ["real"], "real": real_options}
    for url in ("tools.test/x?key=hidden", "tools.test/x#hidden", "me:hidden@tools.test/x"):
        wrong = {**options, "real": {"service_url": f"https://{url}"}}
        with pytest.raises(UserError, match=r"real\.service_url: .*key_env") as caught:
            make_benchmark("stabletoolbench", wrong)
        assert "hidden" not in str(caught.value)
    # A run is scored without the key, and does not start without it.
    benchmark = make_benchmark("stabletoolbench", options)
    benchmark.entries()
    benchmark.ready(named=False)
    for key, problem in ((" ", "is not set; export"), ("a\nb", "does not contain a key")):
        monkeypatch.setenv("SPORTS_KEY", key)
        with pytest.raises(UserError, match=rf"real\.key_env: .*SPORTS_KEY {problem}"):
            benchmark.service()


# The simulator.


def test_mirrorapi_gets_the_form_it_was_trained_on() -> None:
    forms: dict[Form, str] = {"mirror": "Player Details", "mirror_cache": "player_details"}
    for form, name in forms.items():
        query = {"is_from": "it's", "n": None, "toolbench_key": "k"}
        label, document, blank, request, arguments = request_text(form, API, query).split("\n")
        assert (label, blank, request) == ("API doc:", "", "Request:")
        assert arguments == """{'is_from': "it's", 'n': None}"""
        texts = {"api_name": name, "api_description": "Details of a player."}
        parameters = {f"{kind}_parameters": API.doc[kind] for kind in ("required", "optional")}
        tool = {"tool_description": "All about sports.", "tool_name": "clique"}
        expected = {**texts, **parameters, **tool, "tool_category": "News_Media"}
        assert list(ast.literal_eval(document).items()) == list(expected.items())


def test_mirrorapis_text_is_read_from_a_checkout_and_not_run(tmp_path: Path) -> None:
    ran, path = tmp_path / "ran", tmp_path / "server" / "system_prompts.py"
    write(path, f'import pathlib\npathlib.Path({str(ran)!r}).touch()\nSFT_SYSTEM = "t"')
    assert mirror_system(tmp_path) == "t"
    assert not ran.exists()
    write(path, "SFT_SYSTEM = f'{1}'")
    with pytest.raises(UserError, match="system_prompts"):
        mirror_system(tmp_path)


def test_answers_are_read_with_tolerance() -> None:
    answers: dict[str, Any] = {
        f"Sure!\n```\n{GOOD}```\nAnything else?": ("", VALUE),
        '{"error": "bad id", "response": ""}': ("bad id", ""),
        '{"error": {"code": 4}}': ('{"code": 4}', ""),
        '{"error": "", "response": NaN}': ("", "NaN"),
    }
    assert {text: read_answer(text) for text in answers} == answers
    texts = ["I cannot do that", '{"error": "", "response": ""}', '{"name": "Messi"}']
    texts.append('{"error": "", "response": "' + "x" * MAX_CHARS + '"}')
    for text in (*texts, '{"error": "", "response": ' + "[" * 500 + "]" * 500 + "}"):
        assert read_answer(text) is read_answer(text, loose=True) is None
    cut = '{"error": "", "response": "cut'
    assert (read_answer(cut), read_answer(cut, loose=True)) == (None, ("", "cut"))


def test_the_form_and_the_schema_follow_the_models_name() -> None:
    ids = set()
    for name, form, schema in (
        ("stabletoolbench/MirrorAPI", "mirror", ""),
        ("/models/mirrorapi_cache/", "mirror_cache", ""),
        ("Qwen/Qwen2.5-7B-Instruct", "own", json.dumps(SCHEMA)),
    ):
        assert form_of(name) == form, name
        model = ScriptedModel(GOOD)
        first_simulator = simulator(model, form_of(name), model=name)
        assert call(ApiCaller(simulator=first_simulator), {}).response == VALUE, name
        assert [request.sampling.schema for request in model.requests] == [schema], name
        assert ("schema_sha256" in first_simulator.identity()) is bool(schema), name
        second_simulator = Simulator(role_of(model, model=name), form_of(name), "other")
        ids |= {first_simulator.simulator_id, second_simulator.simulator_id}
    assert len(ids) == 6
