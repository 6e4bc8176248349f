"""The compilation of a fold: from its text and the signatures of its models to operations, states and outputs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from app.core.inference import STRING, ModelSignature, TensorSpec, dtype_name, format_shape
from app.pipelines.compiling.tensor_types import Shape, check_fits, located
from app.pipelines.document import ONLY_STATE, FoldText, OperationText, StackedSlots, StepText
from app.pipelines.plan import OperationPlan
from app.pipelines.references import PipelineInvalid, parse_model

#: The type of nodes' numbers.
NUMBER = np.dtype(np.int32)

#: The output of a fold with the states of roots; `root_h` where states have names.
ROOT = "root"


def operations_of(step: StepText) -> Sequence[OperationText]:
    """The operations of a step with `fold`. Raises PipelineInvalid."""
    fold = step.fold
    assert fold is not None  # noqa: S101 - it is asked of folds
    if step.when or step.each or step.optional or step.timeout_ms is not None:
        raise PipelineInvalid("a step with 'fold' has neither 'when' nor 'each', 'optional' or 'timeout_ms'")
    if fold.operations:
        if step.model or step.signature or fold.slots is not None or fold.state is not None:
            raise PipelineInvalid("'model', 'signature', 'slots' and 'state' are those of each operation")
        if len(fold.operations) > 1 and not (fold.types and fold.children):
            raise PipelineInvalid("several operations need 'types' and 'children'")
        return fold.operations
    slots, state = fold.slots, fold.state
    if not step.model or slots is None or state is None:
        raise PipelineInvalid(_missing_parts(step, fold))
    if fold.types:
        raise PipelineInvalid("'types' is for a fold with 'operations'")
    return [OperationText.model_construct(model=step.model, signature=step.signature, slots=slots, state=state)]


def _missing_parts(step: StepText, fold: FoldText) -> str:
    """The fault of a fold that lacks a part of its only operation."""
    lacking = [name for name, value in (("slots", fold.slots), ("state", fold.state)) if value is None]
    if step.model:
        return f"the fold has no {' and no '.join(map(repr, lacking))}"
    return "a fold should have a model, 'slots' and 'state', or 'operations'" if lacking else "the step has no 'model'"


class Operation(NamedTuple):
    """An operation and the signature of its model."""

    text: OperationText
    signature: ModelSignature

    @property
    def slots(self) -> int:
        slots = self.text.slots
        return slots.count if isinstance(slots, StackedSlots) else len(slots)

    @property
    def children(self) -> Mapping[str, tuple[str, int | None]]:
        """For each input of the model, the state that it gets, and the child's slot; None: all children, stacked."""
        slots = self.text.slots
        if isinstance(slots, StackedSlots):
            return {name: (state, None) for state, name in slots.input.items()}
        named = [(name, state, slot) for slot, names in enumerate(slots) for state, name in names.items()]
        if len({name for name, _, _ in named}) < len(named):
            raise PipelineInvalid(f"'slots' should name each input once, but are {[dict(each) for each in slots]}")
        return {name: (state, slot) for name, state, slot in named}


