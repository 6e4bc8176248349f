"""The forms of bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.budgets import files, packed, texts
from tests.budgets.search import Form

FORMS: Mapping[str, Callable[[], Form]] = {
    "JSON": texts.json_,
    "JSON of v2": texts.infer,
    "lines": texts.lines,
    "JSON examples": texts.examples,
    "queries": texts.queries,
    "MessagePack": packed.message_pack,
    "protobuf": packed.protobuf,
    "examples over gRPC": packed.example_lists,
    "v2 over gRPC": packed.v2_messages,
    "binary tensors of v2": packed.binary,
    "npy": files.npy,
    "npz": files.npz,
    "PNG": files.png,
    "JPEG": files.jpeg,
    "gzip": files.members,
}
