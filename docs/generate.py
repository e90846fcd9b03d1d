"""``make docs`` writes configuration.md from the config's models, and the table of hazards in
serving-variants.md; a test holds them together."""

from __future__ import annotations

import ast
import inspect
import sys
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ace_ray.benchmarks.acebench.options import Options as ACEBenchOptions
from ace_ray.benchmarks.bfcl.options import EmbeddingsConfig, ServiceConfig, WebSearchConfig
from ace_ray.benchmarks.bfcl.options import Options as BFCLOptions
from ace_ray.benchmarks.calls.benchmark import Options as CallsOptions
from ace_ray.benchmarks.stabletoolbench.apis.real import RealConfig
from ace_ray.benchmarks.stabletoolbench.judge_check import JudgeOptions
from ace_ray.benchmarks.stabletoolbench.options import Options as StableToolBenchOptions
from ace_ray.benchmarks.tau2.options import Options as Tau2Options
from ace_ray.config.roles import EndpointRole, ServedRole
from ace_ray.config.schema import (
    BenchmarkConfig,
    CandidateEndpoint,
    EarlyConfig,
    EndpointConfig,
    ModelConfig,
    PublishConfig,
    RunConfig,
    SamplingConfig,
    StoreConfig,
)
from ace_ray.integrations.trackers import (
    MLflowOptions,
    ProjectOptions,
    TensorBoardOptions,
)
from ace_ray.models.hazards import HAZARDS
from ace_ray.sweep.config import NotifyConfig, SweepModel, SweepOptions

PAGE = Path(__file__).with_name("configuration.md")
VARIANTS = Path(__file__).with_name("serving-variants.md")

INTRODUCTION = """# Configuration

A run is a YAML file. `--set a.b=c` overrides one key; its value is YAML, and list items have
numbers: `--set benchmarks.0.data=...`. All unknown keys are reported at once, each with the
section where it belongs or the nearest known name. The `config` of a stored `run.json` runs again
unchanged.

Paths of files and folders that a config reads are relative to the config: those that begin with
`./` or `../`, and those with a slash or a suffix that exist beside it (`data: cases.jsonl`,
`chat_template: templates/mine.jinja`, `name: bench.py:Mine`). Paths to write (`output`, `folder` of
trackers) and paths on the command line (`--set`, `--model`) are relative to the working directory.

This page is generated from the config models (`make docs`).
"""

SAMPLING = """\
Sampling of a run's candidate or of a role; the ranges are vLLM's. A run's values apply to the
candidate in all benchmarks; where upstream has its own values, write them here. Roles use
upstream's values where a benchmark says so (ACEBench's user, StableToolBench's simulator and
judge), unless the role has a `sampling`.

`sampling: model` uses the values that the model's makers recommend. temperature, top_p, top_k,
min_p, the penalties and max_tokens come from its `generation_config.json`, as in vLLM's server.
The temperature is 1 if the file names none. Other keys of the section override the file:

```yaml
sampling: {defaults: model, max_tokens: 4096}
```

A model without recommended values is refused. The values in effect are stored in `run.json`,
whose config samples the same again, and are part of every row's id. The file of a model behind an
endpoint cannot be read: write the values. An endpoint gets only keys that differ from their
default. `min_p`, `repetition_penalty`, `thinking_token_budget` and `top_k` are vLLM's own, and
other servers may refuse them.

`reasoning_effort` is a variable of the chat template. It is refused if the template does not use
it; for other variables see `model.chat_template_kwargs`. Endpoints get it as a field of requests.

Each row has its own seed, derived from `seed`, the sample and the entry's key. With one seed for
all rows an engine draws the same noise for each row, and comparisons of runs show differences that
do not exist."""

