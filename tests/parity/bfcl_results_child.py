"""Child process: upstream's ``bfcl evaluate`` over a result folder.

``python bfcl_results_child.py PACKAGE_PARENT RESULT_FOLDER``, in an empty folder, with
``BFCL_PROJECT_ROOT`` set to one. Models whose name ends in ``-FC`` have OpenAI's handler,
``-Qwen-FC`` Qwen's, all others that of prompts. Prints one JSON object: ``{model: {id: error
type}}``, "" for a valid answer. Upstream executes the folder's answers: give it none of a model.
"""

from __future__ import annotations

import io
import json
import sys
import types
import warnings
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any


def _stub(name: str, **attributes: Any) -> None:
    module = types.ModuleType(name)
    vars(module).update(attributes)
    sys.modules[name] = module


class _Models(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        # Qwen's handler offers names with dots.
        return types.SimpleNamespace(
            underscore_to_dot=name.endswith("-FC") and not name.endswith("-Qwen-FC")
        )


def main(parent: str, results: str) -> None:
    sys.path.append(parent)
    sys.dont_write_bytecode = True
    warnings.simplefilter("ignore")
    _stub("dotenv", load_dotenv=lambda *a, **k: None)
    _stub("tqdm", tqdm=lambda items, **k: items)
    _stub("overrides", override=lambda method: method, final=lambda method: method)
    _stub("openai", OpenAI=object, RateLimitError=Exception)
    _stub("bfcl_eval.constants.model_config", MODEL_CONFIG_MAPPING=_Models())
    _stub("bfcl_eval.model_handler.base_handler", BaseHandler=object)
    _stub("bfcl_eval.model_handler.local_inference.base_oss_handler", OSSHandler=object)
    found: dict[str, dict[str, str]] = {}

    def save(failed: Any, correct: int, rows: Any, _: Any, model: str, *a: Any, **k: Any) -> Any:
        verdicts = found.setdefault(model, {})
        verdicts.update({row["id"]: "" for row in rows})
        for one in failed:
            error = one.get("error")
            inner = error["error_type"] if isinstance(error, dict) else None
            verdicts[one["id"]] = str(one.get("error_type") or inner)
        assert sum(not verdicts[row["id"]] for row in rows) == correct
        return correct / len(rows), len(rows)

    def nothing(*_: Any) -> None:
        return None

    utils: Any = __import__("bfcl_eval.utils", fromlist=["x"])
    helpers = {
        "save_eval_results": save,
        "record_cost_latency": nothing,
        "record_result": nothing,
        "update_leaderboard_table_with_local_score_file": nothing,
        "generate_leaderboard_csv": nothing,
    }
    _stub("bfcl_eval.eval_checker.eval_runner_helper", __all__=list(helpers), **helpers)
    runner: Any = __import__("bfcl_eval.eval_checker.eval_runner", fromlist=["x"])
    openai: Any = __import__(
        "bfcl_eval.model_handler.api_inference.openai_completion", fromlist=["x"]
    )
    qwen: Any = __import__("bfcl_eval.model_handler.local_inference.qwen_fc", fromlist=["x"])

    def handler(model: str) -> Any:
        kind = qwen.QwenFCHandler if model.endswith("-Qwen-FC") else openai.OpenAICompletionsHandler
        made = object.__new__(kind)
        made.is_fc_model = model.endswith("-FC")
        return made

    runner.get_handler = handler
    with redirect_stdout(io.StringIO()):
        runner.runner(None, utils.ALL_CATEGORIES, Path(results), Path("score"), allow_missing=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
