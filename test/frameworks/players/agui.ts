import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { json } from "node:stream/consumers";
import { z } from "zod";
import type { AgentEvent } from "@session-ledger/runner/internal/sdk/bridge";
import { AguiBridge } from "@session-ledger/runner/agui";
import { HTTP_AGENTS } from "../../support/agui-clients.ts";
import {
  answerOf,
  callsOf,
  type Player,
  type Probe,
  type Step,
  steps,
  TOOL,
  toolOf,
} from "./script.ts";

const inputSchema = z.object({
  threadId: z.string(),
  runId: z.string(),
  resume: z.array(z.object({ payload: z.unknown() })).optional(),
});

/** An endpoint on loopback that speaks AG-UI, and HttpAgent. A TOOL_CALL_END comes with its result. */
function agui(version: keyof typeof HTTP_AGENTS): Player {
  const bridge: Player["bridge"] = async (list, probe) => {
    const agent = new Agent(steps(list), probe);
    const server = createServer(
      (request, response) => void respond(agent, request, response).catch(() => undefined),
    );
    server.listen(0, "127.0.0.1").unref();
    await once(server, "listening");
    const { port } = z.object({ port: z.number() }).parse(server.address());
    return new AguiBridge(() => new HTTP_AGENTS[version]({ url: `http://127.0.0.1:${port}/` }));
  };
  return { name: `agui, @ag-ui/client ${version}`, bridge };
}

export const AGUI_1 = agui("1.0.0");
export const AGUI_0 = agui("0.0.59");

async function respond(
  agent: Agent,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const input = inputSchema.parse(await json(request));
  response.writeHead(200, { "content-type": "text/event-stream" });
  const closed = new AbortController();
  response.on("close", () => closed.abort());
  for await (const event of agent.run(input, closed.signal)) {
    response.write(`data: ${JSON.stringify(event)}\n\n`);
  }
  response.end();
}

class Agent {
  readonly #next: () => Step;
  readonly #probe: Probe | undefined;
  #asked: Step | undefined;

  constructor(next: () => Step, probe: Probe | undefined) {
    this.#next = next;
    this.#probe = probe;
  }

  async *run(
    { threadId, runId, resume }: z.infer<typeof inputSchema>,
    signal: AbortSignal,
  ): AsyncGenerator<AgentEvent> {
    yield { type: "RUN_STARTED", threadId, runId };
    const [answer] = resume ?? [];
    const isApproved = JSON.stringify(answer?.payload) === JSON.stringify({ approved: true });
    for (let asked = this.#asked; ; asked = undefined) {
      const step = asked ?? this.#next();
      if (asked === undefined) yield* said(step);
      if (step.fails !== undefined) {
        yield { type: "RUN_ERROR", message: step.fails };
        return;
      }
      const calls = callsOf(step);
      const interrupts: object[] = [];
      for (const { id } of calls) {
        const tool = toolOf(step, id);
        const end: AgentEvent = { type: "TOOL_CALL_END", toolCallId: id };
        if ("asks" in tool && asked === undefined) {
          yield end;
          interrupts.push({ id, toolCallId: id, reason: "approval" });
          continue;
        }
        const content =
          "asks" in tool && !isApproved
            ? "refused"
            : await answerOf(tool, id, { probe: this.#probe, signal });
        if (asked === undefined) yield end;
        yield { type: "TOOL_CALL_RESULT", messageId: `r-${id}`, toolCallId: id, content };
      }
      this.#asked = interrupts.length > 0 ? step : undefined;
      if (interrupts.length > 0) {
        const outcome = { type: "interrupt", interrupts };
        yield { type: "RUN_FINISHED", threadId, runId, outcome };
        return;
      }
      if (calls.length === 0) {
        yield { type: "RUN_FINISHED", threadId, runId };
        return;
      }
    }
  }
}

/** What is open ends with the step, unless the model fails. */
function* said({ beats, fails }: Step): Generator<AgentEvent> {
  const messageId = crypto.randomUUID();
  const thought = crypto.randomUUID();
  const open = new Map<string, readonly AgentEvent[]>();
  const start = function* (key: string, [begin, end]: readonly (readonly AgentEvent[])[]) {
    if (!open.has(key)) yield* begin ?? [];
    open.set(key, end ?? []);
  };
  for (const beat of beats) {
    if ("text" in beat) {
      const begin: AgentEvent = { type: "TEXT_MESSAGE_START", messageId, role: "assistant" };
      yield* start("text", [[begin], [{ type: "TEXT_MESSAGE_END", messageId }]]);
      yield { type: "TEXT_MESSAGE_CONTENT", messageId, delta: beat.text };
    }
    if ("think" in beat) {
      const own = { messageId: thought };
      yield* start("think", [
        [
          { type: "REASONING_START", ...own },
          { type: "REASONING_MESSAGE_START", ...own, role: "reasoning" },
        ],
        [
          { type: "REASONING_MESSAGE_END", ...own },
          { type: "REASONING_END", ...own },
        ],
      ]);
      yield { type: "REASONING_MESSAGE_CONTENT", ...own, delta: beat.think };
    }
    if ("call" in beat) {
      const call = { toolCallId: beat.call, toolCallName: TOOL, parentMessageId: messageId };
      yield { type: "TOOL_CALL_START", ...call };
    }
    if ("of" in beat) yield { type: "TOOL_CALL_ARGS", toolCallId: beat.of, delta: beat.args };
  }
  if (fails === undefined) yield* [...open.values()].flat();
}
