/**
 * Pages and the cursors of pages and watches over the wire. The session that most tests read has merged
 * rows, so that its numbers have gaps: 1, 2 to 6, 7, 8 to 10, 11. A client with gRPC's default limit of 4 MiB
 * a message can read every answer, page and row of what was accepted.
 */
import { once } from "node:events";
import { connect } from "node:http2";
import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { type RpcFailure } from "../support/grpc-client.ts";
import { frame } from "../support/http2-frames.ts";
import {
  failureOf,
  newSession,
  push,
  type PushFields,
  type Row,
  type Stream,
  STREAMS,
  watch,
} from "../support/pushing.ts";
import { useService } from "../support/use-service.ts";

const {
  createSession,
  deleteSession,
  listSessionEvents,
  listSessionMessages,
  listSessions,
  watchSessionEvents,
  watchSessionMessages,
} = SessionService.method;

const { client, service } = useService();

const YEAR_10000 = { seconds: 253_402_300_800n, nanos: 0 };
const SESSION = newSession();
const HEAD = 11n;
/** Seq and event_count of its rows. */
const ROWS = [
  [1n, 1],
  [2n, 5],
  [7n, 1],
  [8n, 3],
  [11n, 1],
] as const;

beforeAll(async () => {
  for (const [seq, eventCount] of ROWS) {
    const isRun = seq === 7n;
    await push(client, "events", {
      sessionId: SESSION,
      eventType: isRun ? "RUN_STARTED" : "TEXT_MESSAGE_CHUNK",
      payload: isRun ? '{"threadId":"t","runId":"r"}' : '{"delta":"x"}',
      createdAt: { seconds: seq, nanos: 1_000 },
      eventCount,
    });
  }
  for (const payload of ["one", "two", "three"]) {
    await push(client, "messages", { sessionId: SESSION, payload });
  }
});

type EventsPage = MessageInitShape<typeof listSessionEvents.input>;

function events(request: EventsPage) {
  return client.unary(listSessionEvents, { sessionId: SESSION, ...request });
}

function seqs(rows: readonly Row[]): readonly bigint[] {
  return rows.map(({ seq }) => seq);
}

/** Everything after a cursor, as a watch that ends at the head brings it. */
async function watched({
  afterSeq = 0n,
  eventTypes = [],
  runId = "",
}: EventsPage): Promise<readonly bigint[]> {
  const found: bigint[] = [];
  const request = { sessionId: SESSION, afterSeq, eventTypes, runId, snapshotOnly: true };
  for await (const { seq } of client.serverStream(watchSessionEvents, request)) found.push(seq);
  return found;
}

