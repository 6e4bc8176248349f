#!/bin/sh
# Makes messages.binpb, the descriptor set of all .proto files here. Run it after editing one.
# Needs protoc as `python -m grpc_tools.protoc` (package grpcio-tools), which nothing else here does.
set -eu
cd "$(dirname "$0")"
python -m grpc_tools.protoc -I . --descriptor_set_out=messages.binpb ./*.proto
