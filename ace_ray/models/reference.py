"""Compute logprobs with transformers: ``python -m ace_ray.models.reference FOLDER... < ids.json``.

Prints one JSON line per folder: for each list of token ids, the logprobs of all tokens except the
first. This is a separate process so that its memory is freed when it ends, and so that torch's
thread settings in the engine's process do not change."""

from __future__ import annotations

import json
import sys


def main() -> None:
    import torch
    from transformers import AutoModelForCausalLM

    texts = json.load(sys.stdin)
    for folder in sys.argv[1:]:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
        logprobs = []
        for ids in texts:
            with torch.inference_mode():
                logits = model(torch.tensor([ids])).logits[0, :-1].float()
            picked = torch.tensor(ids[1:]).unsqueeze(-1)
            logprobs.append(logits.log_softmax(-1).gather(-1, picked).squeeze(-1).tolist())
        del model
        print(json.dumps(logprobs), flush=True)


if __name__ == "__main__":
    main()
