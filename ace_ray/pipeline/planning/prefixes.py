"""Order prompts by the prefixes that they share, and cut the order into blocks.

Engines keep the computed tokens of recent prompts, and compute a prefix again only if it has left
this cache or was computed by another engine. So prompts with a long common prefix are neighbours in
the order, and a block is cut where neighbours share little. Prompts are compared as characters of
`entries.Opening`: tools, then messages. No tokenizer is needed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# Estimated work of the answer to a row, in characters of a prompt.
ANSWER_CHARS = 250

# Share of the blocks that are halved, so that workers end at about the same time.
TAIL = 0.15


def ranks(texts: Sequence[str]) -> np.ndarray:
    """Return for each text its place in sorted order, where texts with a common prefix are
    neighbours."""
    order = sorted(range(len(texts)), key=texts.__getitem__)
    return np.argsort(order)  # the inverse of a permutation


def common_length(one: str, other: str) -> int:
    """Return the length of the common prefix of two texts, in characters."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def shared_lengths(texts: Sequence[str], order: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return for each place in ``order``, which holds indices of ``texts``, the characters that the
    text shares with the text before it; int32. Equal neighbours share all of their ``sizes``."""
    shared: np.ndarray = sizes[order].astype(np.int32)
    for place in np.flatnonzero(np.diff(order, prepend=-1)).tolist():
        before, text = texts[order[place - 1]], texts[order[place]]
        shared[place] = min(shared[place], common_length(before, text)) if place else 0
    return shared


def cuts(common: np.ndarray, fewest: int, most: int) -> list[tuple[int, int]]:
    """Cut rows into blocks of ``fewest`` to ``most`` rows; the last block may have fewer.

    ``common`` has for each row the length of the prefix that it shares with the row before. A block
    ends where this length is smallest, so that the rows of a prefix, and the samples of an entry,
    stay together. Returns the (start, end) of each block.
    """
    found, start, rows = [], 0, len(common)
    while rows - start > most:
        ends = common[start + fewest : min(start + most, rows - 1) + 1]
        # The last of the smallest, since few large blocks cost less than many small ones.
        end = start + fewest + len(ends) - 1 - int(np.argmin(ends[::-1]))
        found.append((start, end))
        start = end
    return [*found, (start, rows)] if rows > start else found


def largest_first(
    blocks: Sequence[tuple[int, int]], sizes: np.ndarray, common: np.ndarray
) -> list[tuple[int, int]]:
    """Sort ``blocks`` by estimated work, largest first, so that no large block is left for the
    end. Then halve the last `TAIL` of the blocks, twice.

    The work of a block is the characters of its prompts, plus `ANSWER_CHARS` for each row. A prefix
    that a row shares with the row before it in the block does not count.
    """
    new = sizes - common + ANSWER_CHARS
    totals = np.concatenate([[0], np.cumsum(new)])

    def work(block: tuple[int, int]) -> int:
        start, end = block
        return int(totals[end] - totals[start] + common[start])

    found = sorted(blocks, key=work, reverse=True)
    for _ in range(2):  # the last of all are quarters
        whole = len(found) - int(TAIL * len(found))
        halves = [half for block in found[whole:] for half in _halves(block, sizes, common)]
        found[whole:] = halves
    return found


def _halves(block: tuple[int, int], sizes: np.ndarray, common: np.ndarray) -> list[tuple[int, int]]:
    """Cut a block near its middle, where neighbours share least. Samples stay together."""
    start, end = block
    edge = max(1, 2 * (end - start) // 5)
    places = [at for at in range(start + edge, end - edge + 1) if common[at] < sizes[at]]
    at = min(places, key=lambda at: (common[at], abs(2 * at - start - end)), default=end)
    return [(start, at), (at, end)] if start < at < end else [block]
