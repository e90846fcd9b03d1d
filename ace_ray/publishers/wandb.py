"""Weights & Biases: a run by id, drawn over the training step."""

from __future__ import annotations

import os
from collections.abc import Sequence

from pydantic import Field

from ace_ray.config import Section
from ace_ray.publishers.base import Point, Publication, Publisher

STEP = "train_step"


class WandBOptions(Section):
    project: str = Field("ace_ray", min_length=1, description="the project's name")
    entity: str | None = Field(
        None, min_length=1, description="user or team; default: the environment's (WANDB_ENTITY)"
    )


class WandB(Publisher[WandBOptions]):
    """Keys and the server come from the environment, or from `wandb login`. W&B's own steps only
    rise, so the training step is a metric that the others are drawn over: a late checkpoint finds
    its place."""

    needs = "wandb"
    install = "ace-ray[wandb]"
    Options = WandBOptions

    def place(self) -> str:
        settings = ("WANDB_BASE_URL", "WANDB_ENTITY", "WANDB_MODE")
        values = [os.environ.get(name, "") for name in settings]
        return " ".join([*values, self.options.entity or "", self.options.project])

    def publish(self, publication: Publication, new: Sequence[Point]) -> str:
        import wandb

        rows = {"rows": list(publication.rows)} if publication.rows else {}
        run = wandb.init(
            project=self.options.project,
            entity=self.options.entity,
            id=publication.key,
            name=publication.name,
            group=publication.group or None,
            job_type="evaluation",
            config={**publication.config, **rows},
            resume="allow",
            settings=wandb.Settings(
                silent=True, console="off", x_disable_stats=True, save_code=False, disable_git=True
            ),
        )
        run.define_metric(STEP)
        for name in {name for point in publication.points for name in point.metrics}:
            run.define_metric(name, step_metric=STEP)
        for point in new:
            run.log({**point.metrics, STEP: point.step or 0})
        run.summary.update(dict(publication.summary))
        run.finish()
        offline = run.settings.mode == "offline"
        return f"{run.settings.sync_dir}, wandb sync sends it" if offline else str(run.url)
