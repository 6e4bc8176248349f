"""Plants a mutant in the code that runs: functions get another code object, constants another value.

So nothing is imported again, and whoever imported a function or a constant has the mutant, too.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from tests.mutants.operators import Mutant


class NotPossible(Exception):
    """The mutant cannot be put in place of the function that runs."""


def plant(mutant: Mutant, tree: ast.Module) -> None:
    """Changes the tree and what was imported from it. Raises NotPossible."""
    module = sys.modules[module_of(mutant.path)]
    before = None if mutant.function else _value(module, tree, mutant.name)
    mutant.plant()
    ast.fix_missing_locations(tree)
    if mutant.function:
        _replace_function(module, mutant.function, tree)
    else:
        _replace_constant(mutant.name, before, _value(module, tree, mutant.name))


def module_of(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def users_of_constant(mutant: Mutant) -> list[str]:
    """The functions of its own file, which may have it as a default, and those that read it: `path function`."""
    own = sys.modules[module_of(mutant.path)].__file__
    assert own is not None
    with open(own, encoding="utf-8") as source:
        codes = _codes(compile(source.read(), own, "exec"))
    return [*_users_of(mutant.name), *[f"{mutant.path} {code.co_qualname}" for code in codes]]


def _users_of(name: str) -> Iterator[str]:
    for module_name, module in list(sys.modules.items()):  # a module may be None: it is not to be imported
        file = getattr(module, "__file__", None)
        if module_name.startswith("app.") and file and name in vars(module):
            with open(file, encoding="utf-8") as source:
                path = f"{module_name.replace('.', '/')}.py"
                for code in _codes(compile(source.read(), file, "exec")):
                    if name in code.co_names:
                        yield f"{path} {code.co_qualname.split('.<locals>')[0]}"


def _replace_function(module: ModuleType, name: str, tree: ast.Module) -> None:
    assert module.__file__ is not None
    function = _function(module, name)
    code = next(code for code in _codes(compile(tree, module.__file__, "exec")) if code.co_qualname == name)
    if code.co_freevars != function.__code__.co_freevars:
        raise NotPossible
    function.__code__ = code
    arguments = _definition(tree, name).args
    if function.__defaults__:
        function.__defaults__ = tuple(_evaluated(module, each) for each in arguments.defaults)
    if function.__kwdefaults__:
        function.__kwdefaults__ = {
            argument.arg: _evaluated(module, default)
            for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            if default is not None
        }


def _function(module: ModuleType, name: str) -> FunctionType:
    found: Any = module
    for part in name.split("."):
        found = vars(found)[part]
    for wrapper in ("fget", "__func__", "__wrapped__"):
        found = getattr(found, wrapper, None) or found
    if not isinstance(found, FunctionType):
        raise NotPossible
    return found


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _definition(tree: ast.Module, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef:
    body: list[ast.stmt] = tree.body
    *classes, function = name.split(".")
    for each in classes:
        body = next(node for node in body if isinstance(node, ast.ClassDef) and node.name == each).body
    return next(
        node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function
    )


def _value(module: ModuleType, tree: ast.Module, name: str) -> Any:
    """What the module gives the constant of this name."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id == name:
                return _evaluated(module, node.value)
    raise NotPossible


def _replace_constant(name: str, before: Any, after: Any) -> None:
    for module in list(sys.modules.values()):
        known = vars(module).get(name) if getattr(module, "__name__", "").startswith("app.") else None
        if type(known) is not type(before) or known != before:
            continue
        if isinstance(known, dict):
            known.update(after)  # also where it is the default of an argument
        else:
            setattr(module, name, after)


def _evaluated(module: ModuleType, value: ast.expr) -> Any:
    return eval(compile(ast.Expression(value), "<mutant>", "eval"), vars(module))  # noqa: S307 - of our own source
