"""Events of requests, batches and models. Metrics and logs listen to them.

A listener is called on the event loop; it must not block. An exception of a listener is logged and harms no request.
Events are named tuples: at least one is made for each request, and it takes a quarter of the time of a frozen
dataclass.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from app.core.inference import BatchTiming, StepTiming

logger = logging.getLogger(__name__)


class BatchExecuted(NamedTuple):
    """One call of a model ended, with or without an error.

    rows: rows of requests in the batch; padded_rows: padding rows added to reach an allowed size.
    reason: why the batch was closed: 'full', 'idle', 'delay' or 'drain'; 'retry' of a group of a rejected batch.
    compute_s: seconds of the call; queue_s: seconds that each of its requests waited, in the order of the batch.
    failed, failed_rows: the number of its requests, and rows, that were answered with an error.
    expired: the number of its requests that were past their deadline when the call began; more than 0 is a bug.
    padding_ratio: the share of padding in the elements of the call's inputs, of rows and of inner shapes.
    input_s, output_s: the parts of compute_s in which inputs were put together, and outputs taken apart.
    """

    model: str
    version: int
    signature: str
    rows: int
    padded_rows: int
    reason: str
    compute_s: float
    queue_s: Sequence[float]
    failed: int = 0
    failed_rows: int = 0
    expired: int = 0
    padding_ratio: float = 0.0
    input_s: float = 0.0
    output_s: float = 0.0


class BatchRejected(NamedTuple):
    """One call of a model failed because of some of its requests, which are run again in smaller groups.

    requests, rows: of the call; compute_s: its seconds. Each group that succeeds is a BatchExecuted.
    """

    model: str
    version: int
    signature: str
    requests: int
    rows: int
    compute_s: float


class CallRepeated(NamedTuple):
    """One call of a model that was made because another one was rejected; that one is a BatchExecuted or BatchRejected.

    why: 'without_padding' or 'in_parts': it computed the request again; 'search': it repeated a row of it, to find how
    many rows the model takes. accepted: whether it succeeded. Its seconds are part of those of the batch.
    """

    model: str
    version: int
    signature: str
    why: str
    accepted: bool


class StepEnded(NamedTuple):
    """One step of requests to a pipeline is over: computed, failed, or, if neither, passed over.

    rows: of the requests that it computed, of `of_rows` that they have there.
    timing: None if it was not computed.
    """

    step: str
    rows: int
    of_rows: int
    timing: StepTiming | None
    failed: bool


class PipelineEnded(NamedTuple):
    """Requests that went through a pipeline as one were answered, have failed or were cancelled, or were rejected.

    outcome: 'answered', 'failed', 'cancelled' or 'rejected'.
    rows: of all requests; of trees the rows of the kind that has most.
    seconds: from their arrival at the pipeline.
    overhead_s: the part of it in which no step of the longest way waited or was computed; 0 unless it was answered.
    timing: the times that its caller gets; none for a request that was not answered.
    steps: the steps that were over when they ended.
    requests: their number.
    """

    pipeline: str
    version: int
    signature: str
    outcome: str
    rows: int
    seconds: float
    overhead_s: float
    timing: BatchTiming
    steps: Sequence[StepEnded]
    requests: int = 1


class RequestFinished(NamedTuple):
    """A protocol sent its answer. `code` is the protocol's own status; `seconds` are from parsing to the answer.

    model is '' and version 0 if the request did not reach a model.
    """

    protocol: str
    code: str
    model: str
    version: int
    signature: str
    seconds: float


class RequestsFinished(NamedTuple):
    """Requests that were answered together, or by a frontend: their labels are those of RequestFinished."""

    protocol: str
    code: str
    model: str
    version: int
    signature: str
    seconds: Sequence[float]


class RequestTraced(NamedTuple):
    """A request that finished was traced, by this span. `ended_at`: seconds since 1970.

    compute_span_id: the span of its share of a call that took `compute_s`; empty if it was not computed in one call.
    """

    protocol: str
    model: str
    version: int
    signature: str
    seconds: float
    trace_id: str
    span_id: str
    ended_at: float
    compute_s: float = 0.0
    compute_span_id: str = ""


class ConnectionsRejected(NamedTuple):
    """HTTP connections were closed although no client did wrong.

    reason: 'full' or 'address', with 503, for `max_connections` and `max_connections_per_address`; 'gave_way': it
    waited for a request, and a new one took its place; 'handshake': of HTTP or gRPC, that of TLS failed.
    """

    reason: str
    number: int = 1


class RequestsRefused(NamedTuple):
    """Requests were answered with an error although nothing was wrong with them: a later retry may succeed.

    cause: 'queue_full'; 'late' (it would miss its deadline); 'expired' (it missed it); 'memory' (bodies and
    replies take all of their share); 'shutting_down'.
    """

    cause: str
    number: int = 1


class AccessDenied(NamedTuple):
    """A request was answered with an error for want of a credential, a permission, or its rate.

    reason: see `ServingError.denied`. caller: its name, empty if it is not known. address: its IP address.
    request: its method and path, such as `POST /v1/models/m:predict`, or `gRPC` and the path of a method.
    """

    reason: str
    caller: str
    protocol: str
    address: str
    request: str


class RequestsDenied(NamedTuple):
    """A frontend denied `number` requests access for this reason; there is an AccessDenied for each."""

    reason: str
    number: int


class LogLinesDropped(NamedTuple):
    """A frontend dropped `number` lines of its log, because the reader of its output was too slow."""

    number: int


class Administered(NamedTuple):
    """A caller changed the served models, or tried to: the fields of AccessDenied, and the status of the protocol."""

    caller: str
    protocol: str
    address: str
    request: str
    code: str


class CredentialsLoaded(NamedTuple):
    """Keys or tokens were read anew. source: 'file' or 'issuer'; result: 'loaded' or 'failed'.

    detail: the file or the issuer, and why it failed.
    """

    source: str
    result: str
    detail: str = ""


class ModelStateChanged(NamedTuple):
    """A version of a model entered a state. `error` is empty unless the load or unload failed."""

    model: str
    version: int
    state: str
    error: str = ""


class ReloadFailed(NamedTuple):
    """A served version could not be loaded anew, from changed files or another way; it serves on as it was."""

    model: str
    version: int
    error: str


class LabelsChanged(NamedTuple):
    """The labels of a model name other versions than before."""

    model: str


class ModelPlaced(NamedTuple):
    """A version that is being loaded has a replica on each of these devices; 'GPU:0+GPU:1' is one on both.

    note: the unusual way in which it was loaded, and the reason; empty if it is usual.
    """

    model: str
    version: int
    devices: Sequence[str]
    note: str = ""


class VariantsChosen(NamedTuple):
    """The execution variants of a signature of a version that is being loaded were chosen.

    variants: for each batch size the execution variant and how many times as fast it is as the plain SavedModel.
    """

    model: str
    version: int
    signature: str
    variants: Mapping[int, tuple[str, float]]


class RowsProbed(NamedTuple):
    """The verdict on rows of a signature: rows of several requests share calls, or each request runs alone, and why.

    proof: 'graph', 'probe', 'traffic', or 'row_independence' for the setting assume; empty if each request runs alone.
    whole: each request runs alone whatever is proven: its tensors do not all have rows, or rows of several kinds.
    """

    model: str
    version: int
    signature: str
    alone: bool
    proof: str
    explanation: str
    whole: bool = False


class ShadowChecked(NamedTuple):
    """A request was computed again, alone and plain, after its answer was given or before.

    result: 'agrees'; 'variant', 'padding' or 'sharing' if that changed the answer, and is not used any more; 'random'
    if equal calls differ; 'failed'. `seconds`: its duration.
    """

    model: str
    version: int
    signature: str
    result: str
    seconds: float


class RowsTried(NamedTuple):
    """Rows of answered requests were computed together, to find out whether requests may share calls.

    rows: of the call, padding included. result: 'agrees' with the answers given before; 'mixes'; 'doubtful' if one of
    two tries differed; 'rounded' if rounding explains the difference; 'random' if equal calls differ; 'variant' if the
    execution variant differs from the plain model; 'refused' by it. `seconds`: its duration.
    """

    model: str
    version: int
    signature: str
    rows: int
    result: str
    seconds: float


class ShapesProbed(NamedTuple):
    """The verdict on padding of a signature with free inner shapes: how requests of different shapes share calls."""

    model: str
    version: int
    signature: str
    padded: bool
    explanation: str


class ModelImproving(NamedTuple):
    """A served version becomes faster in the background.

    step: the present step; empty when nothing is left to do.
    """

    model: str
    version: int
    step: str


Event = (
    BatchExecuted
    | BatchRejected
    | CallRepeated
    | PipelineEnded
    | RequestFinished
    | RequestsFinished
    | RequestTraced
    | ConnectionsRejected
    | RequestsRefused
    | AccessDenied
    | RequestsDenied
    | LogLinesDropped
    | Administered
    | CredentialsLoaded
    | ModelStateChanged
    | ReloadFailed
    | LabelsChanged
    | ModelPlaced
    | VariantsChosen
    | RowsProbed
    | ShadowChecked
    | RowsTried
    | ShapesProbed
    | ModelImproving
)
Listener = Callable[[Event], None]

#: The function to call, by type of event.
Subscriptions = Mapping[type[Any], Callable[[Any], None]]


def ignore(event: Event) -> None:
    """A listener that does nothing."""


def tell_all(*subscriptions: Subscriptions) -> Listener:
    """A listener that passes each event to the subscribers of its type, in the order of the arguments."""
    types = {kind for some in subscriptions for kind in some}
    listeners = {kind: tuple(subscribed[kind] for subscribed in subscriptions if kind in subscribed) for kind in types}

    def tell(event: Event) -> None:
        for listener in listeners.get(type(event), ()):
            try:
                listener(event)
            except Exception:  # metrics and logs must not change an answer
                logger.exception("A listener failed on %r", event)

    return tell
