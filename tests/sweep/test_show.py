"""The plan and the ledger of a sweep, as ``ace-ray sweep`` prints them."""

import yaml


def test_a_plan_names_sizes_refusals_and_costs_and_writes_nothing(
    invoke, tmp_path, make_checkpoint, monkeypatch
) -> None:
    monkeypatch.setattr("ace_ray.sweep.runs.size_of", lambda model: None)
    for step in range(1, 7):
        make_checkpoint(tmp_path / "run" / f"step_{step}", float(step))
    (tmp_path / "run/step_2/tokenizer.json").unlink()
    tree = {
        "checkpoints": str(tmp_path / "run"),
        "benchmarks": [{"name": "acebench", "languages": ["en"]}],
        "backend": "fake",
        "limit": 2,
        "price_per_hour": 3600,
        "sweep_id": "sweep",
        "output": str(tmp_path / "out"),
    }
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(tree))
    plan = invoke("sweep", tmp_path / "sweep.yaml", "--plan")
    assert plan.code == 0, plan.stderr
    for words in (
        "step 1 .. step 6 (5)",
        "5 models, 0 of them finished",
        "step 2: refused: the checkpoint is incomplete: the tokenizer is missing",
        "step 1: its size is unknown; the estimate assumes 1 billion parameters",
        "CPU engine hours",
        " at 3600 per hour",
        f"results: {tmp_path}/out/sweep/",
    ):
        assert words in plan.stdout
    assert not (tmp_path / "out").exists()
