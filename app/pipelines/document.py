"""The text of `pipeline.yaml`: its form, checked as far as that is possible without the models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StrictFloat,
    StrictInt,
    StrictStr,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from app.pipelines.references import PipelineInvalid

#: The most bytes of the text. Chosen: a step takes some hundred.
MOST_BYTES = 1 << 16

#: The most steps of a pipeline. Chosen.
MOST_STEPS = 64

#: The most levels of the text. Chosen: a pipeline has six; PyYAML would take seconds for thousands.
_MOST_LEVELS = 16


def _listed(value: object) -> object:
    return value if isinstance(value, list) else [value]


def _source(value: object) -> object:
    if type(value) not in {str, int, float}:
        raise PydanticCustomError("source", "it should be an input of the pipeline, 'step.output' or a number")
    return value


Source = Annotated[StrictStr | StrictInt | StrictFloat, BeforeValidator(_source)]

#: One reference, or several, of which the first that has a row counts; the last may be a number for all other rows.
Sources = Annotated[list[Source], BeforeValidator(_listed), Field(min_length=1)]

Name = Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")]


#: The name of a state that has none in the text.
ONLY_STATE = "state"


def _named(value: object) -> object:
    return value if isinstance(value, dict) else {ONLY_STATE: value}


#: Names of a model's inputs or outputs, by state.
Names = Annotated[Mapping[Name, StrictStr], BeforeValidator(_named), Field(min_length=1)]

#: The most children of a node. Chosen: an array of them is passed for each node.
MOST_SLOTS = 64


class StackedSlots(BaseModel):
    """The children of a node in one input of the model, [rows, count, ...]."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    count: Annotated[int, Field(strict=True, ge=1, le=MOST_SLOTS)]
    input: Names


Slots = Annotated[
    Annotated[StackedSlots, Tag("stacked")]
    | Annotated[list[Names], BeforeValidator(_listed), Field(min_length=1, max_length=MOST_SLOTS), Tag("each")],
    Discriminator(lambda value: "stacked" if isinstance(value, dict) else "each"),
]


class OperationText(BaseModel):
    """The operation that computes the nodes of one type.

    slots: for each child of a node, the inputs of the model that get the child's state.
    state: the outputs of the model that are the node's state.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(min_length=1)
    signature: str = ""
    slots: Slots
    state: Names


class FoldText(BaseModel):
    """The fold of a step: a row is a node of a tree, computed from the states of its children.

    children: the input of the pipeline with the children of each node; without it a node's child is the one before it.
    slots, state: of the only operation, whose model is the step's.
    operations: several operations.
    types: the input of the pipeline with the number of each node's operation.
    start: the sources of the start nodes' states.
    shared: whether a node may be the child of several.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    children: str = ""
    slots: Slots | None = None
    state: Names | None = None
    start: Annotated[Mapping[Name, Sources], BeforeValidator(_named)] | None = None
    types: str = ""
    operations: list[OperationText] = Field(default_factory=list, max_length=MOST_STEPS)
    shared: bool = False


class StepText(BaseModel):
    """A step: one call of a model, or the calls of a fold.

    model: 'name', 'name:label' or 'name:version'; without it the fold has operations.
    inputs: by the model's input, the sources of its rows.
    when: the condition of rows that are computed (condition.py).
    each: the inputs whose second dimension is split: an element is a row of the model.
    optional: whether rows count as not computed if the step fails, or takes longer than `timeout_ms`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = ""
    signature: str = ""
    inputs: Mapping[str, Sources] = Field(default_factory=dict)
    fold: FoldText | None = None
    when: str = ""
    each: Annotated[list[str], BeforeValidator(_listed)] = Field(default_factory=list)
    optional: bool = False
    timeout_ms: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _is_called(self) -> StepText:
        if self.fold is None and not (self.model and self.inputs):
            raise PydanticCustomError("call", "it should have 'model' and 'inputs', or 'fold'")
        return self


class PipelineText(BaseModel):
    """The text of a whole pipeline."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    steps: Mapping[Name, StepText] = Field(min_length=1, max_length=MOST_STEPS)
    outputs: Mapping[str, Sources] = Field(min_length=1)