describe("a cursor", () => {
  test.each([
    { after: -5n, brings: [1n, 2n, 7n, 8n, 11n], why: "a negative one is the beginning" },
    { after: 0n, brings: [1n, 2n, 7n, 8n, 11n], why: "0 is the beginning" },
    { after: 1n, brings: [2n, 7n, 8n, 11n], why: "it is exclusive" },
    {
      after: 2n,
      brings: [7n, 8n, 11n],
      why: "the plain seq of a merged row, as old clients send it",
    },
    { after: 3n, brings: [2n, 7n, 8n, 11n], why: "strictly inside a row, it brings the row again" },
    { after: 5n, brings: [2n, 7n, 8n, 11n], why: "the last but one of a row is still inside" },
    { after: 6n, brings: [7n, 8n, 11n], why: "seq + event_count - 1, the portable one" },
    { after: 9n, brings: [8n, 11n], why: "inside another row" },
    { after: 10n, brings: [11n], why: "its end" },
    { after: 11n, brings: [], why: "the head" },
  ])("$after: $why", async ({ after, brings }) => {
    const page = await events({ afterSeq: after });
    expect(seqs(page.items)).toEqual(brings);
    expect(page).toMatchObject({ nextAfterSeq: HEAD, hasMore: false });
    expect(await watched({ afterSeq: after })).toEqual(brings);
  });

  test("above the head is OUT_OF_RANGE with the head in the message", async () => {
    const sessionId = SESSION;
    const [afterEvents, afterMessages] = [HEAD + 1n, 4n];
    const calls = [
      () => events({ afterSeq: afterEvents }),
      () => events({ afterSeq: 2n ** 63n - 1n }),
      () => client.serverStream(watchSessionEvents, { sessionId, afterSeq: afterEvents }).next(),
      () => client.unary(listSessionMessages, { sessionId, afterSeq: afterMessages }),
      () =>
        client.serverStream(watchSessionMessages, { sessionId, afterSeq: afterMessages }).next(),
    ];
    const failures: RpcFailure[] = [];
    for (const call of calls) failures.push(await failureOf(call()));
    for (const { code, reason } of failures) {
      expect({ code, reason }).toEqual({ code: "OUT_OF_RANGE", reason: "CURSOR_BEYOND_HEAD" });
    }
    const heads = failures.map(({ message }) => /\d+$/.exec(message)?.[0]);
    expect(heads).toEqual(["11", "11", "11", "3", "3"]);
  });

  test("next_after_seq walks a session page by page and returns each row once", async () => {
    const found: bigint[] = [];
    const cursors: bigint[] = [];
    for (let afterSeq = 0n, hasMore = true; hasMore; ) {
      const page = await events({ afterSeq, pageSize: 2 });
      found.push(...seqs(page.items));
      cursors.push(page.nextAfterSeq);
      ({ nextAfterSeq: afterSeq, hasMore } = page);
    }
    expect(found).toEqual(ROWS.map(([seq]) => seq));
    expect(cursors).toEqual([6n, 10n, 11n]);
  });

  test("next_before_seq walks a session downwards", async () => {
    const found: bigint[] = [];
    const cursors: bigint[] = [];
    for (let beforeSeq = 0n, hasMore = true; hasMore; ) {
      const page = await events({ beforeSeq, pageSize: 2, descending: true });
      found.push(...seqs(page.items));
      cursors.push(page.nextBeforeSeq);
      ({ nextBeforeSeq: beforeSeq, hasMore } = page);
    }
    expect(found).toEqual(ROWS.map(([seq]) => seq).toReversed());
    expect(cursors).toEqual([8n, 2n, 1n]);
  });
});

describe("a page with a filter ends at the head:", () => {
  test.each([
    { title: "no row matches", request: { eventTypes: ["RUN_ERROR"] }, brings: [] },
    { title: "a row in the middle does", request: { eventTypes: ["RUN_STARTED"] }, brings: [7n] },
    { title: "those of a run do", request: { runId: "r" }, brings: [7n, 8n, 11n] },
    { title: "those of no run do", request: { runId: "another" }, brings: [] },
    {
      title: "one of several types does",
      request: { eventTypes: ["RUN_STARTED", "RUN_ERROR"], runId: "r" },
      brings: [7n],
    },
  ])("$title", async ({ request, brings }) => {
    const page = await events(request);
    expect(seqs(page.items)).toEqual(brings);
    expect(page).toMatchObject({ nextAfterSeq: HEAD, hasMore: false });
    expect(await watched(request)).toEqual(brings);
  });

  test("created_after is inclusive and created_before is exclusive, to the microsecond", async () => {
    const at = (seconds: bigint, nanos: number) => ({ seconds, nanos });
    const request = { createdAfter: at(2n, 1_999), createdBefore: at(8n, 1_999) };
    expect(seqs((await events(request)).items)).toEqual([2n, 7n]);
    const later = { createdAfter: at(2n, 2_000), createdBefore: at(8n, 2_000) };
    expect(seqs((await events(later)).items)).toEqual([7n, 8n]);
  });

  test("messages are filtered by time too", async () => {
    const [first, second] = (await client.unary(listSessionMessages, { sessionId: SESSION })).items;
    const request = { sessionId: SESSION, createdBefore: second?.createdAt ?? YEAR_10000 };
    const page = await client.unary(listSessionMessages, request);
    expect(page.items).toEqual([first]);
    expect(page).toMatchObject({ nextAfterSeq: 3n, hasMore: false });
  });
});

