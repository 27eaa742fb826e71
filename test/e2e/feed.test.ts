/**
 * The feeds of two services on one database, over gRPC and HTTP. The poll is a minute away, so the
 * rows come by announcements.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WatchState } from "@session-ledger/proto/ambient/v1/common_pb";
import type { FeedEvent } from "@session-ledger/proto/ambient/v1/feed_pb";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { bearer, type Caller, sessionCaller } from "../support/callers.ts";
import { type OpenDatabase, openDatabase } from "../support/database.ts";
import { cleanUp } from "../support/embedded-fixture.ts";
import { capped, eventually } from "../support/eventually.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { holdSession } from "../support/ledger.ts";
import { newSession } from "../support/pushing.ts";
import { Replicas } from "../support/replicas.ts";
import { sharedIssuer, useService } from "../support/use-service.ts";

const { createSession, deleteSession, pushSessionEvent, pushSessionMessage } =
  SessionService.method;
const { watchEvents, watchMessages } = SessionService.method;
const BOTH = [0, 1] as const;

const { service: guarded, client: known } = useService("tokens");
let database: OpenDatabase;
let replicas: Replicas;
let clients: readonly RpcClient[];

beforeAll(async () => {
  database = await openDatabase();
  replicas = await Replicas.start(database.url);
  clients = replicas.addresses.map((address) => new RpcClient(address));
});

afterAll(async () => {
  for (const client of clients) client.close();
  await replicas.stop();
  await database.stop();
  await cleanUp();
});

function at(replica: number): RpcClient {
  const client = clients[replica % clients.length];
  if (client === undefined) throw new Error("the services are not started");
  return client;
}

const as = (caller: Caller) => ({ metadata: bearer(caller) });

async function pushed(replica: number, sessionId: string, n: number, eventType = "RAW") {
  const content = eventType === "CUSTOM" ? { name: "n", value: n } : { event: n };
  const payload = JSON.stringify({ type: eventType, ...content });
  return at(replica).unary(pushSessionEvent, { sessionId, eventType, payload });
}

const nameOf = ({ event }: FeedEvent): string => `${event?.sessionId} ${event?.seq}`;
const isRow = ({ event }: FeedEvent): boolean => event !== undefined;

async function framesOf(feed: AsyncIterable<FeedEvent>): Promise<readonly FeedEvent[]> {
  const frames: FeedEvent[] = [];
  for await (const frame of feed) frames.push(frame);
  return frames;
}

/** All frames of a feed that ends. */
function snapshot(request: Parameters<typeof events>[1]): Promise<readonly FeedEvent[]> {
  return framesOf(events(0, { ...request, snapshotOnly: true }));
}

function events(
  replica: number,
  request: { cursor?: string; eventTypes?: string[]; snapshotOnly?: boolean },
) {
  return at(replica).serverStream(watchEvents, request);
}

async function refusalOf(frames: AsyncIterable<unknown>) {
  try {
    for await (const _ of frames) break;
    return undefined;
  } catch (error) {
    return error;
  }
}

