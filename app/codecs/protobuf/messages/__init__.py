"""Protocol buffer messages, from the descriptor set that compile.sh makes of the .proto files here.

They live in a pool of their own: TensorFlow registers messages of the same names in the
process-wide one, and two registrations of a name are rejected. Taking them from the packages
that publish them (tensorflow-serving-api, tritonclient) would pin TensorFlow's release or
bring a whole client; names, numbers and types are all that the wire knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.descriptor_pool import DescriptorPool

_DESCRIPTORS = Path(__file__).with_name("messages.binpb")


@cache
def message_class(name: str) -> Any:
    """The class of the message with this full name ('tensorflow.Example'). Raises KeyError where there is none."""
    return message_factory.GetMessageClass(pool().FindMessageTypeByName(name))


@cache
def enum_numbers(name: str) -> Mapping[str, int]:
    """The numbers of an enum's values ('tensorflow.DataType') by their names. Raises KeyError where there is none."""
    values = pool().FindEnumTypeByName(name).values
    return {value.name: value.number for value in values}


def service_descriptor(name: str) -> ServiceDescriptor:
    """The service with this full name ('tensorflow.serving.ModelService'). Raises KeyError where there is none."""
    return pool().FindServiceByName(name)


@cache
def pool() -> DescriptorPool:
    """Every message, enum and service of ours."""
    return new_pool()


def new_pool(*more: bytes) -> DescriptorPool:
    """A pool of everything of ours and of `more`, serialized files that import nothing else."""
    descriptors = DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(_DESCRIPTORS.read_bytes()).file:
        descriptors.AddSerializedFile(file.SerializeToString())
    for each in more:
        descriptors.AddSerializedFile(each)
    return descriptors
