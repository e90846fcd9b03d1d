from __future__ import annotations

import pytest

from ace_ray.models.reasoning import Split, may_think, split_think


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[f(a=1)]", Split("", "[f(a=1)]", False)),
        ("", Split("", "", False)),
        ("  spaced ", Split("", "  spaced ", False)),
        ("<think>why</think>[f()]", Split("why", "[f()]", False)),
        ("\n <think>\nwhy\n</think>\n\n[f()]\n", Split("why", "[f()]\n", False)),
        ("<think></think>[f()]", Split("", "[f()]", False)),
        ("<think>a</think>\n<think>b</think> [f()]", Split("a\nb", "[f()]", False)),
        ("<think>why [f()]", Split("why [f()]", "", True)),
        ("<think>a</think><think>b", Split("a\nb", "", True)),
        ("<think>", Split("", "", True)),
        ("<think>all</think>", Split("all", "", False)),
        ("why</think>[f()]", Split("why", "[f()]", False)),
        ("is it [f()]?\n</think>[g()]", Split("is it [f()]?", "[g()]", False)),
        ("is it [f()]?</think> \n\n[g()]", Split("is it [f()]?", "[g()]", False)),
    ],
)
def test_leading_blocks_are_reasoning(text: str, expected: Split) -> None:
    assert split_think(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        '[say(text="<think>not mine</think>")]',
        "[f()] <think>late</think>",
        '[say(text="<think>")]',
        "[F(a='x</think>y')]",
    ],
)
def test_a_tag_inside_the_answer_is_the_answer(text: str) -> None:
    assert split_think(text) == Split("", text, False)
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
def test_who_may_think_is_not_held_to_a_schema_from_the_first_token(
    template: str, prompt: str, may: bool
) -> None:
    assert may_think(template, prompt) is may
