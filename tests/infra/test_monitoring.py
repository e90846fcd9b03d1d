"""Every panel and every alert asks for something that the code tells."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ace_ray.pipeline.monitoring.metrics import RUN_TAGS, SPECS

FOLDER = Path(__file__).resolve().parents[2] / "infra" / "monitoring"
BY_NAME = {spec.scraped: spec for spec in SPECS}
DASHBOARD = json.loads((FOLDER / "grafana-dashboard.json").read_text())
RULES = [
    rule
    for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
PANELS = [(panel["title"], t["expr"]) for panel in DASHBOARD["panels"] for t in panel["targets"]]
VARIABLES = [
    (v["name"], v["query"]["query"])
    for v in DASHBOARD["templating"]["list"]
    if v["type"] == "query"
]
QUERIES = [*PANELS, *VARIABLES, *((rule["alert"], rule["expr"]) for rule in RULES)]


def metrics_in(text: str) -> set[str]:
    return set(re.findall(r"\b\w*ace_ray_\w+", text))


@pytest.mark.parametrize(("title", "expression"), QUERIES)
def test_every_metric_and_label_exists(title: str, expression: str) -> None:
    names = metrics_in(expression)
    assert names, title
    assert names <= BY_NAME.keys()
    tags = {*RUN_TAGS, *(tag for name in names for tag in BY_NAME[name].tags)}
    for labels in re.findall(r"(?:by|on) \(([^)]*)\)", expression):
        assert set(labels.split(", ")) <= tags
    for name, selector in re.findall(r"(\w*ace_ray_\w+)\{([^}]*)\}", expression):
        used = re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", selector)
        assert set(used) <= {*RUN_TAGS, *BY_NAME[name].tags}


@pytest.mark.parametrize(("title", "expression"), QUERIES)
def test_rate_queries_use_counters(title: str, expression: str) -> None:
    for name in re.findall(r"(?:rate|increase)\((\w+)", expression):
        assert BY_NAME[name].kind == "counter", title


def test_all_that_is_told_is_shown_or_watched() -> None:
    asked = set().union(*(metrics_in(expression) for _, expression in QUERIES))
    assert asked == BY_NAME.keys()


def test_the_file_of_unit_tests_names_metrics_and_alerts_that_exist() -> None:
    text = (FOLDER / "alerts-test.yaml").read_text()
    assert metrics_in(text) <= BY_NAME.keys()
    alerts = {rule["alert"] for rule in RULES}
    tested = [case for test in yaml.safe_load(text)["tests"] for case in test["alert_rule_test"]]
    assert {case["alertname"] for case in tested} == alerts
    assert {c["alertname"] for c in tested if c.get("exp_alerts")} == alerts - {
        "AceRayEngineDeaths"
    }


def test_alerts_say_how_bad_and_what() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert "{{ $labels.run_id }}" in rule["annotations"]["summary"]


def test_panels_are_placed_and_share_one_source() -> None:
    taken: set[tuple[int, int]] = set()
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + dx, place["y"] + dy)
            for dx in range(place["w"])
            for dy in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
        sources: list[Any] = [panel["datasource"], *(t["datasource"] for t in panel["targets"])]
        assert {source["uid"] for source in sources} == {"${datasource}"}


def test_the_paths_of_the_scrape_config_exist() -> None:
    config = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    assert all((FOLDER / name).is_file() for name in config["rule_files"])
    (job,) = config["scrape_configs"]
    (discovery,) = job["file_sd_configs"]
    from ray._private.ray_constants import PROMETHEUS_SERVICE_DISCOVERY_FILE

    assert [Path(f).name for f in discovery["files"]] == [PROMETHEUS_SERVICE_DISCOVERY_FILE]
