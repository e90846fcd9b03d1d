"""A tiny checkout in the official layout, of our own words; importing its modules would raise."""

import json
import os
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.acebench.categories import AGENT, CATEGORIES, LANGUAGES, MULTI_TURN
from ace_ray.benchmarks.acebench.data.upstream import (
    CLASS_FILES,
    LOOPS,
    PHRASE_MODULES,
    ROLE_MODULES,
)
from ace_ray.benchmarks.dataset import imports_folder

TRAP = 'raise SystemExit("imported")\nimport no_such_module_anywhere\n'

PHRASES = '''
class Role:
    def speak(self, name):
        """Not said to anybody."""
        if name == "key":
            return ", "
        return f"You said {name}!"
'''

SCENARIO = '''
class {name}({base}):
    def __init__(self):
        """Not a state."""
        super().__init__()
        self.lamp = False
        self.box: dict = {{1: {{"label": "first"}}, 2: {{"label": "second"}}}}

    def _load_scenario(self, scenario, long_context=False):
        self.lamp = scenario.get("lamp", False)

    def light(self, room, level=3):
        """Not an answer."""
        if room not in self.box:
            return {{"status": False, "message": "No such room"}}
        self.lamp = True
        return {{"status": True, "message": f"Room {{room}} at {{level:>3}}."}}
'''


def left_in(cache: Path) -> list[str]:
    """Return the names of all imports, unfinished ones too."""
    home = imports_folder("acebench", cache)
    return sorted(os.listdir(home)) if home.exists() else []


def rows_of(category: str) -> list[tuple[dict, dict]]:
    """Return the (question, answer) rows of one category."""
    ids = [f"{category}_0_0", f"{category}_0_1"] if category in MULTI_TURN else [f"{category}_0"]
    function = {"name": "light", "parameters": {"type": "object", "properties": {}}}
    rows = []
    for row_id in ids:
        question: dict[str, Any] = {"id": row_id, "function": [function]}
        question["question"] = "user: light up\u2028now"
        answer: dict[str, Any] = {"id": row_id, "ground_truth": {"light": {"room": 1}}}
        if category in AGENT:
            question |= {"initial_config": {"BaseApi": {"lamp": True}}, "path": []}
            question |= {"involved_classes": ["BaseApi"]}
            answer |= {"ground_truth": [{"BaseApi": {"lamp": True}}], "mile_stone": ["light()"]}
        elif category == "normal_preference":
            question |= {"profile": "likes light"}
        else:
            question |= {"time": ""}
        if category == "special_irrelevant":
            answer["ground_truth"] = "cannot be done"
        elif category.startswith("special_"):
            answer["ground_truth"] = {"light": ["room"]}
        rows.append((question, answer))
    return rows


def write_rows(folder: Path, language: str, category: str, rows: list[tuple[dict, dict]]) -> None:
    name = f"data_{category}.json"
    for side, index in (("", 0), ("possible_answer", 1)):
        path = folder / f"data_{language}" / side / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(row[index], ensure_ascii=False) for row in rows]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_data(folder: Path) -> Path:
    for language in LANGUAGES:
        for category in CATEGORIES:
            write_rows(folder, language, category, rows_of(category))
    return folder


def write_checkout(root: Path) -> Path:
    write_data(root / "data_all")
    (root / "LICENSE.md").write_text("Do as you like.\n")
    sources = root / "model_inference"
    for language in LANGUAGES:
        text = f'{TRAP}GREETING_{language.upper()} = """Say hello."""\n'
        _write(sources / f"prompt_{language}.py", text)
    for module in PHRASE_MODULES:
        _write(sources / f"{module}.py", TRAP + PHRASES)
    for module in ROLE_MODULES:
        path = sources / f"{module}.py"
        old = path.read_text() if path.exists() else TRAP
        _write(path, old + 'ROLE = "You are a lamp."\nLIMIT = 3\n')
    for loop in LOOPS:
        for language in LANGUAGES:
            for name, file in CLASS_FILES.items():
                base = "object" if name == "BaseApi" else "BaseApi"
                text = TRAP + SCENARIO.format(name=name, base=base)
                _write(sources / loop / f"scenarios{language}" / file, text)
    return root


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
