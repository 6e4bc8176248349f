"""Protocol buffer messages, from the descriptor set that compile.sh makes of the .proto files here.

They live in a pool of their own: TensorFlow registers messages of the same names in the
process-wide one, and two registrations of a name are refused.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_DESCRIPTORS = Path(__file__).with_name("messages.binpb")


@cache
def message_class(name: str) -> Any:
    """The class of the message with this full name ('tensorflow.Example'). Raises KeyError where there is none."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(name))


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(_DESCRIPTORS.read_bytes()).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool
