/** `session-ledger demo` on a real service: what a visitor finds, and how the command ends. */
import { globSync, readFileSync, statSync } from "node:fs";
import { afterEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { SessionService, SessionState } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { demoSessions } from "../../src/demo/sessions.ts";
import { runHere } from "../support/command-line.ts";
import { push, rowsOf } from "../support/pushing.ts";
import { type Command, startCommand } from "../support/service-process.ts";
import { cancel, say } from "../support/turns.ts";
import { useService } from "../support/use-service.ts";

const { getSession, getTranscript, listSessions } = SessionService.method;
const { service, client } = useService({});

const RECORDED = [
  "demo-failed-run",
  "demo-graph",
  "demo-release",
  "demo-three-models",
  "demo-tools",
  "demo-trip",
];
const FORK = "demo-trip-fork";
const PROJECTS = ["research", "support"];
const LIVE = "demo-live";

const running = new Set<Command>();
afterEach(async () => {
  for (const command of running) command.kill("SIGKILL");
  await Promise.all([...running].map(({ result }) => result));
  running.clear();
});

function env(): Readonly<Record<string, string>> {
  return { SESSION_LEDGER_ADDRESS: service.grpcAddress };
}

function here(...args: readonly string[]) {
  return runHere(["demo", ...args], { env: env() });
}

/** The agent answers fast; a long answer lasts some seconds. */
function agent(...args: readonly string[]): Command {
  const command = startCommand(["demo", "--pace", "2ms", ...args], env());
  running.add(command);
  return command;
}

/** Everything that readers can see of the sessions, also the times of their rows. */
async function contents(): Promise<unknown> {
  const { items } = await client.unary(listSessions, { size: 100 });
  const rows = items.map(async ({ metadata, name, labels, phase }) => {
    const id = metadata?.id ?? "";
    const [events, messages] = [
      await rowsOf(client, "events", id),
      await rowsOf(client, "messages", id),
    ];
    return { id, name, labels, phase, events, messages };
  });
  return Promise.all(rows);
}

const messageSchema = z.looseObject({ id: z.string(), role: z.string() });
const interruptSchema = z.looseObject({ id: z.string(), message: z.string() });

async function conversation(sessionId: string) {
  const { messages, interrupts } = await client.unary(getTranscript, { sessionId });
  return {
    messages: z.array(messageSchema).parse(JSON.parse(messages)),
    interrupts: z.array(interruptSchema).parse(JSON.parse(interrupts)),
  };
}

async function typesOf(sessionId: string): Promise<readonly string[]> {
  return (await rowsOf(client, "events", sessionId)).map(({ eventType }) => eventType);
}

async function openRun(): Promise<string | undefined> {
  return (await client.unary(getSession, { id: LIVE })).openRunId;
}

/** The live session after its answer to the last message. */
async function untilIdle(): Promise<void> {
  const standing = async () => {
    const { waiting, openRunId } = await client.unary(getSession, { id: LIVE });
    return [waiting, openRunId];
  };
  await expect.poll(standing).toEqual([0n, undefined]);
}

/** In the middle of an answer that lasts. */
async function untilSpeaking(): Promise<void> {
  await untilIdle();
  const before = (await rowsOf(client, "events", LIVE)).length;
  await say(client, LIVE, "Give me a long answer.");
  await expect
    .poll(async () => (await typesOf(LIVE)).slice(before))
    .toContain("TEXT_MESSAGE_CONTENT");
}

/** The first question of a session, and a part of its answer. */
async function leaveHalf(): Promise<void> {
  const half = demoSessions().find(({ id }) => id === "demo-tools");
  const [turn] = half?.turns ?? [];
  const question = { payload: turn?.text ?? "", idempotencyKey: "demo:turn:0" };
  await push(client, "messages", { sessionId: "demo-tools", ...question });
  const createdAt = { seconds: BigInt(Math.floor(Date.now() / 1_000) - 7_200), nanos: 0 };
  for (const event of turn?.events.slice(0, 7) ?? []) {
    const row = { eventType: event.type, payload: JSON.stringify(event), createdAt };
    await push(client, "events", { sessionId: "demo-tools", ...row });
  }
}

test("the bundle has the licence of the recorded streams, which are small", () => {
  const chunks = globSync("dist/*.js").map((path) => readFileSync(path, "utf8"));
  const licensed = chunks.filter((text) => text.includes("Copyright (c) 2025 Namastex Labs"));
  expect(licensed.length).toBeGreaterThan(0);
  expect(statSync("src/demo/recorded.json").size).toBeLessThan(300_000);
});

describe("demo", () => {
  test("without a service ends with code 3 and names the address", async () => {
    const nobody = { SESSION_LEDGER_ADDRESS: "127.0.0.1:1" };
    const { exitCode, stderr } = await runHere(["demo", "--retry-for", "0s"], { env: nobody });
    expect(exitCode).toBe(3);
    expect(stderr).toContain("is the service running");
  });

  test("writes sessions of several agents, with a failed run, an interrupt and times in the past", async () => {
    await leaveHalf();
    const beforeMs = Date.now();
    const { exitCode, stderr } = await here("--no-agent");
    expect([exitCode, stderr]).toEqual([
      0,
      "session-ledger: recorded sessions: 8 written, 0 stored before\n",
    ]);
    const { items } = await client.unary(listSessions, { size: 100, facts: true });
    const without = items.filter(({ projectId = "" }) => projectId === "");
    const ids = new Set(without.map(({ metadata }) => metadata?.id));
    expect(ids).toEqual(new Set([...RECORDED, FORK]));
    const made = items.filter(({ projectId = "" }) => projectId !== "");
    expect(new Set(made.map(({ projectId }) => projectId))).toEqual(new Set(PROJECTS));
    expect(new Set(made.map(({ agentId }) => agentId))).toEqual(new Set(["analyst", "clerk"]));
    const asking = await client.unary(listSessions, { state: SessionState.WAITING_FOR_PERSON });
    expect(asking.items.flatMap(({ questions }) => questions.map((one) => one.toolName))).toEqual(
      expect.arrayContaining(["deploy", "refund_order"]),
    );
    expect(await typesOf("demo-failed-run")).toContain("RUN_ERROR");
    expect((await conversation("demo-release")).interrupts).toHaveLength(1);
    for (const id of RECORDED) {
      const times = (await rowsOf(client, "events", id))
        .filter(({ eventType }) => eventType !== "META")
        .map(({ createdAt }) => Number(createdAt?.seconds));
      expect(times).toEqual(times.toSorted((one, other) => one - other));
      expect((times.at(-1) ?? 0) * 1_000).toBeLessThan(beforeMs - 60_000);
      // The question stands before its answer.
      expect((await conversation(id)).messages[0]?.role).toBe("user");
    }
  });

  test("has written the rest of a session that an interrupted demo had left", async () => {
    for (const { id, turns, liked } of demoSessions().filter(({ id: one }) =>
      RECORDED.includes(one),
    )) {
      const events = turns.flatMap((turn) => turn.events).length + (liked === undefined ? 0 : 1);
      const { eventSeq, labels } = await client.unary(getSession, { id });
      expect([id, eventSeq, labels]).toEqual([id, BigInt(events), '{"demo":"yes"}']);
      const messages = await rowsOf(client, "messages", id);
      const asked = messages.filter(({ eventType }) => eventType === "user");
      expect(asked.map(({ payload }) => payload)).toEqual(turns.map(({ text }) => text));
    }
  });

  test("changes nothing when it runs again", async () => {
    const before = await contents();
    const { exitCode, stderr } = await here("--no-agent");
    expect([exitCode, stderr]).toEqual([
      0,
      "session-ledger: recorded sessions: 0 written, 8 stored before\n",
    ]);
    expect(await contents()).toEqual(before);
  });

  test("answers the message of a visitor with reasoning, a tool, state and words", async () => {
    agent();
    await expect.poll(() => conversation(LIVE).catch(() => undefined)).toBeDefined();
    await untilIdle();
    const before = (await rowsOf(client, "events", LIVE)).length;
    await say(client, LIVE, "Is <b>anybody</b> there?");
    await untilIdle();
    const answered = (await typesOf(LIVE)).slice(before);
    const parts = ["REASONING_MESSAGE_CONTENT", "TOOL_CALL_RESULT", "STATE_DELTA", "RUN_FINISHED"];
    expect(answered).toEqual(expect.arrayContaining(parts));
    const { messages } = await conversation(LIVE);
    expect(messages.at(-1)).toMatchObject({
      role: "assistant",
      content: expect.stringContaining("> Is <b>anybody</b> there?"),
    });
  });

  test("asks for an approval, and takes the answer", async () => {
    agent();
    await say(client, LIVE, "Deploy it.");
    await expect.poll(async () => (await conversation(LIVE)).interrupts).toHaveLength(1);
    const [interrupt] = (await conversation(LIVE)).interrupts;
    const resume = [
      { interruptId: interrupt?.id, status: "resolved", payload: { approved: true } },
    ];
    await say(client, LIVE, JSON.stringify({ messages: [], resume }));
    await expect
      .poll(async () => (await conversation(LIVE)).messages.at(-1))
      .toMatchObject({ content: "Thank you. It is **deployed**." });
    expect((await conversation(LIVE)).interrupts).toEqual([]);
    await untilIdle();
  });

  test("continues the interrupt of a recorded session", async () => {
    agent();
    const [interrupt] = (await conversation("demo-release")).interrupts;
    const resume = [{ interruptId: interrupt?.id, status: "cancelled" }];
    await say(client, "demo-release", JSON.stringify({ messages: [], resume }));
    await expect
      .poll(async () => (await conversation("demo-release")).messages.at(-1))
      .toMatchObject({ content: "I have **not** deployed it." });
  });

  test("ends a cancelled answer early, and answers the next message", async () => {
    agent("--pace", "50ms");
    await untilSpeaking();
    const runId = (await openRun()) ?? "";
    await cancel(client, { sessionId: LIVE, runId });
    await untilIdle();
    const rows = await rowsOf(client, "events", LIVE);
    expect(JSON.parse(rows.at(-1)?.payload ?? "")).toMatchObject({
      type: "RUN_FINISHED",
      runId,
      outcome: { type: "cancelled" },
    });
    await say(client, LIVE, "fail");
    await expect.poll(async () => (await typesOf(LIVE)).at(-1)).toBe("RUN_ERROR");
  });

  test("ends with code 0 on SIGTERM in the middle of an answer, and the run has an end", async () => {
    const command = agent("--pace", "50ms");
    await untilSpeaking();
    command.kill("SIGTERM");
    const { exitCode, stderr } = await command.result;
    expect(exitCode).toBe(0);
    expect(stderr).not.toContain("unexpected");
    expect(await openRun()).toBeUndefined();
  });

  test("refuses a ledger with other sessions without --yes", async () => {
    await push(client, "messages", { sessionId: "of-somebody" });
    const refused = await here("--no-agent");
    expect(refused.exitCode).toBe(4);
    expect(refused.stderr).toContain("such as of-somebody; add --yes");
    expect((await here("--no-agent", "--yes")).exitCode).toBe(0);
    // The agent stays away from the other session.
    const command = agent("--yes");
    const before = (await rowsOf(client, "events", LIVE)).length;
    await say(client, LIVE, "fail");
    await expect.poll(async () => (await typesOf(LIVE)).slice(before)).toContain("RUN_ERROR");
    command.kill("SIGTERM");
    await command.result;
    expect(await typesOf("of-somebody")).toEqual([]);
  });
});
