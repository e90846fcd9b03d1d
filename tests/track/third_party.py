"""A publisher of another package, as an installed one: found through its entry point."""

from __future__ import annotations

from pathlib import Path

CODE = """
import json, os, sys, time
from ace_ray.config import Section
from ace_ray.publishers.base import Publisher

class ToyOptions(Section):
    file: str
    fails: str = ""

class Toy(Publisher[ToyOptions]):
    Options = ToyOptions

    def place(self):
        return self.options.file

    def publish(self, publication, new):
        print("a tracker says hello")
        if self.options.fails == "raises":
            raise ConnectionError("the tracker is away, api_key=abcdef1234567890")
        if self.options.fails == "exits":
            sys.exit(3)
        if self.options.fails == "dies":
            os.kill(os.getpid(), 9)
        if self.options.fails == "hangs":
            time.sleep(600)
        if self.options.fails == "stops":
            os._exit(0)
        os.write(1, b"its children say hello\\n")
        with open(self.options.file, "a") as file:
            for point in new:
                line = {"key": publication.key, "group": publication.group, "step": point.step}
                file.write(json.dumps({**line, "metrics": dict(point.metrics)}) + "\\n")
        return self.options.file

class NoPublisher:
    pass

class NoOptions(Publisher):
    place = publish = lambda *_: ""

class Refuses(Toy):
    def __init__(self, options):
        raise ValueError("no such file, api_key=abcdef1234567890")
"""


def install(folder: Path) -> Path:
    """A folder for ``PYTHONPATH`` with the package, and the publishers ``toy``, ``refuses``,
    ``broken``, ``none`` and ``without``."""
    info = folder / "toy_tracker-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "toy_tracker.py").write_text(CODE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-tracker\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[ace_ray.publishers]\n"
        "toy = toy_tracker:Toy\n"
        "broken = toy_tracker:Nowhere\n"
        "none = toy_tracker:NoPublisher\n"
        "refuses = toy_tracker:Refuses\n"
        "without = toy_tracker:NoOptions\n"
    )
    return folder
