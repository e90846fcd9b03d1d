"""Requests to a chat completions server, and readings of its answers."""

import json
from typing import Any

import pytest

from ace_ray.config.schema import CandidateEndpoint, EndpointConfig
from ace_ray.models.completions import MAX_CALLS, Replay, completion_of, request_body
from ace_ray.types import Messages, Sampling, Tools

ASKED = [{"role": "user", "content": "hello"}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def sent(
    messages: Messages = ASKED,
    sampling: Sampling | None = None,
    tools: Tools = None,
    **endpoint: Any,
) -> dict[str, Any]:
    replay = endpoint.pop("replay", None)
    kwargs = endpoint.pop("template_kwargs", None)
    config = CandidateEndpoint(url="http://h/v1", model="m", **endpoint)
    body = request_body(config, messages, Sampling(), tools, template_kwargs=kwargs, replay=replay)
    tree: dict[str, Any] = json.loads(body)
    return tree


def read(message: dict[str, Any], tools: Tools = None, **more: Any) -> Any:
    finish = more.pop("finish_reason", "stop")
    tree = {"choices": [{"message": message, "finish_reason": finish}], **more}
    return completion_of(tree, tools)


def back(reply: Any, reasoning: Any, message: dict[str, Any]) -> dict[str, Any]:
    """Return ``message`` as it is sent to the server that gave the answer ``reply``."""
    replay = Replay()
    replay.remember(reasoning, reply)
    (sent_message,) = sent([message], replay=replay)["messages"]
    return dict(sent_message)


def test_tools_and_further_keys_are_sent_as_the_config_says() -> None:
    body = json.loads(request_body(EndpointConfig(url="http://h", model="m"), ASKED, Sampling()))
    assert set(body) == {"model", "messages", "max_tokens", "temperature", "top_p"}
    fields = {"parallel_tool_calls": False, "tool_choice": "required"}
    body = sent(tools=TOOLS, extra_body=fields)
    assert body["tools"] == TOOLS
    assert body["tool_choice"] == "required"
    assert body["parallel_tool_calls"] is False
    without = sent(extra_body=fields)
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(without)
    assert "parallel_tool_calls" not in sent(tools=TOOLS)
    assert sent(tools=TOOLS)["tool_choice"] == "auto"
    assert "tool_choice" not in sent(tools=TOOLS, extra_body={"tool_choice": None})
    body = sent(
        extra_body={"temperature": None, "provider": {"only": ["x"]}},
        template_kwargs={"enable_thinking": False},
    )
    assert "temperature" not in body
    assert body["provider"] == {"only": ["x"]}
    assert body["chat_template_kwargs"] == {"enable_thinking": False}


def test_messages_are_sent_without_keys_of_ours_and_with_arguments_as_text() -> None:
    function = {"name": "f", "arguments": {"x": "ä"}}
    call = {"id": "c1", "type": "function", "function": function}
    message = {"role": "assistant", "content": "", "text": "ours", "tool_calls": [call]}
    result = {"role": "tool", "name": "f", "tool_call_id": "c1", "content": "1"}
    first, second = sent([message, result])["messages"]
    calls = [{**call, "function": {"name": "f", "arguments": '{"x": "ä"}'}}]
    assert first == {"role": "assistant", "content": "", "tool_calls": calls}
    assert second == result
    assert function["arguments"] == {"x": "ä"}, "the recorded message stays as it is"


DETAILS = [{"type": "reasoning.text", "text": "be", "signature": "s"}, {"text": "cause"}]
PARTS = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "because"}]},
    {"type": "text", "text": "hi"},
]


def test_reasoning_goes_back_in_the_form_in_which_it_came() -> None:
    recorded = {"role": "assistant", "content": "hi", "reasoning": "because"}
    plain = {"role": "assistant", "content": "hi"}
    details = {"reasoning_details": DETAILS}
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"reasoning": "because"}, {"reasoning": "because"}),
        ({"reasoning_content": "because"}, {"reasoning_content": "because"}),
        (details, details),
        ({**details, "reasoning": "because"}, details),
        ({"content": PARTS}, {"content": PARTS}),
    ]
    for message, returned in cases:
        reply, reasoning = read({"content": "hi", **message})
        assert (reply.text, reply.reasoning) == ("hi", "because")
        assert back(reply, reasoning, recorded) == {**plain, **returned}
        assert sent([recorded])["messages"] == [plain]


