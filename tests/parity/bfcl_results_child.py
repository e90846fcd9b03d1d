"""Child process: upstream's ``bfcl evaluate`` over a result folder.

``python bfcl_results_child.py PACKAGE_PARENT RESULT_FOLDER``, in an empty folder, with
``BFCL_PROJECT_ROOT`` set to one. Models whose name ends in ``-FC`` have OpenAI's handler,
``-Qwen-FC`` Qwen's, all others that of prompts. Prints one JSON object: ``{model: {id: error
type}}``, "" for a valid answer. Upstream executes the folder's answers: give it none of a model.
"""

import io
import json
import sys
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

from bfcl_child import prepare
from official_child import stub


def main(parent: str, results: str) -> None:
    prepare(parent)
    stub("overrides", override=lambda method: method, final=lambda method: method)
    stub("openai", OpenAI=object, RateLimitError=Exception)
    stub("bfcl_eval.model_handler.local_inference.base_oss_handler", OSSHandler=object)
    by_model: dict[str, dict[str, str]] = {}

    def save(failed: Any, correct: int, rows: Any, _: Any, model: str, *a: Any, **k: Any) -> Any:
        verdicts = by_model.setdefault(model, {})
        verdicts.update({row["id"]: "" for row in rows})
        for row in failed:
            error = row.get("error")
            inner = error["error_type"] if isinstance(error, dict) else None
            verdicts[row["id"]] = str(row.get("error_type") or inner)
        assert sum(not verdicts[row["id"]] for row in rows) == correct
        return correct / len(rows), len(rows)

    utils: Any = import_module("bfcl_eval.utils")
    unused = (
        *("record_cost_latency", "record_result", "generate_leaderboard_csv"),
        "update_leaderboard_table_with_local_score_file",
    )
    helpers = {**dict.fromkeys(unused, lambda *_: None), "save_eval_results": save}
    stub("bfcl_eval.eval_checker.eval_runner_helper", __all__=list(helpers), **helpers)
    runner: Any = import_module("bfcl_eval.eval_checker.eval_runner")
    openai: Any = import_module("bfcl_eval.model_handler.api_inference.openai_completion")
    qwen: Any = import_module("bfcl_eval.model_handler.local_inference.qwen_fc")

    def handler(model: str) -> Any:
        kind = qwen.QwenFCHandler if model.endswith("-Qwen-FC") else openai.OpenAICompletionsHandler
        instance = object.__new__(kind)
        instance.is_fc_model = model.endswith("-FC")
        return instance

    runner.get_handler = handler
    with redirect_stdout(io.StringIO()):
        runner.runner(None, utils.ALL_CATEGORIES, Path(results), Path("score"), allow_missing=True)
    print(json.dumps(by_model))


if __name__ == "__main__":
    main(*sys.argv[1:])