def parse(text: bytes) -> PipelineText:
    """The checked text. Raises PipelineInvalid, which names all faults."""
    if len(text) > MOST_BYTES:
        raise PipelineInvalid(f"it should have at most {MOST_BYTES} bytes, but has more")
    try:
        content = _Loader(text).get_single_data()
    except (yaml.YAMLError, *_ODD_VALUES) as error:
        raise PipelineInvalid(f"it is no YAML: {_one_line(error)}{_hint(error)}") from None
    if not isinstance(content, dict):
        raise PipelineInvalid("it should have 'steps' and 'outputs'")
    try:
        return PipelineText.model_validate(content)
    except ValidationError as error:
        raise PipelineInvalid(*map(_fault, error.errors())) from None


#: Errors of PyYAML for values that do not fit their tag: `!!int ''`, `!!bool x`, `!!timestamp x`, 1:59:...:59.5
_ODD_VALUES = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


class _Loader(yaml.SafeLoader):
    """YAML without aliases, by which a short text means a large one, without repeated names, and of few levels."""

    _level = 0

    def __init__(self, text: bytes) -> None:
        super().__init__(text)
        self.name = "pipeline.yaml"  # marks of errors name it

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("an alias (*name) is not supported")
        if self._level == _MOST_LEVELS:
            raise yaml.YAMLError(f"it has more than {_MOST_LEVELS} levels")
        self._level += 1
        node = super().compose_node(parent, index)
        self._level -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        names: set[object] = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)
            if not isinstance(name, str):
                raise yaml.YAMLError(f"{name!r} is no name, unless it is in quotes{key.start_mark}")
            if name in names:
                raise yaml.YAMLError(f"{name!r} has two values{node.start_mark}")
            names.add(name)
        return super().construct_mapping(node, deep)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _hint(error: Exception) -> str:
    """The hint for a mapping or a list in one line that ends too early, such as at `small["logits:0"]`."""
    in_one_line = isinstance(error, yaml.MarkedYAMLError) and "flow" in (error.context or "")
    return " (in { } a text with [ ] , or : needs quotes)" if in_one_line else ""


def _form_of(place: Sequence[object]) -> type[BaseModel]:
    """The form of the mapping at a place, whose last part is a name in it."""
    if "operations" in place:
        return StackedSlots if "stacked" in place else OperationText
    if "stacked" in place:
        return StackedSlots
    if len(place) > 3:
        return FoldText
    return StepText if len(place) > 1 else PipelineText


#: The types of pydantic's errors where a mapping should be.
_NO_MAPPING = {"dict_type", "mapping_type", "model_type"}


def _fault(error: Any) -> str:
    place: Sequence[object] = error["loc"][:-1] if error["loc"][-1:] == ("[key]",) else error["loc"]
    if error["type"] == "extra_forbidden":
        known = ", ".join(map(repr, _form_of(error["loc"]).model_fields))
        return f"{_place(place[:-1])}{place[-1]!r} is not known, only {known}"
    if error["type"] == "missing":
        return f"{_place(place[:-1])}{place[-1]!r} is missing"
    if error["type"] in _NO_MAPPING:
        return f"{_place(place)}it should be a mapping, such as {{name: value}}"
    if error["type"] == "string_pattern_mismatch":
        return f"{_place(place)}a name here should have letters, digits and _ only, and should not begin with a digit"
    expected = error["msg"].replace("Input should", "it should", 1)  # "input" is a word of pipelines
    expected = expected.partition(", unable to")[0]
    return f"{_place(place) or 'it: '}{expected}"


def _place(parts: Sequence[object]) -> str:
    """A place as the start of a sentence: `step 'a': inputs.x: `."""
    step, rest = "", parts
    if len(parts) > 1 and parts[0] == "steps":
        step, rest = f"step {str(parts[1])!r}: ", parts[2:]
    return step + (f"{'.'.join(map(str, rest))}: " if rest else "")
