"""Files of a run: converted answers, written and read again, and the result JSON."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.external_outputs import Entries, Output
from ace_ray.benchmarks.stabletoolbench.answer_trees import (
    MAX_STORED_NODES,
    convert_run,
    converted_json,
    link_nodes,
    node,
    read_reference,
    tool_node,
    walk_chain,
)
from ace_ray.benchmarks.stabletoolbench.callable_names import HALLUCINATED
from ace_ray.benchmarks.stabletoolbench.check import verdicts
from ace_ray.benchmarks.stabletoolbench.outputs import read_outputs
from ace_ray.benchmarks.stabletoolbench.result_json import result_json
from ace_ray.errors import UserError
from ace_ray.types import Entry, canonical_json
from ace_ray.util.safe_loading import json_of_row
from tests.benchmarks.stabletoolbench.builders import (
    BREADS,
    ENTRY,
    QUERY,
    SCRIPTS,
    SHOPS,
    TOOLS,
    answer,
    entry,
    run,
    state,
    write,
)

GROUP = ENTRY.category
ENTRIES = Entries.from_entries([entry(), entry("8"), entry("9")])
ANSWER = convert_run(QUERY, run(SCRIPTS["answered"])) | {"available_tools": TOOLS}


def folder(tmp_path: Path, answers: Any, votes: Any = None) -> Path:
    write(tmp_path / f"{GROUP}.json", answers)
    if votes is not None:
        write(tmp_path / f"{GROUP}_a-model.json", votes)
    return tmp_path


def outputs(path: Path) -> list[Output]:
    parsed = list(read_outputs(path, ENTRIES))
    for output in parsed:
        json_of_row(canonical_json(output.episode.state))  # as a stored row is read
    return parsed


def solved(*statuses: str) -> dict[str, Any]:
    numbered = [(str(n), f"AnswerStatus.{status}") for n, status in enumerate(statuses)]
    return {"query": QUERY, "is_solved": dict(reversed(numbered))}


def judged(state: Any) -> Any:
    """Return the errors and metrics of both rule sets, without sources that the file lacks."""
    unknown = ("cache_hit", "from_cache", "from_none")
    return {
        rules: (verdict.error_type, {k: v for k, v in verdict.metrics.items() if k not in unknown})
        for rules, verdict in verdicts(ENTRY, state).items()
    }


def test_read_answers_have_the_verdicts_of_their_run(tmp_path: Path) -> None:
    for number, script in enumerate(SCRIPTS):
        answered = script in ("answered", "beside", "hallucinated")
        votes = ["Unsolved", "Solved", "Solved"] if answered else ["Unsolved"] * 3
        votes = votes if number % 2 else []
        ours = state(SCRIPTS[script], votes or None)
        text = b"".join(converted_json([(ENTRY.id, ours["answer"]), ("8", ours["answer"])]))
        path = tmp_path / script
        beside = dict.fromkeys("78", solved(*votes)) if votes else None
        result_folder = folder(path, text.decode(), beside)
        output, _ = outputs(result_folder)
        assert (output.entry, output.sample) == (ENTRY, 0)
        assert judged(output.episode.state) == judged(ours)
        read = read_reference(path, [GROUP, "G2_category"])
        answer = ours["answer"]["answer"]
        answers = {key: json.loads(line) for key, line in read[GROUP].items()}
        assert answers == {"7": answer, "8": answer}
        assert read["G2_category"] == {}


def answer_of(*nodes: Any, final: str = "") -> dict[str, Any]:
    answer = {"method": "CoT@1", "total_steps": 3, "final_answer": final}
    return {"query": QUERY, "answer": answer | {"answer_details": link_nodes(nodes)}}


def test_calls_and_their_errors_are_read(tmp_path: Path) -> None:
    cut = '{"error": "Too many requests error...", "response": "x...'
    offered = [{"name": "old_for_form"}, {"function": {"name": "new_for_form"}}, 3, {"function": 3}]
    inside = json.dumps({"name": BREADS, "arguments": {"q": 1}, "response": None})
    record = answer_of(
        tool_node(BREADS, "{}", '{"error": "no bread", "response": ""}'),
        tool_node(SHOPS, "{}", cut),
        tool_node(HALLUCINATED, "{}", ""),
        tool_node("old_for_form", "{}", ""),
        tool_node("new_for_form", "{}", ""),
        # Odd nodes are passed over or become texts.
        node("tool", inside),
        node("poet", "rose"),
        # The names of the user document.
        tool_node("Bakery Finder_Breads", "{}", ""),
        tool_node("Bakery_Finder.shops", "{}", ""),
        {"role": "tool", "message": None, "next": []},
    )
    record["answer"]["answer_details"][0]["next"].append(tool_node(SHOPS, "{}", "another branch"))
    (output,) = outputs(folder(tmp_path, {ENTRY.id: record | {"available_tools": offered}}))
    calls = output.episode.state["calls"]
    assert [(call["api"], call["code"], call["error"]) for call in calls] == [
        ("Breads", 0, "no bread"),
        ("Shops", 9, "Too many requests error..."),
        (None, 1, "unknown function"),
        (None, 0, ""),
        (None, 0, ""),
        *[("Breads", 0, "")] * 2,
        *[("Shops", 0, "")] * 2,
    ]
    assert calls[5]["arguments"] == '{"q": 1}'
    assert "another branch" not in str(output.episode.state["answer"]), "the judges' chain"
    metrics = verdicts(ENTRY, output.episode.state)["official"].metrics
    assert (metrics["hallucinated"], metrics["errors"], metrics["finish"]) == (1 / 9, 2 / 9, 0)


def test_a_long_chain_and_a_cut_answer_are_read(tmp_path: Path) -> None:
    raw = '{"return_type": "give_answer", "final_answer": "Rye'
    hm = [node("assistant", str(n)) for n in range(200)]
    record = answer_of(tool_node(SHOPS, "{}"), *hm, tool_node("Finish", raw), final=raw)
    (output,) = outputs(folder(tmp_path, {ENTRY.id: record}, {ENTRY.id: solved("Solved")}))
    assert output.episode.output == "Rye"
    answer = output.episode.state["answer"]["answer"]
    assert (answer["total_steps"], len(list(walk_chain(answer)))) == (204, MAX_STORED_NODES + 2)
    assert verdicts(ENTRY, output.episode.state)["official"].valid, "its end is kept"


def test_json_lines_become_episodes(tmp_path: Path) -> None:
    rows = [
        {"id": "7", "output": "Rye."},
        {"id": "8", "category": GROUP, "output": ANSWER},
        {"id": "8", "output": ANSWER["answer"], "sample": 1},
        {"id": "9", "output": None},
    ]
    path = write(tmp_path / "answers.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    parsed = outputs(path)
    keys = [(output.entry.id, output.sample) for output in parsed]
    assert keys == [("7", 0), ("8", 0), ("8", 1), ("9", 0)]
    for output in parsed:
        verdict = verdicts(output.entry, output.episode.state)["official"]
        assert verdict.error_type == "not_judged"
    assert parsed[0].episode.output == "Rye."
    episode = parsed[1].episode
    assert episode.state == parsed[2].episode.state
    assert episode.output == "Rye, at the “Mill”."
    assert episode.state["answer"] == {"query": QUERY, "answer": ANSWER["answer"]}
    assert [call["api"] for call in episode.state["calls"]] == ["Breads", "Shops", "Breads"]


def test_a_result_file_is_read(tmp_path: Path) -> None:
    ours = state(SCRIPTS["answered"], None)
    text = result_json(*HEAD, [(ENTRY, ours), (entry("8"), ours), (ENTRY, ours)]).decode()
    parsed = outputs(write(tmp_path / "any.name", text))
    assert [(output.entry.id, output.sample) for output in parsed] == [("7", 0), ("8", 0), ("7", 1)]
    for output in parsed:
        assert output.episode.output == "Rye, at the “Mill”."
        assert judged(output.episode.state) == judged(ours)


def refused(path: Path, message: str) -> None:
    with pytest.raises(UserError) as caught:
        outputs(path)
    assert message in str(caught.value)


def test_bad_answers_and_votes_are_named(tmp_path: Path) -> None:
    refused(tmp_path, "contains no <group>.json")
    refused(tmp_path / "nowhere", "no such file or folder")
    refused(write(tmp_path / "x.jsonl", '{"id": "7", "output": 3}\n'), "the output is 3, not a")
    results = {"metadata": {}, "results": [{"query_id": "7", "system_answer": "Rye."}]}
    refused(write(tmp_path / "x.json", results), "has no answer (system_answer); give results")
    deep = '[{"role": "assistant", "message": "x", "next": ' * 450 + "[]" + "}]" * 450
    answer_text = f'{{"7": {{"answer": {{"final_answer": "x", "answer_details": {deep}}}}}}}'
    for text, problem in (("{}", "contains no answers"), (answer_text, "too deeply")):
        with pytest.raises(UserError, match=problem):
            read_reference(folder(tmp_path / "reference", text), [GROUP])
    folder(tmp_path, {"7": ANSWER}, {"7": solved("Solved")})
    write(tmp_path / f"{GROUP}_other.json", {})
    refused(tmp_path, "contains two files of votes")


RIGHT = {"7": ANSWER}


@pytest.mark.parametrize(
    ("answers", "votes", "problem"),
    [
        ('{"7": {}, "7": {}}', None, "appears twice"),
        ({"77": ANSWER}, None, f"the nearest known id of en/{GROUP} is '7'"),
        ({"7": ANSWER | {"query": "Which cake?"}}, None, "but in the data it is"),
        (RIGHT, {}, "query 7: has no votes, but other queries"),
        (RIGHT, {"7": {"is_solved": {"0": ["Solved"]}}}, "a vote is ['Solved']"),
        (RIGHT, {"7": solved(*["Solved"] * 101)}, "has no votes"),
    ],
    ids=["id twice", "unknown id", "other query", "no votes", "list as vote", "many votes"],
)
def test_an_answer_or_a_vote_that_does_not_fit_is_named(tmp_path, answers, votes, problem) -> None:
    refused(folder(tmp_path, answers, votes), problem)


CONFIG = {"evaluator_model": "judge", "evaluation_method": "official"}
HEAD = ("SmolLM2", "G1_tool", CONFIG, 15.58)


def written(*rows: tuple[Entry, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads(result_json(*HEAD, rows))
    return tree


def test_the_file_has_the_documented_form() -> None:
    relevant = [["Bakery Finder", "Breads"], ["Bakery Finder", "Cakes"]]
    hopeless = state(SCRIPTS["hopeless"], ["Unsolved"] * 3) | {"judged_s": 0.5}
    solved = (entry("588"), state(SCRIPTS["answered"], ["Solved"] * 3) | {"judged_s": 1.5})
    tree = written(solved, (entry("608", relevant), hopeless), (entry("1073"), {}))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", tree["metadata"].pop("timestamp"))
    config = {"test_set": "G1_tool", "num_queries": 3, **CONFIG}
    head = {"framework": "SmolLM2", "config": config, "overall_time": 15.58}
    assert tree["metadata"] == head
    numbers: dict[str, Any] = {"total_queries": 2, "total_evaluations": 2, "not_scored": 1}
    numbers |= {"finish_count": 1, "average_sopr_score": 0.5, "average_api_call_score": 0.75}
    numbers |= {"total_evaluation_time": 2.0, "average_evaluation_time": 1.0}
    assert tree["summary"] == numbers | {"solved_count": 1, "solved_percentage": 50.0}
    first, second = tree["results"]
    keys = ["query_id", "query_text", "gold_answer", "system_answer"]
    assert list(first) == [*keys, "scores", "evaluation", "timing"]
    assert (first["query_id"], second["query_id"], first["query_text"]) == ("588", "608", QUERY)
    (tool,) = first["gold_answer"]["available_tools"]
    assert [api["api_name"] for api in tool["apis"]] == ["Breads", "Shops"]
    assert first["scores"] == {"sopr_score": 1.0, "api_call_score": 1.0}
    evaluation = {"answer_status": "Solved", "has_finish": True}
    assert first["evaluation"] == evaluation | {"evaluation_method": "official"}
    assert first["system_answer"]["final_answer"] == "Rye, at the “Mill”."
    assert second["scores"] == {"sopr_score": 0.0, "api_call_score": 0.5}
    assert second["evaluation"]["has_finish"] is False
    # Two samples of a query are two evaluations.
    summary = written(solved, solved)["summary"]
    assert (summary["total_queries"], summary["total_evaluations"]) == (1, 2)
    # A call of Finish anywhere counts; the metric ``finish`` wants it at the end.
    script: list[Any] = [(None, [("Finish", "{")]), (None, [(BREADS, {"q": "rye"})])]
    row_state = state(script, ["Unsolved"])
    assert written((entry("1"), row_state))["results"][0]["evaluation"]["has_finish"] is True
    assert verdicts(ENTRY, row_state)["official"].metrics["finish"] == 0
    # Scores are null without a judge.
    tree = written((entry("1"), state(SCRIPTS["answered"], None)))
    assert (tree["summary"]["solved_count"], tree["summary"]["not_scored"]) == (None, 1)
    assert tree["results"][0]["scores"] == {"sopr_score": None, "api_call_score": 1.0}


def test_odd_texts_and_arguments_leave_the_file_json() -> None:
    tree = written((entry("1"), state([(None, [answer("a\ud800b")])])))
    assert tree["results"][0]["system_answer"]["final_answer"] == "a�b"
    for arguments, expected in (('{"x": NaN}', {"x": "NaN"}), ("[" * 954 + "]" * 954, None)):
        agent_run = run([(None, [(BREADS, arguments)]), (None, [answer("Rye.")])])
        row_state = state(SCRIPTS["answered"]) | {"answer": convert_run(QUERY, agent_run)}
        (nodes,) = written((ENTRY, row_state))["results"][0]["system_answer"]["answer_details"]
        called = json.loads(nodes["next"][0]["next"][0]["message"])
        assert called["arguments"] == (expected or arguments)
