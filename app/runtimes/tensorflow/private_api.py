"""TensorFlow's internals. No other file of Ferry touches them; a test searches for such uses.

| internal | used for | without it |
|---|---|---|
| `pywrap_tfe.TFE_Py_Execute`; `eager.context`: `_handle`, `function_call_options`; `eager.core`: `_NotOkStatusException`, `_status_to_exception`; `ConcreteFunction._inference_function` | executes a function without binding arguments to names, asking for gradient tapes and packing structures | the public call, 0.1 to 0.2 ms longer |
| `framework.convert_to_constants`, `grappler.tf_optimizer`; `FuncGraph.captures`, `FuncGraph.capture` | the variant frozen; what the variant xla must check beside the compiled code | models run plain |
| `framework`: `func_graph.dismantle_func_graph`, `ops.dismantle_graph`; `FuncGraph._function_captures`, `FuncGraph.outer_graph`, `Graph._functions`; `_list_all_concrete_functions` | frees graphs without a garbage collection, which stops all threads | the garbage collector frees them |
| `eager.polymorphic_function`: `atomic_function.from_func_graph`, `ConcreteFunction`; `ConcreteFunction.function_type`; `eager.context`: `has_function`, `add_function_def` | names compiled functions, and those that they call, by their content | another start compiles again what was loaded in another order |
| `framework.op_def_registry` | tells which operations keep state, and which a graph lacks | operations that operations.py does not list count as stateful; a graph that needs a library is not loaded |
| `client.pywrap_tf_session`: `TF_GetAllOpList`, `TF_GetBuffer` | tells which operations a library brought, so that the operation check takes them for dangerous | no libraries of operations are loaded |
| `Session._make_callable_from_options` | calls a session without looking at feeds and fetches again, and in the thread that calls | the public call, 0.1 to 0.2 ms longer; no variant inline |
| `_pywrap_mlir.ExperimentalRunPassPipeline`, in a process of its own: broken bytecode ends it | prints StableHLO modules | what JAX exported counts as unknown: it runs alone if it assigns variables |
| `tensorflow.core.protobuf` | reads saved_model.pb; the format is public, these modules are not documented | the server does not start |

`check_all` tries them when the runtime starts, and compares them with the public API. An internal that does not
work is logged once and not used. docs/dependencies.md says which versions of TensorFlow were tested.
"""  # noqa: E501 - a table

from __future__ import annotations

import logging
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import op_def_pb2
from tensorflow.core.protobuf import config_pb2, saved_model_pb2, struct_pb2

from app.runtimes.tensorflow.function_names import PREFIX, name_by_content, name_functions
from app.runtimes.tensorflow.graph_nodes import bodies_of, called_in

logger = logging.getLogger(__name__)

SavedModelProto, TypeSpecProto = saved_model_pb2.SavedModel, struct_pb2.TypeSpecProto

SESSION_CALLABLES = "making callables of sessions"
DIRECT_EXECUTION = "direct execution of functions"
GRAPH_REWRITING = "rewriting of graphs"
FREEING_GRAPHS = "taking graphs apart"
OPERATION_DEFINITIONS = "looking up definitions of operations"
LISTING_OPERATIONS = "listing operations"

#: The most bytes of a graph's functions that are renamed: TensorFlow never frees functions that it is given by name.
#: Chosen.
_MOST_NAMED_BYTES = 1 << 20

_CONTROL_FLOW = frozenset({"If", "StatelessIf", "While", "StatelessWhile"})


class PrivateApiUnusable(Exception):
    """This TensorFlow lacks an internal that Ferry uses, or the internal does not behave as the public API does."""


# --- direct execution ---


def direct_executor(graph: Any, device: str | None = None) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """The direct execution of a concrete function: from input tensors to result tensors, each in the order of names.

    The function maps a dictionary of tensors to another. A device of None lets TensorFlow choose.
    """
    from tensorflow.python import pywrap_tfe  # noqa: PLC0415 - may be missing
    from tensorflow.python.eager import context, core  # noqa: PLC0415 - may be missing

    captured = graph.captured_inputs
    own_context = context.context()
    own_context.ensure_initialized()
    # Grappler does not rewrite XLA's code, so the options have no use there, and reading them takes time.
    options = {} if "_XlaMustCompile" in graph.function_def.attr else own_context.function_call_options.as_attrs()
    run = partial(pywrap_tfe.TFE_Py_Execute, own_context._handle, device, graph._inference_function.name.decode())
    attributes = tuple(chain(*options.items()))
    count = len(graph.outputs)
    failure, translated = core._NotOkStatusException, core._status_to_exception

    def execute(tensors: Sequence[Any], _alive: Any = graph) -> Sequence[Any]:
        try:
            results: Sequence[Any] = run([*tensors, *captured], attributes, count)
        except failure as error:
            raise translated(error) from None
        return results

    return execute