class FoldTypes:
    """The states, inputs and outputs of a fold, and their types as they become known.

    Attributes:
        states: the names of the states.
        rows: by key, the type of a node's row in the arena; complete after `infer` and `add_node_input`.
    """

    def __init__(self, step: StepText, operations: Sequence[Operation]) -> None:
        assert step.fold is not None  # noqa: S101 - it is asked of folds
        self.text: FoldText = step.fold
        self.operations = operations
        self.rows: dict[str, TensorSpec] = {}
        self.states = list(operations[0].text.state)
        self._node_inputs = list(step.inputs)
        for operation in operations:
            self._check_names(operation)
        if self.text.start is not None and self.text.start.keys() != set(self.states):
            raise PipelineInvalid(f"'start' should have {_names(self.states)}, but has {_given(self.text.start)}")
        if unused := [name for name in self._node_inputs if not any(self._wants(each, name) for each in operations)]:
            raise PipelineInvalid(f"no model has an input {_names(unused)} beside those of 'slots'")
        if not self.text.children and (len(operations) > 1 or operations[0].slots != 1):
            raise PipelineInvalid("a fold without 'children' is a chain: it should have one slot")
        if not self.text.children and not self._node_inputs:
            raise PipelineInvalid("a fold without 'children' is a chain: it needs 'inputs', a row for each node")

    @property
    def slots(self) -> int:
        return max(each.slots for each in self.operations)

    def _check_names(self, operation: Operation) -> None:
        text, signature, children = operation.text, operation.signature, operation.children
        if unknown := children.keys() - signature.inputs.keys():
            raise PipelineInvalid(
                f"{text.model} has no input {_names(sorted(unknown))}, only {_names(signature.inputs)}"
            )
        if unknown := set(text.state.values()) - signature.outputs.keys():
            raise PipelineInvalid(
                f"{text.model} has no output {_names(sorted(unknown))}, only {_names(signature.outputs)}"
            )
        if text.state.keys() != set(self.states):
            raise PipelineInvalid(f"'state' should have {_names(self.states)}, but has {_given(text.state)}")
        if unknown := {state for state, _ in children.values()} - set(self.states):
            raise PipelineInvalid(f"'slots' name {_given(sorted(unknown))}, but 'state' has only {_names(self.states)}")
        both = {*children, *self._node_inputs}
        if missing := signature.expected(both).keys() - both:
            raise PipelineInvalid(
                f"{text.model} needs a value for its input {_names(sorted(missing))}: put it into "
                "'slots' (a child's state) or 'inputs'"
            )
        if twice := children.keys() & set(self._node_inputs):
            raise PipelineInvalid(f"{_names(sorted(twice))} should be in 'slots' or in 'inputs', not in both")

    def _wants(self, operation: Operation, name: str) -> bool:
        return name in operation.signature.inputs and name not in operation.children

    # --- outputs ---

    def outputs(self) -> Mapping[str, tuple[str, bool]]:
        """The outputs by name: the key of an output, and whether roots have it or all inner nodes."""
        found = {}
        for name in self.operations[0].signature.outputs:
            if all(name in each.signature.outputs for each in self.operations):
                found[name] = self._key_of_output(name), False
        for state in self.states:
            found[ROOT if self.states == [ONLY_STATE] else f"{ROOT}_{state}"] = state_key(state), True
        return found

    def _key_of_output(self, name: str) -> str:
        """The key of an output: an output that is a state has the state's."""
        for state in self.states:
            if all(each.text.state[state] == name for each in self.operations):
                return state_key(state)
        return f"output {name}"

    # --- types ---

    def infer(self, start: Mapping[str, Iterable[TensorSpec]], read: Collection[str]) -> None:
        """Infer the types of states and of the outputs that are read.

        Args:
            start: by state, the types of the start nodes' states.
            read: the names of the outputs that are read.
        """
        for state in self.states:
            with located(f"state {state!r}"):
                self.rows[state_key(state)] = self._state(state, start.get(state, ()))
        for name, (key, of_roots) in self.outputs().items():
            if name in read and of_roots:
                self._check_clear(name)
            elif name in read and key not in self.rows:
                with located(f"output {name!r}"):
                    specs = [each.signature.outputs[name] for each in self.operations]
                    self.rows[key] = _row(key, specs[0].dtype, _fitting(name, specs, specs[0]))

    def _check_clear(self, root: str) -> None:
        """Raises PipelineInvalid if an output with the states of roots has the name of a model's output."""
        for each in self.operations:
            if root in each.signature.outputs:
                raise PipelineInvalid(
                    f"{root!r} are the states of roots, but also an output of {each.text.model}: the state should have "
                    f"another name, as in 'state: {{h: ...}}', whose roots are '{ROOT}_h'"
                )

    def _state(self, state: str, start: Iterable[TensorSpec]) -> TensorSpec:
        first = self.operations[0]
        wanted = first.signature.outputs[first.text.state[state]]
        specs = [each.signature.outputs[each.text.state[state]] for each in self.operations]
        for operation in self.operations:
            for name, (of, slot) in operation.children.items():
                if of == state:
                    spec = operation.signature.inputs[name]
                    specs.append(spec if slot is not None else _unstacked(spec, operation.slots))
        return _row(state_key(state), wanted.dtype, _fitting(state, [*specs, *start], wanted))

    def wanted(self, name: str) -> Sequence[TensorSpec]:
        """The types that the models want of an input of the nodes."""
        return [each.signature.inputs[name] for each in self.operations if self._wants(each, name)]

    def add_node_input(self, name: str, spec: TensorSpec) -> None:
        """Note the type of the rows for an input of the nodes. Raises PipelineInvalid if a model cannot take it."""
        shape = spec.shape
        for each in self.wanted(name):
            shape = check_fits(spec.name, TensorSpec(spec.name, spec.dtype, shape), each.dtype, each.shape)
        self.rows[input_key(name)] = _row(input_key(name), spec.dtype, shape)

    # --- the plan ---

    def plan_of(self, operation: Operation, kept: Collection[str]) -> OperationPlan:
        """The plan of an operation. `kept`: the keys of outputs that are read."""
        results = {state_key(state): name for state, name in operation.text.state.items()}
        for name, (key, of_roots) in self.outputs().items():
            if not of_roots and key in kept:
                results.setdefault(key, name)
        return OperationPlan(
            parse_model(operation.text.model),
            operation.signature.name,
            operation.slots,
            {name: (state_key(state), slot) for name, (state, slot) in operation.children.items()},
            {name: input_key(name) for name in self._node_inputs if self._wants(operation, name)},
            results,
        )


def state_key(state: str) -> str:
    return f"state {state}"


def input_key(name: str) -> str:
    return f"input {name}"


def _unstacked(spec: TensorSpec, slots: int) -> TensorSpec:
    """The type of one child's state in an input of stacked children."""
    if spec.shape is None:
        return spec
    if len(spec.shape) < 2 or spec.shape[1] not in {None, slots}:
        raise PipelineInvalid(
            f"{spec.name} is {format_shape(spec.shape)}, but should be [?,{slots},...]: the states of {slots} children"
        )
    return TensorSpec(spec.name, spec.dtype, (spec.shape[0], *spec.shape[2:]))


def _fitting(what: str, specs: Iterable[TensorSpec], first: TensorSpec) -> Shape:
    shape = first.shape
    for spec in specs:
        shape = check_fits(spec.name or what, spec, first.dtype, shape)
    return shape


def _row(key: str, dtype: np.dtype[Any], shape: Shape) -> TensorSpec:
    """The type of a node's row in the arena, which must have a known size. The shape includes the rows' dimension."""
    if shape is None or None in shape[1:] or 0 in shape[1:]:
        raise PipelineInvalid(
            f"it is {format_shape(shape)}, but should have a known size in all dimensions but the first: it is kept "
            "for each node"
        )
    if dtype == STRING:
        raise PipelineInvalid(f"it is {dtype_name(dtype)}, but what is kept for each node should be numbers")
    return TensorSpec(key, dtype, (None, *shape[1:]))


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def _given(states: Collection[str]) -> str:
    """The states that a text names, for an error text. A state without a name has one that its author may not know."""
    if list(states) == [ONLY_STATE]:
        return f"{ONLY_STATE!r} (a state without a name)"
    return _names(states) or "none"
