"""The placement of requests: the lane of a request, its function, and its number of rows.

A request whose form (signature, outputs, and name, dtype, rank and inner shape of each input) was accepted before needs
one dictionary lookup and equal row counts. Only a form that may share calls is remembered; all other requests are
checked in full, every time.

Inputs that are no rows (a temperature, a table) never reach the batcher: requests with equal ones share a lane and a
function, which adds these inputs to each call. Large ones are not compared, and the request runs alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from types import MappingProxyType
from typing import Any, NamedTuple

from app.batching.dispatch.first_answers import FirstAnswers
from app.batching.function import BatchFunction, PlainWay, Run
from app.batching.proof.kept_rows import KeptRows
from app.batching.proof.row_limit import RowLimit
from app.batching.proof.traffic_trial import TrafficFound, TrafficTrial
from app.batching.request import LaneKey, SharedInputs
from app.batching.shapes.padding import ShapePadding
from app.batching.shapes.ragged import RaggedRows
from app.batching.shapes.sparse import composite_rows, sizes_to_share
from app.core.agreement import tolerances_of
from app.core.batch_sizes import BatchSizes
from app.core.bounded_cache import BoundedCache
from app.core.errors import ModelNotReady
from app.core.inference import STRING, Array, InferenceRequest, InnerShapes, ModelSignature, tensor_bytes
from app.core.optional_inputs import with_left_out
from app.core.validation import (
    MAX_EMPTY_ROWS,
    check_empty_rows,
    check_outputs,
    check_ranks,
    check_row_size,
    check_shapes,
    check_sparse,
    count_rows,
    find_signature,
    rows_are_equal,
    shapes_fit,
    without,
)
from app.core.values.value_kinds import are_finite, finite_inputs, not_finite_rows
from app.runtime import LoadedModel, PlainModel, devices_needed, replicas_of

logger = logging.getLogger(__name__)

#: Callers choose subsets of outputs and the shapes of inputs, so both caches are bounded. Both bounds are chosen.
_MAX_FUNCTIONS = 256
_MAX_FORMS = 1024

#: The numbers of all placements, so that no two share a lane, not even those of one version's earlier and later files.
_PLACEMENTS = count(1)

#: The sizes of a request that runs alone, which counts as one row, whatever its inputs are.
_ALONE = BatchSizes((1,))

#: The reason why requests run alone after a shadow check.
_SEEN_TO_MIX = "a check of answers found that a row's answer depends on the other rows"

#: The most bytes of inputs that are no rows where requests share calls: each value has a function. Chosen.
_MOST_SHARED_BYTES = 1024

#: The hint for a request whose inputs have different numbers of rows.
_ROWS_HINT = " (with strict_shapes off the model judges such a request)"

#: Signature, outputs, and name, dtype, rank and inner shape of each input.
_Form = tuple[Any, ...]


class FunctionKey(NamedTuple):
    """The key of a function, which runs all requests of this key.

    bucket: the largest inner shapes of requests that are padded to share calls; None where only equal shapes do.
    shared: the values of inputs that are no rows.
    """

    signature: str
    outputs: tuple[str, ...] = ()
    alone: bool = False
    bucket: InnerShapes | None = None
    shared: SharedInputs = ()


class _Place(NamedTuple):
    """The place of a form's requests. `finite`: inputs in which NaN or infinity leads to another place."""

    key: LaneKey
    function: BatchFunction
    finite: tuple[str, ...]


