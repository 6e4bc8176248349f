"""Mutants: one small fault each, planted in a syntax tree.

Within a function: a comparison, a number, a condition, a branch. Between rooms: a call, a release, a keyword left out,
a count not counted back, two calls swapped, a key shortened, a setting not passed on, a copy in place of the thing, a
`finally` emptied.

Not mutated: texts, what is raised with them, logs, asserts, annotations, decorators and docstrings; none of these
decides anything.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.Pow: ast.Mult,
}
_CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}

#: Names of what says which requests, calls and series are one: without a part of it, others are, too.
_KEYS = re.compile(r"(^|_)(key|form|labels|of_call|call)$")

#: Names of what holds several things, which may change later. Not seconds.
_SEVERAL = re.compile(r"[^_]s$")

_SKIPPED_FIELDS = {"annotation", "returns", "decorator_list", "type_params", "type_comment"}
_SKIPPED_NODES = ast.Assert, ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault in a tree.

    Attributes:
        function: the outermost function that it lies in, as `Lane.add`; empty at the top of the file.
        name: the constant that it changes, at the top of the file.
        before, after: the source of what is replaced, and of what replaces it.
        twin: how many mutants before it have the same function and texts.
    """

    path: str
    line: int
    function: str
    name: str
    before: str
    after: str
    twin: int
    parent: ast.AST
    field: str
    index: int | slice | None
    replacement: ast.AST

    @property
    def key(self) -> str:
        """What tells it from all others, also after lines above it changed."""
        number = f" #{self.twin + 1}" if self.twin else ""
        return f"{self.path} {self.function or self.name}{number}: {self.before} -> {self.after}"

    def plant(self) -> None:
        """Changes the tree. Locations of the new nodes are missing."""
        if self.index is None:
            setattr(self.parent, self.field, self.replacement)
        elif isinstance(self.index, slice):
            assert isinstance(self.replacement, ast.Module)
            getattr(self.parent, self.field)[self.index] = self.replacement.body
        else:
            getattr(self.parent, self.field)[self.index] = self.replacement

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.function or self.name}\n    - {self.before}\n    + {self.after}"


def mutants(path: str, tree: ast.Module) -> list[Mutant]:
    """All mutants of a file, in the order of its lines; the tree is changed only by `plant`."""
    found: list[Mutant] = []
    seen: dict[tuple[str, str, str], int] = {}
    for function, name, (parent, field, index, node) in _places(tree):
        for replacement in _replacements(node) if function else _other_values(node):
            before, after = _text(node), _text(replacement)
            twin = seen.get((function or name, before, after), -1) + 1
            seen[function or name, before, after] = twin
            line = getattr(node, "lineno", 0)
            found.append(Mutant(path, line, function, name, before, after, twin, parent, field, index, replacement))
    return found


#: A node's parent, field and index; of two statements a module that has both, and their slice.
_Place = tuple[ast.AST, str, int | slice | None, ast.AST]


def _places(tree: ast.Module) -> Iterator[tuple[str, str, _Place]]:
    """The nodes of functions, by qualified name, and of the values of constants at the top, by name."""
    for statement in tree.body:
        yield from _places_of(statement, "")


def _places_of(node: ast.AST, prefix: str) -> Iterator[tuple[str, str, _Place]]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        for place in _below(node):
            yield prefix + node.name, "", place
    elif isinstance(node, ast.ClassDef):
        if not any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases):
            for statement in node.body:
                yield from _places_of(statement, f"{prefix}{node.name}.")
    elif not prefix and isinstance(node, ast.Assign | ast.AnnAssign):
        yield from _places_of_constant(node)


def _places_of_constant(node: ast.Assign | ast.AnnAssign) -> Iterator[tuple[str, str, _Place]]:
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    if isinstance(target, ast.Name) and node.value is not None:
        for place in [(node, "value", None, node.value), *_below(node.value)]:
            if not isinstance(place[3], ast.Compare | ast.Call):
                yield "", target.id, place