describe("a feed", () => {
  test("has every event of both services once and in order, although its reader changes services at any frame", async () => {
    const names: string[] = [];
    const rows: FeedEvent[] = [];
    const done = new AbortController();
    const reading = (async () => {
      let cursor = "";
      for (let turn = 0; ; turn += 1) {
        const isLast = done.signal.aborted;
        let left = isLast ? Number.POSITIVE_INFINITY : 1 + ((turn * 7) % 23);
        const feed = events(turn, { cursor, snapshotOnly: isLast });
        // After the last row a feed may wait for a minute: the end of the writers ends it.
        if (!isLast) done.signal.addEventListener("abort", () => feed.cancel(), { once: true });
        try {
          for await (const frame of feed) {
            ({ cursor } = frame);
            if (isRow(frame)) rows.push(frame);
            left -= 1;
            if (left <= 0) break;
          }
        } catch (error) {
          if (isLast || !done.signal.aborted) throw error;
        }
        if (isLast) return;
      }
    })();
    const write = async (writer: number): Promise<void> => {
      for (let n = 0; n < 40; n += 1) {
        const sessionId = `feed-${(writer + n) % 5}`;
        const { seq } = await pushed(writer, sessionId, n);
        names.push(`${sessionId} ${seq}`);
      }
    };
    await Promise.all([0, 1, 2, 3, 4, 5].map(write));
    done.abort();
    await reading;
    const seen = rows.map(nameOf).filter((name) => name.startsWith("feed-"));
    expect(seen.toSorted()).toEqual(names.toSorted());
    const ends = new Map<string, bigint>();
    for (const { event } of rows) {
      const { sessionId = "", seq = 0n } = event ?? {};
      expect(seq).toBeGreaterThan(ends.get(sessionId) ?? 0n);
      ends.set(sessionId, seq);
    }
  });

  test("delivers a row of either service without a poll, also after a session was locked for a while", async () => {
    const feed = events(0, { cursor: (await snapshot({})).at(-1)?.cursor ?? "" });
    const next = async (): Promise<FeedEvent> => {
      for (;;) {
        const { value, done } = await capped(feed.next());
        if (done === true) throw new Error("the feed has ended");
        if (isRow(value)) return value;
      }
    };
    for (const replica of BOTH) {
      await pushed(replica, "woken", replica);
      expect(nameOf(await next())).toBe(`woken ${replica + 1}`);
    }
    await pushed(0, "locked", 0);
    await next();
    {
      await using _ = await holdSession(database.sql, "locked");
      await pushed(1, "woken", 2);
    }
    expect(nameOf(await next())).toBe("woken 3");
    feed.cancel();
  });

  test("sends its cursor when a filter leaves out every row, and continues from that cursor", async () => {
    const before = (await snapshot({})).at(-1)?.cursor ?? "";
    await pushed(0, "filtered", 1);
    const frames = await snapshot({ cursor: before, eventTypes: ["CUSTOM"] });
    expect(frames.map(({ watchState }) => watchState)).toEqual([
      WatchState.CATCHING_UP,
      WatchState.LIVE,
    ]);
    const { cursor = "" } = frames.at(-1) ?? {};
    await pushed(1, "filtered", 2, "CUSTOM");
    const rows = (await snapshot({ cursor })).filter(isRow);
    expect(rows.map(nameOf)).toEqual(["filtered 2"]);
    expect(rows[0]?.recordedAt?.seconds).toBeGreaterThan(1_700_000_000n);
  });

  test("has only the project of its reader, and no deleted session; another role has no feed", async () => {
    const [alpha, beta] = [newSession(), newSession()];
    const issuer = await sharedIssuer("tokens");
    const admin = await issuer.signed("admin", ["admin"]);
    const index = await issuer.signed("index", ["service"]);
    const indexOfAlpha = await issuer.signed("index-of-alpha", ["service"], alpha);
    const viewer = await issuer.signed("viewer", ["viewer", "editor", "runner"]);
    const make = async (projectId: string): Promise<string> => {
      const { metadata } = await known.unary(createSession, { name: "s", projectId }, as(admin));
      const sessionId = metadata?.id ?? "";
      const event = { sessionId, eventType: "RAW", payload: '{"type":"RAW","event":1}' };
      await known.unary(pushSessionEvent, event, as(admin));
      return sessionId;
    };
    const feed = (caller: Caller, request: { readonly projectId?: string } = {}) =>
      known.serverStream(watchEvents, { ...request, snapshotOnly: true }, as(caller));
    const [ofAlpha, ofBeta, gone] = [await make(alpha), await make(beta), await make(alpha)];
    await known.unary(deleteSession, { id: gone }, as(admin));
    const own = (await framesOf(feed(indexOfAlpha))).filter(isRow);
    expect(own.map(nameOf)).toEqual([`${ofAlpha} 1`]);
    expect(own.map(({ projectId }) => projectId)).toEqual([alpha]);
    const asked = (await framesOf(feed(index, { projectId: beta }))).filter(isRow);
    expect(asked.map(nameOf)).toEqual([`${ofBeta} 1`]);
    const token = await sessionCaller(known, admin, { sessionId: ofAlpha, role: "viewer" });
    for (const [caller, request] of [
      [indexOfAlpha, { projectId: beta }],
      [viewer, {}],
      [token, {}],
    ] as const) {
      const refused = await refusalOf(feed(caller, request));
      expect(refused).toMatchObject({ code: "PERMISSION_DENIED" });
    }
    await eventually(() => {
      const opened = guarded.log.filter((line) => line.includes('"action":"feed.read"'));
      expect(opened.some((line) => line.includes('"stream":"events"'))).toBe(true);
      expect(opened.some((line) => line.includes('"msg":"denied"'))).toBe(true);
    });
  });

  test("of messages has every message, with its own cursors", async () => {
    for (const payload of ["hi", "ho"]) {
      const request = { sessionId: "talk", eventType: "user", payload };
      await at(0).unary(pushSessionMessage, request);
    }
    const payloads: (string | undefined)[] = [];
    let cursor = "";
    for await (const frame of at(1).serverStream(watchMessages, { snapshotOnly: true })) {
      ({ cursor } = frame);
      if (frame.message !== undefined) payloads.push(frame.message.payload);
    }
    expect(payloads).toEqual(["hi", "ho"]);
    const refused = await refusalOf(events(0, { cursor }));
    expect(refused).toMatchObject({ code: "INVALID_ARGUMENT", violations: [{ field: "cursor" }] });
  });

  test.each([
    ["cursor", { cursor: Buffer.from("e1 1.5 999999999999999999 1 s").toString("base64url") }],
    ["cursor", { cursor: Buffer.from("e1 1.5 1 1 a/b").toString("base64url") }],
  ])("is refused with INVALID_ARGUMENT for a wrong %s", async (field, request) => {
    const refused = await refusalOf(at(0).serverStream(watchEvents, request));
    expect(refused).toMatchObject({ code: "INVALID_ARGUMENT", violations: [{ field }] });
  });

  test("begins at a time", async () => {
    await pushed(0, "timed", 1);
    const all = (await snapshot({})).filter(isRow);
    const last = all.at(-1)?.recordedAt;
    if (last === undefined) throw new Error("there is no row");
    const frames: FeedEvent[] = [];
    const request = { startTime: last, snapshotOnly: true };
    for await (const frame of at(1).serverStream(watchEvents, request)) {
      if (isRow(frame)) frames.push(frame);
    }
    expect(frames.map(nameOf)).toEqual(["timed 1"]);
  });

  test("is counted, with its lag", async () => {
    const feed = events(1, {});
    await feed.next();
    const held = /^session_ledger_shared_limit_held\{limit="feeds"\}/;
    expect(await replicas.metric(1, held)).toBe(1);
    expect(await replicas.metric(1, /^session_ledger_feed_lag_seconds /)).toBeGreaterThanOrEqual(0);
    feed.cancel();
    await expect.poll(() => replicas.metric(1, held)).toBe(0);
    expect(await replicas.metric(1, /^session_ledger_feed_lag_seconds /)).toBe(0);
  });
});

