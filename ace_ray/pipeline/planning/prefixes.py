"""Order prompts by the prefixes that they share, and cut the order into blocks.

Engines keep the computed tokens of recent prompts, and compute a prefix again only if it has left
this cache or was computed by another engine. So prompts with a long common prefix are neighbours in
the order, and a block is cut where neighbours share little. Prompts are compared as characters of
`entries.Opening`: tools, then messages. No tokenizer is needed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# Estimated work of the answer to a row, in characters of a prompt.
ANSWER_CHARS = 250


def ranks(prompts: Sequence[str]) -> np.ndarray:
    """Return the index of each prompt in sorted order, where common prefixes are neighbours."""
    order = sorted(range(len(prompts)), key=prompts.__getitem__)
    return np.argsort(order)  # the inverse of a permutation


def common_length(text: str, other_text: str) -> int:
    """Return the length of the common prefix of two texts, in characters."""
    low, high = 0, min(len(text), len(other_text))
    while low < high:
        middle = (low + high + 1) // 2
        if text[low:middle] == other_text[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def shared_lengths(prompts: Sequence[str], order: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the number of characters (int32) that each prompt shares with the prompt before it.
    ``order`` has the indices of ``prompts`` in order; ``sizes`` has the length of each prompt."""
    shared: np.ndarray = sizes[order].astype(np.int32)
    for index in np.flatnonzero(np.diff(order, prepend=-1)).tolist():
        before, text = prompts[order[index - 1]], prompts[order[index]]
        shared[index] = min(shared[index], common_length(before, text)) if index else 0
    return shared


def cuts(common: np.ndarray, min_rows: int, max_rows: int) -> list[tuple[int, int]]:
    """Cut rows into blocks of ``min_rows`` to ``max_rows`` rows; the last block may have fewer.

    ``common`` has for each row the length of the prefix that it shares with the row before. A block
    ends where this length is smallest, so that the rows of a prefix, and the samples of an entry,
    stay together. Returns the (start, end) of each block."""
    blocks, start, rows = [], 0, len(common)
    while rows - start > max_rows:
        ends = common[start + min_rows : min(start + max_rows, rows - 1) + 1]
        # The last of the smallest, since few large blocks cost less than many small ones.
        end = start + min_rows + len(ends) - 1 - int(np.argmin(ends[::-1]))
        blocks.append((start, end))
        start = end
    return [*blocks, (start, rows)] if rows > start else blocks


def largest_first(
    blocks: Sequence[tuple[int, int]], sizes: np.ndarray, common: np.ndarray
) -> list[tuple[int, int]]:
    """Sort ``blocks`` by estimated work, largest first, so that no large block is left for the end.

    The work of a block is the characters of its prompts, plus `ANSWER_CHARS` for each row. A prefix
    that a row shares with the row before it in the block does not count."""
    totals = np.concatenate([[0], np.cumsum(sizes - common + ANSWER_CHARS)])
    starts, ends = np.array(blocks, int).reshape(-1, 2).T
    order = np.argsort(totals[starts] - totals[ends] - common[starts], kind="stable")
    return [blocks[index] for index in order.tolist()]
