"""Dashboards and alerts use metrics that the package reports."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from ace_ray.pipeline.monitoring.metrics import RUN_TAGS, SPECS

FOLDER = Path(__file__).resolve().parents[2] / "infra" / "monitoring"
BY_NAME = {spec.scraped: spec for spec in SPECS}


def test_queries_use_metrics_and_labels_that_exist() -> None:
    dashboard = json.loads((FOLDER / "grafana-dashboard.json").read_text())
    groups = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [
        variable["query"]["query"]
        for variable in dashboard["templating"]["list"]
        if variable["type"] == "query"
    ]
    queries += [rule["expr"] for rule in rules]
    asked: set[str] = set()
    for query in queries:
        names = set(re.findall(r"\b\w*ace_ray_\w+", query))
        assert names
        assert names <= BY_NAME.keys(), query
        asked |= names
        tags = {*RUN_TAGS, *(tag for name in names for tag in BY_NAME[name].tags)}
        for labels in re.findall(r"(?:by|on) \(([^)]*)\)", query):
            assert set(labels.split(", ")) <= tags, query
        for name, selector in re.findall(r"(\w*ace_ray_\w+)\{([^}]*)\}", query):
            used = re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", selector)
            assert set(used) <= {*RUN_TAGS, *BY_NAME[name].tags}, query
        for name in re.findall(r"(?:rate|increase)\((\w+)", query):
            assert BY_NAME[name].kind == "counter", query
    assert asked == BY_NAME.keys(), "every metric is shown or watched"
    tests = yaml.safe_load((FOLDER / "alerts-test.yaml").read_text())["tests"]
    tested = {case["alertname"] for test in tests for case in test["alert_rule_test"]}
    assert tested == {rule["alert"] for rule in rules}
