"""A SavedModel in memory, whose signatures are TensorFlow functions."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import tensorflow as tf

from app.core.inference import Array, ModelSignature
from app.core.time_budget import TimeBudget
from app.core.values.value_hints import NO_HINTS, ValueHints
from app.runtime import ProgressReport, ShapeTrial, VariantChoice, VariantOptions
from app.runtimes.call_names import check_names, no_function
from app.runtimes.tensorflow import private_api
from app.runtimes.tensorflow.error_mapping import map_error, model_name
from app.runtimes.tensorflow.execution.graph_fingerprint import weights_digest
from app.runtimes.tensorflow.execution.operations import devices_named, may_have_vector_keys
from app.runtimes.tensorflow.execution.signature_function import SignatureFunction
from app.runtimes.tensorflow.execution.variant import PLAIN, XLA, VariantMaker
from app.runtimes.tensorflow.saved_model.loading_folder import LoadingFolder
from app.runtimes.tensorflow.saved_model.resources import free_resources
from app.runtimes.tensorflow.saved_model.signature_defs import (
    TAGS,
    read_signatures,
    serving_graph,
)
from app.runtimes.tensorflow.variants.compiled_code import kind_of_machine
from app.runtimes.tensorflow.variants.shape_search import ShapeSearch
from app.runtimes.tensorflow.variants.variant_cache import FoundVariants, cache_key, content_digest, recall, remember
from app.runtimes.tensorflow.variants.variant_search import VariantSearch

logger = logging.getLogger(__name__)

SAVE_DEVICES = tf.saved_model.experimental.VariablePolicy.SAVE_VARIABLE_DEVICES


class SavedModel:
    """The TunableModel of folder `path`: variables and tables in memory, one function per signature.

    Args:
        kind: the kind of processor, in the words of TensorFlow's device details.
        device: the device of its variables and calls, such as '/device:GPU:1'; None lets TensorFlow choose.
        meta_graph: the served MetaGraphDef of the folder, if it was read already.
        devices: the devices that its graph names, if it is to lie on them as it was saved; `device` is None then.
        tf32: whether products of float32 are computed in TF32 there.

    Attributes:
        note: the unusual way in which it is loaded; empty if it is usual.

    Raises:
        Exception: TensorFlow cannot load the folder.
    """

    def __init__(
        self,
        path: Path,
        options: VariantOptions = VariantOptions(),  # noqa: B008 - it is frozen
        kind: str = "CPU",
        device: str | None = None,
        meta_graph: Any = None,
        *,
        devices: Sequence[str] = (),
        tf32: bool = False,
    ) -> None:
        self.devices = devices
        self._on_devices = device is not None or bool(devices)
        self._path = path
        self._options = options
        self._kind = kind
        self._digest = content_digest(path)  # the files may be gone later
        self._content = cache_key(self._digest, device=device)
        weights = weights_digest(path)
        meta_graph = meta_graph or serving_graph(path)
        definitions = read_signatures(meta_graph, model_name(path))
        vector_keys = may_have_vector_keys(meta_graph.graph_def)
        # The functions borrow their variables and tables from the loaded object: it must live as long.
        self._functions: dict[str, SignatureFunction] = {}
        self._loaded: Any = None
        self._folder = LoadingFolder(path, meta_graph)
        self.note = self._folder.note
        try:
            with tf.device(device):
                # With the policy, variables lie on the devices that were saved with them.
                policy = tf.saved_model.LoadOptions(experimental_variable_policy=SAVE_DEVICES) if devices else None
                self._loaded = tf.saved_model.load(str(self._folder.path), tags=list(TAGS), options=policy)
            self._functions = {
                name: SignatureFunction(
                    replace(signature, tf32=tf32, weights=weights),
                    self._function(name),
                    device,
                    vector_keys=vector_keys,
                )
                for name, signature in definitions.items()
                if name in self._loaded.signatures
            }
        except BaseException:
            self.close()
            raise
        # A signature that assigns values as it read them undoes writes of another meanwhile: beside that, it writes.
        changes = any(function.changes for function in self._functions.values())
        self.signatures = {name: _with_facts(each, changes=changes) for name, each in self._functions.items()}

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        function = self._function_of(signature)
        check_names(function.signature, inputs, outputs)
        try:
            return function(inputs, outputs)
        except Exception as error:
            raise map_error(error) from error

    def run_plain(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        function = self._function_of(signature)
        try:
            return function.run_plain(inputs, outputs)
        except Exception as error:
            raise map_error(error) from error

    def stop_variants(self, signature: str) -> None:
        if signature in self._functions:
            self._functions[signature].use({})
            self._functions[signature].use_compiled(())

    def value_hints(self, signature: str) -> ValueHints:
        function = self._functions.get(signature)
        return NO_HINTS if function is None else function.value_hints

    def tune(self, sizes: Sequence[int], report: ProgressReport, budget: TimeBudget) -> Sequence[VariantChoice]:
        options = self._options
        search = self._search(sizes, report)
        if options.wanted == PLAIN or self.devices or self._keeps_state():
            return search.adopt([])
        if options.wanted != "auto":
            wanted = [VariantChoice(*sized, options.wanted, 1.0) for sized in search.sized_signatures()]
            return search.adopt(wanted, _unlimited(budget))
        try:
            return self._fastest(search, sizes, budget)
        finally:
            _collect_graphs()

    def adopt(self, choices: Sequence[VariantChoice], sizes: Sequence[int], report: ProgressReport) -> None:
        """Uses the variants that were chosen on another replica, where they are possible here, too."""
        self._search(sizes, report).adopt(choices)
        _collect_graphs()

    def why_one_replica(self) -> str:
        """The reason why there cannot be several replicas of it; empty if there can."""
        writes = sorted({each for signature in self.signatures.values() for each in signature.writes})
        if writes:
            return f"it writes state: {', '.join(writes)}"
        graphs = [function.plain.graph.as_graph_def() for function in self._functions.values()]
        devices = sorted({device for graph in graphs for device in devices_named(graph)})
        return f"its graph names devices: {', '.join(devices)}" if devices else ""

    def compile_shapes(self, signature: str, trials: Iterable[ShapeTrial], budget: TimeBudget) -> Sequence[float]:
        options = self._options
        if options.wanted not in {"auto", XLA} or self.devices or self._keeps_state():
            return ()
        if options.wanted == XLA:
            return self._use_compiled(signature, trials, _unlimited(budget))
        search = self._shape_search(signature, budget, expected_s=min(budget.seconds / 2, budget.longest_s))
        return search.use_fastest(trials)

    def adopt_shapes(self, signature: str, trials: Sequence[ShapeTrial]) -> bool:
        """Compiles the shapes that another replica uses compiled; False if that is not possible here."""
        gains = self._use_compiled(signature, trials, TimeBudget(inf))
        return len(gains) == len(trials) and all(gains)

    def _use_compiled(self, signature: str, trials: Iterable[ShapeTrial], budget: TimeBudget) -> Sequence[float]:
        return self._shape_search(signature, budget, measured=False).use_fastest(trials)

    def _shape_search(self, signature: str, budget: TimeBudget, **how: Any) -> ShapeSearch:
        function = self._functions[signature]
        return ShapeSearch(function, self._maker(function), budget, **how)

    def _search(self, sizes: Sequence[int], report: ProgressReport) -> VariantSearch:
        return VariantSearch(self._functions, sizes, self._options, report, make_maker=self._maker)

    def _maker(self, function: SignatureFunction) -> VariantMaker:
        return VariantMaker(function.signature, function.plain, self._content, on_devices=self._on_devices)

    def _fastest(self, search: VariantSearch, sizes: Sequence[int], budget: TimeBudget) -> Sequence[VariantChoice]:
        folder = self._options.cache
        if folder is None:
            return search.choose_fastest(budget)
        key = self._cache_key(sizes, budget)
        known = recall(folder, key)
        if known and {(each.signature, each.batch_size) for each in known.choices} == set(search.sized_signatures()):
            if known.short:
                budget.mark_short()
            return search.adopt(known.choices, budget)
        choices = search.choose_fastest(budget)
        if not (budget.cancelled or search.lacked_memory):  # another time there may be more
            remember(folder, key, FoundVariants(choices, budget.short))
        return choices

    def _keeps_state(self) -> bool:
        """Whether a call may change the answer of another call, of any signature; the log then says so."""
        names = {name for function in self._functions.values() for name in function.state}
        if names:
            logger.info(
                "%s runs plain, without a search for faster variants, because it keeps state: %s",
                model_name(self._path), ", ".join(sorted(names)),
            )  # fmt: skip
        return bool(names)

    def _cache_key(self, sizes: Sequence[int], budget: TimeBudget) -> str:
        return cache_key(
            self._digest,
            tensorflow=tf.__version__,
            device=self._kind,
            machine=[kind_of_machine(), os.cpu_count(), tf.config.threading.get_intra_op_parallelism_threads()],
            sizes=list(sizes),
            options=[budget.seconds],
        )

    def close(self) -> None:
        self._functions = {}
        if self._loaded is not None:
            # Graphs and functions refer to each other. A collection would walk all models' objects with the GIL held.
            free_resources(self._loaded)
            is_free = private_api.free_loaded(self._loaded)
            self._loaded = None
            if not is_free():
                gc.collect()
        self._folder.close()

    def _function(self, name: str) -> Callable[..., dict[str, Any]]:
        """The loaded function of a signature, called by the names of the signature's inputs."""
        function: Callable[..., dict[str, Any]] = self._loaded.signatures[name]
        renamed = self._folder.renamed
        if not renamed:
            return function
        return lambda **tensors: function(**{renamed[name]: tensor for name, tensor in tensors.items()})

    def _function_of(self, signature: str) -> SignatureFunction:
        """The function of a signature. Raises InferenceFailed or SignatureNotFound if there is none."""
        function = self._functions.get(signature)
        if function is None:
            raise no_function(signature, self.signatures, closed=self._loaded is None)
        return function


def _with_facts(function: SignatureFunction, *, changes: bool) -> ModelSignature:
    """The signature with the facts of its graph. `changes`: whether a call of the model may change its state."""
    signature = function.signature
    return replace(signature, graph_rows=function.graph_rows, writes=signature.writes if changes else ())


def _collect_graphs() -> None:
    """Frees the variants that were not chosen, whose constants are large, if they did not free themselves."""
    if not private_api.works(private_api.FREEING_GRAPHS):
        gc.collect()


def _unlimited(budget: TimeBudget) -> TimeBudget:
    """A budget without end, for variants that a setting demands; each step still waits until `budget` lets it begin."""
    return TimeBudget(inf, gate=lambda: budget.allows(-inf))
