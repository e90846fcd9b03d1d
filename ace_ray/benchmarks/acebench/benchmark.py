"""ACEBench behind the `Benchmark` protocol."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from ace_ray.benchmarks.acebench import categories as groups
from ace_ray.benchmarks.acebench import prompts as texts
from ace_ray.benchmarks.acebench.check import check
from ace_ray.benchmarks.acebench.data.loader import data_hash, load, locate
from ace_ray.benchmarks.acebench.scoring.summary import summarize
from ace_ray.benchmarks.acebench.scoring.table import HEADER, table
from ace_ray.benchmarks.protocol import Model, ScoredRow
from ace_ray.config import Section, validated
from ace_ray.errors import UserError
from ace_ray.records import Entry, Episode, Sampling, Verdict

_GROUPS = {
    "all": groups.GENERATION,
    "atom": groups.ATOM,
    "single_turn": groups.SINGLE_TURN,
    "multi_turn": groups.MULTI_TURN,
    "normal": groups.NORMAL,
    "special": groups.SPECIAL,
}


OFFICIAL_DATA_SHA256 = {
    ("en",): "e10a2ca5d401646cf7794219ab6a18269f1af00919ff2afbe823fe927d8f536e",
    ("zh",): "f37b329a5ee0fad38ab5a39bd8ffbea5ca15d4afadd0bbade17d911df7a994aa",
    ("en", "zh"): "7e2006ce71f2e0139c6d7f66b5aa0e78e534afabd46e4304307b3e33659377a2",
}
"""`data_hash` of all generation categories of the official data, by languages."""
OFFICIAL_PROMPTS_SHA256 = "cc08ad027bdf0c9cbe2b853f4573e20c986671b196b1ace69e7e8e81897b6228"


class Options(Section):
    """The ``acebench`` section of a run's config."""

    data: str = Field(
        "mini",
        description="mini (ships with ace_ray), imported, imported:VERSION, or a folder in the "
        "official layout",
    )
    languages: list[Literal["en", "zh"]] = Field(default=["en", "zh"], min_length=1)
    categories: list[str] = Field(
        default=["all"], min_length=1, description="category names or groups"
    )
    prompts: Literal["auto", "official", "own"] = Field(
        "auto", description="auto: official when the data holds them, else the project's wording"
    )
    variant: Literal["standard", "condensed", "minimal"] = Field(
        "standard", description="of the normal prompt, as in the paper's appendix D.4"
    )

    @field_validator("languages")
    @classmethod
    def _once(cls, names: list[str]) -> list[str]:
        return list(dict.fromkeys(names))


class ACEBench:
    """The 15 generation categories: one model call an entry."""

    name = "acebench"

    def __init__(self, options: Options) -> None:
        self._options = options
        self._folder = locate(options.data)
        self._wording = _wording(options, self._folder)
        self._prompts = (
            texts.official(self._folder, options.variant)
            if self._wording == "official"
            else texts.own(options.variant)
        )
        self._data_sha256 = ""

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> ACEBench:
        return cls(validated(Options, options, where="benchmarks.acebench"))

    def entries(self) -> Sequence[Entry]:
        entries = load(
            self._folder,
            languages=self._options.languages,
            categories=_chosen(self._options.categories),
        )
        self._data_sha256 = data_hash(entries)
        return entries

    def identity(self) -> Mapping[str, Any]:
        return {
            "data_sha256": self._data_sha256 or data_hash(self.entries()),
            "prompts": self._prompts.source,
            "prompts_sha256": self._prompts.sha256,
            "variant": self._prompts.variant,
            "protocol": {"mode": "prompt"},
        }

    def resolved(self) -> dict[str, Any]:
        options = self._options
        data = options.data
        if data.partition(":")[0] == "imported":
            data = f"imported:{self._folder.name}"
        elif data != "mini":
            data = str(self._folder.absolute())
        return {**options.model_dump(mode="json"), "data": data, "prompts": self._wording}

    def prompt(self, entry: Entry) -> list[dict[str, Any]]:
        return self._prompts.messages(entry)

    def interactive(self, entry: Entry) -> bool:
        return False

    async def run_episode(self, entry: Entry, model: Model, sampling: Sampling) -> Episode:
        episode = Episode(messages=self.prompt(entry))
        episode.record(await model.chat(episode.messages, sampling))
        return episode

    def check(self, entry: Entry, episode: Episode) -> Mapping[str, Verdict]:
        return check(entry, episode.output)

    def summarize(self, rows: Iterable[ScoredRow], max_unscored: float) -> dict[str, Any]:
        summary = summarize(rows, max_unscored=max_unscored)
        return {
            "prompts": self._prompts.source,
            "variant": self._prompts.variant,
            "comparable": self._comparable(),
            **summary,
            "table": {"header": list(HEADER), "lines": table(summary)},
        }

    def _comparable(self) -> str:
        if self._options.data == "mini":
            return "not comparable with any leaderboard: the mini set is ace_ray's own"
        if reasons := list(self._differences()):
            return "not comparable with the leaderboard: " + "; ".join(reasons)
        return "official data and prompts: the official rule set compares with the leaderboard"

    def _differences(self) -> Iterator[str]:
        """What sets this run apart from those of the leaderboard."""
        languages = tuple(sorted(self._options.languages))
        if set(_chosen(self._options.categories)) != set(groups.GENERATION):
            yield "not all categories"
        elif self.identity()["data_sha256"] != OFFICIAL_DATA_SHA256[languages]:
            yield "the data is not the official one"
        standard = self._prompts.variant == "standard"
        if not standard:
            yield f"the variant of the prompt is {self._prompts.variant}"
        if self._wording == "own" or (standard and self._prompts.sha256 != OFFICIAL_PROMPTS_SHA256):
            yield "the prompts are not the official ones"


def _wording(options: Options, folder: Path) -> Literal["official", "own"]:
    """Whose prompts to take. Those of a shortened variant are partly ours either way."""
    if options.prompts != "auto":
        return options.prompts
    return "official" if (folder / texts.OFFICIAL_FILE).is_file() else "own"


def _chosen(names: Sequence[str]) -> list[str]:
    chosen: list[str] = []
    for name in names:
        if name in groups.AGENT or name == "agent":
            raise UserError(
                f"{name!r} is not evaluated by this version",
                where="benchmarks.acebench.categories",
                fix=f"choose among {', '.join([*_GROUPS, *groups.GENERATION])}",
            )
        if name not in _GROUPS and name not in groups.GENERATION:
            raise UserError(
                f"there is no category or group {name!r}",
                where="benchmarks.acebench.categories",
                fix=f"choose among {', '.join([*_GROUPS, *groups.GENERATION])}",
            )
        chosen += _GROUPS.get(name, (name,))
    return list(dict.fromkeys(chosen))
