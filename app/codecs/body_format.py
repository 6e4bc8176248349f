"""What a form of predict bodies consists of: reading a request of it, and writing a reply in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.core.errors import InvalidRequest
from app.core.inference import Array, InferenceResponse, ModelSignature, TensorSpec
from app.core.interfaces import ServedModel
from app.core.validation import check_outputs


@dataclass(slots=True)
class PredictBody:
    """A predict request as far as its body tells, before it is known which model it meets.

    `inputs` gives the arrays for a signature; it raises InvalidRequest, or Unsupported where the form cannot
    carry a type. Names left out are empty: the default signature, all outputs, whichever model the URL names.
    `by_row` is for replies in JSON: an element for each row instead of one for each output.
    """

    inputs: Callable[[ModelSignature], dict[str, Array]]
    signature_name: str = ""
    outputs: tuple[str, ...] = ()
    by_row: bool = False
    model: str = ""
    version: int | None = None

    def wanted(self, signature: ModelSignature) -> tuple[str, ...]:
        """The outputs, in the signature's order, and none for all: whoever wants the same shares a batch.

        Raises InvalidRequest where the signature lacks one.
        """
        if not self.outputs:
            return ()
        check_outputs(signature, self.outputs)
        wanted = tuple(name for name in signature.outputs if name in self.outputs)
        return () if len(wanted) == len(signature.outputs) else wanted

    def check_model(self, model: ServedModel) -> None:
        """Raises InvalidRequest where the body names another model or version than the URL found."""
        if self.model and self.model != model.name:
            raise InvalidRequest(f"The body is for model {self.model[:256]!r}, the URL for {model.name!r}")
        if self.version is not None and self.version != model.version:
            raise InvalidRequest(
                f"The body is for version {self.version}, the URL for version {model.version} of model"
                f" {model.name!r}; name the version in the URL: /versions/{self.version}"
            )


@dataclass(frozen=True, slots=True)
class ReplyForm:
    """How replies are written.

    `check` takes the outputs wanted, before they are computed; it raises NotAcceptable or Unsupported where the
    form cannot carry them. `write` takes what was computed and PredictBody.by_row; it raises InvalidRequest
    where outputs asked for by row are no rows.
    """

    check: Callable[[Mapping[str, TensorSpec]], None]
    write: Callable[[InferenceResponse, bool], bytes]


@dataclass(frozen=True, slots=True)
class BodyForm:
    """One form of bodies.

    `media_types` name it in requests and replies, the usual one first; `also_read` in requests only.
    `read` takes a body and the most bytes that it may grow to in memory; it raises InvalidRequest.
    """

    media_types: tuple[str, ...]
    read: Callable[[bytes, int], PredictBody]
    reply: ReplyForm | None = None
    also_read: tuple[str, ...] = ()
