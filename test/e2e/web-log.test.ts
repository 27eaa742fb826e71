/**
 * The log of the inspector against a real service: it pages, follows, reconnects, and its moments are
 * the transcripts of the service.
 */
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { decodeFragments } from "@session-ledger/compressor/fragments";
import { SessionLog } from "@session-ledger/react/internal/model/log";
import { Scrub } from "@session-ledger/react/internal/model/scrub";
import { type OpenDatabase, openDatabase } from "../support/database.ts";
import { cleanUp } from "../support/embedded-fixture.ts";
import { eventually } from "../support/eventually.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { API, Following } from "../support/http-clients.ts";
import { logSource } from "../support/log-source.ts";
import { newSession } from "../support/pushing.ts";
import { type ServiceProcess, startService } from "../support/service-process.ts";
import { addressOf, hostAndPort, startTcpProxy, type TcpProxy } from "../support/broken-network.ts";

let database: OpenDatabase;
let service: ServiceProcess;
let client: RpcClient;
let way: TcpProxy;
const ends: (() => void)[] = [];

const start = (): Promise<ServiceProcess> => startService({ databaseUrl: database.url });

beforeAll(async () => {
  database = await openDatabase();
  service = await start();
  client = new RpcClient(() => service.grpcAddress);
  way = await startTcpProxy(hostAndPort(service.httpAddress));
});

afterEach(() => {
  for (const end of ends.splice(0)) end();
});

afterAll(async () => {
  client.close();
  await way.stop();
  await service.stop();
  await database.stop();
  await cleanUp();
});

interface Opened {
  readonly log: SessionLog;
  readonly scrub: Scrub;
  readonly asked: string[];
}

interface OpenOptions {
  readonly payloadCharsMax?: number;
  readonly payloadRowsMax?: number;
  /** The messages of people are read after it. */
  readonly gate?: Promise<void>;
  /** The rows before the newest ones are read after it. */
  readonly gapGate?: Promise<void>;
}

function open(sessionId: string, { gate, gapGate, ...options }: OpenOptions = {}): Opened {
  const asked: string[] = [];
  const source = logSource(
    () => addressOf(way),
    sessionId,
    (path) => void asked.push(path),
  );
  const messagesAfter: typeof source.messagesAfter = async (...asking) => {
    await gate;
    return source.messagesAfter(...asking);
  };
  const rowsAfter: typeof source.rowsAfter = async (...asking) => {
    await gapGate;
    return source.rowsAfter(...asking);
  };
  const log = new SessionLog({ ...source, messagesAfter, rowsAfter }, options);
  const scrub = new Scrub(sessionId, log);
  scrub.start();
  log.start();
  ends.push(() => {
    scrub.stop();
    log.stop();
  });
  return { log, scrub, asked };
}

type Json = Readonly<Record<string, unknown>>;

async function post(sessionId: string, what: string, body: unknown): Promise<void> {
  const response = await fetch(
    `http://${service.httpAddress}${API}/sessions/${sessionId}/${what}`,
    {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    },
  );
  if (!response.ok) throw new Error(await response.text());
}

const say = (sessionId: string, payload: string) => post(sessionId, "messages", { payload });
const events = (sessionId: string, list: readonly Json[]) => post(sessionId, "events", list);

async function transcript(
  sessionId: string,
  upToSeq?: number,
): Promise<Json & { readonly messages: readonly Json[] }> {
  const query = upToSeq === undefined ? "" : `?up_to_seq=${upToSeq}`;
  const url = `http://${service.httpAddress}${API}/sessions/${sessionId}/transcript${query}`;
  return Object(await (await fetch(url)).json());
}

/** A run whose answer is one merged row of three fragments. */
function run(id: string): readonly Json[] {
  const messageId = `answer-${id}`;
  const delta = (text: string): Json => ({ type: "TEXT_MESSAGE_CONTENT", messageId, delta: text });
  return [
    { type: "RUN_STARTED", threadId: "t", runId: id },
    { type: "TEXT_MESSAGE_START", messageId, role: "assistant" },
    delta("It "),
    delta("is \u{1f600} "),
    delta(`${id}.`),
    { type: "TEXT_MESSAGE_END", messageId },
    { type: "TOOL_CALL_START", toolCallId: `call-${id}`, toolCallName: "look" },
    { type: "TOOL_CALL_ARGS", toolCallId: `call-${id}`, delta: '{"at":1}' },
    { type: "TOOL_CALL_END", toolCallId: `call-${id}` },
    { type: "STATE_SNAPSHOT", snapshot: { run: id } },
    { type: "RUN_FINISHED", threadId: "t", runId: id },
  ];
}