describe("a page", () => {
  test.each([
    { pageSize: 0, rows: 100, hasMore: true },
    { pageSize: 1, rows: 1, hasMore: true },
    { pageSize: 150, rows: 150, hasMore: false },
    { pageSize: 1_000, rows: 150, hasMore: false },
  ])("of page_size $pageSize has $rows of 150 rows", async ({ pageSize, rows, hasMore }) => {
    const sessionId = `pages-${pageSize}`;
    const pushes = Array.from({ length: 150 }, () => push(client, "messages", { sessionId }));
    await Promise.all(pushes);
    const page = await client.unary(listSessionMessages, { sessionId, pageSize });
    expect(page.items).toHaveLength(rows);
    expect(page).toMatchObject({ hasMore, nextAfterSeq: BigInt(rows) });
  });
});

test("messages are filtered by their types", async () => {
  // Bug: the check wanted types of events, which no message has.
  const sessionId = "message-types";
  await push(client, "messages", { sessionId, eventType: "assistant" });
  await push(client, "messages", { sessionId });
  const request = { sessionId, eventTypes: ["user"] };
  const { items } = await client.unary(listSessionMessages, request);
  expect(items.map(({ seq, eventType }) => [seq, eventType])).toEqual([[2n, "user"]]);
});

describe.each(STREAMS)("%s of a session that does not exist", (stream) => {
  const list = (sessionId: string) =>
    stream === "messages"
      ? client.unary(listSessionMessages, { sessionId })
      : client.unary(listSessionEvents, { sessionId });
  test("a page of an unknown session is NOT_FOUND", async () => {
    const failure = await failureOf(list("never-seen"));
    expect(failure).toMatchObject({ code: "NOT_FOUND", reason: "SESSION_NOT_FOUND" });
  });

  test("a page and a watch of a deleted session are NOT_FOUND, and an open watch ends", async () => {
    const sessionId = newSession();
    await push(client, stream, { sessionId });
    const open = watch(client, stream, sessionId);
    expect(await open.next()).toMatchObject({ value: { seq: 1n } });
    await client.unary(deleteSession, { id: sessionId });
    const gone = { code: "NOT_FOUND", reason: "SESSION_DELETED" };
    expect(await failureOf(open.next())).toMatchObject(gone);
    expect(await failureOf(list(sessionId))).toMatchObject(gone);
    expect(await failureOf(watch(client, stream, sessionId).next())).toMatchObject(gone);
  });
});

const MEBIBYTE = 1_048_576;

/** Rows a page, to the end of the session. */
async function pagesOf(stream: Stream, sessionId: string): Promise<readonly number[]> {
  const pages: number[] = [];
  for (let afterSeq = 0n; ; ) {
    const page =
      stream === "messages"
        ? await client.unary(listSessionMessages, { sessionId, afterSeq })
        : await client.unary(listSessionEvents, { sessionId, afterSeq });
    pages.push(page.items.length);
    if (!page.hasMore) return pages;
    afterSeq = page.nextAfterSeq;
  }
}

