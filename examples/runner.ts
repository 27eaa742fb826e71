import { createRunner, promptsOf, type RunInput } from "@session-ledger/runner/bridge";

async function* agent(input: RunInput) {
  // Here an agent would think, and yield each piece as it comes.
  yield `You said: ${promptsOf(input).join("\n")}`;
}

const [, , sessionId = "talk", address = "127.0.0.1:9000"] = process.argv;
const runner = createRunner(agent, { address, sessionId, onProblem: console.error });
await runner.run().catch((error: Error) => {
  console.error(error.message); // A later runner has taken over, for example.
  process.exitCode = 1;
});
