/**
 * The Claude Agent SDK itself, with a stub of the model's API on loopback. Its program is an optional
 * package of 364 MB: `npm ci --prefix test/frameworks --include=optional` brings it, else the test is
 * skipped.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { json } from "node:stream/consumers";
import { getSessionInfo, query } from "@anthropic-ai/claude-agent-sdk";
import { afterAll, expect, test } from "vitest";
import { z } from "zod";
import type { AgentEvent, RunInput } from "@session-ledger/runner/internal/sdk/bridge";
import { ClaudeBridge, claudeSessionOf } from "@session-ledger/runner/claude";

const folder = mkdtempSync(join(tmpdir(), "session-ledger-claude-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const requestSchema = z.object({ model: z.string(), messages: z.array(z.unknown()) });

/** Calls a tool first, then answers. */
class StubModel {
  readonly requests: z.infer<typeof requestSchema>[] = [];

  async respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (request.url?.startsWith("/v1/messages?") !== true) {
      response.writeHead(404).end();
      return;
    }
    const asked = requestSchema.parse(await json(request));
    this.requests.push(asked);
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const event of this.#events(asked.model)) {
      response.write(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
    }
    response.end();
  }

  #events(model: string): readonly { readonly type: string }[] {
    const calls = this.requests.length === 1;
    const usage = { input_tokens: 3, output_tokens: 5 };
    const message = {
      id: `msg_${this.requests.length}`,
      type: "message",
      role: "assistant",
      model,
    };
    const end = { stop_reason: calls ? "tool_use" : "end_turn", stop_sequence: null };
    return [
      {
        type: "message_start",
        message: { ...message, content: [], stop_reason: null, stop_sequence: null, usage },
      },
      {
        type: "content_block_start",
        index: 0,
        content_block: calls
          ? { type: "tool_use", id: "toolu_1", name: "Bash", input: {} }
          : { type: "text", text: "" },
      },
      {
        type: "content_block_delta",
        index: 0,
        delta: calls
          ? { type: "input_json_delta", partial_json: '{"command":"echo found"}' }
          : { type: "text_delta", text: "Done" },
      },
      { type: "content_block_stop", index: 0 },
      { type: "message_delta", delta: end, usage: { output_tokens: 5 } },
      { type: "message_stop" },
    ].map((event) => ({ ...event }));
  }
}

const isInstalled = (() => {
  try {
    import.meta.resolve(
      `@anthropic-ai/claude-agent-sdk-${process.platform}-${process.arch}/package.json`,
    );
    return true;
  } catch {
    return false;
  }
})();

test.skipIf(!isInstalled)(
  "the Claude Agent SDK asks for an approval, and another bridge continues with the answer",
  async () => {
    const model = new StubModel();
    const server = createServer((request, response) => void model.respond(request, response));
    server.listen(0, "127.0.0.1").unref();
    await once(server, "listening");
    const { port } = z.object({ port: z.number() }).parse(server.address());
    // The SDK looks for its sessions there too, in this process.
    process.env["CLAUDE_CONFIG_DIR"] = folder;
    const bridge = () =>
      new ClaudeBridge({
        query,
        getSessionInfo,
        needsApproval: (tool) => tool === "Bash",
        options: {
          cwd: folder,
          model: "claude-sonnet-4-5",
          settingSources: [],
          env: {
            PATH: process.env["PATH"],
            HOME: folder,
            CLAUDE_CONFIG_DIR: folder,
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
            ANTHROPIC_BASE_URL: `http://127.0.0.1:${port}`,
            ANTHROPIC_API_KEY: "stub",
          },
        },
      });
    const asked = await run(bridge(), [{ id: "u1", role: "user", content: "question" }]);
    expect(asked.map(({ type }) => type)).toEqual([
      "TOOL_CALL_START",
      "TOOL_CALL_ARGS",
      "TOOL_CALL_END",
      "RUN_FINISHED",
    ]);
    expect(asked.at(-1)).toMatchObject({
      outcome: { type: "interrupt", interrupts: [{ id: "toolu_1" }] },
    });
    expect(await getSessionInfo(claudeSessionOf("s"))).toBeDefined();
    const answer = {
      interruptId: "toolu_1",
      status: "resolved",
      payload: { approved: true },
    } as const;
    const answered = await run(bridge(), [], [answer]);
    expect(answered).toMatchObject([
      { type: "TOOL_CALL_RESULT", toolCallId: "toolu_1", content: "found" },
      { type: "TEXT_MESSAGE_START" },
      { type: "TEXT_MESSAGE_CONTENT", delta: "Done" },
      { type: "TEXT_MESSAGE_END" },
      { type: "RUN_FINISHED", usage: [{ inputTokens: 3, outputTokens: 5 }] },
    ]);
    server.closeAllConnections();
    server.close();
  },
);

async function run(
  bridge: ClaudeBridge,
  messages: RunInput["messages"],
  resume?: NonNullable<RunInput["resume"]>,
): Promise<AgentEvent[]> {
  const ids = { threadId: "s", runId: "r" };
  const input = { ...ids, messages, tools: [], context: [], ...(resume && { resume }) };
  const events: AgentEvent[] = [];
  for await (const event of bridge.run(input, { sessionId: "s", isContinuation: false })) {
    events.push(event);
  }
  return events;
}
