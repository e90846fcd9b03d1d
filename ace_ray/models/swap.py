"""What vLLM's workers do to take other weights (``worker_extension_cls``)."""

from __future__ import annotations

from typing import Any

EXTENSION = "ace_ray.models.swap.SwapExtension"


class SwapExtension:
    """Mixed into vLLM's worker class, in the worker's process."""

    model_runner: Any

    def swap_weights(self, folder: str) -> None:
        """Load the weights in ``folder``, of the same layout, in place of the present ones."""
        self.model_runner.reload_weights(weights_path=folder)
        model = self.model_runner.get_model()
        head: Any = getattr(model, "lm_head", None)
        embedding = getattr(getattr(model, "model", None), "embed_tokens", None)
        # A tied head shares the embedding's weights, but on the CPU it computes with a packed copy
        # of its own, which a reload does not renew: without a word, logits come from the old one.
        if hasattr(head, "cpu_linear") and getattr(embedding, "weight", None) is head.weight:
            head.quant_method.process_weights_after_loading(head)
