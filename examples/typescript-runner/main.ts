/** Starts a runner, asks two questions as a person does, and prints the conversation. */
import { createLedgerClient, ledger, readSession } from "@session-ledger/runner";
import { createRunner } from "@session-ledger/runner/bridge";
import { ToolBridge } from "./agent.ts";

const { LEDGER_GRPC: address = "127.0.0.1:9000" } = process.env;
const sessionId = `tools-${Date.now()}`;
const runner = createRunner(new ToolBridge(), { address, sessionId, onProblem: console.error });
const running = runner.run();

const client = createLedgerClient({ address });
for (const payload of ["What is 6 times 7?", "What is the time?"]) {
  await client.call(ledger.pushSessionMessage, { sessionId, eventType: "user", payload });
  await nextAnswer();
}
await runner.stop();
await running;
client.close();

/** The answer is a message for people, like the question. */
async function nextAnswer(): Promise<void> {
  const { messageSeq } = await client.call(ledger.getSession, { id: sessionId });
  const after = messageSeq - 1n;
  const stream = "messages";
  for await (const { eventType, payload } of readSession({
    address,
    sessionId,
    stream,
    after,
    follow: true,
  })) {
    if (eventType !== "lifecycle") console.log(`${eventType}: ${payload}`);
    if (eventType === "assistant") return;
  }
}