class RequestPlacement:
    """The checks and places of the requests to one version of a model.

    Args:
        sizes: the row counts that the model is called with.
        batching: if False, each request is a call of its own, without padding.
        strict_shapes: if False, a request whose sizes do not fit the signature runs alone, and the model judges it.
        max_row_elements: a larger row of an input whose shape the signature leaves open is rejected; 0 for no limit.
        paddings: by signature, how requests of different shapes are padded to share a call.
        costs: by signature and batch size, the seconds of a call that were measured before requests used it.
        signatures: as callers see them, if they differ from the loaded ones: callers may leave masks out.
        generation: requests of different generations never share a call; by default a new number.
        unchecked: signatures without shadow checks, by a setting.
        unproven: by signature that is not proven for the largest size yet, the rows of requests that may share a call
            so far; 1 if each runs alone. Its requests prove more (batching/proof/traffic_trial.py).
        on_traffic: called on the event loop with such a signature, and the most rows of a call that it proved.
        on_stopped: called on the event loop with (signature, what, why) when a way is stopped; see `stop`. A placement
            that takes over the stopped ways of its predecessor calls it again.

    Attributes:
        functions: by key, the functions in use or used lately; one with requests under way is never dropped.
        stopped: by (signature, what), the reasons of stopped ways; see `stop`.
        limits: by signature, the most rows of a call, as requests have shown.
        closed: whether the version accepts no request any more.
        successor: the placement of new requests, if it is another one.
    """

    def __init__(
        self,
        model: str,
        version: int,
        loaded: LoadedModel,
        sizes: BatchSizes,
        *,
        batching: bool = True,
        strict_shapes: bool = True,
        max_row_elements: int = 0,
        paddings: Mapping[str, ShapePadding] = MappingProxyType({}),
        costs: Mapping[str, Mapping[int, float]] = MappingProxyType({}),
        signatures: Mapping[str, ModelSignature] | None = None,
        generation: int | None = None,
        unchecked: Collection[str] = (),
        unproven: Mapping[str, int] = MappingProxyType({}),
        on_traffic: Callable[[str, int], None] | None = None,
        on_stopped: Callable[[str, str, str], None] | None = None,
        first_answers: Mapping[str, FirstAnswers] = MappingProxyType({}),
    ) -> None:
        # The model, and the way in which it is called.
        self.model = model
        self.version = version
        self.loaded = loaded
        self.sizes = sizes
        self.paddings = paddings
        self.costs = costs
        self.signatures = loaded.signatures if signatures is None else signatures

        # What changes while it takes requests.
        self.functions: BoundedCache[FunctionKey, BatchFunction] = BoundedCache(
            _MAX_FUNCTIONS, spared=lambda function: function.requests_under_way > 0
        )
        self.closed = False
        self.successor: RequestPlacement | None = None
        self.stopped: dict[tuple[str, str], str] = {}
        self.limits: dict[str, int] = {}
        self._retired: list[tuple[str, BatchFunction]] = []

        # Which requests may share calls, and are checked how.
        self.generation = next(_PLACEMENTS) if generation is None else generation
        self._row_limits = {name: RowLimit() for name in self.signatures}
        self._unchecked = unchecked
        self._batching = batching
        self._batchable = {
            name: batching and (each.batchable or each.has_sparse_rows) for name, each in self.signatures.items()
        }
        self._shared = {name: each.shared for name, each in self.signatures.items() if batching and each.shared}
        self._strict_shapes = strict_shapes
        self._max_row_elements = max_row_elements
        self._forms: BoundedCache[_Form, _Place] = BoundedCache(_MAX_FORMS)

        # What requests prove; the trials need all of the above.
        self._on_traffic = on_traffic
        self._on_stopped = on_stopped
        self._unproven = unproven
        self._first_answers = first_answers
        self._trials = {name: trial for name in unproven if (trial := self._trial(name)) is not None}

    def place(self, request: InferenceRequest, *, leased: bool = False) -> tuple[LaneKey, BatchFunction, int]:
        """The lane, the function and the number of rows of a request. Called once for each request: it adds inputs that
        were left out to request.inputs, and removes inputs that the function adds to each call.

        Args:
            leased: whether it is a step of a request that was accepted before.

        Raises:
            InvalidRequest, SignatureNotFound, RequestTooLarge: the request does not fit the signature, or the limits.
            ModelNotReady: this version is being unloaded.
        """
        # 1. A version that is being unloaded accepts nothing.
        if self.closed and not leased:
            raise ModelNotReady(f"Version {self.version} of model {self.model} is being unloaded")

        # 2. A form that was accepted before, whose requests still share calls: only the rows are left to compare, and,
        #    for a few signatures, whether numbers are finite.
        form = request.signature, request.outputs, *[
            (name, array.dtype, array.ndim, array.shape[1:]) for name, array in request.inputs.items()
        ]  # fmt: skip
        known = self._forms.get(form)
        if known is None:
            return self._check(request, form)
        key, function, finite = known
        if not function.batchable or (function.padding is not None and not function.padding.enabled):
            return self._check(request, form)
        rows = -1
        for array in request.inputs.values():
            if rows not in {-1, len(array)}:
                return self._check(request, form)
            rows = len(array)
        if rows > MAX_EMPTY_ROWS or (finite and not are_finite(request.inputs, finite)):
            return self._check(request, form)
        return key, function, rows

    def _check(self, request: InferenceRequest, form: _Form) -> tuple[LaneKey, BatchFunction, int]:
        """`place` with every check, in the order in which errors are reported."""
        # 1. Names and dtypes, which `with_left_out` checks. With the left-out inputs, the form may be known.
        signature = find_signature(self.signatures, request.signature)
        inputs = with_left_out(signature, request.inputs)
        if inputs is not request.inputs:
            request.inputs = inputs
            return self.place(request, leased=True)

        # 2. Shapes. With strict_shapes off, the model judges sizes that do not fit, in a call of its own.
        fits = True
        if self._strict_shapes:
            check_shapes(signature, inputs)
        else:
            check_ranks(signature, inputs)
            fits = shapes_fit(signature, inputs)
        if signature.sparse:
            check_sparse(signature, inputs)
        if self._max_row_elements:
            check_row_size(signature, inputs, self._max_row_elements)
        if signature.batchable:
            check_empty_rows(inputs)

        # 3. Outputs. A request that names all of them, in any order, equals one that names none.
        check_outputs(signature, request.outputs)
        wanted = frozenset(request.outputs)
        outputs = tuple([name for name in signature.outputs if name in wanted])
        if len(outputs) == len(signature.outputs):
            outputs = ()

        # 4. Lane, function and rows.
        return self._place_checked(request, form, signature, outputs, fits=fits)

    def _place_checked(
        self,
        request: InferenceRequest,
        form: _Form,
        signature: ModelSignature,
        outputs: tuple[str, ...],
        *,
        fits: bool,
    ) -> tuple[LaneKey, BatchFunction, int]:
        """`place` for a checked request. `fits`: whether its shapes and rows are the signature's."""
        # 1. The inputs that are rows, and the values of the others.
        inputs, names = request.inputs, self._shared.get(signature.name, frozenset())
        shared = _shared_values(inputs, names) if names else ()
        row_inputs = without(inputs, names) if shared else inputs

        # 2. The function. If an earlier call showed that outputs do not follow the rows, requests run alone, in the
        #    lane and function of all requests that run alone.
        finite = finite_inputs(signature)
        alone = (
            not (fits and (shared or self._batchable[signature.name]))
            or bool(signature.alone and signature.why_alone(outputs))
            or _splits_ragged_output(signature, outputs)
            or not are_finite(inputs, finite)
            or (signature.rows_may_differ and not rows_are_equal(signature, row_inputs))
        )
        sizes: SharedInputs | None = ()
        if signature.sparse and not alone:
            sizes = sizes_to_share(signature, inputs)
            alone = sizes is None
        padding = None if alone or shared else self.paddings.get(signature.name)
        bucket = None if padding is None else padding.bucket(inputs)
        wanted = FunctionKey(signature.name, outputs, alone, bucket, () if alone else shared)
        function = self._function(signature, wanted, inputs)
        if not function.batchable:
            function = self._function(signature, FunctionKey(signature.name, outputs, alone=True))
            alone_key = LaneKey(self.model, self.version, signature.name, outputs, generation=self.generation)
            return alone_key, function, 1

        # 3. Rows, and the lane: that of the bucket, or of the request's own inner shapes.
        rows = count_rows(signature, row_inputs, _ROWS_HINT)
        shapes = bucket or tuple([inputs[name].shape[1:] for name in signature.inputs if name in row_inputs])
        padded, generation = bucket is not None, self.generation
        same = shared or sizes or ()
        key = LaneKey(self.model, self.version, signature.name, outputs, shapes, padded, generation, shared=same)
        #    Shared inputs, whose values count, ragged and sparse inputs, whose lengths are not their rows, and rows
        #    without elements are checked in full every time.
        if shared:
            check_empty_rows(row_inputs)
            request.inputs = dict(row_inputs)
        elif not (signature.ragged or signature.sparse) and any(array.size for array in inputs.values()):
            self._forms.keep(form, _Place(key, function, finite))
        return key, function, rows

    def call_rows(self, signature: str) -> int:
        """The most rows of a call for all outputs that requests may share; 1 if each runs alone."""
        known = self.signatures[signature]
        most_rows = self._sizes_of(known).largest
        if not (self._batchable.get(signature) or signature in self._shared) or (known.alone and known.why_alone()):
            return 1
        for key, function in self.functions.items():
            if key.signature == signature and (key.bucket or not (key.outputs or key.alone)):
                most_rows = min(most_rows, function.max_rows)
        return most_rows

    def lone_rows(self, signature: str, inputs: Mapping[str, Array]) -> Array | None:
        """The rows that must not meet others, as they hold NaN or infinity, a mask [rows]; None if all may."""
        finite = finite_inputs(self.signatures[signature])
        return None if are_finite(inputs, finite) else not_finite_rows(inputs, finite)

    def _function(
        self, signature: ModelSignature, key: FunctionKey, inputs: Mapping[str, Array] = MappingProxyType({})
    ) -> BatchFunction:
        """The function of a key. `inputs`: of its first request; the shared ones are kept."""
        # 1. The one in use or used lately.
        function = self.functions.get(key)
        if function is not None:
            return function

        # 2. A new one. It has copies, which keep nothing else of the request, such as its message, in memory.
        beside = {name: inputs[name].copy() for name in signature.shared} if key.shared else {}
        runs = [_run_of(replica, signature.name, key.outputs, beside) for replica in replicas_of(self.loaded)]
        ragged = signature.ragged_outputs
        wanted = {values: splits for values, splits in ragged.items() if not key.outputs or values in key.outputs}
        function = BatchFunction(
            runs[0],
            _ALONE if key.alone else self._sizes_of(signature),
            batchable=not key.alone,
            padding=self.paddings[signature.name] if key.bucket is not None else None,
            ragged=composite_rows(signature),
            initial_estimates=None if key.alone else self.costs.get(signature.name),
            ragged_outputs=RaggedRows(wanted) if ragged else None,
            replicas=runs,
            plain=self._plain_way(signature, key.outputs, beside),
            trial=None if key.outputs else self._trials.get(signature.name),
            first=None if key.alone else self._first_answers.get(signature.name),
            steady=not (signature.loops or signature.reads_files),
            devices=devices_needed(self.loaded),
            row_limit=self._row_limits[signature.name],
            on_limit=partial(self.limit, signature.name),
        )

        # 3. It may take the place of an older one, whose forms are forgotten.
        functions_before = len(self.functions)
        self.functions.keep(key, function)
        if len(self.functions) == functions_before:
            self._drop_forms_without_function()
        return function

    def _plain_way(
        self, signature: ModelSignature, outputs: tuple[str, ...], beside: Mapping[str, Array]
    ) -> PlainWay | None:
        """The plain way of a function; None if the model writes state or draws random numbers, so that equal calls may
        have different answers.
        """
        loaded, writes = self.loaded, any(each.writes for each in self.loaded.signatures.values())
        if writes or signature.draws or signature.name in self._unchecked or not isinstance(loaded, PlainModel):
            return None
        return PlainWay(
            lambda inputs: loaded.run_plain(signature.name, {**inputs, **beside}, outputs),
            partial(self.stop, signature.name),
            tolerances_of(signature),
        )

    def _sizes_of(self, signature: ModelSignature) -> BatchSizes:
        """The row counts of shared calls: no more than the model takes, and than was proven."""
        most = self._unproven.get(signature.name, self.sizes.largest)
        return self.sizes.up_to(min(most, signature.most_rows or most))

    def _trial(self, name: str) -> TrafficTrial | None:
        """The trial of a signature; None if requests prove nothing: rows cannot share calls, or have no plain way."""
        signature = self.signatures.get(name)
        if signature is None or not self._batchable[name] or self._plain_way(signature, (), {}) is None:
            return None
        ragged_outputs = RaggedRows(signature.ragged_outputs) if signature.ragged_outputs else None
        kept = KeptRows(tolerances_of(signature), composite_rows(signature), ragged_outputs)
        return TrafficTrial(self.sizes, partial(self._found_by_traffic, name), kept, self._unproven[name])

    def _found_by_traffic(self, signature: str, found: TrafficFound) -> None:
        if found.disproved:
            self.stop(signature, "sharing", found.reason)
        elif found.rows > 1 and self._on_traffic is not None:
            self._on_traffic(signature, found.rows)

    def end_trials(self) -> None:
        """Let go of the rows kept for trials, as the version is unloaded or another placement follows."""
        for trial in self._trials.values():
            trial.end()

    def stop(self, signature: str, what: str, reason: str = _SEEN_TO_MIX) -> None:
        """Stop a way, 'variant', 'padding' or 'sharing', that changes answers, by a comparison or a trial.

        Waiting requests keep their functions, so these stop it, too.
        """
        is_news = (signature, what) not in self.stopped
        self.stopped[signature, what] = reason
        if what == "variant" and isinstance(self.loaded, PlainModel):
            self.loaded.stop_variants(signature)
        elif what == "padding" and signature in self.paddings:
            self.paddings[signature].enabled = False
            for function in self._functions_of(signature):
                function.batchable &= function.padding is None
        elif what == "sharing":
            known = self.signatures[signature]
            alone = replace(known, alone=dict.fromkeys(known.outputs, reason))
            self.signatures = {**self.signatures, signature: alone}
            self._forms.clear()
            for function in self._functions_of(signature):
                function.batchable = function.divisible = False
            if signature in self._trials:
                self._trials[signature].end()
        if self.successor is not None:  # the check began before the model adopted the successor
            self.successor.stop(signature, what, reason)
        elif is_news and self._on_stopped is not None:
            self._on_stopped(signature, what, reason)

    def _functions_of(self, signature: str) -> list[BatchFunction]:
        """The functions of a signature's requests, retired ones included."""
        known = [(key.signature, function) for key, function in self.functions.items()]
        return [function for name, function in [*known, *self._retired] if name == signature]

    def limit(self, signature: str, most_rows: int) -> None:
        """Limit the rows of a signature's calls from now on, as the model rejects more.

        Waiting requests keep their functions, and are isolated if they come into a larger call.
        """
        known = self.signatures[signature]
        if not 0 < most_rows < (known.most_rows or self.sizes.largest):
            return
        logger.warning(
            "Model %s version %d takes at most %d rows in a call of signature %r: batches have no more from now on, "
            "and larger requests are computed in parts", self.model, self.version, most_rows, signature,
        )  # fmt: skip
        self.limits[signature] = most_rows
        self.signatures = {**self.signatures, signature: replace(known, most_rows=most_rows)}
        self.generation = next(_PLACEMENTS)
        self._forms.clear()
        self._retired = [each for each in self._retired if each[1].requests_under_way]
        for key in [key for key in self.functions if key.signature == signature and not key.alone]:
            self._retired.append((signature, self.functions.pop(key)))
        if self.successor is not None:  # the call began before the model adopted the successor
            self.successor.limit(signature, most_rows)

    @property
    def all_functions(self) -> Iterator[BatchFunction]:
        """The functions in use, and retired ones that have requests under way."""
        yield from self.functions.values()
        yield from (function for _, function in self._retired)

    def _drop_forms_without_function(self) -> None:
        """Drop the forms that lead to a dropped function: its requests would not be counted."""
        kept = {id(function) for function in self.functions.values()}
        for form in [form for form, place in self._forms.items() if id(place.function) not in kept]:
            del self._forms[form]

    @property
    def open_requests(self) -> int:
        """The number of unanswered requests."""
        return sum(function.requests_under_way for function in self.all_functions)


def _run_of(replica: LoadedModel, signature: str, outputs: tuple[str, ...], beside: Mapping[str, Array]) -> Run:
    """The call of a replica; the inputs `beside` are added to each call."""
    run = replica.run
    return lambda inputs: run(signature, {**inputs, **beside} if beside else inputs, outputs)


def _shared_values(inputs: Mapping[str, Array], names: Collection[str]) -> SharedInputs:
    """The values of inputs, to be compared; empty if they are too large for that."""
    beside = {name: inputs[name] for name in sorted(names)}
    if tensor_bytes(beside) > _MOST_SHARED_BYTES:
        return ()
    return tuple([(name, array.dtype.str, array.shape, _content(array)) for name, array in beside.items()])


def _content(array: Array) -> bytes | tuple[bytes, ...]:
    return tuple(array.flat) if array.dtype == STRING else array.tobytes()


def _splits_ragged_output(signature: ModelSignature, outputs: tuple[str, ...]) -> bool:
    """Whether only a part of a ragged output is wanted (values or splits), so that rows cannot be separated."""
    groups = [{values, *splits} for values, splits in signature.ragged_outputs.items()]
    return bool(outputs) and any(not (group.isdisjoint(outputs) or group.issubset(outputs)) for group in groups)
