"""Which source files of tool classes this project knows: those of the pinned version.

A file that is not among them runs only where the user named the data in the command itself."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

SHA256: Mapping[str, frozenset[str]] = {
    "gorilla_file_system": frozenset(
        ["84173750930b09aaa31b90547c9bd79ce75714682608b35e78a9c1ea259faf2b"]
    ),
    "long_context": frozenset(["5c9a5710115609c779e5b2ccb43f6ad58271ed96f2ea7a797edb0d65c385aa38"]),
    "math_api": frozenset(["abde32cc25e71b2ff3acf4d028a3c005b98409c174aba4abddbfe1c018afb9a8"]),
    "memory_api_metaclass": frozenset(
        ["5b924c2482797fa2055c4c606788db517470d0a65d1a64c97f21bceb5f820611"]
    ),
    "memory_kv": frozenset(["7be11ccae7741e07fcd7a2fc6664cad556357a047453db68db9e11bfec6c0ca7"]),
    "memory_rec_sum": frozenset(
        ["e5a08f4183ab2c14a330eb3db1aca5e13533e0ffe70ce1c424851944295b898c"]
    ),
    "memory_vector": frozenset(
        ["489df326a8fc6e19270d6a349c8c3434f4bdcb360050d7ac17596eeb4da03a54"]
    ),
    "message_api": frozenset(["cf72af1635654147af17df1891a7fb354549e78a61930139f741a31f4be21121"]),
    "posting_api": frozenset(["32b887aaa37c7167ad9c84ddfa7bbb855c75d3c1edab19ba868aba29acc4cfa1"]),
    "ticket_api": frozenset(["6a9375aa6425410c07a151aef27f3e44e9ed1023bb5cc5c25f14f4a9b3c99116"]),
    "trading_bot": frozenset(["cc2e3949035b561e9d07418b081561aa07b211672200e2e511aec074bf79fcb2"]),
    "travel_booking": frozenset(
        ["e698e22adccf0d6d41b297f2d5e44faebd828cef4752df6a4ffb1570c0c35296"]
    ),
    "vehicle_control": frozenset(
        ["f5f7a2f28968728927a98ae12ec68a32d70781cfb74c2d7b14801772362b12d1"]
    ),
}
"""SHA-256 (hex) of each module's file in bfcl-eval 2026.3.23."""


def unknown(texts: Mapping[str, str]) -> list[str]:
    """The modules whose text (UTF-8) is not a known one."""
    return [
        name
        for name, text in texts.items()
        if hashlib.sha256(text.encode("utf-8")).hexdigest() not in SHA256.get(name, frozenset())
    ]
