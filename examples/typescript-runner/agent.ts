/** An agent with two tools. A real one asks a model; this one reads the question itself. */
import {
  type AgentEvent,
  capabilitiesOf,
  PlatformBridge,
  type RunInput,
} from "@session-ledger/runner/bridge";

const TOOLS = {
  clock: () => "noon",
  multiply: (a: number, b: number) => String(a * b),
};

export class ToolBridge extends PlatformBridge {
  createAdapter() {
    return { run: answer };
  }

  capabilities() {
    return capabilitiesOf({ framework: "example" });
  }
}

async function* answer({ messages, runId }: RunInput): AsyncGenerator<AgentEvent> {
  const question = JSON.stringify(messages.at(-1)?.["content"]);
  const [, a, b] = /(\d+) times (\d+)/.exec(question) ?? [];
  const isProduct = a !== undefined && b !== undefined;
  const toolCallName = isProduct ? "multiply" : "clock";
  const toolCallId = `call-${runId}`;
  const delta = JSON.stringify(isProduct ? { a: Number(a), b: Number(b) } : {});
  yield { type: "TOOL_CALL_START", toolCallId, toolCallName };
  yield { type: "TOOL_CALL_ARGS", toolCallId, delta };
  yield { type: "TOOL_CALL_END", toolCallId };
  const content = isProduct ? TOOLS.multiply(Number(a), Number(b)) : TOOLS.clock();
  yield { type: "TOOL_CALL_RESULT", messageId: `result-${runId}`, toolCallId, content };
  const messageId = `answer-${runId}`;
  yield { type: "TEXT_MESSAGE_START", messageId, role: "assistant" };
  for (const word of ["It", " is", ` ${content}.`])
    yield { type: "TEXT_MESSAGE_CONTENT", messageId, delta: word };
  yield { type: "TEXT_MESSAGE_END", messageId };
}
