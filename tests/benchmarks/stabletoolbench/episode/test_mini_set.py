"""Every query of the mini set, worked on with its relevant APIs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from ace_ray.benchmarks.stabletoolbench.converted import converted
from ace_ray.benchmarks.stabletoolbench.episode.run import AgentRun
from ace_ray.benchmarks.stabletoolbench.names import function_name
from ace_ray.benchmarks.stabletoolbench.queries import MINI, load
from tests.benchmarks.stabletoolbench.scripted_agent import answer
from tests.scripted_model import ScriptedModel, say

Played = Callable[..., AgentRun]


@pytest.mark.parametrize("method", ["CoT@1", "DFS_woFilter_w2"])
def test_every_mini_query_can_be_worked_on(play: Played, method: str) -> None:
    for entry in load(MINI).entries:
        relevant = entry.gold["relevant"]
        calls = [say("", (function_name(api, tool), {})) for tool, api in relevant]

        def once(entry: Any = entry, calls: Any = calls) -> AgentRun:
            model = ScriptedModel(*calls, say("", answer("Done.")))
            return play(model, entry=entry, method=method)

        run = once()
        assert run.ended == "answered"
        assert [[call["tool"], call["api"]] for call in run.calls] == relevant
        assert {(call["code"], call["source"], call["error"]) for call in run.calls} == {
            (0, "simulator", "")
        }
        assert once().as_json() == run.as_json()
        tree = converted(entry.data["query"], [], run.as_json())["answer"]
        assert tree["total_steps"] == 2 + len(relevant) + 1
        assert json.loads(tree["final_answer"])["final_answer"] == "Done."
