"""A frontend of ferry-model-server: `python -m app.model_server.frontend_process`, started by the supervisor."""

from __future__ import annotations

import sys

from app.frontends.frontend import frontend_process
from app.frontends.process_arguments import ProcessArguments, received
from app.model_server.grpc_flags import grpc_options_of
from app.server.grpc_servers import grpc_options


def main(arguments: ProcessArguments) -> int:
    """Serve gRPC as the flags say. Returns the exit code. The parent has checked the flags."""
    return frontend_process.serve(arguments, grpc_options_of(arguments.flags or {}, grpc_options(arguments.settings)))


if __name__ == "__main__":
    sys.exit(main(received()))
