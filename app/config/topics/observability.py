"""Logs and traces: their contents, their form, and the share of requests that they tell of."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, field_validator

from app.config.rules import has_opentelemetry


class ObservabilitySettings(BaseModel):
    """Logs and traces."""

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe level that is logged. TensorFlow's own: TF_CPP_MIN_LOG_LEVEL, 3 if not set."
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="Form of the lines of the log. json: one object a line, for programs that read them."
    )
    access_log: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of the requests of HTTP and gRPC that the log gets a line of, drawn at random: 0.01 is one "
        "in a hundred, 1 all of them. 0: none.",
    )
    traces: bool = Field(
        False,
        description="Send OpenTelemetry traces by OTLP over HTTP; needs ferry-serving[tracing]. Where to, and the "
        "rest, say the SDK's own variables (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME, OTEL_BSP_*, ...).",
    )
    trace_sample_share: float = Field(
        0.001,
        ge=0,
        le=1,
        description="Share of the requests without a traceparent that are traced, by chance, at most 100 a second of "
        "each process. Those with one are traced if its sampled flag is set.",
    )

    @field_validator("traces")
    @classmethod
    def _traces_have_their_packages(cls, traces: bool) -> bool:
        if traces and not has_opentelemetry():
            raise ValueError('false, or OpenTelemetry installed: pip install "ferry-serving[tracing]"')
        return traces
