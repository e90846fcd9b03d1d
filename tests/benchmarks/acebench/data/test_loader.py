import json
from pathlib import Path

import pytest

from ace_ray.benchmarks.acebench.data import loader as data
from ace_ray.benchmarks.dataset import data_hash
from ace_ray.errors import UserError

SINGLE = "normal_single_turn_single_function"
ADJUST = "normal_multi_turn_user_adjust"


def rows_of(category: str) -> list[tuple[dict, dict]]:
    """Return the English (question, answer) rows of the mini set."""
    texts = [(data.MINI / name).read_text("utf-8") for name in data.files_of("en", category)]
    questions, answers = ([json.loads(line) for line in text.splitlines()] for text in texts)
    return list(zip(questions, answers, strict=True))


def write_rows(folder: Path, category: str, rows: list[tuple[dict, dict]]) -> None:
    for side, name in enumerate(data.files_of("en", category)):
        lines = [json.dumps(row[side], ensure_ascii=False) for row in rows]
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def load_one(folder: Path, category: str = SINGLE) -> list:
    return data.load(folder, languages=["en"], categories=[category])


def file_of(folder: Path, side: int, category: str = SINGLE) -> Path:
    return folder / data.files_of("en", category)[side]


def test_rows_become_entries():
    single, agent = load_one(data.MINI)[0], load_one(data.MINI, "agent_multi_step")[0]
    assert single.key == ("en", SINGLE, f"{SINGLE}_0")
    assert single.group == single.id
    assert "id" not in single.data
    assert single.gold == {"snow_depth": {"place": "Sankt Anton", "unit": "cm"}}
    assert agent.gold.keys() == {"ground_truth", "mile_stone"}
    groups = {entry.group for entry in load_one(data.MINI, ADJUST)}
    assert groups == {f"{ADJUST}_0", f"{ADJUST}_1"}


def test_rows_join_by_id_and_the_hash_sees_contents_only(tmp_path):
    rows = rows_of(SINGLE)
    rows[0][0]["question"] = "user: light up\u2028now"
    questions, answers = zip(*rows, strict=True)
    write_rows(tmp_path / "a", SINGLE, list(zip(questions, answers[::-1], strict=True)))
    write_rows(tmp_path / "b", SINGLE, rows[::-1])
    golds = [answer["ground_truth"] for answer in answers]
    assert [entry.gold for entry in load_one(tmp_path / "a")] == golds
    rows[0][1]["ground_truth"] = {"light": {"room": 7}}
    write_rows(tmp_path / "c", SINGLE, rows)
    a, b, c = (data_hash(load_one(tmp_path / name)) for name in "abc")
    assert a == b != c


def test_a_bad_line_is_named_and_blank_lines_are_fine_at_the_end(tmp_path):
    write_rows(tmp_path, SINGLE, rows_of(SINGLE))
    path = file_of(tmp_path, 0)
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines, b" \r", b"", b""]))
    assert len(load_one(tmp_path)) == 4
    for line, message in (
        (b"", "the line is blank"),
        (b'{"id": "r_1"', "is not valid JSON"),
        (b'{"id": 7}', '"id" is missing or not a string'),
        (lines[0], "_0' is already used in .*:1"),
        (b"[" * 100_000, "nested too deeply"),
    ):
        path.write_bytes(b"\n".join([lines[0], line, *lines[2:]]))
        with pytest.raises(UserError, match=rf"data_{SINGLE}\.json:2: .*{message}"):
            load_one(tmp_path)


@pytest.mark.parametrize(
    ("category", "side", "change", "message"),
    [
        (SINGLE, 0, {"function": [{"parameters": {}}]}, '"function" has the wrong shape'),
        (SINGLE, 1, {"ground_truth": [{"light": {}}, {"light": 1}]}, "each an object of arguments"),
        ("special_incomplete", 1, {"ground_truth": {"light": "x"}}, "object of lists of strings"),
        ("normal_preference", 0, {"profile": None}, '"profile" is missing'),
        ("agent_multi_step", 0, {"initial_config": None}, '"initial_config" is missing'),
        ("agent_multi_step", 1, {"mile_stone": ["a", ["b"]]}, '"mile_stone" has the wrong shape'),
        (ADJUST, 0, {"id": "turn"}, r"id 'turn' .* end the id in _<dialogue>_<turn>"),
    ],
    ids=["function", "calls", "names", "profile", "initial state", "milestones", "id of a turn"],
)
def test_a_wrong_shape_is_named(tmp_path, category, side, change, message):
    rows = rows_of(category)
    changed = {**rows[-1][side], **change}
    rows[-1][side].clear()
    rows[-1][side].update({key: value for key, value in changed.items() if value is not None})
    rows[-1][1]["id"] = rows[-1][0]["id"]
    write_rows(tmp_path, category, rows)
    with pytest.raises(UserError, match=message) as caught:
        load_one(tmp_path, category)
    assert caught.value.where == f"{file_of(tmp_path, side, category)}:4"


def test_an_id_on_one_side_only_is_named(tmp_path):
    for side in (0, 1):
        write_rows(tmp_path, SINGLE, rows_of(SINGLE))
        path = file_of(tmp_path, side)
        path.write_text("\n".join(path.read_text().split("\n")[:3]))
        with pytest.raises(UserError, match=f"id '{SINGLE}_3' is not in") as caught:
            load_one(tmp_path)
        assert caught.value.where == f"{file_of(tmp_path, 1 - side)}:4"
        assert str(path) in caught.value.what


def test_folders_are_located(tmp_path):
    (tmp_path / "mine" / "data_zh").mkdir(parents=True)
    assert data.locate(str(tmp_path / "mine")) == tmp_path / "mine"
    with pytest.raises(UserError, match="no such file; run `ace-ray data pull acebench`"):
        data.load(tmp_path / "mine")
    (tmp_path / "checkout" / "data_all").mkdir(parents=True)
    with pytest.raises(UserError, match=r"run `ace-ray data import acebench .*/checkout`"):
        data.locate(str(tmp_path / "checkout"))
    with pytest.raises(UserError, match="is neither mini, imported"):
        data.locate("no-such-folder")
