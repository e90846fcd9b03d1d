"""Answers of real models through every reader of model text.

The texts lie beside the project (``shared/data/real_outputs``): 908 native answers and 852 texts.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ace_ray.benchmarks.acebench.check.decode import decode as decode_acebench
from ace_ray.benchmarks.bfcl.decode import decode as decode_bfcl
from ace_ray.calls import NotCalls
from perf.fuzz import readers
from tests.conftest import ROOT


def lines(name: str) -> list[dict[str, object]]:
    shared = Path(os.environ.get("ACE_RAY_SHARED") or ROOT.parent / "shared")
    file = shared / "data" / "real_outputs" / name
    if not file.is_file():
        pytest.skip("real outputs are not here; name the parent of their data/ with ACE_RAY_SHARED")
    return [json.loads(line) for line in file.read_text().splitlines()]


def prompted() -> list[str]:
    return [str(row["result"]) for row in lines("bfcl_prompt_texts.jsonl")]


def test_no_reader_raises_on_what_real_models_wrote() -> None:
    native = [json.dumps(row["result"]) for row in lines("bfcl_native.jsonl")]
    texts = native + prompted()
    assert len(texts) == 1_760
    for name, read in readers("mini")[0].items():
        for number, text in enumerate(texts):
            try:
                read(text, number)
            except Exception as error:  # noqa: BLE001 - what no reader may do
                pytest.fail(f"{name} on {text[:200]!r}: {error!r}")


def test_no_real_answer_is_refused_as_unsafe() -> None:
    read = 0
    for text in prompted():
        try:
            decode_bfcl(text)
            read += 1
        except NotCalls:  # upstream's decoder raises on the same 584; `Refused` is another error
            continue
        finally:
            assert not decode_acebench(text, whole=False).unsafe
    assert read == 268