SECTIONS: list[tuple[str, str, type[BaseModel]]] = [
    (
        "A run",
        "Keys of `ace-ray evaluate CONFIG`. Most configs need only keys of the first table. "
        "`engine: {tensor_parallel_size: 2}` gives each engine two GPUs.",
        RunConfig,
    ),
    ("model", "Model of a run, or of a served role.", ModelConfig),
    ("endpoint", "Endpoint of a role; see [Endpoints](endpoints.md).", EndpointConfig),
    ("model.endpoint", "Endpoint of a run's candidate.", CandidateEndpoint),
    ("sampling", SAMPLING, SamplingConfig),
    ("early", "Early stopping of a run or a sweep; see [Early decisions](early.md).", EarlyConfig),
    ("store", "S3 settings; credentials come from the environment.", StoreConfig),
    (
        "benchmarks",
        "Keys of every item of `benchmarks`; the keys of each benchmark are below. A benchmark's "
        "own `limit` or `ids` overrides the run's; `--limit` and `--id` override both. "
        "`ace-ray list categories` prints the valid names of categories, languages, groups and "
        "domains.",
        BenchmarkConfig,
    ),
    (
        "benchmarks: acebench",
        "Keys of the item `{name: acebench, ...}` of `benchmarks`; see [ACEBench](acebench.md).",
        ACEBenchOptions,
    ),
    (
        "benchmarks: bfcl",
        "Keys of the item `{name: bfcl, ...}` of `benchmarks`; see [BFCL](bfcl.md).",
        BFCLOptions,
    ),
    ("web_search", "Section `web_search` of bfcl.", WebSearchConfig),
    ("A service", "Sections `web_search.search` and `web_search.fetch` of bfcl.", ServiceConfig),
    ("embedding", "Section `embedding` of bfcl: a service with a model.", EmbeddingsConfig),
    (
        "benchmarks: calls",
        "Keys of the item `{name: calls, ...}` of `benchmarks`; see [Own calls](calls.md).",
        CallsOptions,
    ),
    (
        "benchmarks: stabletoolbench",
        "Keys of the item `{name: stabletoolbench, ...}` of `benchmarks`; see "
        "[StableToolBench](stabletoolbench.md).",
        StableToolBenchOptions,
    ),
    ("real", "Section `real` of stabletoolbench.", RealConfig),
    (
        "benchmarks: tau2",
        "Keys of the item `{name: tau2, ...}` of `benchmarks`; see [tau2-bench](tau2.md).",
        Tau2Options,
    ),
    (
        "benchmarks: stabletoolbench_judge",
        "Benchmark of `ace-ray judge check`; the run's model is the judge.",
        JudgeOptions,
    ),
    (
        "Roles: a served model",
        "A role, such as acebench's `user`, is `same` (the candidate's engine), a served "
        "model with "
        "these keys, or an endpoint.",
        ServedRole,
    ),
    ("Roles: an endpoint", "Role that any OpenAI-compatible server plays.", EndpointRole),
    (
        "publish",
        "Items of a run's or a sweep's `publish`, besides the tracker's own keys; see "
        "[Trackers](trackers.md).",
        PublishConfig,
    ),
    ("publish: tensorboard", "Keys of the item `{tracker: tensorboard, ...}`.", TensorBoardOptions),
    ("publish: trackio", "Keys of the item `{tracker: trackio, ...}`.", ProjectOptions),
    ("publish: wandb", "Keys of the item `{tracker: wandb, ...}`.", ProjectOptions),
    ("publish: mlflow", "Keys of the item `{tracker: mlflow, ...}`.", MLflowOptions),
    (
        "A sweep",
        "Keys of `ace-ray sweep CONFIG`, besides those of a run (all but `model.source` and "
        "`run_id`); see [Sweeps](sweeps.md).",
        SweepOptions,
    ),
    ("models", "Items of a sweep's `models`.", SweepModel),
    (
        "notify",
        "Receiver of a document on each finished model of a sweep: `url`, `url_env` or `command`.",
        NotifyConfig,
    ),
]