async function conversation(runs: number): Promise<string> {
  const sessionId = newSession();
  for (let at = 1; at <= runs; at += 1) {
    await say(sessionId, `question ${at}`);
    await events(sessionId, run(`r${at}`));
  }
  return sessionId;
}

function steps(from: number, count: number): readonly Json[] {
  return Array.from({ length: count }, (_, at) => ({
    type: "CUSTOM",
    name: "step",
    value: from + at,
  }));
}

async function untilComplete({ log, scrub }: Opened): Promise<void> {
  await eventually(() => expect(log.isLive && scrub.isComplete).toBe(true));
}

test("each moment equals the transcript up to the same number", async () => {
  const sessionId = await conversation(3);
  const opened = open(sessionId);
  await untilComplete(opened);
  const { log, scrub } = opened;
  expect(log.rows.some(({ count }) => count === 3)).toBe(true);
  for (let seq = log.head; seq > 0; seq -= 1) {
    const { messages, state, interrupts } = await transcript(sessionId, seq);
    const moment = scrub.at(seq);
    expect({ seq, messages: moment.messages }).toEqual({ seq, messages });
    expect(moment.state).toEqual(state);
    expect(moment.interrupts).toEqual(interrupts);
  }
});

// Bug: the page took the time in the id of a row for the time of its commit.
test("regression: messages and events of one millisecond are in the order of the transcript", async () => {
  const sessionId = newSession();
  const chunk = (messageId: string) => {
    return { type: "TEXT_MESSAGE_CHUNK", role: "assistant", messageId, delta: messageId };
  };
  await events(sessionId, [{ type: "RUN_STARTED", threadId: "t", runId: "r" }, chunk("a")]);
  await events(sessionId, [chunk("b")]);
  for (const text of ["one", "two"]) await say(sessionId, text);
  // As two instances whose clocks differ would have stored them: one, a, two, b.
  for (const [table, seq, micros] of [
    ["session_events", 1, 100],
    ["session_messages", 1, 200],
    ["session_events", 2, 300],
    ["session_messages", 2, 400],
    ["session_events", 3, 500],
  ] as const) {
    const { sql } = database;
    const time = `2026-11-23T12:00:00.000${micros}Z`;
    await sql`update ${sql(table)} set recorded_at = ${time}::text::timestamptz, created_at = ${time}::text::timestamptz
      where session_id = ${sessionId} and seq = ${seq}`;
  }
  const opened = open(sessionId);
  await untilComplete(opened);
  const { messages } = await transcript(sessionId);
  const said = messages.map(({ content }) => content);
  expect(said).toEqual(["one", "a", "two", "b"]);
  expect(opened.scrub.at("live").messages).toEqual(messages);
});

test("the stream of rows gives each row with its index, under its last number", async () => {
  const sessionId = newSession();
  await events(sessionId, run("r"));
  const path = `sessions/${sessionId}/events?expand=false&fragments=true&after_seq=2`;
  const following = new Following(`http://${service.httpAddress}${API}/${path}`);
  ends.push(() => following.close());
  await following.until(7);
  expect(following.ids).toEqual(["5", "6", "7", "8", "9", "10", "11"]);
  const [row, next] = following.given.map(({ data }) => JSON.parse(data));
  expect(row).toMatchObject({ seq: 3, event_count: 3, event_type: "TEXT_MESSAGE_CONTENT" });
  const { lengths } = decodeFragments(Buffer.from(row.fragments, "base64"));
  expect(lengths).toEqual([4, 7, 3]);
  expect(next.fragments).toBeUndefined();
});

test("the newest rows come with the first page, and the others follow without a gap", async () => {
  const sessionId = newSession();
  for (let from = 0; from < 3_000; from += 1_000) await events(sessionId, steps(from, 1_000));
  const opened = open(sessionId);
  const { log, asked } = opened;
  const first = Promise.withResolvers<readonly number[]>();
  const stop = log.subscribe(() => {
    if (log.rows.length > 0) first.resolve(log.rows.map(({ seq }) => seq));
  });
  const seen = await first.promise;
  stop();
  expect(seen.at(-1)).toBe(3_000);
  expect(asked[0]).toContain("descending=true");
  await untilComplete(opened);
  expect(log.rows.map(({ seq }) => seq)).toEqual(Array.from({ length: 3_000 }, (_, at) => at + 1));
  expect(log.joinedCount).toBe(3_000);
});

