#!/usr/bin/env sh
# Rewrites the lock files from the .in files: versions and hashes, no host names.
set -eu
cd "$(dirname "$0")"
lock() { uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links --index-strategy unsafe-best-match "$@"; }
lock serve.in -o serve.txt
lock tracing.in -c serve.txt -o tracing.txt
lock jwt.in -c serve.txt -o jwt.txt
lock dev.in -c serve.txt -c tracing.txt -c jwt.txt -o dev.txt
lock client.in -c dev.txt -o client.txt
lock gpu.in -o gpu.txt
lock ray.in -c serve.txt -o ray.txt
lock clients.in --no-emit-package tensorflow -o clients.txt
lock perf-analyzer.in --no-deps -o perf-analyzer.txt
lock manifests.in -o manifests.txt
lock deploy.in --no-deps -o deploy.txt
lock public-models.in --no-universal -c serve.txt --override public-models.overrides -o public-models.txt
lock sbom.in -o sbom.txt
lock audit.in -o audit.txt
lock bench.in -o bench.txt
