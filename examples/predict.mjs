// Reads handwritten digits with a running server. Usage: node examples/predict.mjs [http://host:port]
// Node 18 or newer; `fetch` and typed arrays are all it takes, so this works in browsers too.

import { readFile } from "node:fs/promises";

const url = process.argv[2] ?? "http://127.0.0.1:8501";
const file = new URL("../models/digits/samples.json", import.meta.url);
const { samples } = JSON.parse(await readFile(file, "utf8"));

/** Sends a request; waits as long as a busy server asks for, five times at most. */
async function post(path, headers, body, attempts = 5) {
  const reply = await fetch(url + path, { method: "POST", headers, body, signal: AbortSignal.timeout(10_000) });
  if (reply.ok) return reply;
  if (reply.status === 503 && attempts > 1) {
    const seconds = Number(reply.headers.get("retry-after") ?? 1);
    await new Promise((wake) => setTimeout(wake, seconds * 1000));
    return post(path, headers, body, attempts - 1);
  }
  throw new Error(`${reply.status}: ${await reply.text()}`);
}

/** TensorFlow Serving's REST API: JSON, a row for each digit. */
async function predictJson(images) {
  const body = JSON.stringify({ instances: images.map((image) => ({ image })) });
  const reply = await post("/v1/models/digits:predict", { "Content-Type": "application/json" }, body);
  return (await reply.json()).predictions;
}

/** The Open Inference Protocol v2: a JSON header, then the numbers as bytes. Faster, and exact. */
async function predictBinary(images) {
  const pixels = Float32Array.from(images.flat(2));
  const parameters = { binary_data_size: pixels.byteLength };
  const head = new TextEncoder().encode(JSON.stringify({
    inputs: [{ name: "image", shape: [images.length, 8, 8], datatype: "FP32", parameters }],
    parameters: { binary_data_output: true },
  }));
  const headers = { "Content-Type": "application/octet-stream", "Inference-Header-Content-Length": `${head.length}` };
  const reply = await post("/v2/models/digits/infer", headers, new Blob([head, pixels]));

  const body = await reply.arrayBuffer();
  const length = Number(reply.headers.get("inference-header-content-length"));
  const [output] = JSON.parse(new TextDecoder().decode(body.slice(0, length))).outputs;
  const numbers = new Float32Array(body.slice(length, length + output.parameters.binary_data_size));
  const [rows, columns] = output.shape;
  return Array.from({ length: rows }, (_, row) => Array.from(numbers.subarray(row * columns, (row + 1) * columns)));
}

const images = samples.map((sample) => sample.image);
for (const [name, predict] of Object.entries({ predictJson, predictBinary })) {
  const predictions = await predict(images);
  const right = predictions.filter((row, index) => row.indexOf(Math.max(...row)) === samples[index].label).length;
  console.log(`${name}: ${right} of ${samples.length} digits are right`);
}
