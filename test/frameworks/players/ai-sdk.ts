import { isStepCount, jsonSchema, streamText, tool } from "ai";
import { convertArrayToReadableStream, MockLanguageModelV4 } from "ai/test";
import { AiSdkBridge, type AiSdkPart } from "@session-ledger/runner/ai-sdk";
import { callsOf, type Player, type Step, steps, TOOL, toolOf, answerOf } from "./script.ts";

type Part =
  Awaited<ReturnType<MockLanguageModelV4["doStream"]>>["stream"] extends ReadableStream<infer P>
    ? P
    : never;

const USAGE = {
  inputTokens: { total: 7, noCache: 7, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 5, text: 5, reasoning: 0 },
};

export const AI_SDK: Player = {
  name: "ai-sdk",
  bridge(list, probe) {
    const next = steps(list);
    const toolsOf = (callId: string) => {
      const step = list.find((one) => one.tools?.[callId] !== undefined);
      return toolOf(step ?? { beats: [] }, callId);
    };
    const model = new MockLanguageModelV4({
      doStream: async () => ({ stream: convertArrayToReadableStream(partsOf(next())) }),
    });
    const lookup = tool({
      inputSchema: jsonSchema({ type: "object" }),
      needsApproval: (_, { toolCallId }) => "asks" in toolsOf(toolCallId),
      execute: (_, { toolCallId, abortSignal: signal }) =>
        answerOf(toolsOf(toolCallId), toolCallId, { probe, signal }),
    });
    const isTacit = list.some((step) => step.isTacit === true);
    return new AiSdkBridge(({ messages, abortSignal }) => {
      const { stream } = streamText({
        model,
        messages,
        abortSignal,
        tools: { [TOOL]: lookup },
        stopWhen: isStepCount(9),
        maxRetries: 0,
        onError: () => {},
      });
      return { stream: isTacit ? withoutCalls(stream) : stream };
    });
  },
};

async function* withoutCalls(stream: AsyncIterable<AiSdkPart>): AsyncGenerator<AiSdkPart> {
  for await (const part of stream) {
    if (part.type !== "tool-input-end" && part.type !== "tool-call") yield part;
  }
}

function partsOf(step: Step): Part[] {
  const parts: Part[] = [
    { type: "stream-start", warnings: [] },
    { type: "response-metadata", modelId: "mock" },
  ];
  const open = new Map<string, Part>();
  for (const beat of step.beats) {
    if ("text" in beat) {
      if (!open.has("0")) parts.push({ type: "text-start", id: "0" });
      open.set("0", { type: "text-end", id: "0" });
      parts.push({ type: "text-delta", id: "0", delta: beat.text });
    }
    if ("think" in beat) {
      if (!open.has("r")) parts.push({ type: "reasoning-start", id: "r" });
      open.set("r", { type: "reasoning-end", id: "r" });
      parts.push({ type: "reasoning-delta", id: "r", delta: beat.think });
    }
    if ("call" in beat) parts.push({ type: "tool-input-start", id: beat.call, toolName: TOOL });
    if ("of" in beat) parts.push({ type: "tool-input-delta", id: beat.of, delta: beat.args });
  }
  if (step.fails !== undefined) return [...parts, { type: "error", error: new Error(step.fails) }];
  const calls = callsOf(step).flatMap(({ id, args }): Part[] => [
    { type: "tool-input-end", id },
    { type: "tool-call", toolCallId: id, toolName: TOOL, input: args },
  ]);
  const unified = calls.length > 0 ? "tool-calls" : "stop";
  const finish: Part = { type: "finish", usage: USAGE, finishReason: { unified, raw: undefined } };
  return [...parts, ...open.values(), ...calls, finish];
}
