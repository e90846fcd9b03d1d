"""Answers of real models through every reader of model text.

The texts lie beside the project (``shared/data/real_outputs``): 908 native answers and 852 texts.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ace_ray.benchmarks.acebench.check.decode import decode as decode_acebench
from ace_ray.benchmarks.bfcl.decode import decode as decode_bfcl
from ace_ray.parsing.syntax import NotCalls
from tests.text_readers import READERS, checks_and_golds


def results(file: Path) -> list[object]:
    return [json.loads(line)["result"] for line in file.read_text().splitlines()]


@pytest.fixture
def prompted(real_outputs: Path) -> list[str]:
    return [str(result) for result in results(real_outputs / "bfcl_prompt_texts.jsonl")]


def test_no_reader_raises_on_what_real_models_wrote(
    real_outputs: Path, prompted: list[str]
) -> None:
    native = [json.dumps(result) for result in results(real_outputs / "bfcl_native.jsonl")]
    texts = native + prompted
    assert len(texts) == 1_760
    for name, read in {**READERS, **checks_and_golds()[0]}.items():
        for number, text in enumerate(texts):
            try:
                read(text, number)
            except Exception as error:  # noqa: BLE001 - what no reader may do
                pytest.fail(f"{name} on {text[:200]!r}: {error!r}")


def test_no_real_answer_is_refused_as_unsafe(prompted: list[str]) -> None:
    read = 0
    for text in prompted:
        try:
            decode_bfcl(text)
            read += 1
        except NotCalls:  # upstream's decoder raises on the same 584; `Refused` is another error
            continue
        finally:
            assert not decode_acebench(text, whole=False).unsafe
    assert read == 268
