/** Two members of the pool answer twelve sessions; one of them is killed on the way. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createLedgerClient, ledger, readSession } from "@session-ledger/runner";

const { LEDGER_GRPC: address = "127.0.0.1:9000" } = process.env;
const client = createLedgerClient({ address });
const sessions = Array.from({ length: 12 }, (_, n) => `pool-${Date.now()}-${n}`);

function member(name: string) {
  const env = { ...process.env, POD_NAME: name };
  return spawn(process.execPath, ["pool.ts"], { cwd: import.meta.dirname, env, stdio: "inherit" });
}

const [one, two] = [member("pool-0"), member("pool-1")];
for (const [n, sessionId] of sessions.entries()) {
  const payload = `What is ${n} times 7?`;
  await client.call(ledger.pushSessionMessage, { sessionId, eventType: "user", payload });
  if (n === 5) one.kill("SIGKILL");
}
// What the killed member had begun, its successor takes over: it has the same name.
const again = member("pool-0");
for (const sessionId of sessions) await answerOf(sessionId);
for (const process of [two, again]) {
  process.kill("SIGTERM");
  await once(process, "exit");
}
client.close();

async function answerOf(sessionId: string): Promise<void> {
  const stream = "messages";
  for await (const { eventType, payload } of readSession({
    address,
    sessionId,
    stream,
    follow: true,
  })) {
    if (eventType !== "assistant") continue;
    console.log(`${sessionId}: ${payload}`);
    return;
  }
}
