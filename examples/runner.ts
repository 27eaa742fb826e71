import { createLedgerClient, createSessionWriter, ledger, textOf } from "../src/runner/index.ts"; // In a package: session-ledger/runner

const [, , sessionId = "talk", address = "127.0.0.1:9000"] = process.argv;
const epoch = BigInt(Date.now()); // Higher at each start: this runner takes over from a lost one.
const client = createLedgerClient({ address });
const own = { address, sessionId, epoch, lifecycleMessages: false };
const writer = createSessionWriter({ ...own, onProblem: console.error });
// The service may be away for ten minutes. A repeated claim has the same runId, and so the same answer.
const onRetry = (error: Error) => console.error(error.message);
const retry = { deadlineMs: 70_000, retryForMs: 600_000, onRetry };

async function* agent(questions: readonly string[], signal: AbortSignal) {
  // Here an agent would think: it gets the signal, and stops when somebody cancels the run.
  for (const text of ["You said: ", questions.join("\n")]) if (!signal.aborted) yield text;
}

for (;;) {
  const [runId, messageId] = [crypto.randomUUID(), crypto.randomUUID()];
  const run = { sessionId, producerEpoch: epoch, runStarted: JSON.stringify({ runId }) };
  const claim = { ...run, redeliver: true, wait: { seconds: 60n } };
  const { runStarted, messages } = await client.call(ledger.claimTurn, claim, retry);
  if (runStarted === undefined) continue; // No message came for a minute.
  const [questions, signal] = [messages.map(textOf), writer.runSignal(runId)];
  const part = { type: "TEXT_MESSAGE_CHUNK", messageId, role: "assistant" };
  for await (const delta of agent(questions, signal)) writer.event({ ...part, delta });
  const outcome = { type: signal.aborted ? "cancelled" : "success" };
  writer.event({ type: "RUN_FINISHED", threadId: sessionId, runId, outcome });
  await writer.flush({ timeoutMs: retry.retryForMs });
}
