/**
 * A runner of the SDK in its own process that a test may kill. It prints a line of JSON for each event
 * of the agent, before the event is written.
 *
 *   node test/support/sdk-runner-process.ts <address> <session> <file of the spool> [<module>]
 *
 * A module has the bridge as `bridge`. Without one, the agent calls a tool of TOOL_MS milliseconds, and
 * then answers. Without a session it is a pool, and RUNNER_NAME its name.
 */
import { pathToFileURL } from "node:url";
import {
  type AgentEvent,
  PlatformBridge,
  type RunInput,
} from "@session-ledger/runner/internal/sdk/bridge";
import { createRunner } from "@session-ledger/runner/internal/sdk/loop";
import { lastText, saying, TestBridge } from "./echo-bridge.ts";
import { pace } from "./eventually.ts";

const [, , address = "", sessionId = "", file = "", module] = process.argv;
const { TOOL_MS = "5", RUNNER_NAME: name } = process.env;

async function* agent(input: RunInput): AsyncGenerator<AgentEvent, void, undefined> {
  const toolCallId = `call-${input.runId}`;
  yield { type: "TOOL_CALL_START", toolCallId, toolCallName: "look" };
  for (const delta of ['{"about":', JSON.stringify(lastText(input)), "}"]) {
    yield { type: "TOOL_CALL_ARGS", toolCallId, delta };
  }
  yield { type: "TOOL_CALL_END", toolCallId };
  await pace(Number(TOOL_MS));
  const messageId = `result-${input.runId}`;
  yield { type: "TOOL_CALL_RESULT", messageId, toolCallId, content: "found" };
  yield* saying(input, `I found ${lastText(input)}`);
}

async function bridgeOf(): Promise<PlatformBridge> {
  if (module === undefined) return new TestBridge(agent);
  const { bridge }: { bridge?: unknown } = await import(pathToFileURL(module).href);
  if (!(bridge instanceof PlatformBridge)) throw new Error(`${module} has no bridge`);
  return bridge;
}

const print = (value: unknown): void => void process.stdout.write(`${JSON.stringify(value)}\n`);

const runner = createRunner(await bridgeOf(), {
  address,
  ...(sessionId !== "" && { sessionId }),
  ...(name !== undefined && { name }),
  spool: { file },
  onProblem: (problem) => print({ problem }),
  middleware: [
    async function* (events) {
      for await (const event of events) {
        print(event.type);
        yield event;
      }
    },
  ],
});
await (sessionId === "" ? runner.pool() : runner.run());
print("left");
