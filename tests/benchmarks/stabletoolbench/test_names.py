"""Upstream's name rules, to the letter."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ace_ray.benchmarks.stabletoolbench.names import (
    api_name,
    function_name,
    standardize,
    standardize_category,
)
from ace_ray.benchmarks.stabletoolbench.queries import load


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("/api/Tracking/", "api_tracking"),
        ("4chan Feed", "get_4chan_feed"),
        ("Pack & Send", "pack_send"),
        ("Vidéo", "vid_o"),
        ("a^b", "a^b"),
        ("__", ""),
        ("", ""),
        ("天气 2", "天气_2"),
        ("_7_", "get_7"),
        ("Ünder__score", "nder_score"),
        ("９ lives", "lives"),
    ],
)
def test_standardize(name: str, expected: str) -> None:
    assert standardize(name) == expected


@pytest.mark.parametrize(
    ("name", "expected"), [("id", "is_id"), ("from", "is_from"), ("ID", "is_id"), ("ids", "ids")]
)
def test_reserved_names(name: str, expected: str) -> None:
    assert api_name(name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("News, Media", "News_Media"),
        ("AI/Machine Learning", "AI_Machine_Learning"),
        ("a , b", "a__b"),
        ("Food", "Food"),
    ],
)
def test_categories(name: str, expected: str) -> None:
    assert standardize_category(name) == expected


def test_functions_keep_their_last_64_characters() -> None:
    assert function_name("id", "Crumb Finder") == "is_id_for_crumb_finder"
    name = function_name("a" * 60, "tool")
    assert len(name) == 64
    assert name.endswith("a_for_tool")


def _like_upstream(text: str) -> str:
    """The rule spelt out character by character."""
    kept = "".join(
        c if "\u4e00" <= c <= "\u9fa5" or (c.isascii() and (c.isalnum() or c in "_^")) else "_"
        for c in text
    )
    kept = re.sub(r"__+", "_", kept).lower()
    while kept.startswith("_"):
        kept = kept[1:]
    while kept.endswith("_"):
        kept = kept[:-1]
    return f"get_{kept}" if kept and kept[0].isdigit() else kept


def test_every_published_name(shared_queries: Path) -> None:
    docs = [doc for entry in load(shared_queries).entries for doc in entry.data["apis"]]
    names = {doc[key] for doc in docs for key in ("tool", "api")}
    names |= {one["name"] for doc in docs for one in (*doc["required"], *doc["optional"])}
    assert len(names) > 2500
    assert all(standardize(name) == _like_upstream(name) for name in names)
    cut = sum(len(f"{api_name(doc['api'])}_for_{standardize(doc['tool'])}") > 64 for doc in docs)
    assert cut == 117
