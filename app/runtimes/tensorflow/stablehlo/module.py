"""A StableHLO module as functions of operations, read from the module attribute of an XlaCallModule.

Rules
- The attribute is bytecode; private_api.py turns it into text of the dialect VHLO, in which every operation has the
  same form: results, name, operands, properties, regions, types. `parse` reads it line by line, in linear time.
- A module with any other form is not read: `Unreadable`. So is one of more than MAX_MODULE_BYTES.
- A name of a value is defined once in a function, but regions that lie beside each other use the same names. So the
  operations within regions are checked and not kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from app.runtimes.tensorflow.private_api import stablehlo_text

#: Weights that a function of JAX closes over lie in its module; such modules are not read. Chosen.
MAX_MODULE_BYTES = 4 << 20

#: The longest line of an operation; a longer one is a constant, whose elements do not matter. Chosen.
_MAX_LINE = 100_000

_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_TYPE = r"!vhlo\.tensor_v1<(?:(?:\d+|\?)x)*!vhlo\.\w+_v1>"
_TYPES = re.compile(rf"(?:{_TYPE}(?:, {_TYPE})*)?")
_ONE_TYPE = re.compile(_TYPE)
_VALUE = r"%[\w$.-]+(?:#\d+)?"
_VALUES = re.compile(rf"(?:{_VALUE}(?:, {_VALUE})*)?")
_ARGUMENTS = re.compile(rf"(?:%[\w$.-]+: {_TYPE}(?:, %[\w$.-]+: {_TYPE})*)?")
_ARGUMENT = re.compile(rf"(%[\w$.-]+): {_TYPE}")
_CALLEE = re.compile(r'(?:^|, )callee = #vhlo\.string_v1<"(\d+)">(?:, |$)')

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


class Operation(NamedTuple):
    """An operation of a function. callee: the function that it calls; empty if it calls none."""

    name: str
    results: tuple[str, ...]
    operands: tuple[str, ...]
    callee: str

    def check_types(self, takes: str, gives: str) -> None:
        """Raises Unreadable unless there is a type for each operand and each result."""
        counts = _count_types(takes), _count_types(gives[1:-1] if gives.startswith("(") else gives)
        if counts != (len(self.operands), len(self.results)):
            raise Unreadable(f"{self.name} has other operands or results than types")


@dataclass(slots=True)
class Function:
    """A function of a module. results: the operands of its return."""

    arguments: tuple[str, ...]
    operations: list[Operation] = field(default_factory=list)
    results: tuple[str, ...] = ()


class Module(dict[str, Function]):
    """The functions of a module by name; `main` is called first."""

    def __missing__(self, name: str) -> Function:
        raise Unreadable(f"there is no function {name!r}")


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
    if (len(module["main"].arguments), len(module["main"].results)) != (takes, gives):
        raise Unreadable("it takes other arguments than its node")
    return module


# Signatures and replicas of a model share modules. Chosen: the modules of a model of several parts.
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
    reader = _Reader()
    for line in text.splitlines()[1:]:
        bare, strings = _without_strings(line.strip())
        if len(bare) > _MAX_LINE:
            raise Unreadable("a line is too long")
        reader.read(bare, strings)
    if reader.function is not None:
        raise Unreadable("it ends within a function")
    return reader.functions


class _Reader:
    """The state between two lines: the functions so far, the open function, and its operations with open regions."""

    def __init__(self) -> None:
        self.functions = Module()
        self.function: Function | None = None
        self._open: list[Operation] = []
        self._at_begin = False  # whether the line before opened a region

    def read(self, line: str, strings: list[str]) -> None:
        if self.function is None:
            self._begin_function(line, strings)
        elif line.startswith("}"):
            self._end_region(line)
        elif line.startswith("^"):
            self._begin_block(line)
        else:
            self._operation(line, strings, self.function)

    def _begin_function(self, line: str, strings: list[str]) -> None:
        if line in {"", "}"}:
            return
        found = _FUNCTION.fullmatch(line)
        if found is None:
            raise Unreadable(f"what is this: {line[:80]!r}?")
        name = strings[int(found[1].strip('"'))] if found[1].startswith('"') else found[1]
        _count_types(found[3])
        if name in self.functions:
            raise Unreadable(f"there are two functions {name!r}")
        self.function = self.functions[name] = Function(_arguments(found[2]))

    def _begin_block(self, line: str) -> None:
        found = _BLOCK.fullmatch(line)
        if found is None or not self._at_begin:
            raise Unreadable("a region has several blocks")
        _arguments(found[1])
        self._at_begin = False

    def _end_region(self, line: str) -> None:
        self._at_begin = bool(self._open) and line == "}, {"
        if not self._open:  # the end of a function, and its attributes
            self.function = None
        elif not self._at_begin:
            found = _REGIONS_END.fullmatch(line)
            if found is None:
                raise Unreadable(f"what is this: {line[:80]!r}?")
            self._open.pop().check_types(found["takes"], found["gives"])

    def _operation(self, line: str, strings: list[str], function: Function) -> None:
        found = _OPERATION.fullmatch(line)
        if found is None:
            raise Unreadable(f"what is this: {line[:80]!r}?")
        dialect, _, name = strings[int(found["name"])].partition(".")
        operands = _values(found["operands"])
        if dialect != "vhlo":
            raise Unreadable(f"it has an operation of the dialect {dialect!r}")
        self._at_begin = bool(found["regions"])
        operation = Operation(name, _results(found), operands, _callee(name, found["properties"] or "", strings))
        if not self._open and name == "return_v1":
            function.results = operands
        elif not self._open:
            function.operations.append(operation)
        if found["regions"]:
            self._open.append(operation)
        elif name != "return_v1":
            operation.check_types(found["takes"], found["gives"])


def _without_strings(line: str) -> tuple[str, list[str]]:
    """The line with the number of each string in its place, and the strings."""
    strings: list[str] = []

    def number(found: re.Match[str]) -> str:
        strings.append(found[1])
        return f'"{len(strings) - 1}"'

    return _STRING.sub(number, line), strings


def _callee(name: str, properties: str, strings: list[str]) -> str:
    found = _CALLEE.search(properties) if name == "call_v1" else None
    return strings[int(found[1])] if found else ""


def _results(found: re.Match[str]) -> tuple[str, ...]:
    result, count = found["result"], found["count"]
    if result is None:
        return ()
    return (result,) if count is None else tuple([f"{result}#{place}" for place in range(min(int(count), 10_000))])


def _arguments(text: str) -> tuple[str, ...]:
    if _ARGUMENTS.fullmatch(text) is None:
        raise Unreadable("an argument is no tensor")
    return tuple(_ARGUMENT.findall(text))


def _values(text: str) -> tuple[str, ...]:
    if _VALUES.fullmatch(text) is None:
        raise Unreadable("an operand is no value")
    return tuple(text.split(", ")) if text else ()


def _count_types(text: str) -> int:
    if _TYPES.fullmatch(text) is None:
        raise Unreadable("a value is no tensor")
    return len(_ONE_TYPE.findall(text))


def returned_unchanged(module: Module) -> dict[int, int]:
    """The results of a module that are arguments as they were: the number of the argument by that of the result."""
    found = {}
    for place, value in enumerate(module["main"].results):
        argument = _argument_of(module, "main", value)
        if argument is not None:
            found[place] = argument
    return found


#: The most calls within calls that a value is followed through. Chosen.
_MOST_CALLS = 32


def _argument_of(module: Module, name: str, value: str, calls: int = 0) -> int | None:
    """The number of the function's argument that a value is, followed back through calls; None if it is none."""
    function = module[name]
    while value not in function.arguments:
        giver = next((each for each in function.operations if value in each.results), None)
        if giver is None or not giver.callee or calls >= _MOST_CALLS:
            return None
        result = module[giver.callee].results[giver.results.index(value)]
        place = _argument_of(module, giver.callee, result, calls + 1)
        if place is None:
            return None
        value = giver.operands[place]
        calls += 1
    return function.arguments.index(value)
