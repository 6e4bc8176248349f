"""The engine process of ferry-model-server with frontends: a fork of `python -m app.model_server.engine_process`."""

from __future__ import annotations

import sys
from contextlib import suppress

from app.frontends.engine import engine_process
from app.frontends.engine.engine_forks import fork_engines
from app.frontends.process_arguments import ProcessArguments
from app.model_server.grpc_flags import grpc_options_of
from app.model_server.options import models_of
from app.server.grpc_servers import grpc_options
from app.transports.tls.texts import TlsError


def main(arguments: ProcessArguments) -> int:
    """Serve the models that the flags name. Returns the exit code. The parent has checked the flags."""
    flags = arguments.flags or {}
    grpc = None
    with suppress(TlsError):  # frontends serve on with what they read before; Server says what is wrong with settings
        grpc = grpc_options_of(flags, grpc_options(arguments.settings))
    return engine_process.serve(arguments, models_of(flags), grpc)


if __name__ == "__main__":
    sys.exit(fork_engines(main, engine_process.prepare))
