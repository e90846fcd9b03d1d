"""Converted answers of many queries: written as upstream has them, read for SoWR."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.stabletoolbench.results.answers import converted_json, read_reference
from ace_ray.benchmarks.stabletoolbench.results.convert import converted
from ace_ray.errors import UserError
from tests.benchmarks.stabletoolbench.stb_rows import QUERY, SCRIPTS, TOOLS, run

ANSWER = converted(QUERY, TOOLS, run(SCRIPTS["answered"]))
OTHER = converted(QUERY, TOOLS, run(SCRIPTS["beside"]))


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    pieces = list(converted_json([("1", ANSWER), ("2", OTHER), ("1", OTHER)]))
    assert len(pieces) == 4
    (tmp_path / "G1_tool.json").write_bytes(b"".join(pieces))
    found = read_reference(tmp_path, ["G1_tool", "G2_category"])
    read = {
        group: {one: json.loads(text) for one, text in of.items()} for group, of in found.items()
    }
    assert read == {
        "G1_tool": {"1": ANSWER["answer"], "2": OTHER["answer"]},
        "G2_category": {},
    }


def test_no_answers_are_an_empty_object() -> None:
    assert json.loads(b"".join(converted_json([]))) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not valid JSON"),
        ("[]", "holds a list"),
        ('{"1": 3}', "query 1: has no converted answer"),
        ('{"1": {"answer": {"final_answer": 3, "answer_details": []}}}', "query 1: has no"),
        ('{"1": {}, "1": {}}', "appears twice"),
        ("{}", "holds no answers of these groups"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_reference_that_is_none(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "G1_tool.json").write_text(text)
    with pytest.raises(UserError, match=said):
        read_reference(tmp_path, ["G1_tool"])


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no answers"):
        read_reference(tmp_path / "nowhere", ["G1_tool"])


def test_the_published_shape(tmp_path: Path) -> None:
    """A root without anything below, as upstream converts a run that never began."""
    tree: dict[str, Any] = {"role": "system", "message": "", "next": []}
    answer: dict[str, Any] = {"method": "CoT@1", "total_steps": 1, "final_answer": ""}
    answer["answer_details"] = [tree]
    text = json.dumps({"588": {"query": "q", "available_tools": [], "answer": answer}})
    (tmp_path / "G1_tool.json").write_text(text)
    assert read_reference(tmp_path, ["G1_tool"])["G1_tool"]["588"] == json.dumps(answer)
