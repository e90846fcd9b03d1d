from pathlib import Path

import pytest

from ace_ray.benchmarks.acebench.categories import CATEGORIES, LANGUAGES
from ace_ray.benchmarks.acebench.data import loader as data
from ace_ray.benchmarks.dataset import data_hash, imports_folder
from ace_ray.errors import UserError
from tests.benchmarks.acebench.synthetic_checkout import rows_of, write_data, write_rows

SINGLE = "normal_single_turn_single_function"
ADJUST = "normal_multi_turn_user_adjust"


def load_one(folder: Path, category: str = SINGLE) -> list:
    return data.load(folder, languages=["en"], categories=[category])


def file_of(folder: Path, side: int, category: str = SINGLE) -> Path:
    return folder / "data_en" / ("", "possible_answer")[side] / f"data_{category}.json"


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
    assert {e.group for e in entries if e.category == ADJUST} == {f"{ADJUST}_0"}


def test_rows_join_by_id_and_the_hash_sees_contents_only(tmp_path):
    rows = many(3)
    for number, (_, answer) in enumerate(rows):
        answer["ground_truth"] = {"light": {"room": number}}
    questions, answers = zip(*rows, strict=True)
    shuffled = list(zip(questions, answers[::-1], strict=True))
    write_rows(tmp_path / "a", "en", SINGLE, shuffled)
    write_rows(tmp_path / "b", "en", SINGLE, rows[::-1])
    assert [e.gold["light"]["room"] for e in load_one(tmp_path / "a")] == [0, 1, 2]
    rows[0][1]["ground_truth"] = {"light": {"room": 7}}
    write_rows(tmp_path / "c", "en", SINGLE, rows)
    a, b, c = (data_hash(load_one(tmp_path / name)) for name in "abc")
    assert a == b != c


def test_blank_lines_are_fine_at_the_end_only(tmp_path):
    write_rows(tmp_path, "en", SINGLE, many(2))
    path = file_of(tmp_path, 0)
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
    path = file_of(tmp_path, 0)
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
        ("normal_preference", 0, {"profile": None}, '"profile" is missing'),
        ("agent_multi_step", 0, {"initial_config": None}, '"initial_config" is missing'),
        ("agent_multi_step", 1, {"mile_stone": ["a", ["b"]]}, '"mile_stone" has the wrong shape'),
        ("agent_multi_step", 1, {"ground_truth": []}, '"ground_truth" has the wrong shape'),
        (ADJUST, 0, {"id": "turn"}, r"id 'turn' .* end the id in _<dialogue>_<turn>"),
    ],
)
def test_a_wrong_shape_is_named(tmp_path, category, side, change, message):
    rows = rows_of(category)
    row = rows[-1][side]
    row.update(change)
    for key in [key for key, value in row.items() if value is None]:
        del row[key]
    rows[-1][1]["id"] = rows[-1][0]["id"]
    write_rows(tmp_path, "en", category, rows)
    with pytest.raises(UserError, match=message) as caught:
        load_one(tmp_path, category)
    assert caught.value.where == f"{file_of(tmp_path, side, category)}:{len(rows)}"


@pytest.mark.parametrize("side", [0, 1])
def test_an_id_on_one_side_only_is_named(tmp_path, side):
    write_rows(tmp_path, "en", SINGLE, many(3))
    path = file_of(tmp_path, side)
    path.write_text("".join(line + "\n" for line in path.read_text().split("\n")[:2]))
    with pytest.raises(UserError, match="id 'r_2' is not in") as caught:
        load_one(tmp_path)
    assert caught.value.where == f"{file_of(tmp_path, 1 - side)}:3"
    assert str(path) in caught.value.what


def test_a_missing_file_names_the_command(tmp_path):
    with pytest.raises(UserError, match="no such file; run `ace-ray data pull acebench`"):
        data.load(tmp_path)


def test_data_are_located(tmp_path, monkeypatch):
    monkeypatch.setenv("ACE_RAY_CACHE", str(tmp_path / "cache"))
    assert data.locate("mini") == data.MINI
    with pytest.raises(UserError, match=r"nothing is imported .* run `ace-ray data pull acebench`"):
        data.locate("imported")
    home = imports_folder("acebench")
    for version in ("aaa", ".import-x"):
        (home / version).mkdir(parents=True)
        (home / version / "manifest.json").write_text("{}")
    assert data.locate("imported") == data.locate("imported:aaa") == home / "aaa"
    with pytest.raises(UserError, match="version bbb is not imported; write imported:aaa"):
        data.locate("imported:bbb")
    (home / "bbb").mkdir()
    (home / "bbb" / "manifest.json").write_text("{}")
    with pytest.raises(UserError, match=r"several versions .* write imported:aaa or imported:bbb"):
        data.locate("imported")


def test_folders_are_located(tmp_path):
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
