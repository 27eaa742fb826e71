/**
 * The conformance suite for a client in any language: `node test/conformance/main.ts ADDRESS COMMAND…`.
 * ADDRESS is that of a running service without TLS and tokens, COMMAND starts the client's driver.
 * docs/clients.md has the protocol of a driver.
 */
import { RpcClient } from "../support/grpc-client.ts";
import { CASES } from "./cases.ts";
import { Suite } from "./suite.ts";

const [, , address, ...command] = process.argv;
if (address === undefined || command.length === 0) {
  process.stderr.write("usage: node test/conformance/main.ts ADDRESS COMMAND...\n");
  process.exit(2);
}
const client = new RpcClient(address);
const suite = new Suite({ client, address, command });
let failed = 0;
for (const one of CASES) {
  const outcome = await suite.run(one).catch((error: unknown) => {
    failed += 1;
    return `FAILED: ${error instanceof Error ? error.message : String(error)}`;
  });
  process.stdout.write(`${one.name}: ${outcome}\n`);
}
await suite.stop();
client.close();
process.exitCode = failed > 0 ? 1 : 0;