TITLES = {model: title for title, _, model in SECTIONS}
LIKE: dict[type[BaseModel], type[BaseModel]] = {SweepModel: ModelConfig}
"""Sections with keys of another one, besides those that inherit them."""
FIRST: dict[type[BaseModel], tuple[str, ...]] = {
    RunConfig: (
        *("model", "benchmarks", "output", "limit"),
        *("engine", "workers", "sampling", "samples", "run_id"),
    )
}
"""Keys that most configs set. They have a table of their own, before the other keys."""


def page() -> str:
    parts = [INTRODUCTION]
    for title, about, model in SECTIONS:
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        parts.append(f"## {title}\n")
        if about:
            parts.append(f"{about}\n")
        for other in (*model.__mro__[1:], LIKE.get(model)):
            if other in TITLES:
                there = [name for name in fields if name in other.model_fields]
                parts.append(f"As in `{TITLES[other]}`: {', '.join(map('`{}`'.format, there))}.\n")
                fields = {name: fields[name] for name in fields if name not in there}
        documented, first = meanings(model), FIRST.get(model, ())
        if first:
            parts += [*_table({name: fields[name] for name in first}, documented), "Other keys:\n"]
        others = {name: field for name, field in fields.items() if name not in first}
        parts += _table(others, documented)
    return "\n".join(parts).rstrip() + "\n"


def hazards() -> str:
    """Return serving-variants.md with the table of hazards."""
    text = VARIANTS.read_text(encoding="utf-8")
    head, _, rest = text.partition("<!-- table hazards -->\n")
    rest = rest[rest.index("<!-- end of table -->") :]
    lines = ["| name | vLLM | what | what to do | source |", "|---|---|---|---|---|"]
    for name, hazard in HAZARDS.items():
        versions = f"`{hazard.versions}`" if hazard.versions else "all to 0.32.0"
        lines.append(f"| `{name}` | {versions} | {hazard.what} | {hazard.fix} | {hazard.source} |")
    return "\n".join([f"{head}<!-- table hazards -->", "", *lines, "", rest])


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """Return the meaning of each key: the description of its field, or the docstring below it."""
    below: dict[str, str] = {}
    for section in model.__mro__[:-1]:
        if section is not BaseModel:
            (definition,) = ast.parse(inspect.getsource(section)).body
            assert isinstance(definition, ast.ClassDef)
            for field, text in pairwise(definition.body):
                if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                    words = ast.literal_eval(text.value).split()
                    below.setdefault(ast.unparse(field.target), " ".join(words))
    return {
        field.alias or name: field.description or below.get(name, "")
        for name, field in model.model_fields.items()
    }


def _table(fields: dict[str, FieldInfo], documented: dict[str, str]) -> list[str]:
    lines = [_line(name, field, documented[name]) for name, field in fields.items()]
    return ["| key | type | default | meaning |\n|---|---|---|---|", *lines, ""]


def _line(name: str, field: FieldInfo, meaning: str) -> str:
    cells = [f"`{name}`", _type(field.annotation), _default(field), meaning]
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _type(kind: Any) -> str:
    return f"`{_named(kind)}`"


def _named(kind: Any) -> str:
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _named(args[0])
    if origin is Literal:
        return ", ".join(str(choice) for choice in args)
    if origin in (Union, UnionType):
        return " or ".join("null" if part is NoneType else _named(part) for part in args)
    if origin is not None:
        inner = ", ".join(map(_named, args))
        return f"{origin.__name__}[{inner}]"
    return "any" if kind is Any else kind.__name__


def _default(field: FieldInfo) -> str:
    if field.default_factory is not None:
        made = field.default_factory()  # type: ignore[call-arg]
        return "its own defaults" if isinstance(made, BaseModel) else f"`{made!r}`"
    return "required" if field.default is PydanticUndefined else f"`{field.default!r}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    VARIANTS.write_text(hazards(), encoding="utf-8")
    sys.stdout.write(f"{PAGE.name}: {len(SECTIONS)} sections\n")
