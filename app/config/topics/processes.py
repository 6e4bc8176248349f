"""The processes of the server: their number, their end, and when they count as stuck."""

from __future__ import annotations

from pydantic import BaseModel, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, ValidationInfo, field_validator


class ProcessSettings(BaseModel):
    """Processes: frontends, the end of the server, and when it counts as stuck."""

    frontends: NonNegativeInt = Field(
        0,
        le=256,  # chosen: far more than are of use; a port number given by mistake would start as many processes
        description="Number of processes that serve HTTP and gRPC in front of the one that executes models. 0: one "
        "process does both. Useful if one core cannot read and write requests as fast as the models compute.",
    )
    drain_grace_s: NonNegativeFloat = Field(
        3.0,
        le=3600,
        description="Seconds for which the server still serves after SIGTERM, while load balancers learn that it is "
        "not ready. Replies of HTTP close their connections, and gRPC sends GOAWAY. Then new requests are rejected. "
        "Ctrl-C does not wait.",
    )
    drain_timeout_s: PositiveFloat = Field(
        30.0, description="Seconds that accepted requests get to finish after SIGTERM."
    )
    stuck_after_s: PositiveFloat = Field(
        60.0, description="/livez reports a failure if a batch runs for longer than this many seconds."
    )

    @field_validator("frontends")
    @classmethod
    def _frontends_have_work(cls, frontends: int, others: ValidationInfo) -> int:
        if frontends and others.data.get("single_port"):
            raise ValueError("0 with single_port: frontends have a port of gRPC")
        if frontends and others.data.get("allow_shared_memory"):
            raise ValueError(
                "0 with allow_shared_memory: a region is known to one process only. Clients send tensors in messages "
                "instead: binary data over REST, raw_input_contents over gRPC"
            )
        return frontends
