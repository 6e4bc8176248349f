#!/bin/sh
# Makes messages.binpb, the descriptor set of all .proto files here and of what they import. Run it after editing one.
# Needs protoc as `python -m grpc_tools.protoc` (package grpcio-tools), which nothing else here does.
set -eu
cd "$(dirname "$0")"
made=$(mktemp -d)
trap 'rm -r "$made"' EXIT
mkdir "$made/grpc"
# Reflection's two versions differ in the name of their package alone.
sed 's/^package grpc.reflection.v1;/package grpc.reflection.v1alpha;/' grpc/reflection.proto > "$made/grpc/reflection_v1alpha.proto"
python -m grpc_tools.protoc -I . -I "$made" --include_imports --descriptor_set_out=messages.binpb \
  ./*.proto grpc/*.proto grpc/reflection_v1alpha.proto