def test_calls_are_read_with_their_ids() -> None:
    call = {"id": "c9", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    second = {"function": {"name": "g", "arguments": {"y": 2}}}
    bare = {"id": 7, "function": {"name": "h", "arguments": None}}
    reply, _ = read({"content": None, "tool_calls": [call, second, bare]}, TOOLS)
    called = [(c.name, c.arguments, c.id) for c in reply.tools.calls]
    assert called == [("f", '{"x": 1}', "c9"), ("g", '{"y": 2}', ""), ("h", "", "")]
    assert reply.tools.content == ""


def test_reasoning_is_no_answer_and_an_answer_that_never_began_is_cut() -> None:
    reply, _ = read({"content": "<think>hm</think>ok", "tool_calls": None}, TOOLS)
    assert (reply.text, reply.reasoning, reply.tools.content) == ("ok", "hm", "ok")
    call = {"function": {"name": "f", "arguments": "{"}}
    message = {"content": None, "reasoning": "hm", "tool_calls": [call]}
    reply, _ = read(message, TOOLS, finish_reason="length")
    assert not reply.reasoning_truncated
    for finish_reason, cut in (("length", True), ("stop", False)):
        message = {"content": None, "reasoning": "hm"}
        reply, _ = read(message, TOOLS, finish_reason=finish_reason)
        assert reply.reasoning_truncated is cut


def test_an_answer_of_another_shape_is_refused() -> None:
    call = {"function": {"name": "f"}}
    calls: tuple[Any, ...] = ({}, ["f"], [{"function": "f"}], [{"function": {"name": 3}}])
    calls += ([{"function": {"name": "f", "arguments": 3}}], [call] * (MAX_CALLS + 1))
    for wrong in calls:
        with pytest.raises((ValueError, LookupError, TypeError, AttributeError)):
            read({"content": None, "tool_calls": wrong}, TOOLS)
    for content in ([{"type": "image_url"}], [{"type": "text"}]):
        with pytest.raises((ValueError, LookupError)):
            read({"content": content}, TOOLS)
    assert len(read({"content": None, "tool_calls": [call] * MAX_CALLS}, TOOLS)[0].tools.calls)


def test_finish_reasons_and_refusals_of_servers_are_mapped() -> None:
    endings = {"tool_use": "stop", "COMPLETE": "stop", None: "stop", "tool_calls": "tool_calls"}
    for reason, ending in {**endings, "MAX_TOKENS": "length"}.items():
        reply, _ = read({"content": "hi"}, finish_reason=reason)
        assert (reply.text, reply.finish_reason) == ("hi", ending)
    text = "I can't."
    for message in (
        {"content": None, "refusal": text},
        {"content": [{"type": "refusal", "refusal": text}]},
        {"content": text, "refusal": "other"},
    ):
        reply, _ = read(message, TOOLS)
        assert reply.text == reply.tools.content == text


def test_usage_is_complete_or_unknown() -> None:
    usage: dict[str, Any] = {"prompt_tokens": 7, "completion_tokens": 3}
    usage |= {"completion_tokens_details": {"reasoning_tokens": 2}}
    usage |= {"prompt_tokens_details": {"cached_tokens": 5}}
    reply, _ = read({"content": "hi"}, usage=usage, model="m-2", system_fingerprint="fp")
    facts = reply.endpoint
    assert (facts.has_usage, facts.reasoning_tokens, facts.cached_tokens) == (True, 2, 5)
    assert (facts.model, facts.fingerprint) == ("m-2", "fp")
    for bad in (
        *(None, {}, "many", {"prompt_tokens": 7}, {"prompt_tokens": True, "completion_tokens": 1}),
        {"prompt_tokens": -1, "completion_tokens": 10**30},
    ):
        reply, _ = read({"content": "hi"}, usage=bad)
        assert not reply.endpoint.has_usage
        assert reply.endpoint.reasoning_tokens is None
