"""The served pipelines: they wait for their models at first, and follow them as versions come and go."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from app.batching.batcher import Batcher
from app.core.batch_sizes import BatchSizes
from app.core.errors import InferenceFailed, ModelNotFound, ModelNotReady, ServingError
from app.core.events import Listener, ignore
from app.core.inference import ModelSignature
from app.model import Model
from app.pipelines.binding import Binding
from app.pipelines.compilation import compile_pipeline, models_of
from app.pipelines.document import PipelineText, parse
from app.pipelines.folding import FoldLimits
from app.pipelines.pipeline_model import PipelineModel
from app.pipelines.plan import Plan
from app.pipelines.references import ModelReference, PipelineInvalid

logger = logging.getLogger(__name__)

_A_PIPELINE = "a pipeline: a step should be a model"


class FindModel(Protocol):
    """Raises ServingError: there is no such model, or not yet."""

    def __call__(self, name: str, version: int | None = None, label: str | None = None) -> Model | PipelineModel: ...


class ServedPipelines:
    """The pipelines of a server. All methods are called on the event loop.

    Args:
        find: finds the model that a step calls now.
        sizes: the batch sizes of models by default.
        max_row_elements: see PipelineModel.
        limits: of the nodes of each step with `fold`.
        clock: monotonic seconds, that of the batcher.
        tell: gets a PipelineEnded for each request.
    """

    def __init__(  # noqa: PLR0917 - all that is known of models
        self,
        find: FindModel,
        batcher: Batcher,
        sizes: BatchSizes,
        max_row_elements: int,
        limits: FoldLimits,
        clock: Callable[[], float],
        tell: Listener = ignore,
    ) -> None:
        self._find = find
        self._batcher = batcher
        self._sizes = sizes
        self._max_row_elements = max_row_elements
        self._limits = limits
        self._clock = clock
        self._listener = tell
        self._served: dict[PipelineModel, PipelineText] = {}
        self._logged: dict[PipelineModel, str] = {}

    @property
    def models(self) -> Sequence[PipelineModel]:
        """All versions of all pipelines that accept requests or wait for their models."""
        return [each for each in self._served if not each.closing]

    def why_waiting(self, text: bytes) -> str:
        """The models that a pipeline lacks, as the end of a sentence; empty if none, or if its text is wrong."""
        try:
            models = models_of(parse(text))
        except PipelineInvalid:
            return ""  # its load raises the error
        return self._lacking(models)

    def load(self, name: str, version: int, text: bytes) -> PipelineModel:
        """Raises InferenceFailed: the text is wrong or does not fit its models, or a model is not there."""
        try:
            content = parse(text)
            if lacking := self._lacking(models_of(content)):
                raise InferenceFailed(lacking)
            binding = self._binding(name, version, self._plan(content))
        except PipelineInvalid as fault:
            raise InferenceFailed(f"pipeline.yaml: {fault}") from None
        model = PipelineModel(name, version, binding, self._sizes, self._max_row_elements)
        self._served[model] = content
        return model

    def refresh(self) -> None:
        """Bind the pipelines to the models that are served now, after versions or labels have changed."""
        for model in [each for each in self._served if each.closing]:
            del self._served[model]
            self._logged.pop(model, None)
        for model, text in self._served.items():
            try:
                self._follow(model, text)
            except Exception:
                logger.exception("%r cannot follow its models and goes on with those that it has", model)

    def _follow(self, model: PipelineModel, text: PipelineText) -> None:
        # 1. A model that is gone altogether.
        if lacking := self._lacking(models_of(text)):
            if model.bound_to is not None or model.missing != lacking:
                logger.warning("Model %s version %d answers no requests: it %s", model.name, model.version, lacking)
                model.unbind(lacking)
            return

        # 2. Nothing has changed. 3. Others: they must answer as the present ones do.
        bound = model.bound_to
        try:
            if bound is not None and list(bound.models) == self._models(bound.plan):
                self._logged.pop(model, None)
                return
            plan = self._plan(text)
            signature = model.signatures[plan.signature.name]
            if plan.signature != signature:
                raise PipelineInvalid("its inputs or outputs would be of other types")
        except PipelineInvalid as fault:
            self._log_misfit(model, f"does not fit the new versions of its models: {fault}")
            return
        self._logged.pop(model, None)
        model.bind(self._binding(model.name, model.version, plan))
        logger.info("Model %s version %d goes on with other versions of its models", model.name, model.version)

    def _log_misfit(self, model: PipelineModel, problem: str) -> None:
        if self._logged.get(model) != problem:
            self._logged[model] = problem
            goes_on = "goes on with those that it has" if model.bound_to is not None else "answers no requests"
            logger.error("Model %s version %d %s, and %s", model.name, model.version, problem, goes_on)

    # --- models ---

    def _lacking(self, models: Iterable[ModelReference]) -> str:
        reasons = [f"{reference} ({_reason(error)})" for reference, error in lacking(models, self._find).items()]
        return f"waits for the {'models' if len(reasons) > 1 else 'model'} {', '.join(reasons)}" if reasons else ""

    def _model(self, reference: ModelReference) -> Model:
        model = self._find(*reference)
        if isinstance(model, PipelineModel):
            raise not_a_model(reference)
        return model

    def _signatures(self, reference: ModelReference) -> Mapping[str, ModelSignature]:
        return self._model(reference).signatures

    def _plan(self, text: PipelineText) -> Plan:
        return compile_pipeline(text, self._signatures)

    def _binding(self, name: str, version: int, plan: Plan) -> Binding:
        models = self._models(plan)
        return Binding(name, version, plan, models, self._batcher.steps, self._limits, self._clock, self._listener)

    def _models(self, plan: Plan) -> list[tuple[Model, ...]]:
        return [tuple(map(self._model, step.models)) for step in plan.steps]


def lacking(models: Iterable[ModelReference], find: Callable[..., object]) -> Mapping[ModelReference, ServingError]:
    """The models that are not there, with the reasons.

    Args:
        find: called as a FindModel.
    """
    reasons = {}
    for reference in models:
        try:
            find(*reference)
        except ServingError as error:
            reasons[reference] = error.with_traceback(None)
    return reasons


def _reason(error: ServingError) -> str:
    if isinstance(error, ModelNotReady) and error.is_pipeline:
        return _A_PIPELINE  # without its own reason: pipelines that name each other would quote each other without end
    return "not there" if isinstance(error, ModelNotFound) else str(error)


def not_a_model(reference: ModelReference) -> PipelineInvalid:
    """The fault of a step whose model is a pipeline."""
    return PipelineInvalid(f"{reference} is {_A_PIPELINE}")
