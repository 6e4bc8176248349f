"""A StableHLO module as functions of operations, read from the module attribute of an XlaCallModule.

Rules
- The attribute is bytecode; private_api.py turns it into text of the dialect VHLO, in which every operation has the
  same form: results, name, operands, properties, regions, types. `parse` reads it line by line, in linear time.
- A module that has anything else is not read: `Unreadable`. So is one of more than MAX_MODULE_BYTES.
- A name of a value is defined once in a function, but regions that lie beside each other use the same names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from app.runtimes.tensorflow.private_api import stablehlo_text

#: Weights that a function of JAX closes over lie in its module; such modules are not read. Chosen.
MAX_MODULE_BYTES = 4 << 20

# More than this in one line is no operation but a constant, whose elements do not matter. Chosen.
_MAX_LINE = 100_000

_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_TYPE = r"!vhlo\.tensor_v1<(?:(?:\d+|\?)x)*!vhlo\.\w+_v1>"
_TYPES = re.compile(rf"(?:{_TYPE}(?:, {_TYPE})*)?")
_ONE_TYPE = re.compile(r"!vhlo\.tensor_v1<((?:(?:\d+|\?)x)*)!vhlo\.(\w+)_v1>")
_VALUE = r"%[\w$.-]+(?:#\d+)?"
_VALUES = re.compile(rf"(?:{_VALUE}(?:, {_VALUE})*)?")
_ARGUMENTS = re.compile(rf"(?:%[\w$.-]+: {_TYPE}(?:, %[\w$.-]+: {_TYPE})*)?")
_ARGUMENT = re.compile(rf"(%[\w$.-]+): ({_TYPE})")

_FUNCTION = re.compile(r"vhlo\.func_v1 @([\w$.-]+|\"\d+\")\((.*)\) -> \((.*)\) \{")
_BLOCK = re.compile(r"\^bb0\((.*)\):")
_SIGNATURE = r"(?:\{.*\} )?: \((?P<takes>[^()]*)\) -> (?P<gives>.*)"
_OPERATION = re.compile(
    rf'(?:(?P<result>%[\w$.-]+)(?::(?P<count>\d+))? = )?"(?P<name>\d+)"\((?P<operands>[^()]*)\)'
    rf"(?: <\{{(?P<properties>.*)\}}>)? (?:(?P<regions>\(\{{)|{_SIGNATURE})"
)
_REGIONS_END = re.compile(rf"\}}\) {_SIGNATURE}")


class Unreadable(Exception):
    """The module is broken, too large, or has a form that is not followed."""


@dataclass(frozen=True, slots=True)
class Type:
    """A tensor's sizes, None for one that is open, and the name of its element type, such as 'f32'."""

    sizes: tuple[int | None, ...]
    element: str


@dataclass(slots=True)
class Region:
    """A function without a name. results: the operands of its return."""

    arguments: tuple[str, ...] = ()
    types: tuple[Type, ...] = ()
    operations: list[Operation] = field(default_factory=list)
    results: tuple[str, ...] = ()


@dataclass(slots=True)
class Operation:
    """An operation; `name` is without the dialect, but with its version, such as 'add_v1'."""

    name: str
    results: tuple[str, ...]
    operands: tuple[str, ...]
    properties: str
    strings: tuple[str, ...]
    regions: list[Region] = field(default_factory=list)
    takes: tuple[Type, ...] = ()
    gives: tuple[Type, ...] = ()

    def string(self, name: str) -> str:
        return self.strings[int(self._property(name, r'#vhlo\.string_v1<"(\d+)">'))]

    def _property(self, name: str, form: str) -> str:
        found = re.search(rf"(?:^|, ){name} = {form}(?:, |$)", self.properties)
        if found is None:
            raise Unreadable(f"{self.name} has no property {name}")
        return found[1]


@dataclass(frozen=True, slots=True)
class Module:
    """The functions of a module by name; `main` is called first."""

    functions: dict[str, Region]

    @property
    def main(self) -> Region:
        return self.function("main")

    def function(self, name: str) -> Region:
        if name not in self.functions:
            raise Unreadable(f"there is no function {name!r}")
        return self.functions[name]


def read_module(node: object) -> Module:
    """The module of an XlaCallModule, if it takes the operands of the node and gives its results.

    Raises:
        Unreadable: its form is not followed, such as one for several platforms.
    """
    attributes = node.attr  # type: ignore[attr-defined]  # a NodeDef
    if len(attributes["platforms"].list.s) > 1 or len(attributes["function_list"].list.func):
        raise Unreadable("it is for several platforms, or calls functions of the graph")
    if attributes["has_token_input_output"].b or len(attributes["dim_args_spec"].list.s):
        raise Unreadable("it takes other arguments than its node")
    module = _module(attributes["module"].s)
    takes, gives = len(attributes["Tin"].list.type), len(attributes["Tout"].list.type)
    if (len(module.main.arguments), len(module.main.results)) != (takes, gives):
        raise Unreadable("it takes other arguments than its node")
    return module


# Signatures and replicas of a model share modules. Chosen: what a model of several parts has.
@lru_cache(maxsize=8)
def _module(bytecode: bytes) -> Module:
    if len(bytecode) > MAX_MODULE_BYTES:
        raise Unreadable(f"it has more than {MAX_MODULE_BYTES} bytes")
    text = stablehlo_text(bytecode)
    if text is None:
        raise Unreadable("TensorFlow does not read it")
    return parse(text)


