"""A checkout in the official layout: the mini set's rows, and modules that raise when imported."""

import json
import shutil
from pathlib import Path

from ace_ray.benchmarks.acebench.categories import LANGUAGES
from ace_ray.benchmarks.acebench.data.loader import MINI, files_of
from ace_ray.benchmarks.acebench.data.upstream import (
    CLASS_FILES,
    LOOPS,
    PHRASE_MODULES,
    ROLE_MODULES,
)

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


def rows_of(category: str) -> list[tuple[dict, dict]]:
    """Return the English (question, answer) rows of the mini set."""
    texts = [(MINI / name).read_text(encoding="utf-8") for name in files_of("en", category)]
    questions, answers = ([json.loads(line) for line in text.splitlines()] for text in texts)
    return list(zip(questions, answers, strict=True))


def write_rows(folder: Path, category: str, rows: list[tuple[dict, dict]]) -> None:
    for side, name in enumerate(files_of("en", category)):
        lines = [json.dumps(row[side], ensure_ascii=False) for row in rows]
        _write(folder / name, "\n".join(lines) + "\n")


def write_checkout(root: Path) -> Path:
    shutil.copytree(MINI, root / "data_all", ignore=shutil.ignore_patterns("upstream"))
    _write(root / "LICENSE.md", "Do as you like.\n")
    sources = root / "model_inference"
    for language in LANGUAGES:
        text = f'{TRAP}GREETING_{language.upper()} = """Say hello."""\n'
        _write(sources / f"prompt_{language}.py", text)
    for module in {*PHRASE_MODULES, *ROLE_MODULES}:
        text = TRAP + (PHRASES if module in PHRASE_MODULES else "")
        text += 'ROLE = "You are a lamp."\nLIMIT = 3\n' if module in ROLE_MODULES else ""
        _write(sources / f"{module}.py", text)
    for loop in LOOPS:
        for language in LANGUAGES:
            for name, file in CLASS_FILES.items():
                text = SCENARIO.format(name=name, base="object" if name == "BaseApi" else "BaseApi")
                _write(sources / loop / f"scenarios{language}" / file, TRAP + text)
    return root


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
