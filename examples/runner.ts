import { createLedgerClient, ledger, readSession } from "../src/runner/index.ts"; // In a package: session-ledger/runner

const [, , sessionId = "talk", address = "127.0.0.1:9000"] = process.argv;
const client = createLedgerClient({ address });
// The service may be away for ten minutes. A call is safe to repeat, because each push has a key.
const retry = { retryForMs: 600_000, onRetry: (error: Error) => console.error(error.message) };

// The runner reads its own messages too; it answers only those of a person.
const read = { address, sessionId, stream: "messages", follow: true, ...retry } as const;
for await (const { id, seq, eventType, payload } of readSession(read)) {
  if (eventType !== "user") continue;
  const [runId, messageId] = [`run-${seq}`, `answer-${seq}`];
  const push = (type: string, fields: object) => {
    const event = { eventType: type, payload: JSON.stringify(fields) };
    const request = { sessionId, ...event, idempotencyKey: `${runId}/${type}` };
    return client.call(ledger.pushSessionEvent, request, retry);
  };
  const answer = `You said: ${payload}`; // Here an agent would think.
  const said = { id, role: "user", content: payload };
  const input = { threadId: sessionId, runId, messages: [said], tools: [], context: [] };
  await push("RUN_STARTED", { threadId: sessionId, runId, input });
  await push("TEXT_MESSAGE_START", { messageId, role: "assistant" });
  await push("TEXT_MESSAGE_CONTENT", { messageId, delta: answer });
  await push("TEXT_MESSAGE_END", { messageId });
  const message = { sessionId, eventType: "assistant", payload: answer, idempotencyKey: messageId };
  await client.call(ledger.pushSessionMessage, message, retry);
  await push("RUN_FINISHED", { threadId: sessionId, runId });
}
