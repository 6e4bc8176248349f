"""Protocol buffer messages, from the descriptor set that compile.sh makes from the .proto files here.

They have their own descriptor pool: TensorFlow registers messages of the same names in the process-wide pool, which
rejects a second registration. The packages that publish these messages (tensorflow-serving-api, tritonclient) would pin
TensorFlow's release or install a whole client; on the wire only names, numbers and types matter.
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
    """The class of the message with this full name ('tensorflow.Example'). Raises KeyError if there is none."""
    return message_factory.GetMessageClass(pool().FindMessageTypeByName(name))


@cache
def enum_numbers(name: str) -> Mapping[str, int]:
    """Name -> number of an enum's values ('tensorflow.DataType'). Raises KeyError if there is no such enum."""
    values = pool().FindEnumTypeByName(name).values
    return {value.name: value.number for value in values}


def service_descriptor(name: str) -> ServiceDescriptor:
    """The service with this full name ('tensorflow.serving.ModelService'). Raises KeyError if there is none."""
    return pool().FindServiceByName(name)


@cache
def pool() -> DescriptorPool:
    """The pool of all messages, enums and services of Ferry."""
    descriptors = DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(_DESCRIPTORS.read_bytes()).file:
        descriptors.AddSerializedFile(file.SerializeToString())
    return descriptors
