/**
 * A runner in a process of its own that a test may kill. It prints a line when a tool is called.
 *
 *   node test/frameworks/killed-runner.ts <player> <address> <session> <file>
 *
 * Each answer is a call of a tool, and a text. A CUSTOM `asked` tells what the agent was asked.
 */
import { z } from "zod";
import type { AgentEvent, RunInput } from "@session-ledger/runner/internal/sdk/bridge";
import { createRunner } from "@session-ledger/runner/internal/sdk/loop";
import type { Middleware } from "@session-ledger/runner/internal/sdk/middleware/middleware";
import type { Player, Step } from "./players/script.ts";

const ANSWERS_MAX = 20;
const TOOL_MS = 60;

/** Only one framework is loaded. */
const PLAYERS: Readonly<Record<string, () => Promise<Player>>> = {
  agui: async () => (await import("./players/agui.ts")).AGUI_1,
  "ai-sdk": async () => (await import("./players/ai-sdk.ts")).AI_SDK,
  langgraph: async () => (await import("./players/langgraph.ts")).LANGGRAPH,
  claude: async () => (await import("./players/claude.ts")).CLAUDE,
};

const [, , name = "", address = "", sessionId = "", file = ""] = process.argv;

function answer(): readonly Step[] {
  const id = crypto.randomUUID();
  return [
    {
      beats: [{ text: "I look" }, { call: id }, { args: "{}", of: id }],
      tools: { [id]: { result: "found", takesMs: TOOL_MS } },
    },
    { beats: [{ text: "Done" }] },
  ];
}

const asked: Middleware = async function* (events, { input }) {
  for await (const event of events) {
    yield event;
    if (event.type === "RUN_STARTED") yield askedOf(input);
  }
};

function askedOf({ messages }: RunInput): AgentEvent {
  const parts = z.array(z.object({ text: z.string() })).or(z.string());
  const content = parts.parse(messages.at(-1)?.["content"]);
  const value = typeof content === "string" ? content : content.at(-1)?.text;
  return { type: "CUSTOM", name: "asked", value };
}

const player = await PLAYERS[name]?.();
if (player === undefined) throw new Error(`no player has the name ${name}`);
const steps = Array.from({ length: ANSWERS_MAX }, answer).flat();
const bridge = await player.bridge(steps, {
  called: () => process.stdout.write("called\n"),
});
const options = { address, sessionId, spool: { file }, messagesMax: 1, middleware: [asked] };
await createRunner(bridge, options).run();
