"""The limited processes that this one has started."""

from __future__ import annotations

import psutil


def limited_processes() -> list[psutil.Process]:
    children = psutil.Process().children()
    return [child for child in children if "limited_child" in " ".join(child.cmdline())]
