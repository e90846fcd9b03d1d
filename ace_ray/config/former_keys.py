"""Read configs that were stored before some keys got their present names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KEYS = {
    "stall_s": "engine_stall_timeout_s",
    "grace_s": "drain_timeout_s",
    "store_patience_s": "store_retry_timeout_s",
    "token_ids": "store_token_ids",
    "repeat_subset": "repeat_fraction",
    "max_unscored": "max_unscored_fraction",
}
_EARLY_KEYS = {"against": "reference"}
_SECTION_KEYS = {"early": _EARLY_KEYS, "publish": {"to": "tracker"}}


def with_present_keys(config: Any) -> Any:
    """Return a stored config with the present names of its keys. ``config`` is returned unchanged
    if it is not a mapping."""
    tree = _renamed(config, _KEYS)
    for section, keys in _SECTION_KEYS.items():
        if isinstance(tree, dict) and section in tree:
            tree[section] = _renamed(tree[section], keys)
    return tree


def with_present_early_keys(section: Any) -> Any:
    """Return a stored section ``early`` of a config with the present names of its keys."""
    return _renamed(section, _EARLY_KEYS)


def _renamed(tree: Any, names: Mapping[str, str]) -> Any:
    if isinstance(tree, list):
        return [_renamed(item, names) for item in tree]
    return {names.get(k, k): v for k, v in tree.items()} if isinstance(tree, Mapping) else tree