test("later rows are in the log and in the newest moment", async () => {
  const sessionId = await conversation(1);
  const opened = open(sessionId);
  await untilComplete(opened);
  await say(sessionId, "and now?");
  await eventually(() => {
    expect(opened.scrub.at("live").items.at(-1)).toMatchObject({
      content: "and now?",
      isPending: true,
    });
  });
  await events(sessionId, run("later"));
  await eventually(async () => {
    const { messages } = await transcript(sessionId);
    expect(opened.scrub.at("live").messages).toEqual(messages);
  });
  const question = opened.scrub
    .at("live")
    .items.find((item) => item.kind === "message" && item.content === "and now?");
  expect(question).toMatchObject({ isPending: false });
});

/** A question, a run that calls a tool and fails, and one that waits for an approval. */
async function troubled(sessionId: string): Promise<void> {
  await say(sessionId, "Why?");
  const called = run("r1").slice(0, -1);
  await events(sessionId, called);
  const result = { messageId: "result", toolCallId: "call-r1", content: "found", role: "tool" };
  await events(sessionId, [
    { type: "TOOL_CALL_RESULT", ...result },
    { type: "RUN_ERROR", message: "The model is away.", code: "AWAY" },
  ]);
  const interrupts = [{ id: "i1", reason: "approval", message: "May I?" }];
  await events(sessionId, [
    { type: "RUN_STARTED", threadId: "t", runId: "r2" },
    {
      type: "RUN_FINISHED",
      threadId: "t",
      runId: "r2",
      outcome: { type: "interrupt", interrupts },
    },
  ]);
}

test("regression: before the fold, calls took no time, and failures and questions were missing", async () => {
  const sessionId = newSession();
  await say(sessionId, "long ago");
  await events(sessionId, steps(0, 400));
  await troubled(sessionId);
  const [messagesRead, gapRead] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const opened = open(sessionId, { gate: messagesRead.promise, gapGate: gapRead.promise });
  const { scrub } = opened;
  const end = [
    { kind: "run", runId: "r1", phase: "start" },
    { kind: "message", role: "assistant", content: "It is \u{1f600} r1." },
    { kind: "tool", status: "done", result: { content: "found" } },
    { kind: "state" },
    { kind: "run", runId: "r1", phase: "error", message: "The model is away.", code: "AWAY" },
    { kind: "run", runId: "r2", phase: "start" },
    { kind: "run", runId: "r2", phase: "end", outcome: "interrupt" },
  ];
  const shown = () => scrub.at("live").items.slice(-end.length);
  await eventually(() => expect(shown()).toMatchObject(end));
  expect(scrub.at("live").interrupts).toMatchObject([{ id: "i1" }]);
  const call = shown().find((item) => item.kind === "tool");
  expect(call?.atMs).toBeGreaterThan(0);
  expect(call?.resultMs).toBeGreaterThan(call?.atMs ?? Number.POSITIVE_INFINITY);
  expect(scrub.at("live").isExact).toBe(false);

  messagesRead.resolve();
  const question = { kind: "message", role: "user", content: "Why?", isPending: false };
  const whole = () => scrub.at("live").items.slice(-end.length - 1);
  await eventually(() => expect(whole()).toMatchObject([question, ...end]));
  const texts = () => scrub.at("live").messages.map(({ content }) => content);
  expect(texts()).not.toContain("long ago");
  expect(scrub.at("live").isExact).toBe(false);

  gapRead.resolve();
  await untilComplete(opened);
  expect(scrub.at("live").isExact).toBe(true);
  expect(whole()).toMatchObject([question, ...end]);
  expect(texts()).toContain("long ago");
});

test("the newest rows are shown until the fold is over, and never again", async () => {
  const sessionId = await conversation(2);
  const gate = Promise.withResolvers<void>();
  const opened = open(sessionId, { gate: gate.promise });
  const { log, scrub } = opened;
  const { messages } = await transcript(sessionId);
  const answers = messages.filter(({ role }) => role !== "user");
  await eventually(() => expect(scrub.at("live").messages).toEqual(answers));
  expect(scrub.at("live").isExact).toBe(false);
  gate.resolve();
  await untilComplete(opened);
  expect(scrub.at("live").isExact).toBe(true);
  const counts: number[] = [];
  // The log tells its views before the fold has the new rows.
  log.subscribe(() => counts.push(scrub.at("live").messages.length));
  for (const id of ["x", "y", "z"]) await events(sessionId, run(id));
  await eventually(() => expect(scrub.at("live").messages).toHaveLength(messages.length + 6));
  expect(counts).toEqual(counts.toSorted((one, other) => one - other));
});

