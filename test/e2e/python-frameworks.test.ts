/**
 * Runs of LangGraph and Pydantic AI with their own fake models, recorded by the Python package: what is
 * stored is a stream that AG-UI clients accept, and the conversation that a person reads.
 */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { verifyEvents } from "@ag-ui/client";
import { EventType } from "@ag-ui/core";
import { from, lastValueFrom, toArray } from "rxjs";
import { describe, expect, test, type TestContext } from "vitest";
import { z } from "zod";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { newSession } from "../support/pushing.ts";
import { eventsOf } from "../support/push-stream.ts";
import { useService } from "../support/use-service.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
/** Made by .ci/run: the package, and test/python/requirements.txt. */
const PYTHON = join(ROOT, "clients/python/.venv-frameworks/bin/python");

const { service, client } = useService();

describe("LangGraph", () => {
  test.for(["invoke", "stream", "astream"])("records a graph by %s", async (name, { skip }) => {
    const { types, events, messages } = await recorded({ skip }, "langgraph_agent.py", name);
    expect(withoutText(types)).toEqual([
      "RUN_STARTED",
      "STEP_STARTED",
      "TOOL_CALL_START",
      "TOOL_CALL_ARGS",
      "TOOL_CALL_END",
      "STEP_FINISHED",
      "STEP_STARTED",
      "CUSTOM",
      "TOOL_CALL_RESULT",
      "STEP_FINISHED",
      "STEP_STARTED",
      "STEP_FINISHED",
      "RUN_FINISHED",
    ]);
    expect(events).toContainEqual(
      expect.objectContaining({ type: "RUN_STARTED", threadId: "thread-1" }),
    );
    expect(events).toContainEqual(
      expect.objectContaining({ toolCallId: "call-weather", content: "Sunny in Oslo" }),
    );
    // A streamed text comes in pieces.
    const pieces = types.filter((type) => type === "TEXT_MESSAGE_CONTENT").length;
    expect(pieces > 1).toBe(name !== "invoke");
    expect(messages).toEqual([
      ["user", "What is the weather?"],
      ["lifecycle", { event: "run_started" }],
      ["tool_use", { tool: "weather", tool_call_id: "call-weather", input: { city: "Oslo" } }],
      ["system", { custom_event: "looked_up", value: { city: "Oslo" } }],
      ["tool_result", { tool_call_id: "call-weather", result: "Sunny in Oslo" }],
      ["assistant", "It is sunny in Oslo."],
      ["lifecycle", { event: "run_finished" }],
    ]);
  });

  test("records the error of a tool, and of the run", async ({ skip }) => {
    const { events } = await recorded({ skip }, "langgraph_agent.py", "fail");
    expect(events).toContainEqual(
      expect.objectContaining({
        type: "TOOL_CALL_RESULT",
        content: "ValueError: no such city",
      }),
    );
    expect(events.at(-1)).toMatchObject({ type: "RUN_ERROR", message: "no such city" });
  });

  test("records an interrupt, and the run that answers it", async ({ skip }) => {
    const { types, events } = await recorded({ skip }, "langgraph_agent.py", "resume");
    const ends = events.filter(({ type }) => type === "RUN_FINISHED");
    expect(ends).toMatchObject([
      {
        outcome: {
          type: "interrupt",
          interrupts: [
            {
              reason: "langgraph:interrupt",
              metadata: { value: { question: "Which city?" } },
            },
          ],
        },
      },
      { outcome: { type: "success" } },
    ]);
    expect(types.filter((type) => type === "TOOL_CALL_START")).toHaveLength(1);
    expect(types.filter((type) => type === "TOOL_CALL_RESULT")).toHaveLength(1);
  });

  test("ends a run that is cancelled, while its model speaks", async ({ skip }) => {
    // Bug: the cancel was answered OK, and the model went on.
    const { events } = await recorded({ skip }, "langgraph_agent.py", "cancel");
    expect(events.at(-1)).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "cancelled" } });
  });

  test("records a graph as the run of a claimed turn", async ({ skip }) => {
    const { types, messages } = await recorded({ skip }, "langgraph_agent.py", "turn");
    expect(types.filter((type) => type.startsWith("RUN_"))).toEqual([
      "RUN_STARTED",
      "RUN_FINISHED",
    ]);
    expect(messages.map(([type]) => type)).toEqual([
      "user",
      "tool_use",
      "system",
      "tool_result",
      "assistant",
    ]);
  });
});

