import { capabilitiesOf, createRunner, PlatformBridge } from "@session-ledger/runner/bridge";
import { promptsOf, type RunInput } from "@session-ledger/runner/bridge";

const [, , sessionId = "talk", address = "127.0.0.1:9000"] = process.argv;

async function* agent(questions: readonly string[], signal: AbortSignal) {
  // Here an agent would think: it gets the signal, and stops when somebody cancels the run.
  for (const text of ["You said: ", questions.join("\n")]) if (!signal.aborted) yield text;
}

async function* answer(input: RunInput, signal: AbortSignal) {
  const part = { type: "TEXT_MESSAGE_CHUNK", messageId: input.runId, role: "assistant" };
  for await (const delta of agent(promptsOf(input), signal)) yield { ...part, delta };
}

class MyBridge extends PlatformBridge {
  createAdapter() {
    return { run: answer };
  }
  capabilities() {
    return capabilitiesOf({ framework: "none" });
  }
}

const runner = createRunner(new MyBridge(), { address, sessionId, onProblem: console.error });
await runner.run().catch((error: Error) => {
  console.error(error.message); // A later runner has taken over, for example.
  process.exitCode = 1;
});