def _check_direct_execution() -> None:
    graph = _tiny_function()
    factor, x = tf.constant([3.0, 5.0]), tf.constant([7.0, 11.0])
    execute = direct_executor(graph)

    public = graph({"factor": factor, "x": x})
    direct = execute([factor, x])
    if [each.numpy().tolist() for each in direct] != [public[name].numpy().tolist() for name in sorted(public)]:
        raise PrivateApiUnusable("its results differ from those of the public call")

    try:
        execute([factor, -x])
    except tf.errors.InvalidArgumentError:
        return
    raise PrivateApiUnusable("it accepts what the public call rejects")


# --- sessions ---


def session_call(
    session: Any, feeds: Sequence[str], fetches: Sequence[str], *, in_thread: bool = False
) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """A function from values for the tensors named `feeds` to those of `fetches`, each in this order.

    A result may be the memory of a variable, a constant or an input. With `in_thread` all operations run in the calling
    thread, if SESSION_CALLABLES works.
    """
    if works(SESSION_CALLABLES):
        return _session_callable(session, feeds, fetches, in_thread=in_thread)
    tensors = list(fetches)
    return lambda values: session.run(tensors, dict(zip(feeds, values, strict=True)))


#: RunOptions.inter_op_thread_pool: no pool, but the calling thread.
_CALLERS_THREAD = -1


def _session_callable(
    session: Any, feeds: Sequence[str], fetches: Sequence[str], *, in_thread: bool = False
) -> Callable[[Sequence[Any]], Sequence[Any]]:
    run = config_pb2.RunOptions(inter_op_thread_pool=_CALLERS_THREAD if in_thread else 0)
    call = session._make_callable_from_options(config_pb2.CallableOptions(feed=feeds, fetch=fetches, run_options=run))
    return lambda values: call(*values)


def _check_session_callables() -> None:
    graph = tf.Graph()
    with graph.as_default(), tf.compat.v1.Session(graph=graph) as session:
        a, b = (tf.compat.v1.placeholder(tf.float32, [None]) for _ in range(2))
        fetches = [(a - b).name, tf.debugging.check_numerics(a / b, "b").name]
        six, two, zero = (np.array([value], np.float32) for value in (6.0, 2.0, 0.0))
        for in_thread in (False, True):
            call = _session_callable(session, [a.name, b.name], fetches, in_thread=in_thread)
            if [each.tolist() for each in call([six, two])] != [[4.0], [3.0]]:
                raise PrivateApiUnusable("its results are not as expected")
            with suppress(tf.errors.InvalidArgumentError):
                call([six, zero])
                raise PrivateApiUnusable("it accepts what the graph rejects")


@contextmanager
def quiet() -> Iterator[None]:
    """A block in which TensorFlow logs errors only."""
    tensorflow_logger = tf.get_logger()
    level = tensorflow_logger.level
    tensorflow_logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        tensorflow_logger.setLevel(level)


# --- rewriting graphs ---


def captures(graph: Any) -> list[tuple[Any, Any]]:
    """The captured tensors of a function's graph, such as variables: the tensor outside, and its placeholder inside."""
    return list(graph.captures)


def capture(tensor: Any) -> Any:
    """The placeholder of an outside tensor in the graph that is being traced."""
    return tf.compat.v1.get_default_graph().capture(tensor)


def with_constants(traced: Any) -> Any:
    """The GraphDef of a concrete function with its calls inlined and its variables' present values as constants.

    The public function makes two functions of it, which takes several times as long and leaves them to the garbage
    collector.
    """
    from tensorflow.python.framework import convert_to_constants  # noqa: PLC0415 - may be missing

    with quiet():  # it warns of collections, which do not matter here
        converter = convert_to_constants._FunctionConverterDataInEager(traced, False, False)
    graph = convert_to_constants._GraphDef(converter.graph_def)
    converted = graph.converted_self()
    for name, value in converter.tensor_data.items():
        graph.nodes[name].convert_variable_to_constant(None, value)

    parts = [each for part in (graph, converted) for each in (part, *part.functions.values())]
    for each in [*(node for part in parts for node in part.nodes.values()), *parts[1:]]:
        if each is not converted:
            vars(each).clear()  # they refer to each other
    return _set_lowering(converted.graph_def, lower=True)


