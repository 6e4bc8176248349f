// Node's own fetch, as browsers have it. Usage: node node_fetch.mjs URL
const [url] = process.argv.slice(2);
const PATH = '/v1/models/half_plus_two:predict';

async function post(path, body) {
  const headers = { 'Content-Type': 'application/json' };
  const reply = await fetch(url + path, { method: 'POST', headers, body });
  return { status: reply.status, document: await reply.json() };
}

const numbers = [...Array(200).keys()];
const each = await Promise.all(numbers.map((number) => post(PATH, JSON.stringify({ instances: [number] }))));
const large = await post(PATH, JSON.stringify({ instances: [...Array(20000).keys()] }));
console.log(JSON.stringify({
  predictions: each.map((reply) => reply.document.predictions[0]),
  missing: (await post('/v1/models/nobody:predict', '{"instances": [1]}')).status,
  malformed: (await post(PATH, '{"instances": [')).status,
  last_of_large: large.document.predictions.at(-1),
}));
