// An issuer of ID tokens in place of GitHub's: its documents and keys, and tokens for whoever has the request token of the job.
// Prints its address. Each line of its input is an object of claims that later tokens have.

import { generateKeyPairSync, randomUUID, sign } from 'node:crypto';
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';

const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
const kid = randomUUID();
let changed = {};
let issuer;

const encode = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');

function token(aud) {
  const iat = Math.floor(Date.now() / 1000);
  const usual = {
    iss: issuer, aud, sub: 'repo:acme/web:environment:production', iat, nbf: iat, exp: iat + 300, jti: randomUUID(),
    repository: 'acme/web', repository_id: '123456', environment: 'production', event_name: 'push', run_number: '7', run_id: '4711',
  };
  const text = `${encode({ alg: 'RS256', typ: 'JWT', kid })}.${encode({ ...usual, ...changed })}`;
  return `${text}.${sign('sha256', text, privateKey).toString('base64url')}`;
}

const documents = {
  '/.well-known/openid-configuration': () => ({ issuer, jwks_uri: `${issuer}/jwks` }),
  '/jwks': () => ({ keys: [{ ...publicKey.export({ format: 'jwk' }), kid, use: 'sig', alg: 'RS256' }] }),
};

const server = createServer((request, response) => {
  const url = new URL(request.url, issuer);
  const isJob = url.pathname === '/token' && request.headers.authorization === `Bearer ${process.env.REQUEST_TOKEN}`;
  const document = isJob ? { value: token(url.searchParams.get('audience')) } : documents[url.pathname]?.();
  response.writeHead(document ? 200 : 401, { 'content-type': 'application/json', connection: 'close' });
  response.end(JSON.stringify(document ?? {}));
});
server.listen(0, '127.0.0.1', () => {
  issuer = `http://127.0.0.1:${server.address().port}`;
  console.log(issuer);
});

for await (const line of createInterface({ input: process.stdin })) {
  changed = JSON.parse(line);
  console.log('changed');
}
