#!/usr/bin/env sh
# Rewrites the lock files from the .in files: versions and hashes, no host names.
set -eu
cd "$(dirname "$0")"
lock() { uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links --index-strategy unsafe-best-match "$@"; }
lock serve.in -o serve.txt
lock tracing.in -c serve.txt -o tracing.txt
lock jwt.in -c serve.txt -o jwt.txt
lock tflite.in -c serve.txt -o tflite.txt
lock text.in -c serve.txt --no-emit-package tensorflow -o text.txt
lock forests.in -c serve.txt --no-emit-package tensorflow --no-emit-package ydf -o forests.txt
lock import.in -c serve.txt --no-emit-package tensorflow -o import.txt
lock dev.in -c serve.txt -c tracing.txt -c jwt.txt -c tflite.txt -c text.txt -c forests.txt -c import.txt --no-emit-package tensorflow --no-emit-package ydf -o dev.txt
lock tensorflow-2.19.in --no-universal --no-emit-package tensorflow --no-emit-package ydf --no-emit-package tensorboard --no-emit-package tensorboard-data-server --no-emit-package markdown --no-emit-package markupsafe --no-emit-package werkzeug -o tensorflow-2.19.txt
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
