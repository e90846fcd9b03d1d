"""Read external outputs, and convert them to the episodes that a run would have stored.

External outputs are answers that another program generated and stored in a file. The readers of all
formats use this module. Lines are read one at a time, and only a digest of an output's keys is
kept. Outputs are never executed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO

from ace_ray.benchmarks.dataset import Row, json_lines
from ace_ray.errors import UserError
from ace_ray.types import Entry, Episode
from ace_ray.util.grouping import grouped
from ace_ray.util.suggestions import closest_of

MAX_LINE_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Output:
    """An external output: its entry, and the episode that a run would have stored.

    ``sample`` keeps its JSON type, so 0 is not "0". It is 0 if the format has no samples."""

    entry: Entry
    sample: int | str
    episode: Episode


@dataclass(frozen=True, slots=True)
class UnscoredOutput:
    """An output without a verdict, and the reason. ``location`` names its file and line or key.
    ``entry`` is None if no row can be stored for the output."""

    location: str
    reason: str
    entry: Entry | None = None
    sample: int = 0


# The location of an output (``file:line``), and the output.
Placed = tuple[str, Output]
# Builds an episode from an entry, a row that answers the entry, and the row's location. Raises
# `UserError` for an invalid row.
ToEpisode = Callable[[Entry, Row, str], Episode]


@dataclass(eq=False, repr=False)
class Entries:
    """The entries that external outputs may answer. Each category is loaded at its first use.

    ``load`` returns the entries of a language and category, and may raise `UserError`.
    ``load_others`` returns further entries, which only count if an output answers them. If an
    output names no category, its entry is searched in the categories ``searched``, by default in
    all. ``remarks``: remarks to print, and the number of outputs that each concerns."""

    load: Callable[[str, str], Iterable[Entry]]
    _: KW_ONLY
    languages: Sequence[str]
    categories: Sequence[str]
    load_others: Callable[[str, str], Iterable[Entry]] = lambda *_: ()
    searched: Sequence[str] | None = None
    remarks: Counter[str] = field(default_factory=Counter)
    _loaded: dict[tuple[str, str], dict[str, Entry]] = field(default_factory=dict)

    @classmethod
    def from_entries(cls, entries: Iterable[Entry]) -> Entries:
        """Return an `Entries` with exactly these entries."""
        groups = grouped((entry.category_key, entry) for entry in entries)
        return cls(
            lambda language, category: groups.get((language, category), ()),
            languages=list(dict.fromkeys(language for language, _ in groups)),
            categories=list(dict.fromkeys(category for _, category in groups)),
        )

    def entries_of(self, language: str, category: str) -> Mapping[str, Entry]:
        """Return a category's entries by id. Raises `UserError` if the data lacks the category."""
        key = (language, category)
        if key not in self._loaded:
            self._loaded[key] = {entry.id: entry for entry in self.load(language, category)}
        return self._loaded[key]

    def get(self, language: str, category: str, entry_id: str) -> Entry | None:
        """Return the entry with this id, or None. Search the entries of ``load_others``, too."""
        entries = self.entries_of(language, category)
        if entry_id not in entries:
            for entry in self.load_others(language, category):
                if entry.id == entry_id:
                    self._loaded[language, category][entry_id] = entry
        return entries.get(entry_id)

    def find(
        self, entry_id: str, location: str, *, language: str = "", category: str = ""
    ) -> Entry:
        """Return the entry with this id. Language and category may be empty if the id is unique.

        Raises `UserError` naming ``location`` and the most similar known id."""
        if not language and len(self.languages) == 1:
            language = self.languages[0]
        if language:
            require_known("language", language, self.languages, location)
        if category:
            require_known("category", category, self.categories, location)
        languages = [language] if language else self.languages
        searched = self.categories if self.searched is None else self.searched
        groups = list(product(languages, [category] if category else searched))
        entries = [
            self.entries_of(*group)[entry_id]
            for group in groups
            if entry_id in self.entries_of(*group)
        ]
        if not entries:
            kind = f"id of {language}/{category}" if language and category else "id"
            ids = {name: None for group in groups for name in self.entries_of(*group)}
            require_known(kind, entry_id, ids, location)
        if len(entries) > 1:
            key = "language" if len({entry.language for entry in entries}) > 1 else "category"
            several = ", ".join([_group(entry) for entry in entries[:3]])
            problem = f'"{key}" is missing: {quote(entry_id)} is an id of {several}'
            raise UserError(problem, where=location)
        return entries[0]

    def entry_of(self, row: Row, location: str) -> Entry:
        """Return the entry of ``row``, by its keys ``id``, ``language`` and ``category``."""
        keys = {key: text_of(row, key, location) for key in ("language", "category") if key in row}
        return self.find(text_of(row, "id", location), location, **keys)