def _below(node: ast.AST) -> Iterator[_Place]:
    """Every node below this one that may be mutated, each with its place."""
    for field, value in ast.iter_fields(node):
        if field in _SKIPPED_FIELDS:
            continue
        children = enumerate(value) if isinstance(value, list) else [(None, value)]
        for index, child in children:
            if not isinstance(child, ast.AST) or isinstance(child, _SKIPPED_NODES) or _is_text(child) or _logs(child):
                continue
            if isinstance(child, ast.keyword) and child.arg == "strict":  # zip(strict=True) is an assert
                continue
            yield node, field, index, child
            yield from _below(child)
        if isinstance(value, list):
            yield from _pairs(node, field, value)


def _pairs(node: ast.AST, field: str, statements: list[Any]) -> Iterator[_Place]:
    """Two calls, one behind the other, whose results nobody takes."""
    for first in range(len(statements) - 1):
        pair = statements[first : first + 2]
        if all(isinstance(each, ast.Expr) and _called(each) is not None and not _logs(each) for each in pair):
            yield node, field, slice(first, first + 2), ast.Module(pair, [])


def _called(statement: ast.Expr) -> ast.Call | None:
    value = statement.value.value if isinstance(statement.value, ast.Await) else statement.value
    return value if isinstance(value, ast.Call) else None


def _replacements(node: ast.AST) -> Iterator[ast.AST]:
    yield from _within(node)
    yield from _between_rooms(node)


def _between_rooms(node: ast.AST) -> Iterator[ast.AST]:
    """What is not let go, not passed on, or not told apart from others, where one part meets another."""
    match node:
        case ast.Module([first, second]):
            yield ast.Module([second, first], [])
        case ast.Assign([ast.Name(name)], ast.Tuple(parts)) if _KEYS.search(name):
            yield from (ast.Assign(node.targets, shorter) for shorter in _shorter(parts))
        case ast.Subscript(value, ast.Tuple(parts), context):
            yield from (ast.Subscript(value, shorter, context) for shorter in _shorter(parts))
        case ast.Return(ast.Tuple(parts)) if len(parts) > 3:  # as a function says what a request has in common
            yield from (ast.Return(shorter) for shorter in _shorter(parts))
        case ast.Try(body, handlers, orelse, [_, *_]):
            yield ast.Try(body, handlers, orelse, [ast.Pass()])
        case ast.Attribute(ast.Name("settings"), name):
            fields = ast.Attribute(ast.Call(ast.Name("type", ast.Load()), [node.value], []), "model_fields", ast.Load())
            yield ast.Attribute(ast.Subscript(fields, ast.Constant(name), ast.Load()), "default", ast.Load())
        case ast.Call(ast.Name(name)) if name[:1].isupper() and name not in _PLAIN:
            yield from _with_copies(node)
        case ast.Assign([ast.Attribute(ast.Name("self"))], ast.Name(name)) if _SEVERAL.search(name):
            yield ast.Assign(node.targets, _copy(node.value))


#: Types that have no reference to what they are given.
_PLAIN = {"BatchTiming", "StepTiming", "Answer", "InferenceRequest", "InferenceResponse"}


def _shorter(parts: Sequence[ast.expr]) -> Iterator[ast.Tuple]:
    if len(parts) > 1:
        yield from (ast.Tuple([*parts[:n], *parts[n + 1 :]], ast.Load()) for n in range(len(parts)))


def _with_copies(call: ast.Call) -> Iterator[ast.Call]:
    """What is made with a copy of one of the things that it should share."""
    for n, each in enumerate(call.args):
        if _is_several(each):
            yield ast.Call(call.func, [*call.args[:n], _copy(each), *call.args[n + 1 :]], call.keywords)
    for n, keyword in enumerate(call.keywords):
        if _is_several(keyword.value):
            copied = ast.keyword(keyword.arg, _copy(keyword.value))
            yield ast.Call(call.func, call.args, [*call.keywords[:n], copied, *call.keywords[n + 1 :]])


def _is_several(node: ast.expr) -> bool:
    """Settings never change: a copy of one is as good."""
    if isinstance(node, ast.Attribute):
        return _SEVERAL.search(node.attr) is not None and ast.unparse(node.value) not in {"settings", "self.settings"}
    return isinstance(node, ast.Name) and _SEVERAL.search(node.id) is not None and node.id != "settings"


