/**
 * A payload at the limit comes in by every way, and goes out by every way to clients with their own limits;
 * one byte more is refused. The limit is the largest one that fits a message of gRPC's default size.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { AGUI_CLIENTS } from "../support/agui-clients.ts";
import { runHere } from "../support/command-line.ts";
import { makeDirectory } from "../support/embedded-fixture.ts";
import { RpcClient, RpcFailure } from "../support/grpc-client.ts";
import { API, Following } from "../support/http-clients.ts";
import { createdSession, newSession, push, type Stream, watch } from "../support/pushing.ts";
import { PushStreamClient } from "../support/push-stream.ts";
import { useService } from "../support/use-service.ts";
import { observedWriter } from "../support/writing.ts";
import { useQuietConsole } from "../support/quiet-console.ts";

const { service, client } = useService();
const { listSessionEvents, listSessionMessages, claimTurn } = SessionService.method;

/** The default of the setting. */
const PAYLOAD_BYTES_MAX = 4_170_000;

let folder = "";
beforeAll(async () => {
  folder = await makeDirectory();
});
useQuietConsole();

/** An event of so many bytes, whose text needs an escape for every second character. */
function eventOf(bytes: number): string {
  const [head, tail] = ['{"type":"CUSTOM","name":"n","value":"', '"}'];
  const room = bytes - head.length - tail.length;
  return `${head}${'\\"'.repeat(Math.floor(room / 2))}${"x".repeat(room % 2)}${tail}`;
}

type Way = (sessionId: string, payload: string) => Promise<unknown>;

const http = (path: string, init: RequestInit) =>
  fetch(`http://${service.httpAddress}${API}/sessions/${path}`, { method: "POST", ...init });

async function accepted(answering: Promise<Response>): Promise<void> {
  const answer = await answering;
  if (!answer.ok) throw new Error((await answer.text()).slice(0, 1_000));
}

const json = { "content-type": "application/json" };
const lines = { "content-type": "application/x-ndjson" };

const EVENTS: Readonly<Record<string, Way>> = {
  "a unary push": (sessionId, payload) => push(client, "events", { sessionId, payload }),
  "a push stream": async (sessionId, payload) => {
    const { stream } = await PushStreamClient.open(client, { sessionId });
    stream.batch(1, [{ payload }]);
    stream.end();
    for (let frame = await stream.next(); frame !== undefined; frame = await stream.next())
      if (frame.case === "refused") throw new Error(String(frame.value.status?.message));
  },
  "a list over HTTP": (id, payload) =>
    accepted(http(`${id}/events`, { body: `[${payload}]`, headers: json })),
  "lines over HTTP": (id, body) => accepted(http(`${id}/events`, { body, headers: lines })),
  "the writer in TypeScript": async (sessionId, payload) => {
    const { writer } = observedWriter({ address: service.grpcAddress, sessionId });
    writer.event({ type: "RAW", event: "small" });
    writer.event(payload);
    const { stats } = await writer.close({ timeoutMs: 30_000 });
    if (stats.events.refused > 0) throw new Error("PAYLOAD_TOO_LARGE");
  },
  "session-ledger push": (id, payload) => command(["push", id], payload),
  "session-ledger push --stream": (id, payload) => command(["push", id, "--stream"], payload),
  "session-ledger import": async (id, payload) => {
    const file = join(folder, "event.jsonl");
    writeFileSync(file, payload);
    await command(["import", "--format", "jsonl", "-s", id, file], "");
  },
};

async function command(args: readonly string[], input: string): Promise<void> {
  const env = { SESSION_LEDGER_ADDRESS: service.grpcAddress };
  const { exitCode, stderr } = await runHere(args, { env, input });
  if (exitCode !== 0) throw new Error(stderr);
}

const sender = Object.fromEntries(
  ["id", "name", "displayName", "channel", "channelId", "threadId"].map((name) => [
    name,
    "é".repeat(512),
  ]),
);

const MESSAGES: Readonly<Record<string, Way>> = {
  "a unary push with the longest sender": (sessionId, payload) =>
    push(client, "messages", { sessionId, payload, sender, idempotencyKey: "k".repeat(128) }),
  "a push over HTTP": (id, payload) => {
    const body = JSON.stringify({ event_type: "user", payload });
    return accepted(http(`${id}/messages`, { body, headers: json }));
  },
  "the writer in TypeScript": async (sessionId, payload) => {
    const { writer } = observedWriter({ address: service.grpcAddress, sessionId });
    writer.message({ type: "user", payload });
    const { stats } = await writer.close({ timeoutMs: 30_000 });
    if (stats.messages.refused > 0) throw new Error("PAYLOAD_TOO_LARGE");
  },
  "session-ledger push --as messages": (id, payload) =>
    command(["push", id, "--as", "messages"], JSON.stringify({ eventType: "user", payload })),
};