def _group(entry: Entry) -> str:
    return "/".join(filter(None, entry.category_key))


def read_json_lines(
    path: Path, entries: Entries, episode: ToEpisode | None = None
) -> Iterator[Placed]:
    """Yield the outputs of a JSON-lines file in order, with their places.

    Each line is an object with ``id`` and ``output``, and optionally ``sample``. It also needs
    ``category`` and ``language`` if the id is not unique. ``episode`` builds the episode of a row,
    by default `episode_of_text`. Raises `UserError` at a line that is invalid."""
    to_episode = episode or episode_of_text
    for location, row in read_rows(path):
        entry = entries.entry_of(row, location)
        yield location, Output(entry, sample_of(row, location), to_episode(entry, row, location))


def episode_of_text(entry: Entry, row: Row, location: str) -> Episode:
    """Build an episode with one answer, the row's ``output``: a string, or null for no answer.
    Raises `UserError` for a missing output and for another type."""
    text = value_of(row, "output", location)
    if text is not None and not isinstance(text, str):
        raise UserError(f"the output is {quote(text)}, not a string or null", where=location)
    return single_answer(text or "")


def single_answer(text: str) -> Episode:
    """Build an episode that contains only the answer ``text``."""
    answer = {"role": "assistant", "content": text}
    return Episode(messages=[answer], output=text, model_calls=1)


def unique_outputs(placed: Iterable[Placed], path: Path) -> Iterator[Output]:
    """Yield the outputs of ``placed``, which must differ in their entry or their sample.

    Raises `UserError` if an output repeats both, or if there are no outputs."""
    digests: set[bytes] = set()
    for location, output in placed:
        entry, sample = output.entry, output.sample
        digest = blake2b(json.dumps([*entry.key, sample]).encode(), digest_size=16).digest()
        if digest in digests:
            problem = f"id {entry.id!r} ({_group(entry)}) with sample {sample!r} was given before"
            fix = "give each output of an entry another sample: 0, 1, 2, ..."
            raise UserError(problem, where=location, fix=fix)
        digests.add(digest)
        yield output
    if not digests:
        raise UserError("contains no outputs", where=str(path))


def read_rows(path: Path) -> Iterator[tuple[str, Row]]:
    """Yield (``file:line``, object) for each line of a file. Blank lines are allowed at the end.

    Raises `UserError` if a line is not a JSON object, or ``path`` is not a plain file."""
    try:
        if path.exists() and not path.is_file():
            raise UserError("is not a plain file", where=str(path))
        with path.open("rb") as file:
            yield from json_lines(_lines(file, path), path)
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", where=str(path)) from error


def _lines(file: BinaryIO, path: Path) -> Iterator[bytes]:
    while line := file.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            raise UserError(f"a line has more than {MAX_LINE_BYTES:,} bytes", where=str(path))
        yield line


def sample_of(row: Row, location: str) -> int | str:
    sample: int | str = row.get("sample", 0)
    if type(sample) not in (int, str):
        raise UserError(f'"sample" is {quote(sample)}, not an integer or a string', where=location)
    return sample


def value_of(row: Row, key: str, location: str) -> Any:
    if key not in row:
        raise UserError(f'"{key}" is missing', where=location)
    return row[key]


def text_of(row: Row, key: str, location: str) -> str:
    value = value_of(row, key, location)
    if not isinstance(value, str):
        raise UserError(f'"{key}" is {quote(value)}, not a string', where=location)
    return value


def require_known(kind: str, name: str, names: Collection[str], location: str) -> None:
    """Raise `UserError` with the most similar known name if ``name`` is not known."""
    if name in names:
        return
    near = closest_of(name, names, 0.0)
    fix = f"the nearest known {kind} is {near!r}" if near else ""
    raise UserError(f"unknown {kind}: {quote(name)}", where=location, fix=fix)


def quote(value: Any) -> str:
    """Return ``value`` as ASCII text for a message, shortened to 80 characters."""
    try:
        text = ascii(value)
    except RecursionError:
        text = f"a deep {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:80]}..."
