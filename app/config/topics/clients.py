"""Clients: the limits of their requests and connections, and the shared memory of theirs that is opened."""

from __future__ import annotations

from pydantic import BaseModel, Field, NonNegativeFloat, NonNegativeInt, PositiveInt


class ClientSettings(BaseModel):
    """Clients: their requests and connections, and their shared memory."""

    max_body_bytes: PositiveInt = Field(
        64 * 1024**2,
        description="Largest HTTP request body in bytes, after decompression. A larger one is rejected with 413.",
    )
    max_head_bytes: int = Field(
        32 * 1024,
        ge=1024,
        le=1024**2,
        description="Longest head of an HTTP request, request line and headers, in bytes. A longer one is rejected "
        "with 431.",
    )
    keep_alive_s: float = Field(
        75.0, gt=0, le=3600, description="Seconds without a byte after which an idle HTTP connection is closed."
    )
    max_connection_age_s: NonNegativeFloat = Field(
        300.0,
        le=30 * 86_400,
        description="Seconds after which a connection is left without an error, a tenth more or less by chance, and "
        "its client connects anew, perhaps to a new server. HTTP/1.1: its next reply says Connection: close. HTTP/2: "
        "it gets GOAWAY once no request is under way. gRPC: GOAWAY, and its calls are answered. 0: never.",
    )
    arrival_timeout_s: float = Field(
        60.0,
        ge=1,
        le=3600,
        description="Seconds for the head of an HTTP request to arrive, or for its body to go on. A later one is "
        "rejected with 408.",
    )
    min_body_bytes_per_s: int = Field(
        16 * 1024,
        ge=1,
        le=1024**3,
        description="Least rate at which the body of an HTTP request has to arrive after the first "
        "arrival_timeout_s, in bytes a second. A slower one is rejected with 408. Not for streams whose response "
        "has begun. A client that takes a long reply more slowly is cut, too.",
    )
    max_connections: NonNegativeInt = Field(
        0,
        le=1024**2,
        description="Most HTTP connections of one process at the same time. A further one takes the place of those "
        "that are idle for longest; if none is, it is rejected with 503. 0: half of the file descriptors that the "
        "process may open, at most 10,000, or 4,000 with TLS; more than that half is never taken.",
    )
    max_connections_per_address: NonNegativeInt = Field(
        0,
        le=1024**2,
        description="Most HTTP connections of one client address at the same time in one process; further ones are "
        "rejected with 503. 0: no limit, as a proxy in front of Ferry needs it.",
    )
    allow_shared_memory: bool = Field(
        False,
        description="Let clients on this machine pass tensors through system shared memory (Open Inference Protocol). "
        "They register it, which needs model_control=explicit. It must belong to their own user, and have the prefix. "
        "Not with frontends, where a region would be known to one process only.",
    )
    shared_memory_prefix: str = Field(
        "ferry_",
        pattern="^[^/]{0,200}$",
        description="What names of shared memory that clients register begin with, such as ferry_image: the server "
        "opens no other objects. Empty: any name.",
    )