const WAYS = [
  ...Object.entries(EVENTS).map(([name, way]) => ["events", name, way] as const),
  ...Object.entries(MESSAGES).map(([name, way]) => ["messages", name, way] as const),
];

describe.each(WAYS)("%s by %s", (stream, _, way) => {
  test("are stored at the limit, and refused above it", async () => {
    const sessionId = newSession();
    const payload = eventOf(PAYLOAD_BYTES_MAX);
    await way(sessionId, payload);
    const page = await pageOf(stream, sessionId);
    expect(page.at(-1) === payload).toBe(true);
    const more = way(sessionId, eventOf(PAYLOAD_BYTES_MAX + 1));
    await expect(more).rejects.toThrow(/PAYLOAD_TOO_LARGE|4170001 bytes|more than/);
    expect((await pageOf(stream, sessionId)).includes(payload)).toBe(true);
  });
});

async function pageOf(stream: Stream, sessionId: string): Promise<readonly string[]> {
  const found: string[] = [];
  const next = (afterSeq: bigint) =>
    stream === "events"
      ? client.unary(listSessionEvents, { sessionId, afterSeq })
      : client.unary(listSessionMessages, { sessionId, afterSeq });
  for (let afterSeq = 0n, hasMore = true; hasMore; ) {
    const page = await next(afterSeq);
    found.push(...page.items.map(({ payload }) => payload));
    ({ hasMore, nextAfterSeq: afterSeq } = page);
  }
  return found;
}

describe("payloads at the limit go out", () => {
  let sessionId = "";
  const payloads = [1, 2, 3].map((n) =>
    eventOf(PAYLOAD_BYTES_MAX).replace('"name":"n"', `"name":"${n}"`),
  );
  const small = '{"type":"RAW","event":1}';
  const all = payloads.flatMap((payload) => [small, payload]);
  beforeAll(async () => {
    sessionId = newSession();
    for (const payload of all) {
      const { type: eventType }: { type: string } = JSON.parse(payload);
      await push(client, "events", { sessionId, eventType, payload });
    }
  });

  test("by pages, each with one of them", async () => {
    expect((await pageOf("events", sessionId)).map(digest)).toEqual(all.map(digest));
  });

  test("by expanded pages", async () => {
    const page = await client.unary(listSessionEvents, { sessionId, expand: true, afterSeq: 1n });
    expect(page.items.map(({ payload }) => digest(payload))).toEqual([digest(payloads[0] ?? "")]);
  });

  test("by a watch of the past, and of what comes", async () => {
    const rows = watch(client, "events", sessionId);
    const seen: string[] = [];
    for await (const row of rows) {
      if (!("payload" in row) || row.seq === 0n) continue;
      seen.push(digest(row.payload));
      if (seen.length === all.length) break;
    }
    expect(seen).toEqual(all.map(digest));
    const live = watch(client, "messages", sessionId);
    await live.attached;
    const text = "m".repeat(PAYLOAD_BYTES_MAX);
    for (let n = 0; n < 3; n += 1) await push(client, "messages", { sessionId, payload: text });
    let count = 0;
    for await (const row of live) {
      if (row.seq === 0n || row.payload === "") continue;
      expect(row.payload === text).toBe(true);
      count += 1;
      if (count === 3) break;
    }
  });

  test("by HTTP: pages, streams and exports", async () => {
    const url = `http://${service.httpAddress}${API}/sessions/${sessionId}`;
    const exported = await (await fetch(`${url}/export`)).text();
    expect(exported.trim().split("\n").map(digest)).toEqual(all.map(digest));
    const page = await (await fetch(`${url}/events/history?after_seq=1`)).text();
    expect(page.length).toBeGreaterThan(PAYLOAD_BYTES_MAX);
    const following = new Following(`${url}/events?after_seq=0`);
    await following.until(all.length);
    following.close();
    expect(following.given.length).toBe(all.length);
    expect(
      following.given.every(({ data }, at) => data.includes(all[at]?.slice(0, 40) ?? "-")),
    ).toBe(true);
  });

  test("by session-ledger export", async () => {
    const env = { SESSION_LEDGER_ADDRESS: service.grpcAddress };
    const { stdout } = await runHere(["export", sessionId], { env });
    expect(stdout.trim().split("\n").map(digest)).toEqual(all.map(digest));
  });
});

function digest(text: string): string {
  return `${text.length} ${text.slice(0, 60)}`;
}