describe("Pydantic AI", () => {
  test("records thinking, a tool call, and the answer as they come", async ({ skip }) => {
    const { types, messages } = await recorded({ skip }, "pydantic_agent.py", "run");
    expect(types).toEqual([
      "RUN_STARTED",
      "REASONING_START",
      "REASONING_MESSAGE_START",
      "REASONING_MESSAGE_CONTENT",
      "REASONING_MESSAGE_CONTENT",
      "REASONING_MESSAGE_END",
      "REASONING_END",
      "TOOL_CALL_START",
      "TOOL_CALL_ARGS",
      "TOOL_CALL_ARGS",
      "TOOL_CALL_END",
      "TOOL_CALL_RESULT",
      "TEXT_MESSAGE_START",
      "TEXT_MESSAGE_CONTENT",
      "TEXT_MESSAGE_CONTENT",
      "TEXT_MESSAGE_CONTENT",
      "TEXT_MESSAGE_END",
      "RUN_FINISHED",
    ]);
    expect(messages).toEqual([
      ["user", "What is the weather?"],
      ["lifecycle", { event: "run_started" }],
      ["tool_use", { tool: "weather", tool_call_id: "call-1", input: { city: "Oslo" } }],
      ["tool_result", { tool_call_id: "call-1", result: "Sunny in Oslo" }],
      ["assistant", "It is sunny in Oslo."],
      ["lifecycle", { event: "run_finished" }],
    ]);
  });

  test("records a run of the package's test model", async ({ skip }) => {
    const { messages } = await recorded({ skip }, "pydantic_agent.py", "test_model");
    expect(messages.map(([type]) => type)).toEqual([
      "user",
      "lifecycle",
      "tool_use",
      "tool_result",
      "assistant",
      "lifecycle",
    ]);
    expect(messages).toContainEqual(["assistant", "Done."]);
  });

  test("records the error of a run", async ({ skip }) => {
    const { events } = await recorded({ skip }, "pydantic_agent.py", "fail");
    expect(events.at(-1)).toMatchObject({ type: "RUN_ERROR", message: "no such city" });
  });

  test("ends a run that is cancelled, while its model speaks", async ({ skip }) => {
    // Bug: the cancel was answered OK, and the model went on.
    const { events } = await recorded({ skip }, "pydantic_agent.py", "cancel");
    expect(events.at(-1)).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "cancelled" } });
  });

  test("records a call that needs an approval as an interrupt", async ({ skip }) => {
    const { events } = await recorded({ skip }, "pydantic_agent.py", "approve");
    expect(events.at(-1)).toMatchObject({
      type: "RUN_FINISHED",
      outcome: { type: "interrupt", interrupts: [{ id: "call-1", toolCallId: "call-1" }] },
    });
  });
});

/** The service has checked all other members. */
const eventSchema = z.looseObject({ type: z.enum(EventType) });

interface Recorded {
  readonly types: readonly string[];
  readonly events: readonly { readonly type: string }[];
  readonly messages: readonly (readonly [string, unknown])[];
}

/** Each program runs once: importing a framework takes longer than its runs. */
const programs = new Map<string, Promise<string>>();

async function run(program: string): Promise<string> {
  const prefix = newSession();
  const args = [join(ROOT, "test/python", program), service.grpcAddress, prefix];
  const { stdout, stderr } = await promisify(execFile)(PYTHON, args);
  expect(stdout + stderr).toBe("");
  return prefix;
}

/** The session of one case of the program. Checks its events with the AG-UI client. */
async function recorded(
  { skip }: Pick<TestContext, "skip">,
  program: string,
  name: string,
): Promise<Recorded> {
  if (!existsSync(PYTHON)) {
    const advice = `there is no ${PYTHON}: .ci/run makes it`;
    if (process.env["REQUIRE_TOOLS"] === "1") throw new Error(advice);
    skip(advice);
  }
  const running = programs.get(program) ?? run(program);
  programs.set(program, running);
  const sessionId = `${await running}-${name}`;
  // A model that speaks until it is stopped may fill many pages.
  const rows = await eventsOf(client, sessionId, { expand: true });
  const events = rows.map(({ payload }) => eventSchema.parse(JSON.parse(payload)));
  await lastValueFrom(verifyEvents(false)(from(events)).pipe(toArray()));
  const page = { sessionId, pageSize: 1_000 };
  const listed = await client.unary(SessionService.method.listSessionMessages, page);
  return {
    events,
    types: events.map(({ type }) => type),
    messages: listed.items.map(({ eventType, payload }) => [eventType, valueOf(payload)]),
  };
}

function valueOf(payload: string): unknown {
  return payload.startsWith("{") ? JSON.parse(payload) : payload;
}

/** Arguments in pieces count once. */
function withoutText(types: readonly string[]): readonly string[] {
  return types
    .filter((type) => !type.startsWith("TEXT_MESSAGE_"))
    .filter((type, at, all) => type !== "TOOL_CALL_ARGS" || all[at - 1] !== type);
}
