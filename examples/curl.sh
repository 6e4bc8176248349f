#!/usr/bin/env sh
# Asks a running server for the first digit of models/digits/samples.json. Usage: examples/curl.sh [http://host:port]
set -eu
url=${1:-http://127.0.0.1:8501}
image=$(sed -n '/"image"/{s/.*"image":\(.*\),"label".*/\1/p;q;}' "$(dirname "$0")/../models/digits/samples.json")

ask() { curl --silent --show-error --fail-with-body --retry 5 --header 'Content-Type: application/json' "$@"; echo; }

# TensorFlow Serving's REST API
ask "$url/v1/models/digits:predict" --data "{\"instances\": [{\"image\": $image}]}"

# The Open Inference Protocol v2
ask "$url/v2/models/digits/infer" \
  --data "{\"inputs\": [{\"name\": \"image\", \"shape\": [1, 8, 8], \"datatype\": \"FP32\", \"data\": [$image]}]}"