test("regression: a call and a result of one snapshot took 0 ms", async () => {
  const sessionId = newSession();
  const toolCalls = [{ id: "c", type: "function", function: { name: "look", arguments: "{}" } }];
  const messages = [
    { id: "a", role: "assistant", toolCalls },
    { id: "r", role: "tool", toolCallId: "c", content: "found" },
  ];
  await events(sessionId, [{ type: "MESSAGES_SNAPSHOT", messages }]);
  const opened = open(sessionId);
  await untilComplete(opened);
  const [call] = opened.scrub.at("live").items;
  expect(call).toMatchObject({ kind: "tool", status: "done", resultMs: undefined });
});

test("a log continues after its service was killed and another one runs", async () => {
  const sessionId = await conversation(1);
  const opened = open(sessionId);
  await untilComplete(opened);
  const { log } = opened;
  await service.kill("SIGKILL");
  await eventually(() => expect(log.state).toBe("reconnecting"));
  service = await start();
  way.goTo(hostAndPort(service.httpAddress));
  await events(sessionId, run("after"));
  await eventually(() => expect(log.isLive).toBe(true));
  await eventually(() => expect(log.rows.at(-1)?.lastSeq).toBe(22));
  expect(log.rows.map(({ seq }) => seq)).toEqual([...new Set(log.rows.map(({ seq }) => seq))]);
  await eventually(async () => {
    const { messages } = await transcript(sessionId);
    expect(opened.scrub.at("live").messages).toEqual(messages);
  });
});

test("a log that went back is read again", async () => {
  const sessionId = await conversation(2);
  const opened = open(sessionId);
  await untilComplete(opened);
  // As after a failover to a standby that lacks the newest rows.
  const { sql } = database;
  await sql.begin((one) => [
    one`delete from session_events where session_id = ${sessionId} and seq > 11`,
    one`delete from session_messages where session_id = ${sessionId} and seq > 1`,
    one`update sessions set event_seq = 11, message_seq = 1 where id = ${sessionId}`,
  ]);
  await eventually(() => expect(opened.log.generation).toBeGreaterThan(0));
  await untilComplete(opened);
  await eventually(() => expect(opened.log.head).toBe(11));
  const { messages } = await transcript(sessionId);
  await eventually(() => expect(opened.scrub.at("live").messages).toEqual(messages));
});

test("a deleted session ends its log", async () => {
  const sessionId = await conversation(1);
  const opened = open(sessionId);
  await untilComplete(opened);
  const url = `http://${service.httpAddress}${API}/sessions/${sessionId}`;
  await fetch(url, { method: "DELETE" });
  await eventually(() => expect(opened.log.state).toBe("gone"));
  expect(opened.log.problem?.reason).toBe("SESSION_DELETED");
});

test("a log whose beginning was erased begins at its first row", async () => {
  const sessionId = await conversation(2);
  await database.sql`delete from session_events where session_id = ${sessionId} and seq <= 11`;
  await database.sql`delete from session_messages where session_id = ${sessionId} and seq <= 1`;
  const opened = open(sessionId);
  await untilComplete(opened);
  expect(opened.log.firstSeq).toBe(12);
  const roles = opened.scrub.at("live").messages.map(({ role }) => role);
  expect(roles).toEqual(["user", "assistant", "assistant"]);
});

test("payloads above the budget are dropped, and are read again", async () => {
  const sessionId = newSession();
  await events(sessionId, steps(0, 1_000));
  const opened = open(sessionId, { payloadCharsMax: 10_000 });
  await untilComplete(opened);
  const { log } = opened;
  await eventually(() => {
    const held = log.rows.reduce((sum, { payload = "" }) => sum + payload.length, 0);
    expect(held).toBeLessThanOrEqual(10_000);
  });
  const dropped = log.rows.find(({ payload }) => payload === undefined);
  expect(dropped).toBeDefined();
  if (dropped === undefined) return;
  expect(JSON.parse((await log.read(dropped)) ?? "")).toMatchObject({ value: dropped.seq - 1 });
  expect(dropped.payload).toBeDefined();
});

test("of many rows only some have their payload, and those in sight are read at once", async () => {
  const sessionId = newSession();
  await events(sessionId, steps(0, 1_000));
  const opened = open(sessionId, { payloadRowsMax: 300 });
  await untilComplete(opened);
  const { log, asked } = opened;
  const held = () => log.rows.filter(({ payload }) => payload !== undefined).length;
  await eventually(() => expect(held()).toBe(300));
  const inSight = log.rows.slice(200, 230);
  expect(inSight.every(({ payload }) => payload === undefined)).toBe(true);
  asked.length = 0;
  const payloads = await Promise.all(inSight.map((row) => log.read(row)));
  expect(payloads.map((payload) => JSON.parse(payload ?? "").value)).toEqual(
    inSight.map(({ seq }) => seq - 1),
  );
  expect(asked).toHaveLength(1);
  expect(held()).toBe(300);
});
