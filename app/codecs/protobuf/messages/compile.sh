#!/bin/sh
# Makes messages.binpb, the descriptor set of all .proto files here and of what they import. Run it after editing one.
# Needs protoc as `python -m grpc_tools.protoc` (package grpcio-tools), which nothing else here does.
set -eu
cd "$(dirname "$0")"
python -m grpc_tools.protoc -I . --include_imports --descriptor_set_out=messages.binpb ./*.proto