def parse(text: str) -> Module:
    """The module of a text in VHLO's generic form, as private_api.py prints it.

    Raises: Unreadable.
    """
    functions: dict[str, Region] = {}
    opened: list[Region] = []  # the function, and the regions within regions that are being read
    holders: list[Operation] = []  # the operations that have these regions
    for line in text.splitlines()[1:]:
        bare, strings = _without_strings(line.strip())
        if len(bare) > _MAX_LINE:
            raise Unreadable("a line is too long")
        if not opened:
            _begin_function(bare, strings, functions, opened)
        elif bare.startswith("}"):
            _end_region(bare, opened, holders)
        elif bare.startswith("^"):
            _begin_block(bare, opened[-1])
        else:
            _operation(bare, strings, opened, holders)
    if opened:
        raise Unreadable("it ends within a function")
    return Module(functions)


def _without_strings(line: str) -> tuple[str, list[str]]:
    """The line with the number of each string in its place, and the strings."""
    strings: list[str] = []

    def number(found: re.Match[str]) -> str:
        strings.append(found[1])
        return f'"{len(strings) - 1}"'

    return _STRING.sub(number, line), strings


def _begin_function(line: str, strings: list[str], functions: dict[str, Region], opened: list[Region]) -> None:
    if line in {"", "}"}:
        return
    found = _FUNCTION.fullmatch(line)
    if found is None:
        raise Unreadable(f"what is this: {line[:80]!r}?")
    name = strings[int(found[1].strip('"'))] if found[1].startswith('"') else found[1]
    region = Region(*_arguments(found[2]))
    _types(found[3])
    if name in functions:
        raise Unreadable(f"there are two functions {name!r}")
    functions[name] = region
    opened.append(region)


def _begin_block(line: str, region: Region) -> None:
    found = _BLOCK.fullmatch(line)
    if found is None or region.arguments or region.operations:
        raise Unreadable("a region has several blocks")
    region.arguments, region.types = _arguments(found[1])


def _end_region(line: str, opened: list[Region], holders: list[Operation]) -> None:
    if not holders:  # of a function, and its attributes
        opened.pop()
    elif line == "}, {":
        opened[-1] = Region()
        holders[-1].regions.append(opened[-1])
    else:
        found = _REGIONS_END.fullmatch(line)
        if found is None:
            raise Unreadable(f"what is this: {line[:80]!r}?")
        opened.pop()
        _signature(holders.pop(), found["takes"], found["gives"])


def _operation(line: str, strings: list[str], opened: list[Region], holders: list[Operation]) -> None:
    found = _OPERATION.fullmatch(line)
    if found is None:
        raise Unreadable(f"what is this: {line[:80]!r}?")
    dialect, _, name = strings[int(found["name"])].partition(".")
    operands = _values(found["operands"])
    if dialect != "vhlo":
        raise Unreadable(f"it has an operation of the dialect {dialect!r}")
    if name == "return_v1":
        opened[-1].results = operands
        return
    operation = Operation(name, _results(found), operands, found["properties"] or "", tuple(strings))
    opened[-1].operations.append(operation)
    if found["regions"]:
        operation.regions.append(Region())
        opened.append(operation.regions[0])
        holders.append(operation)
    else:
        _signature(operation, found["takes"], found["gives"])


def _results(found: re.Match[str]) -> tuple[str, ...]:
    result, count = found["result"], found["count"]
    if result is None:
        return ()
    return (result,) if count is None else tuple([f"{result}#{place}" for place in range(min(int(count), 10_000))])


def _signature(operation: Operation, takes: str, gives: str) -> None:
    operation.takes = _types(takes)
    operation.gives = _types(gives[1:-1] if gives.startswith("(") else gives)
    if len(operation.takes) != len(operation.operands) or len(operation.gives) != len(operation.results):
        raise Unreadable(f"{operation.name} has other operands or results than types")


def _arguments(text: str) -> tuple[tuple[str, ...], tuple[Type, ...]]:
    if _ARGUMENTS.fullmatch(text) is None:
        raise Unreadable("an argument is no tensor")
    pairs = [(found[1], _types(found[2])[0]) for found in _ARGUMENT.finditer(text)]
    return tuple([name for name, _ in pairs]), tuple([each for _, each in pairs])


def _values(text: str) -> tuple[str, ...]:
    if _VALUES.fullmatch(text) is None:
        raise Unreadable("an operand is no value")
    return tuple(text.split(", ")) if text else ()


def _types(text: str) -> tuple[Type, ...]:
    if _TYPES.fullmatch(text) is None:
        raise Unreadable("a value is no tensor")
    return tuple([_type(found[1], found[2]) for found in _ONE_TYPE.finditer(text)])


@lru_cache(maxsize=1024)
def _type(sizes: str, element: str) -> Type:
    return Type(tuple([None if size == "?" else int(size) for size in sizes.split("x")[:-1]]), element)


def returned_unchanged(module: Module) -> dict[int, int]:
    """The results of a module that are arguments as they were: the number of the argument by that of the result."""
    found = {}
    for place, value in enumerate(module.main.results):
        argument = _argument_of(module, "main", value)
        if argument is not None:
            found[place] = argument
    return found


#: Calls within calls that a value is followed through. Chosen.
_MOST_CALLS = 32


def _argument_of(module: Module, function: str, value: str, calls: int = 0) -> int | None:
    """Which argument of a function a value is, followed through calls."""
    region = module.function(function)
    while value not in region.arguments:
        giver = next((each for each in region.operations if value in each.results), None)
        if giver is None or giver.name != "call_v1" or calls >= _MOST_CALLS:
            return None
        callee = giver.string("callee")
        place = _argument_of(module, callee, module.function(callee).results[giver.results.index(value)], calls + 1)
        if place is None:
            return None
        value = giver.operands[place]
        calls += 1
    return region.arguments.index(value)
