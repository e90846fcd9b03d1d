import json
from pathlib import Path

import pytest
from ace_ray.benchmarks.acebench.categories import CATEGORIES, LANGUAGES

from ace_ray.benchmarks.acebench.data import loader as data
from ace_ray.benchmarks.dataset import data_hash, imports_folder
from ace_ray.errors import UserError
from tests.benchmarks.acebench.synthetic_checkout import rows_of, write_data, write_rows

SINGLE = "normal_single_turn_single_function"


def load_one(folder: Path, category: str = SINGLE) -> list:
    return data.load(folder, languages=["en"], categories=[category])


def question_file(folder: Path, category: str = SINGLE) -> Path:
    return folder / "data_en" / f"data_{category}.json"


def answer_file(folder: Path, category: str = SINGLE) -> Path:
    return folder / "data_en" / "possible_answer" / f"data_{category}.json"


def many(count: int) -> list[tuple[dict, dict]]:
    [(question, answer)] = rows_of(SINGLE)
    return [({**question, "id": f"r_{n}"}, {**answer, "id": f"r_{n}"}) for n in range(count)]


def test_all_categories_load(tmp_path):
    entries = data.load(write_data(tmp_path))
    assert {e.category for e in entries} == set(CATEGORIES)
    assert {e.language for e in entries} == set(LANGUAGES)
    assert len({e.key for e in entries}) == len(entries) == 2 * (len(CATEGORIES) + 2)
    single = next(e for e in entries if e.category == SINGLE)
    assert "id" not in single.data
    assert single.gold == {"light": {"room": 1}}
    assert single.group == single.id
    agent = next(e for e in entries if e.category == "agent_multi_turn")
    assert agent.gold == {"ground_truth": [{"BaseApi": {"lamp": True}}], "mile_stone": ["light()"]}
    turns = [e for e in entries if e.category == "normal_multi_turn_user_switch"]
    assert {e.group for e in turns} == {"normal_multi_turn_user_switch_0"}


def test_rows_join_by_id_not_by_position(tmp_path):
    rows = many(5)
    answers = [{**a, "ground_truth": {"light": {"room": n}}} for n, (_, a) in enumerate(rows)]
    questions = [question for question, _ in rows]
    write_rows(tmp_path, "en", SINGLE, list(zip(questions, reversed(answers), strict=True)))
    assert [e.gold["light"]["room"] for e in load_one(tmp_path)] == [0, 1, 2, 3, 4]


def test_hash_ignores_order_and_sees_contents(tmp_path):
    rows = many(3)
    write_rows(tmp_path / "a", "en", SINGLE, rows)
    write_rows(tmp_path / "b", "en", SINGLE, rows[::-1])
    rows[0][1]["ground_truth"] = {"light": {"room": 2}}
    write_rows(tmp_path / "c", "en", SINGLE, rows)
    a, b, c = (data_hash(load_one(tmp_path / name)) for name in "abc")
    assert a == b != c


def test_blank_lines_are_fine_at_the_end_only(tmp_path):
    write_rows(tmp_path, "en", SINGLE, many(2))
    path = question_file(tmp_path)
    text = path.read_text()
    path.write_text(text + "\n \r\n\n")
    assert len(load_one(tmp_path)) == 2
    path.write_text(text.replace("\n", "\n\n", 1))
    with pytest.raises(UserError, match=r"data_normal_.*json:2: the line is blank"):
        load_one(tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"id": "r_1"', "is not valid JSON"),
        (b'{"id": 7}', '"id" is missing or not a text'),
        (b'{"id": "r_0"}', "'r_0' is already used in .*:1"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, message):
    write_rows(tmp_path, "en", SINGLE, many(3))
    path = question_file(tmp_path)
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], line, *lines[2:]]))
    with pytest.raises(UserError, match=rf"data_{SINGLE}\.json:2: .*{message}"):
        load_one(tmp_path)


