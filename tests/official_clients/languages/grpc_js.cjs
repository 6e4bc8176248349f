// grpc-js of Node: all calls of a file at once on one channel. Usage: node grpc_js.cjs MODULES ADDRESS FILE
// A line of the file is KIND METHOD HEX; a line of the output is OK HEX, or the status code and its text.
const { createRequire } = require('node:module');
const fs = require('node:fs');
const [modules, address, file] = process.argv.slice(2);
const grpc = createRequire(`${modules}/`)('@grpc/grpc-js');

const client = new grpc.Client(address, grpc.credentials.createInsecure(), { 'grpc.max_receive_message_length': -1 });
const same = (bytes) => bytes;
const options = () => ({ deadline: Date.now() + 60_000 });

const failed = (error) => `${grpc.status[error.code]} ${error.details}`;

function unary(method, message) {
  return new Promise((resolve) => client.makeUnaryRequest(method, same, same, message, new grpc.Metadata(), options(),
    (error, reply) => resolve(error ? failed(error) : `OK ${reply.toString('hex')}`)));
}

function first(method, message) { // of a stream of answers, which is then cancelled
  return new Promise((resolve) => {
    const call = client.makeServerStreamRequest(method, same, same, message, new grpc.Metadata(), options());
    call.on('data', (reply) => { resolve(`OK ${reply.toString('hex')}`); call.cancel(); });
    call.on('error', (error) => resolve(failed(error)));
  });
}

(async () => {
  const lines = fs.readFileSync(file, 'utf8').trim().split('\n').map((line) => line.split(' '));
  const calls = lines.map(([kind, method, hex]) =>
    (kind === 'first' ? first : unary)(method, Buffer.from(hex || '', 'hex')));
  console.log((await Promise.all(calls)).join('\n'));
  client.close();
})();
