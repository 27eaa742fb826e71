/** Runs an agent with a tool, shows its answer by tokens, and prints what the ledger has of it. */
import { Agent, setTracingDisabled, tool } from "@openai/agents-core";
import {
  assistantMessage,
  functionCall,
  modelStream,
  ScriptedModel,
} from "@openai/agents-core/testing";
import { createLedgerClient, ledger } from "@session-ledger/runner";
import { recordedRun } from "./record.ts";

const { LEDGER_GRPC: address = "127.0.0.1:9000" } = process.env;
const sessionId = `agents-${Date.now()}`;
setTracingDisabled(true);

const clock = tool({
  name: "clock",
  description: "The time.",
  parameters: { type: "object", properties: {}, required: [], additionalProperties: false },
  execute: () => "12:00",
});

/** A real agent asks a model; this one has two responses. */
const model = new ScriptedModel([
  response(["Let me ", "look."], functionCall("clock", {}, { callId: "c1" })),
  response(["It is ", "noon."]),
]);

function response(tokens: readonly string[], ...calls: ReturnType<typeof functionCall>[]) {
  const usage = { inputTokens: 1, outputTokens: tokens.length, totalTokens: tokens.length + 1 };
  const output = [assistantMessage(tokens.join("")), ...calls];
  return modelStream([
    { type: "response_started" },
    ...tokens.map((delta) => ({ type: "output_text_delta" as const, delta })),
    { type: "response_done", response: { id: "response", usage, output } },
  ]);
}

const agent = new Agent({ name: "Ann", model, tools: [clock] });
for await (const event of recordedRun(agent, "What is the time?", { address, sessionId })) {
  if (event.type === "raw_model_stream_event" && event.data.type === "output_text_delta")
    process.stdout.write(event.data.delta);
}
console.log();

const client = createLedgerClient({ address });
const { messages } = await client.call(ledger.getTranscript, { sessionId });
for (const { role, content } of JSON.parse(messages)) console.log(`${role}: ${content}`);
client.close();