@pytest.mark.parametrize(
    ("category", "side", "change", "message"),
    [
        (SINGLE, 0, {"question": None}, '"question" is missing'),
        (SINGLE, 0, {"function": [{"parameters": {}}]}, '"function" has the wrong shape'),
        (SINGLE, 1, {"ground_truth": {}}, '"ground_truth" has the wrong shape'),
        (SINGLE, 1, {"ground_truth": [{"light": {}}, {"light": 1}]}, "each an object of arguments"),
        ("special_incomplete", 1, {"ground_truth": {"light": "x"}}, "object of lists of texts"),
        ("special_irrelevant", 1, {"ground_truth": {}}, '"ground_truth" has the wrong shape'),
        ("agent_multi_step", 0, {"initial_config": None}, '"initial_config" is missing'),
        ("agent_multi_step", 1, {"mile_stone": ["a", ["b"]]}, '"mile_stone" has the wrong shape'),
    ],
)
def test_a_wrong_shape_is_named(tmp_path, category, side, change, message):
    rows = rows_of(category)
    row = rows[-1][side]
    row.update(change)
    for key in [key for key, value in row.items() if value is None]:
        del row[key]
    write_rows(tmp_path, "en", category, rows)
    path = (question_file, answer_file)[side](tmp_path, category)
    with pytest.raises(UserError, match=message) as caught:
        load_one(tmp_path, category)
    assert caught.value.where == f"{path}:{len(rows)}"


def test_a_turn_must_name_its_dialogue(tmp_path):
    category = "normal_multi_turn_user_adjust"
    rows = [({**q, "id": "turn"}, {**a, "id": "turn"}) for q, a in rows_of(category)[:1]]
    write_rows(tmp_path, "en", category, rows)
    with pytest.raises(UserError, match=r":1: id 'turn' .* end the id in _<dialogue>_<turn>"):
        load_one(tmp_path, category)


@pytest.mark.parametrize("side", [question_file, answer_file])
def test_an_id_on_one_side_only_is_named(tmp_path, side):
    write_rows(tmp_path, "en", SINGLE, many(3))
    path = side(tmp_path)
    path.write_text("".join(line + "\n" for line in path.read_text().split("\n")[:2]))
    other = answer_file(tmp_path) if side is question_file else question_file(tmp_path)
    with pytest.raises(UserError, match="id 'r_2' is not in") as caught:
        load_one(tmp_path)
    assert caught.value.where == f"{other}:3"
    assert str(path) in caught.value.what


def test_missing_file(tmp_path):
    with pytest.raises(UserError, match="no such file; run `ace-ray data pull acebench`"):
        data.load(tmp_path)


def test_locate(tmp_path, monkeypatch):
    monkeypatch.setenv("ACE_RAY_CACHE", str(tmp_path / "cache"))
    assert data.locate("mini") == data.MINI
    with pytest.raises(UserError, match=r"nothing is imported .* run `ace-ray data pull acebench`"):
        data.locate("imported")
    for version in ("aaa", ".import-x"):
        folder = imports_folder("acebench") / version
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text(json.dumps({}))
    assert (
        data.locate("imported") == data.locate("imported:aaa") == imports_folder("acebench") / "aaa"
    )
    with pytest.raises(UserError, match="version bbb is not imported; write imported:aaa"):
        data.locate("imported:bbb")
    (imports_folder("acebench") / "bbb").mkdir()
    (imports_folder("acebench") / "bbb" / "manifest.json").write_text("{}")
    with pytest.raises(UserError, match=r"several versions .* write imported:aaa or imported:bbb"):
        data.locate("imported")

    (tmp_path / "mine" / "data_zh").mkdir(parents=True)
    assert data.locate(str(tmp_path / "mine")) == tmp_path / "mine"
    (tmp_path / "checkout" / "data_all").mkdir(parents=True)
    with pytest.raises(UserError, match=r"run `ace-ray data import acebench .*/checkout`"):
        data.locate(str(tmp_path / "checkout"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="has no data_en or data_zh"):
        data.locate(str(tmp_path / "empty"))
    for name in ("", "no-such-folder"):
        with pytest.raises(UserError, match="is neither mini, imported"):
            data.locate(name)
