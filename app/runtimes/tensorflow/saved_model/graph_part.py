"""What a call of a signature runs of the graph of a TensorFlow 1 model: what its outputs need, up to its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def needed_nodes(nodes: Mapping[str, Any], outputs: Iterable[str], inputs: Iterable[str]) -> set[str]:
    """The names of the nodes that the tensors `outputs` need if the tensors `inputs` are given.

    Args:
        nodes: NodeDefs by name.
    """
    fed = set(map(full_name, inputs))
    fed_nodes = set(map(_node, fed))
    needed: set[str] = set()
    waiting = list(map(full_name, outputs))
    while waiting:
        tensor = waiting.pop()
        name = _node(tensor)
        if tensor in fed or name in needed or (tensor.startswith("^") and name in fed_nodes):
            continue
        if name not in nodes:  # TensorFlow says better what is wrong with such a signature
            continue
        needed.add(name)
        waiting += map(full_name, nodes[name].input)
    return needed


def full_name(tensor: str) -> str:
    """'x:0' for 'x'; '^x', a node to wait for, stays."""
    return tensor if ":" in tensor or tensor.startswith("^") else f"{tensor}:0"


def _node(tensor: str) -> str:
    return tensor.removeprefix("^").partition(":")[0]
