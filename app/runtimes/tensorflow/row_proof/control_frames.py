"""Loops and branches of TensorFlow 1, which are circles of nodes: Enter, Merge, Switch, NextIteration, Exit.

Rules
- A frame becomes one step, FRAME_LOOP, from the operands of its Enter nodes to the results of its Exit nodes. Its
  condition and its body are separate bodies, whose arguments are the Merge nodes of the loop and then its constant
  Enter nodes.
- A Merge outside of loops gives the value of one of two branches. It also reads the conditions of all Switch nodes that
  it may depend on, by values or by control edges: if a condition depends on rows, so does the choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from app.runtimes.tensorflow.graph_nodes import data_inputs, names, node_of

FRAME_LOOP = "FrameLoop"

_FRAME_NODES = names("Enter Merge RefEnter RefMerge RefSwitch Switch")

#: The most looks at nodes in the search for conditions of branches. Chosen: a second.
_MAX_LOOKS = 300_000

Stack = tuple[str, ...]


@dataclass(eq=False)
class FrameLoop:
    """A loop as a node. `reads` are the tensors that enter it; `condition` and `body` are made by bodies.py."""

    name: str
    merges: list[Any]
    constants: list[Any]
    reads: list[str]
    exits: dict[str, int]
    condition_reads: str
    next_reads: list[str]
    op: str = FRAME_LOOP
    attr: dict[str, Any] = field(default_factory=dict)
    condition: Any = None
    body: Any = None


def has_frames(nodes: Sequence[Any]) -> bool:
    return any(node.op in _FRAME_NODES for node in nodes)


class Frames:
    """The loops of a list of nodes.

    Attributes:
        loops: by the name of an Exit node, its loop.

    Raises:
        ValueError: the nodes do not make loops as TensorFlow's while_loop does.
    """

    def __init__(self, nodes: Sequence[Any]) -> None:
        self._by_name = {node.name: node for node in nodes}
        self._stacks = self._find_stacks(nodes)
        self._enters: dict[Stack, list[Any]] = {}
        for node in nodes:
            if node.op == "Enter":
                self._enters.setdefault(self._stacks[node.name], []).append(node)
        self.loops: dict[str, FrameLoop] = {}
        for stack in self._enters:
            loop = self._loop(nodes, stack)
            self.loops.update(dict.fromkeys(loop.exits, loop))
        self._of_loops = {merge.name for loop in self.loops.values() for merge in loop.merges}
        self._looks = 0

    def _find_stacks(self, nodes: Sequence[Any]) -> dict[str, Stack]:
        """The frames around each node, outermost first."""
        stacks: dict[str, Stack] = {}
        waiting = [node.name for node in reversed(nodes)]
        begun: set[str] = set()
        while waiting:
            # 1. The givers of a node come first. A NextIteration comes after its reader; the Enter beside it has the
            #    same frame.
            name = waiting[-1]
            node = self._by_name[name]
            givers = [giver for giver in map(node_of, data_inputs(node)) if giver in self._by_name]
            if node.op == "Merge":
                givers = [each for each in givers if self._by_name[each].op != "NextIteration"]
            missing = [giver for giver in givers if giver not in stacks]
            if name not in stacks and missing and name not in begun:
                begun.add(name)
                waiting += missing
                continue
            waiting.pop()
            if name in stacks:
                continue
            if missing:
                raise ValueError(f"node {name!r} is part of a circle")

            # 2. Its frames are those of its innermost giver; Enter adds one, Exit removes it.
            stack = max((stacks[giver] for giver in givers), key=len, default=())
            if node.op == "Enter":
                stack = (*stack, node.attr["frame_name"].s.decode())
            elif node.op == "Exit":
                stack = stack[:-1]
            stacks[name] = stack
        return stacks

    def _loop(self, nodes: Sequence[Any], stack: Stack) -> FrameLoop:
        inside = [node for node in nodes if self._stacks[node.name] == stack]
        # 1. Variables: a Merge of an Enter, the value at the begin, and a NextIteration, the value of the next one.
        merges, next_reads, entered = [], [], []
        for node in inside:
            if node.op == "Merge":
                givers = [self._by_name[node_of(each)] for each in data_inputs(node)]
                following = [each for each in givers if each.op == "NextIteration"]
                if following:
                    (enter,) = [each for each in givers if each.op == "Enter"]
                    merges.append(node)
                    entered.append(enter)
                    next_reads.append(following[0].input[0])
        constants = [each for each in self._enters[stack] if each not in entered]
        # 2. The condition, and the Exit of each variable behind its Switch.
        (condition,) = [node for node in inside if node.op == "LoopCond"]
        numbers = {merge.name: number for number, merge in enumerate(merges)}
        exits = {}
        for node in nodes:
            if node.op == "Exit":
                switch = self._by_name[node_of(node.input[0])]
                merge = node_of(switch.input[0]) if switch.op == "Switch" else ""
                if merge in numbers:
                    exits[node.name] = numbers[merge]
        reads = [each.input[0] for each in (*entered, *constants)]
        return FrameLoop(stack[-1], merges, constants, reads, exits, condition.input[0], next_reads)

    def loop_switch_input(self, node: Any) -> str | None:
        """The operand of a loop's Switch, which passes it to the present iteration; None for other nodes."""
        if node.op == "Switch" and node_of(node.input[0]) in self._of_loops:
            return str(node.input[0])
        return None

    def conditions_of(self, merge: Any) -> list[str]:
        """The conditions that a Merge of branches may depend on."""
        found: dict[str, None] = {}
        seen = {merge.name}
        waiting = [merge]
        while waiting:
            node = waiting.pop()
            self._looks += 1
            if self._looks > _MAX_LOOKS:
                raise ValueError("it has too many branches")
            if node.name in self._of_loops or self.loop_switch_input(node):
                continue  # it is part of a loop, whose operands were followed
            if node.op == "Switch":
                found[node.input[1]] = None
            givers = self.loops[node.name].reads if node.name in self.loops else node.input
            for giver in map(node_of, givers):
                if giver in self._by_name and giver not in seen:
                    seen.add(giver)
                    waiting.append(self._by_name[giver])
        return list(found)
