"""Reasoning in `<think>` blocks is taken apart from the answer."""

from __future__ import annotations

import pytest

from ace_ray.models.reasoning import Split, may_think, split_think

SPLITS = [
    ("  spaced ", Split("", "  spaced ", False)),
    ("\n <think>\nwhy\n</think>\n\n[f()]\n", Split("why", "[f()]\n", False)),
    ("<think>a</think>\n<think>b</think> [f()]", Split("a\nb", "[f()]", False)),
    ("<think>a</think><think>b", Split("a\nb", "", True)),
    ("<think>", Split("", "", True)),
    ("<think>all</think>", Split("all", "", False)),
    ("why</think>[f()]", Split("why", "[f()]", False)),
    ("is it [f()]?\n</think>[g()]", Split("is it [f()]?", "[g()]", False)),
    ("is it [f()]?</think> \n\n[g()]", Split("is it [f()]?", "[g()]", False)),
]


def test_leading_blocks_are_reasoning() -> None:
    for text, expected in SPLITS:
        assert split_think(text) == expected, text
    for text in ("", '[say(text="<think>not mine</think>")]', "[f()] <think>late</think>",
                 '[say(text="<think>")]', "[F(a='x</think>y')]"):  # fmt: skip
        assert split_think(text) == Split("", text, False), "a tag inside the answer"
        assert split_think(f"<think>why</think>{text}") == Split("why", text, False)


def test_a_block_that_the_prompt_opened() -> None:
    assert split_think("why</think>[f()]", opened=True) == Split("why", "[f()]", False)
    assert split_think("[f()]?</think>x", opened=True) == Split("[f()]?", "x", False)
    assert split_think("why, cut", opened=True) == Split("why, cut", "", True)
    assert split_think("<think>why</think>x", opened=True) == Split("why", "x", False)


@pytest.mark.parametrize(
    ("template", "prompt", "may"),
    [
        ("{{ messages }}", "<|assistant|>", False),
        ("{{ messages.split('</think>') }}", "<|assistant|>", True),
        ("{{ '<think></think>' }}", "<|assistant|><think>\n", True),
        ("{{ '<think></think>' }}", "<|assistant|><think>\n\n</think>\n\n", False),
    ],
)
def test_a_model_that_may_think_is_known_by_template_and_prompt(
    template: str, prompt: str, may: bool
) -> None:
    assert may_think(template, prompt) is may