interface SseEvent {
  readonly id: string;
  readonly data: string;
}

/** The events of a stream until there are enough, or it has ended. */
async function sse(
  path: string,
  { headers = {}, enough }: { headers?: Readonly<Record<string, string>>; enough: number },
): Promise<{ readonly events: readonly SseEvent[]; readonly lastId: string }> {
  const answer = await fetch(`http://${replicas.at(0).httpAddress}/api/ambient/v1${path}`, {
    headers,
  });
  expect(answer.status).toBe(200);
  const found: SseEvent[] = [];
  let lastId = "";
  let text = "";
  const decoder = new TextDecoder();
  for await (const bytes of answer.body ?? []) {
    text += decoder.decode(bytes, { stream: true });
    const frames = text.split("\n\n");
    text = frames.pop() ?? "";
    for (const frame of frames) {
      lastId = /^id: (.*)$/m.exec(frame)?.[1] ?? lastId;
      const data = /^data: (.*)$/m.exec(frame)?.[1];
      if (data !== undefined) found.push({ id: lastId, data });
      if (found.length >= enough) return { events: found, lastId };
    }
  }
  return { events: found, lastId };
}

describe("a feed over HTTP", () => {
  test("has the rows as server-sent events, and continues after Last-Event-ID", async () => {
    const { lastId } = await sse("/events?snapshot_only=true", { enough: Number.MAX_VALUE });
    for (const n of [1, 2, 3]) await pushed(1, "sse", n);
    const first = await sse(`/events?cursor=${lastId}`, { enough: 2 });
    const headers = { "last-event-id": first.lastId };
    const rest = await sse(`/events?snapshot_only=true&cursor=${lastId}`, {
      headers,
      enough: Number.MAX_VALUE,
    });
    const items: unknown[] = [...first.events, ...rest.events].map(({ data }) => JSON.parse(data));
    expect(items).toEqual(
      [1, 2, 3].map((seq) =>
        expect.objectContaining({
          session_id: "sse",
          seq,
          event_type: "RAW",
          recorded_at: expect.stringMatching(/^\d{4}-.*Z$/),
        }),
      ),
    );
  });

  test("has messages, and names a wrong parameter", async () => {
    const { events: found } = await sse("/messages?event_type=user&snapshot_only=true", {
      enough: 1,
    });
    expect(found[0]?.data).toContain('"session_id":"talk"');
    const url = `http://${replicas.at(0).httpAddress}/api/ambient/v1/messages?event_type=nothing`;
    const answer = await fetch(url);
    expect(answer.status).toBe(400);
    expect(await answer.json()).toMatchObject({ violations: [{ field: "event_type[0]" }] });
  });
});

// The last one: it stops a service.
test("a stop ends a feed with UNAVAILABLE, over gRPC and HTTP", async () => {
  const feed = events(0, {});
  await feed.next();
  const overHttp = await fetch(`http://${replicas.at(0).httpAddress}/api/ambient/v1/events`);
  const ended = (async (): Promise<void> => {
    for await (const _ of feed) continue;
  })();
  ended.catch(() => undefined);
  const text = overHttp.text();
  await replicas.at(0).stop();
  await expect(ended).rejects.toMatchObject({ code: "UNAVAILABLE", reason: "SHUTTING_DOWN" });
  expect(await text).toContain('"reason":"SHUTTING_DOWN"');
});
