// Node's undici: a pool of connections, each with four requests under way. Usage: node undici_pool.cjs MODULES URL
const { createRequire } = require('node:module');
const [modules, url] = process.argv.slice(2);
const { Pool } = createRequire(`${modules}/`)('undici');

const pool = new Pool(url, { connections: 4, pipelining: 4 });
const PATH = '/v1/models/half_plus_two:predict';

async function post(path, body) {
  const headers = { 'content-type': 'application/json' };
  const reply = await pool.request({ method: 'POST', path, headers, body });
  return { status: reply.statusCode, document: await reply.body.json() };
}

async function* parts(numbers) {
  yield '{"instances": [';
  for (let at = 0; at < numbers.length; at += 1000) yield (at ? ',' : '') + numbers.slice(at, at + 1000).join();
  yield ']}';
}

(async () => {
  const numbers = [...Array(200).keys()];
  const each = await Promise.all(numbers.map((number) => post(PATH, JSON.stringify({ instances: [number] }))));
  const large = await post(PATH, parts([...Array(20000).keys()]));
  console.log(JSON.stringify({
    predictions: each.map((reply) => reply.document.predictions[0]),
    missing: (await post('/v1/models/nobody:predict', '{"instances": [1]}')).status,
    malformed: (await post(PATH, '{"instances": [')).status,
    last_of_large: large.document.predictions.at(-1),
  }));
  await pool.close();
})();