describe("a page ends at 3 MiB and a client can read it", () => {
  test("with payloads of a million bytes", async () => {
    const sessionId = newSession();
    const payload = "x".repeat(1_000_000);
    for (let n = 0; n < 7; n += 1) await push(client, "messages", { sessionId, payload });
    const pages = await pagesOf("messages", sessionId);
    expect(pages.reduce((sum, rows) => sum + rows, 0)).toBe(7);
    expect(pages.length).toBeGreaterThanOrEqual(2);
    expect(Math.max(...pages)).toBeLessThanOrEqual(4);
  });

  test("with payloads just short of 3 MiB before the largest one", async () => {
    const sessionId = newSession();
    const three = "x".repeat(MEBIBYTE - 1);
    for (const payload of [three, three, three, "x".repeat(MEBIBYTE)]) {
      await push(client, "messages", { sessionId, payload });
    }
    const pages = await pagesOf("messages", sessionId);
    expect(pages.reduce((sum, rows) => sum + rows, 0)).toBe(4);
  });

  test("with rows that have small payloads and large fragment indexes", async () => {
    const sessionId = newSession();
    const eventCount = 400_000;
    const row: PushFields = {
      eventType: "TEXT_MESSAGE_CHUNK",
      payload: '{"type":"TEXT_MESSAGE_CHUNK","delta":"","timestamp":1}',
      eventCount,
      fragments: {
        lengths: Array.from({ length: eventCount }, () => 1),
        timestampDeltasMs: Array.from({ length: eventCount - 1 }, () => 1n << 30n),
      },
    };
    for (let n = 0; n < 3; n += 1) await push(client, "events", { sessionId, ...row });
    const pages = await pagesOf("events", sessionId);
    expect(pages.reduce((sum, rows) => sum + rows, 0)).toBe(3);
  });

  test("with messages that have large senders", async () => {
    const sessionId = newSession();
    const sender = { displayName: "x".repeat(2_000_000) };
    // A sender this large may as well be refused; what is stored must be readable.
    const pushes = [1, 2, 3].map(() => push(client, "messages", { sessionId, sender }));
    const stored = (await Promise.allSettled(pushes)).filter(
      ({ status }) => status === "fulfilled",
    );
    await push(client, "messages", { sessionId });
    const pages = await pagesOf("messages", sessionId);
    expect(pages.reduce((sum, rows) => sum + rows, 0)).toBe(stored.length + 1);
  });
});

test("the answer and the row of the largest accepted request can be read", async () => {
  const sessionId = newSession();
  await push(client, "messages", { sessionId });
  const sender = { displayName: "x".repeat(4 * MEBIBYTE - 100) };
  const answer = await push(client, "messages", { sessionId, sender }).catch((error) => error);
  const refused = { domain: "session-ledger" }; // A status of the service, and not of the client.
  expect(answer).toMatchObject("seq" in answer ? { seq: 2n } : refused);
  const pages = await pagesOf("messages", sessionId);
  expect(pages.reduce((sum, rows) => sum + rows, 0)).toBe("seq" in answer ? 2 : 1);
});

test("a page of sessions can be read with prompts of any size", async () => {
  const prompt = "x".repeat(MEBIBYTE);
  const projectId = newSession();
  for (let n = 0; n < 5; n += 1) {
    await client.unary(createSession, { name: `${n}`, prompt, projectId });
  }
  const found = new Set<string>();
  let page = await client.unary(listSessions, { page: 1, projectId });
  expect(page.metadata?.total).toBe(5);
  for (let number = 2; page.items.length > 0; number += 1) {
    for (const session of page.items) found.add(session.metadata?.id ?? "");
    page = await client.unary(listSessions, { page: number, projectId });
  }
  expect(found.size).toBe(5);
});

test("many rows of a watch share one frame of HTTP/2", async () => {
  const sessionId = newSession();
  const ROWS_COUNT = 400;
  const pushes = Array.from({ length: ROWS_COUNT }, () => push(client, "messages", { sessionId }));
  await Promise.all(pushes);
  const { input } = watchSessionMessages;
  const request = create(input, { sessionId, snapshotOnly: true });
  const connection = connect(`http://${service.grpcAddress}`);
  onTestFinished(() => connection.destroy());
  const stream = connection.request({
    ":method": "POST",
    ":path": `/${watchSessionMessages.parent.typeName}/${watchSessionMessages.name}`,
    "content-type": "application/grpc",
    te: "trailers",
  });
  stream.end(frame(toBinary(input, request)));
  let bytes = 0;
  let frames = 0; // Node has an event for each frame of data.
  stream.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
    frames += 1;
  });
  await once(stream, "end");
  expect(bytes).toBeGreaterThan(ROWS_COUNT * 100);
  expect(frames).toBeLessThan(ROWS_COUNT / 10);
});
