// An issuer of ID tokens for programs. Prints its URL, and for each line of its input (an object with `alg` and `claims`) a
// token. The line `rotate` gives it other keys.
import readline from "node:readline";
import { OAuth2Server } from "oauth2-mock-server";

const server = new OAuth2Server();
const kids = {};
const generate = async () => {
  for (const alg of ["RS256", "ES256"]) kids[alg] = (await server.issuer.keys.generate(alg)).kid;
};
await generate();
await server.start(0, "127.0.0.1");
console.log(server.issuer.url);
for await (const line of readline.createInterface({ input: process.stdin })) {
  if (line === "rotate") {
    await generate();
    console.log("rotated");
    continue;
  }
  const { alg, claims } = JSON.parse(line);
  const change = (_header, payload) => Object.assign(payload, claims);
  console.log(await server.issuer.buildToken({ kid: kids[alg], scopesOrTransform: change, expiresIn: 300 }));
}
await server.stop();
