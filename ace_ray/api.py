"""The Python interface (``import ace_ray``): the commands as functions, and `Run` to read results.

The command line calls the same code. Progress and tables are printed on the rich ``console``; by
default only warnings are printed, on stderr.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

from ace_ray.config.schema import RunConfig, read_tree, run_config
from ace_ray.errors import COMPLETE, UserError
from ace_ray.storage.object_store import Store, open_store
from ace_ray.storage.stored import MANIFEST, SUCCESS, SUMMARY
from ace_ray.storage.stored_run import StoredRun
from ace_ray.types import ResultRow
from ace_ray.util import log
from ace_ray.util.safe_loading import json_object
from ace_ray.viewer.episode import EpisodeView
from ace_ray.viewer.row_filter import Filter, episodes, select, select_known

if TYPE_CHECKING:
    import pandas as pd

    from ace_ray.reports.comparison import Comparison
    from ace_ray.reports.gate import Decision

Config = str | Path | Mapping[str, Any] | RunConfig
Status = Literal["complete", "incomplete"]


class Run:
    """Read-only access to a stored run, complete or not, in a folder or at an ``s3://`` prefix.

    Rows that are stored after the run was opened are not visible."""

    def __init__(self, store: Store | str | Path) -> None:
        """Open the run in ``store``, or at a path. Raises `UserError` if there is no run."""
        self.store = open_store(str(store)) if isinstance(store, str | Path) else store
        self._stored = StoredRun(self.store)
        _ = self._stored.ledger  # read now: rows that are stored later are not visible

    @classmethod
    def open(cls, uri: str, *, endpoint_url: str | None = None, region: str | None = None) -> Run:
        """Open the run at ``uri``. ``endpoint_url`` and ``region`` name an S3-compatible store.

        Raises `UserError` if there is no run at ``uri``."""
        return cls(open_store(uri, endpoint_url=endpoint_url, region=region))

    def __repr__(self) -> str:
        return repr(self._stored)

    @property
    def uri(self) -> str:
        return self._stored.uri

    @property
    def run_id(self) -> str:
        return self._stored.manifest.run_id

    @property
    def manifest(self) -> Mapping[str, Any]:
        """Return the content of ``run.json``: config, identity, versions (docs/results.md)."""
        return dict(self._stored.manifest.tree)

    @property
    def ignored_files(self) -> Mapping[str, str]:
        """Return {file: reason} for stored files that cannot be read. `rows` lacks their rows."""
        return self._stored.ledger.ignored

    @property
    def status(self) -> Status:
        """Return ``complete`` or ``incomplete``. A complete run has no missing rows and no rows to
        evaluate again (status ``infra_error``)."""
        return "incomplete" if self.store.get(SUCCESS) is None else "complete"

    @property
    def summary(self) -> Mapping[str, Any] | None:
        """Return the content of ``summary.json`` (docs/results.md), or None if it does not exist.
        Raises `UserError` if the file is damaged."""
        content = self.store.get(SUMMARY)
        return None if content is None else json_object(content, f"{self.uri}/{SUMMARY}")

    def rows(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows as an Arrow table (columns: docs/results.md), without rows that were
        generated a second time for the config key ``repeat_fraction``.

        Raises `UserError` if a stored file cannot be read, or a column does not exist."""
        stored_schema = self._stored.ledger.schema
        if unknown := [name for name in columns or () if name not in stored_schema.names]:
            fix = f"choose from {', '.join(stored_schema.names)}"
            raise UserError(f"rows have no column {unknown[0]!r}", where=self.uri, fix=fix)
        names = list(columns or stored_schema.names)
        tables = [
            table.filter(pc.equal(table.column("repeat"), 0)).select(names)
            for table in self._stored.ledger.tables(list(dict.fromkeys([*names, "repeat"])))
        ]
        schema = pa.schema([stored_schema.field(name) for name in names])
        return pa.concat_tables(tables) if tables else schema.empty_table()

    def dataframe(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Return `rows` as a pandas data frame. pandas must be installed."""
        return self.rows(columns).to_pandas()

    def episodes(self, **filters: Any) -> Iterator[EpisodeView]:
        """Yield each matching row with its prompt, answers, calls and verdicts.

        ``filters``: fields of a `Filter`, as in ``run.episodes(category="simple", valid=False)``.
        Raises `UserError` if the value of a filter does not occur in the run."""
        return episodes(self._stored, select_known(self._stored, Filter(**filters)))

    def episode(self, entry: str, *, sample: int = 0, **filters: Any) -> EpisodeView:
        """Return one row. ``entry`` is the id of its entry, or the beginning of the row's id.
        ``filters``: further fields of a `Filter`. Raises `UserError` unless one row matches."""
        views = [
            view
            for view in self.episodes(entry=entry, sample=sample, **filters)
            if not view.facts["repeat"]
        ]
        if len(views) != 1:
            keys = "; ".join(", ".join(filter(None, view.key.values())) for view in views[:5])
            fix = "choose one with language=, category= or benchmark="
            raise UserError(f"matches {len(views)} rows: {keys}", where=entry, fix=fix)
        return views[0]

    def changed(self, other: Run, **filters: Any) -> list[ResultRow]:
        """Return the matching rows of this run that have a different verdict in the run ``other``.
        ``filters``: fields of a `Filter`."""
        return select(self._stored, Filter(**filters), other._stored)


def evaluate(
    config: Config | None = None,
    *,
    model: str | None = None,
    benchmarks: str | Sequence[str | Mapping[str, Any]] | None = None,
    output: str | None = None,
    limit: int | None = None,
    ids: str | Sequence[str] | None = None,
    resume: bool = True,
    console: Console | None = None,
    **settings: Any,
) -> Run:
    """Evaluate a model and return its run. The same call continues an incomplete run.

    Args:
        config: a file, the name of a shipped config, a mapping, or a `RunConfig`. If it is None,
            ``model`` and ``benchmarks`` are required.
        model: replaces the config's ``model.source``.
        benchmarks: names, or sections as in a config.
        output: folder or ``s3://bucket/prefix`` of the run folders.
        limit: evaluate at most this many entries, taken from every category in turn.
        ids: evaluate only these entries: ``ID``, ``CATEGORY/ID`` or ``LANGUAGE/CATEGORY/ID``.
        resume: continue a stored run. False deletes it and starts again.
        console: shows the progress; by default only warnings are shown.
        settings: further keys of a config (docs/configuration.md): ``engine={...}``,
            ``sampling={...}``, ``backend="fake"`` for tests of the calling code.

    Raises:
        UserError: if the run cannot start as configured. Then nothing was written.
        RunFailed: if the cluster or the engines failed. Stored rows stay.
    """
    from ace_ray.integrations.trackers import check_publishers
    from ace_ray.pipeline.evaluate import evaluate as run

    settings = {**settings, "output": output, "limit": limit, "ids": _id_list(ids)}
    configuration = _config(config, model, benchmarks, settings)
    check_publishers(configuration.publish)
    with _output(console) as log_console:
        code, summary = run(configuration, fresh=not resume, console=log_console)
        if code == COMPLETE and summary["complete"]:
            from ace_ray.integrations.publisher import publish_run

            publish_run(summary["uri"], configuration)
    return Run.open(summary["uri"], **configuration.store.model_dump())


def score(
    path: str | Path,
    *,
    benchmark: str | None = None,
    output: str | None = None,
    data: str | None = None,
    options: Mapping[str, Any] | None = None,
    model: str | None = None,
    fresh: bool = False,
    judge: str | Path | None = None,
    endpoint_url: str | None = None,
    region: str | None = None,
    console: Console | None = None,
) -> Run:
    """Score external outputs, or judge the stored episodes of a run again. Return the run.

    With ``output``, ``path`` names external outputs, and ``output`` is the place of the new run.
    ``fresh`` replaces the run of other outputs there. ``options`` are the benchmark's. Without
    ``output``, ``path`` is a run. ``judge`` is a file with the judge's section of a config, an
    endpoint: it judges answers that no judge saw. ``endpoint_url`` and ``region`` name an
    S3-compatible store. Raises `UserError` if run, outputs or judge cannot be used."""
    from ace_ray.rescoring.rejudge import score as score_path

    opens = partial(open_store, endpoint_url=endpoint_url, region=region)
    names, file = [benchmark] if benchmark else [], None if judge is None else str(judge)
    settings = {"data": data, "options": options, "model": model, "fresh": fresh}
    with _output(console):
        score_path(str(path), names, output, file, opens=opens, **settings)
    return Run(opens(output or str(path)))


def sweep(
    config: str | Path,
    *,
    output: str | None = None,
    limit: int | None = None,
    ids: str | Sequence[str] | None = None,
    console: Console | None = None,
) -> list[Run]:
    """Evaluate all models of the sweep in the file ``config``. Return the runs that have begun.

    Raises `UserError` if the sweep cannot start as configured."""
    from ace_ray.integrations.publisher import run_and_publish
    from ace_ray.integrations.trackers import check_publishers
    from ace_ray.sweep.config import load_sweep
    from ace_ray.sweep.sweep import Sweep

    options = {"output": output, "limit": limit, "ids": _id_list(ids)}
    values = {name: value for name, value in options.items() if value is not None}
    loaded = load_sweep(str(config), (), values)
    check_publishers(loaded.any_run.publish)
    with _output(console):
        runner = Sweep(loaded)
        run_and_publish(runner)
    plans = [run.plan for run in runner.runs if run.plan is not None]
    stores = [open_store(plan.uri, **plan.config.store.model_dump()) for plan in plans]
    return [Run(store) for store in stores if store.get(MANIFEST) is not None]


def report(
    runs: str | Run | Sequence[str | Run],
    *,
    output: str | None = None,
    rules: str | None = None,
    paper: bool = False,
    console: Console | None = None,
) -> str | None:
    """Write a report on runs or on one sweep, and print it on ``console``. Return the URI of its
    page.

    Without ``output``, a report on one run or sweep is written to its subfolder ``report/``. A
    report on several runs is then only printed, and the result is None. ``rules``: rule set to show
    first. ``paper``: add the tables of the benchmark's paper. Raises `UserError` if a run cannot be
    read."""
    from ace_ray.reports.report import make_report

    uris, opens = _uris_and_opener([runs] if isinstance(runs, str | Run) else runs)
    tables = console or Console(quiet=True)
    with _output(console):
        return make_report(uris, paper=paper, out=output, rules=rules, console=tables, opens=opens)


def compare(
    runs: Sequence[str | Run],
    *,
    reference: str | Run | None = None,
    rules: str = "both",
    groups: Sequence[str] = (),
    across: Sequence[str] = (),
    allow_different: bool = False,
    margin: float = 1.0,
    full: bool = False,
    output: str | None = None,
    console: Console | None = None,
) -> Comparison:
    """Compare finished runs with each other or with ``reference`` (a label or a folder), entry by
    entry (docs/statistics.md). ``across``: ("sampling",) if the sampling differs. ``margin``: in
    points. The comparison is printed on ``console``, with ``full`` in more than 40 lines.

    Raises `NotComparable` when the runs differ in a condition that can change scores, and
    `UserError` when a run cannot be compared for another reason."""
    from ace_ray.reports.compare import compare as compare_runs

    uris, opens = _uris_and_opener(runs)
    return compare_runs(
        uris,
        rules=rules,
        out=output,
        reference=reference.uri if isinstance(reference, Run) else reference,
        groups=groups,
        across=across,
        allow_different=allow_different,
        margin=margin,
        full=full,
        with_flips=False,
        console=console or Console(quiet=True),
        opens=opens,
    )


def gate(
    policy: str | Path | Mapping[str, Any], run: str | Run, *, against: str | Run | None = None
) -> Decision:
    """Decide by a policy, a file or a mapping, whether a run is good enough (docs/provider.md).

    ``against``: the baseline. Raises `UserError` for a wrong policy, and for runs without shared
    rows."""
    from ace_ray.reports.gate import gate as decide

    (uri, *baseline), opens = _uris_and_opener([run] if against is None else [run, against])
    source = str(policy) if isinstance(policy, Path) else policy
    return decide(source, uri, next(iter(baseline), None), opens)


def publish(run: str | Run, to: str, *, console: Console | None = None, **options: Any) -> None:
    """Send the numbers of a run, or of a sweep's folder, to the tracker ``to`` (docs/trackers.md).

    Numbers that the tracker has are not sent again. ``options``: options of the tracker. Raises
    `UserError` if an option is invalid, there are no results, or the tracker failed."""
    from ace_ray.integrations.publisher import publish as send

    with _output(console):
        send(run.store if isinstance(run, Run) else open_store(run), to, options)


def reread(
    run: str | Run, *, output: str | None = None, console: Console | None = None, **options: Any
) -> Run:
    """Read a run's stored answers again with another parser or another vLLM, without an engine.
    Return the new run. The changes are printed on ``console``.

    ``options``: ``tool_parser``, ``reasoning_parser``, ``plugins``, ``python``, ``tokenizer`` and
    ``benchmarks``, as for ``ace-ray reread``. Raises `UserError` if the run did not use vLLM, the
    tokenizer is missing or a parser is unknown."""
    from ace_ray.reports.explain import print_reparse
    from ace_ray.rescoring.reparse import reparse_run

    ((uri,), opens) = _uris_and_opener([run])
    with _output(console):
        result = reparse_run(uri, output=output, opens=opens, **options)
    if console is not None:
        print_reparse(result, opens, console)
    return Run(opens(result.uri))


def export(
    run: str | Run,
    to: Literal["inspect", "lm-eval", "hf"],
    *,
    output: str | None = None,
    dataset: str | Mapping[str, str] | None = None,
) -> list[str]:
    """Export a run to the file format of another tool. Return the URIs of the files.

    ``output``: folder or ``s3://`` prefix, by default ``export/`` in the run. ``dataset``, for
    "hf": Hub id of the benchmark's dataset; for several benchmarks, a mapping from their names.
    Raises `UserError` if the results cannot be exported."""
    from ace_ray.integrations.result_files import export_run

    ((uri,), opens) = _uris_and_opener([run])
    datasets = [dataset] if isinstance(dataset, str) else []
    if isinstance(dataset, Mapping):
        datasets = [f"{benchmark}={name}" for benchmark, name in dataset.items()]
    return export_run(opens(uri), to, opens(output) if output else None, datasets)


@contextmanager
def _output(console: Console | None) -> Iterator[Console]:
    """Print log lines on ``console``; without it, only warnings and errors, on stderr."""
    if console is None:
        with log.quiet() as stderr:
            yield stderr
    else:
        with log.use_console(console):
            yield console


def _id_list(ids: str | Sequence[str] | None) -> list[str] | None:
    return [ids] if isinstance(ids, str) else ids if ids is None else list(ids)


def _uris_and_opener(runs: Sequence[str | Run]) -> tuple[list[str], Callable[[str], Store]]:
    """Return the URIs of ``runs``, and a function that opens a URI or reuses the run's store."""
    stores = {run.uri: run.store for run in runs if isinstance(run, Run)}
    uris = [run.uri if isinstance(run, Run) else run for run in runs]
    return uris, lambda uri: stores.get(uri) or open_store(uri)


def _config(
    config: Config | None,
    model: str | None,
    benchmarks: str | Sequence[str | Mapping[str, Any]] | None,
    settings: Mapping[str, Any],
) -> RunConfig:
    """Build a `RunConfig` from the arguments of `evaluate`. Raises `UserError` if the config is not
    valid."""
    if isinstance(config, RunConfig):
        config = config.model_dump(mode="json", exclude_unset=True)
    source = str(config) if isinstance(config, Path) else config
    sections = [benchmarks] if isinstance(benchmarks, str) else benchmarks
    fields = {"benchmarks": sections, **settings}
    values = {name: value for name, value in fields.items() if value is not None}
    overrides = [] if model is None else [f"model.source={json.dumps(model)}"]
    tree = read_tree(source, overrides, values)
    return run_config(tree, where=source if isinstance(source, str) else "evaluate()")