describe("a picture that a person types into a chat", () => {
  const PICTURE = "A".repeat(1_700_000);
  const message = (id: string) => ({
    id,
    role: "user",
    content: [
      { type: "text", text: "what is this?" },
      { type: "image", source: { type: "data", value: PICTURE, mimeType: "image/png" } },
    ],
  });
  const input = (sessionId: string, ...ids: readonly string[]) => ({
    threadId: sessionId,
    runId: "r",
    state: {},
    tools: [],
    context: [],
    forwardedProps: {},
    messages: ids.map(message),
  });

  test.each([
    ["AG-UI", (id: string, body: object) => [`/agui/sessions/${id}`, body] as const],
    [
      "CopilotKit",
      (_: string, body: object) =>
        ["/copilotkit", { method: "agent/run", params: { agentId: "default" }, body }] as const,
    ],
  ])("by %s reaches the runner, also next to earlier ones", async (_, requestOf) => {
    const sessionId = newSession();
    for (const ids of [["u1"], ["u1", "u2"], ["u1", "u2", "u3"]]) {
      const [path, body] = requestOf(sessionId, input(sessionId, ...ids));
      const signal = new AbortController();
      const answer = fetch(`http://${service.httpAddress}${path}`, {
        method: "POST",
        body: JSON.stringify(body),
        headers: { ...json, accept: "text/event-stream" },
        signal: signal.signal,
      });
      const runId = `run-${ids.length}`;
      const turn = await client.unary(claimTurn, {
        sessionId,
        runStarted: JSON.stringify({ runId }),
        wait: { seconds: 30n },
      });
      expect(turn.messages).toHaveLength(1);
      expect(turn.messages[0]?.payload).toContain(PICTURE);
      const payload = JSON.stringify({ type: "RUN_FINISHED", threadId: sessionId, runId });
      await push(client, "events", { sessionId, eventType: "RUN_FINISHED", payload });
      expect((await answer).status).toBe(200);
      await (await answer).body?.cancel();
      signal.abort();
    }
    for (const agui of AGUI_CLIENTS) {
      const open = agui.open(service.httpAddress, sessionId);
      await open.connect();
      const shown = JSON.stringify(open.conversation().messages);
      expect(shown.split(PICTURE)).toHaveLength(4);
    }
  });
});

describe("a claim", () => {
  test("of a message at the limit fits one answer, with a start that has the message again", async () => {
    const sessionId = newSession();
    const text = "q".repeat(PAYLOAD_BYTES_MAX);
    await push(client, "messages", { sessionId, payload: text, sender });
    const runId = "r1";
    const messages = [{ id: "u1", role: "user", content: text.slice(0, 4_000_000) }];
    const start = { runId, input: { threadId: sessionId, runId, messages }, metadata: { a: 1 } };
    for (const isAgain of [false, true]) {
      const turn = await client.unary(claimTurn, { sessionId, runStarted: JSON.stringify(start) });
      expect(turn.messages[0]?.payload === text).toBe(true);
      expect(turn.runStarted?.deduplicated).toBe(isAgain);
      const started: Record<string, unknown> = JSON.parse(turn.runStarted?.payload ?? "");
      expect(started).toMatchObject({ type: "RUN_STARTED", runId, metadata: { a: 1 } });
      expect("input" in started).toBe(false);
    }
    const [stored = ""] = await pageOf("events", sessionId);
    expect(JSON.parse(stored)).toMatchObject({ input: { messages: [{ id: "u1" }] } });
  });
});

describe("a service with PAYLOAD_BYTES_MAX=16777216", () => {
  const strict = useService("strict");
  const MAX = 16_777_216;

  test("takes that much, and gives it to readers that take it", async () => {
    const sessionId = await createdSession(strict.client);
    const payload = eventOf(MAX);
    // The answer has the row, which a client with the default limit does not take.
    const own = push(strict.client, "events", { sessionId, payload });
    await expect(own).rejects.toMatchObject({ code: "RESOURCE_EXHAUSTED", reason: undefined });
    const list = (reader: RpcClient) => reader.unary(listSessionEvents, { sessionId });
    await expect(list(strict.client)).rejects.toThrow(RpcFailure);
    const limit = { "grpc.max_receive_message_length": MAX + 24_304 };
    const reader = new RpcClient(strict.service.grpcAddress, limit);
    const { items } = await list(reader);
    expect(items.map((row) => row.payload === payload)).toEqual([true]);
    const more = push(reader, "events", { sessionId, payload: eventOf(MAX + 1) });
    await expect(more).rejects.toMatchObject({ reason: "PAYLOAD_TOO_LARGE" });
    const url = `http://${strict.service.httpAddress}${API}/sessions/${sessionId}`;
    const body = JSON.stringify({ event_type: "user", payload });
    await accepted(fetch(`${url}/messages`, { method: "POST", body, headers: json }));
    const upload = { method: "POST", body: eventOf(MAX), headers: lines };
    await accepted(fetch(`${url}/events`, upload));
    const { items: both } = await reader.unary(listSessionEvents, { sessionId, afterSeq: 1n });
    expect(both).toHaveLength(1);
  });
});

test("the documents have the limit", () => {
  const page = readFileSync("docs/configuration.md", "utf8");
  expect(page.includes(`\`PAYLOAD_BYTES_MAX\` (\`${PAYLOAD_BYTES_MAX}\`)`)).toBe(true);
});