def inlined(traced: Any, rewrite: Callable[[Any], None] | None = None) -> Any:
    """The GraphDef of a concrete function with its calls inlined by Grappler, which keeps side effects.

    Args:
        rewrite: changes the GraphDef before.
    """
    from tensorflow.python.grappler import tf_optimizer  # noqa: PLC0415 - may be missing

    graph = traced.graph.as_graph_def()
    if rewrite is not None:
        rewrite(graph)
    meta_graph = tf.compat.v1.MetaGraphDef(graph_def=_set_lowering(graph, lower=False))
    fetches = meta_graph.collection_def["train_op"].node_list.value
    fetches.extend(tensor.name for tensor in (*traced.inputs, *traced.outputs))
    config = tf.compat.v1.ConfigProto()
    rewriting = config.graph_options.rewrite_options
    rewriting.min_graph_nodes = -1
    rewriting.optimizers.append("function")
    return _set_lowering(tf_optimizer.OptimizeGraph(config, meta_graph), lower=True)


def name_functions_by_content(graph: Any) -> None:
    """Names the functions that a GraphDef calls by their content. TensorFlow keeps them by these names."""
    if graph.library.ByteSize() > _MOST_NAMED_BYTES:
        return
    try:
        from tensorflow.python.eager import context  # noqa: PLC0415 - may be missing

        known, add = context.context().has_function, context.context().add_function_def
    except Exception as error:  # whatever another TensorFlow raises
        logger.debug("Functions keep their names, so code that calls them may not be found again: %s", error)
        return
    for function in name_functions(graph):
        if not known(function.signature.name):
            add(function)


def named_by_content(traced: Any) -> Any:
    """The concrete function under a name that follows from its content, so that its compiled code is found again.

    A function that calls functions with other names, which are numbers, keeps its name.
    """
    definition = traced.function_def
    called = [each.name for node in definition.node_def for each in called_in(node)]
    if not all(name.startswith(PREFIX) for name in called):
        return traced
    try:
        from tensorflow.python.eager.polymorphic_function import (  # noqa: PLC0415 - may be missing
            atomic_function,
            concrete_function,
        )

        name = name_by_content(definition)
        atomic = atomic_function.from_func_graph(name, traced.graph, dict(definition.attr), traced.function_type)
        named = concrete_function.ConcreteFunction(atomic)
    except Exception as error:  # whatever another TensorFlow raises
        logger.debug("A function keeps its name, so its compiled code may not be found again: %s", error)
        return traced
    named.made_from = traced  # its end would free the graph
    return named


def _set_lowering(graph: Any, *, lower: bool) -> Any:
    """Allows or forbids to lower loops and branches to switches: faster when executed, not while calls are inlined."""
    for node in chain.from_iterable(bodies_of(graph)):
        if node.op in _CONTROL_FLOW:
            node.attr["_lower_using_switch_merge"].b = lower
    return graph


def _check_graph_rewriting() -> None:
    graph = _tiny_function()
    for rewritten, variables in ((inlined(graph), True), (with_constants(graph), False)):
        operations = {node.op for node in rewritten.node}
        if any("PartitionedCall" in operation for operation in operations):
            raise PrivateApiUnusable("calls are not inlined")
        if ("ReadVariableOp" in operations) is not variables or "If" not in operations:  # it holds the assertion
            raise PrivateApiUnusable("operations are not as expected")
    if not captures(graph.graph):
        raise PrivateApiUnusable("captured variables are not listed")


# --- freeing graphs ---


def free_with(function: Any) -> Any:
    """The concrete function, whose graph is freed with it, without a garbage collection."""
    if works(FREEING_GRAPHS):
        weakref.finalize(function, _dismantle_function, function.graph).atexit = False
    return function


def free_loaded(loaded: Any) -> Callable[[], bool]:
    """Frees the result of tf.saved_model.load: none of its functions can be called any more.

    Returns: whether its memory is free, to be called when the caller has dropped its references, too. Objects that this
    function does not know, such as the functions of TensorFlow 1 models, are left to the garbage collector.
    """
    if not works(FREEING_GRAPHS):
        return lambda: False
    try:
        graphs, libraries = _graphs_of(loaded)
        for library in libraries:
            _dismantle(library)
        held = [weakref.ref(each) for graph in graphs for each in (graph, *(outer for outer, _ in graph.captures))]
        for graph in graphs:
            _dismantle_function(graph)
    except Exception as error:  # whatever another TensorFlow raises
        logger.debug("A model is left to the garbage collector: %s", error)
        return lambda: False
    return lambda: all(each() is None for each in held)


