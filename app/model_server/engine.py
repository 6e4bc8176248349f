"""The engine of ferry-model-server before which frontends stand: `python -m app.model_server.engine ARGUMENTS`."""

from __future__ import annotations

import sys

from app.frontends.engine import process as engine_process
from app.frontends.process_arguments import Arguments
from app.model_server.grpc_flags import grpc_options_of
from app.model_server.options import models_of
from app.server.server import grpc_options


def main(text: str) -> int:
    """Serves the models that the flags name; returns the exit code. The flags were read once without an error."""
    arguments = Arguments.parse(text)
    flags = arguments.flags or {}
    grpc = grpc_options_of(flags, grpc_options(arguments.settings))
    return engine_process.main(arguments, models_of(flags), grpc)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
