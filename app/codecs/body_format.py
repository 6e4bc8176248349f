"""The interface of a body format, which reads predict requests and writes their replies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.core.errors import InvalidRequest
from app.core.inference import Array, InferenceResponse, ModelSignature, TensorSpec
from app.core.interfaces import ServedModel
from app.core.validation import check_outputs

#: A group of rows of equal shape: the places of its rows in the request, and its inputs, name -> [rows, ...].
RowGroup = tuple[Sequence[int], dict[str, Array]]


@dataclass(slots=True)
class PredictBody:
    """The content of a predict body, read before the model is resolved.

    Attributes:
        inputs: makes the arrays for a signature: name -> [rows, ...]. Raises InvalidRequest, or Unsupported if
            the format cannot carry a type.
        signature_name: empty for the default signature.
        outputs: the outputs wanted; empty for all.
        by_row: whether JSON replies have an element for each row instead of one for each output.
        model, version: the model and version that the body names; empty and None if it names none.
        row_groups: makes groups of rows of equal shape; none if all rows have one shape. None if the format cannot
            carry rows that differ in shape. Raises as `inputs`.
    """

    inputs: Callable[[ModelSignature], dict[str, Array]]
    signature_name: str = ""
    outputs: tuple[str, ...] = ()
    by_row: bool = False
    model: str = ""
    version: int | None = None
    row_groups: Callable[[ModelSignature], list[RowGroup]] | None = None

    def wanted(self, signature: ModelSignature) -> tuple[str, ...]:
        """The wanted outputs, in the signature's order; empty for all, so that equal requests share a batch.

        Raises:
            InvalidRequest: the signature lacks one.
        """
        if not self.outputs:
            return ()
        check_outputs(signature, self.outputs)
        wanted = tuple(name for name in signature.outputs if name in self.outputs)
        return () if len(wanted) == len(signature.outputs) else wanted

    def check_model(self, model: ServedModel) -> None:
        """Check that the body names no other model or version than the URL. Raises InvalidRequest."""
        if self.model and self.model != model.name:
            raise InvalidRequest(f"The body is for model {self.model[:256]!r}, the URL for {model.name!r}")
        if self.version is not None and self.version != model.version:
            raise InvalidRequest(
                f"The body is for version {self.version}, the URL for version {model.version} of model"
                f" {model.name!r}; name the version in the URL: /versions/{self.version}"
            )


def no_inputs(_: ModelSignature) -> dict[str, Array]:
    """The `inputs` of a body whose inputs are elsewhere."""
    raise NotImplementedError


class ReadBody(Protocol):
    """Reads a body, given the most bytes that it may take in memory."""

    def __call__(self, body: bytes, max_bytes: int, /, *, at_once: bool = False) -> PredictBody:
        """The content of a body.

        Raises:
            InvalidRequest, BodyTooLarge: the body is wrong or too large.
            TakesLong: `at_once` is set, as on the event loop, and reading takes long.
        """


@dataclass(frozen=True, slots=True)
class ReplyFormat:
    """The format of replies.

    Attributes:
        check: checks the wanted outputs before they are computed. Raises NotAcceptable or Unsupported if the format
            cannot carry them.
        write: writes a response, given `PredictBody.by_row`. Raises InvalidRequest if outputs have no rows and
            `by_row` is set.
    """

    check: Callable[[Mapping[str, TensorSpec]], None]
    write: Callable[[InferenceResponse, bool], bytes]


@dataclass(frozen=True, slots=True)
class BodyFormat:
    """One format of predict bodies.

    Attributes:
        media_types: its Content-Types in requests and replies, the usual one first.
        read: reads a body of any length; `at_once` only one that takes little time.
        reply: None if no reply can have this format.
        also_read: further Content-Types of requests.
        made_bytes: finds the bytes that reading a body makes, where they may be far more than the body's; None if they
            never are.
        parsed: whether reading makes many objects and keeps the GIL, so that another process reads long bodies; else a
            thread does.
    """

    media_types: tuple[str, ...]
    read: ReadBody
    reply: ReplyFormat | None = None
    also_read: tuple[str, ...] = ()
    made_bytes: Callable[[bytes], float] | None = None
    parsed: bool = False