def free_graph(graph: Any) -> Callable[[], bool]:
    """Frees a tf.Graph that no session runs any more. Returns as `free_loaded`."""
    held = weakref.ref(graph)
    if works(FREEING_GRAPHS):
        for name in graph.get_all_collection_keys():
            graph.clear_collection(name)
        _dismantle(graph)
    return lambda: held() is None


def graphs_of(loaded: Any) -> list[Any]:
    """The graphs of the functions in the result of tf.saved_model.load; called functions included if that works."""
    return _graphs_of(loaded)[0] if works(FREEING_GRAPHS) else [each.graph for each in loaded.signatures.values()]


def _graphs_of(loaded: Any) -> tuple[list[Any], list[Any]]:
    """The graphs of all functions in the file of a loaded object; and the graphs that hold these functions."""
    from tensorflow.python.framework import ops  # noqa: PLC0415 - may be missing

    functions = list(loaded.signatures.values())
    whole = getattr(loaded, "graph", None)  # of TensorFlow 1: functions are parts of it
    libraries = {id(each.graph.outer_graph): each.graph.outer_graph for each in functions}
    for each in tf.train.TrackableView(loaded).descendants():
        for value in getattr(each, "__dict__", {}).values():
            if isinstance(value, tf.types.experimental.PolymorphicFunction):
                functions += value._list_all_concrete_functions()
    graphs = {id(each): each for each in (*[each.graph for each in functions], whole) if each is not None}
    holding = []
    for library in libraries.values():
        if type(library) is ops.Graph:
            in_file = {id(each.graph): each.graph for each in library._functions.values()}
            if in_file.keys() & graphs.keys():  # made for this load, to hold the functions of the file
                graphs |= in_file
                holding.append(library)
    return list(graphs.values()), holding


def _dismantle(graph: Any) -> None:
    from tensorflow.python.framework import ops  # noqa: PLC0415 - may be missing

    ops.dismantle_graph(graph)


def _dismantle_function(graph: Any) -> None:
    from tensorflow.python.framework import func_graph  # noqa: PLC0415 - may be missing

    func_graph.dismantle_func_graph(graph)
    graph._function_captures = type(graph._function_captures)()
    graph.inputs, graph.outputs = [], []
    graph.structured_outputs = graph.structured_input_signature = None


def _check_freeing_graphs() -> None:
    variable = tf.Variable([1.0, 2.0])
    specs = [tf.TensorSpec([None], tf.float32)]
    function = tf.function(lambda x: x + variable, input_signature=specs, autograph=False).get_concrete_function()
    graph = weakref.ref(function.graph)
    _dismantle_function(function.graph)
    del function
    if graph() is not None:
        raise PrivateApiUnusable("a graph stays in memory")


# --- definitions of operations ---


def operation_definition(operation: str) -> Any | None:
    """TensorFlow's OpDef of a type of operation; None if it is unknown, or OPERATION_DEFINITIONS does not work."""
    return _operation_definition(operation) if works(OPERATION_DEFINITIONS) else None


def _operation_definition(operation: str) -> Any | None:
    from tensorflow.python.framework import op_def_registry  # noqa: PLC0415 - may be missing

    return op_def_registry.get(operation)


def all_operations() -> frozenset[str]:
    """The operations that are registered in this process. Raises PrivateApiUnusable."""
    require(LISTING_OPERATIONS)
    return _all_operations()