def _copy(node: ast.expr) -> ast.Call:
    """`copy.copy(node)`, in any file."""
    module = ast.Call(ast.Name("__import__", ast.Load()), [ast.Constant("copy")], [])
    return ast.Call(ast.Attribute(module, "copy", ast.Load()), [node], [])


def _within(node: ast.AST) -> Iterator[ast.AST]:  # noqa: C901, PLR0912 - one case for each kind of node
    match node:
        case ast.Compare(left, [operator], [right]):
            for other in _COMPARED[type(operator)]:
                yield ast.Compare(left, [other()], [right])
        case ast.Compare(left, [first, second], [middle, right]):
            yield from (ast.Compare(left, [other(), second], [middle, right]) for other in _COMPARED[type(first)])
            yield from (ast.Compare(left, [first, other()], [middle, right]) for other in _COMPARED[type(second)])
        case ast.BinOp(left, operator, right) if type(operator) in _COMPUTED:
            yield ast.BinOp(left, _COMPUTED[type(operator)](), right)
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
            for left_out in range(len(values)):
                rest = values[:left_out] + values[left_out + 1 :]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(operator, rest)
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield operand
        case ast.Constant(value):
            yield from _other_constants(value)
        case ast.Call(ast.Name(name), arguments, keywords) if name in _CALLED:
            yield ast.Call(ast.Name(_CALLED[name], ast.Load()), arguments, keywords)
        case ast.Call(function, arguments, keywords):
            for left_out in [at for at, keyword in enumerate(keywords) if keyword.arg != "strict"]:
                yield ast.Call(function, arguments, keywords[:left_out] + keywords[left_out + 1 :])
        case ast.IfExp(_, body, orelse):
            yield body
            yield orelse
        case ast.If(_, body, orelse):
            yield ast.If(ast.Constant(True), body, orelse)
            yield ast.If(ast.Constant(False), body, orelse)
        case ast.While(_, body, orelse):
            yield ast.While(ast.Constant(False), body, orelse)
        case ast.comprehension(target, iterable, conditions, is_async):
            for left_out in range(len(conditions)):
                rest = conditions[:left_out] + conditions[left_out + 1 :]
                yield ast.comprehension(target, iterable, rest, is_async)
        case ast.AugAssign(target, operator, value):
            if type(operator) in _COMPUTED:
                yield ast.AugAssign(target, _COMPUTED[type(operator)](), value)
            yield ast.Pass()
        case ast.Expr(ast.Call() | ast.Await()) | ast.Delete() | ast.Continue():
            yield ast.Pass()
        case ast.Assign([ast.Attribute() | ast.Subscript(), *_]):
            yield ast.Pass()
        case ast.Break():
            yield ast.Continue()
        case ast.Return(value) if value is not None and not (isinstance(value, ast.Constant) and not value.value):
            yield ast.Return(ast.Constant(None))


def _other_values(node: ast.AST) -> Iterator[ast.AST]:
    """Of what stands at the top: a constant that was chosen is off by a factor of two, not by one."""
    if isinstance(node, ast.Constant) and type(node.value) is int and node.value > 2:
        yield ast.Constant(node.value * 2)
        yield ast.Constant(node.value // 2)
    else:
        yield from _replacements(node)


def _other_constants(value: Any) -> Iterator[ast.expr]:
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int):
        yield ast.Constant(value + 1)
        if value > 0:
            yield ast.Constant(value - 1)
    elif isinstance(value, float):
        yield ast.Constant(value * 2 or 1.0)


def _is_text(node: ast.AST) -> bool:
    """A docstring, or any other text."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _logs(node: ast.AST) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    called = call.func if isinstance(call, ast.Call) else None
    return isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "logger"


def _text(node: ast.AST) -> str:
    """Its first line of source; of two statements, that of both."""
    if isinstance(node, ast.Module):
        return "; ".join(_text(each) for each in node.body)
    if isinstance(node, ast.comprehension):
        return ast.unparse(ast.ListComp(ast.Name("_", ast.Load()), [node]))[3:-1]
    return ast.unparse(ast.fix_missing_locations(node)).partition("\n")[0]