def _all_operations() -> frozenset[str]:
    from tensorflow.python.client import pywrap_tf_session  # noqa: PLC0415 - may be missing

    packed = bytes(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
    return frozenset([each.name for each in op_def_pb2.OpList.FromString(packed).op])


def _check_listing_operations() -> None:
    if not {"MatMul", "_Arg"} <= _all_operations():
        raise PrivateApiUnusable("not all operations are listed")


def _check_operation_definitions() -> None:
    stateless, stateful = _operation_definition("MatMul"), _operation_definition("AssignVariableOp")
    if stateless is None or stateful is None or stateless.is_stateful or not stateful.is_stateful:
        raise PrivateApiUnusable("the definitions are not as expected")
    if _operation_definition("NoSuchOperation") is not None:
        raise PrivateApiUnusable("an unknown operation has a definition")


# --- StableHLO ---

# Only the library that has MLIR is loaded, not the package: 0.2 s instead of some seconds, measured on 2 cores.
_PRINT_MODULE = """
import os, resource, sys, types
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
for name in ("tensorflow", "tensorflow.python"):
    package = types.ModuleType(name)
    package.__path__ = [os.path.join(sys.argv[1], *name.split(".")[1:])]
    sys.modules[name] = package
from tensorflow.python import _pywrap_mlir
text = _pywrap_mlir.ExperimentalRunPassPipeline(sys.stdin.buffer.read(), "", False)
sys.stdout.buffer.write(text.encode())
"""

#: Seconds until a module counts as unreadable. Chosen: a hundred times the time of a few kilobytes.
_PRINTING_S = 20.0


def stablehlo_text(bytecode: bytes) -> str | None:
    """A module of StableHLO in the text form of its portable dialect, VHLO; None if it is broken.

    A separate process reads it: of 600 modules with a few changed bytes 2 ended the process that read them.
    """
    root = str(Path(tf.__file__).parent)
    try:
        done = subprocess.run(  # noqa: S603 - this interpreter, and nothing that users give but standard input
            [sys.executable, "-I", "-S", "-c", _PRINT_MODULE, root],
            input=bytecode, capture_output=True, timeout=_PRINTING_S, check=False,
        )  # fmt: skip
        text = done.stdout.decode()
    except (OSError, subprocess.SubprocessError, UnicodeError) as error:
        logger.warning("a module of StableHLO cannot be read, so what it computes is not known: %s", error)
        return None
    if done.returncode:
        logger.debug("a module of StableHLO is not read: %s", done.stderr[-2000:].decode(errors="replace"))
        return None
    return text


# --- checks of all features ---

_FEATURES: Mapping[str, tuple[Callable[[], None], str]] = {
    DIRECT_EXECUTION: (_check_direct_execution, "functions are called by the public API, 0.1 to 0.2 ms slower"),
    GRAPH_REWRITING: (_check_graph_rewriting, "models run plain, without the execution variants frozen and xla"),
    FREEING_GRAPHS: (_check_freeing_graphs, "freeing a model stops all threads for a moment"),
    SESSION_CALLABLES: (
        _check_session_callables,
        "sessions are called by the public API, 0.1 to 0.2 ms slower, and nothing runs inline",
    ),
    OPERATION_DEFINITIONS: (
        _check_operation_definitions,
        "models with operations that Ferry does not list run plain, with one replica, each request alone",
    ),
    LISTING_OPERATIONS: (
        _check_listing_operations,
        "no libraries of operations are loaded",
    ),
}


@cache
def works(feature: str) -> bool:
    """Whether this TensorFlow has the feature, and it behaves as the public API does. Tried once in a process."""
    check, consequence = _FEATURES[feature]
    try:
        check()
    except Exception as error:  # whatever another TensorFlow raises
        logger.warning(
            "TensorFlow %s: %s does not work (%s: %s); %s",
            tf.__version__, feature, type(error).__name__, error, consequence,
        )  # fmt: skip
        return False
    return True


#: What takes a tenth of a second to try, and few servers need: it is tried before it is used.
_TRIED_LATER = frozenset({LISTING_OPERATIONS})


def check_all() -> None:
    for feature in _FEATURES.keys() - _TRIED_LATER:
        works(feature)


def require(feature: str) -> None:
    """Raises PrivateApiUnusable unless the feature works."""
    if not works(feature):
        raise PrivateApiUnusable(f"{feature} does not work with TensorFlow {tf.__version__}")


def _tiny_function() -> Any:
    """A concrete function that reads a variable, calls another function and rejects negative values of x."""
    variable = tf.Variable([1.0, 2.0])
    double = tf.function(lambda x: x + x, autograph=False)

    def body(tensors: dict[str, Any]) -> dict[str, Any]:
        tf.debugging.assert_non_negative(tensors["x"])
        return {"sum": double(tensors["x"]) + variable, "product": tensors["x"] * tensors["factor"]}

    spec = tf.TensorSpec([None], tf.float32)
    graph = tf.function(body, input_signature=[{"x": spec, "factor": spec}], autograph=False).get_concrete_function()
    graph.borrowed = variable  # it lives as long as the function
    return graph
