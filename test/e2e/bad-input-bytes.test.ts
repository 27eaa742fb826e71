/**
 * Requests that no client library would send. First the known ones, each shown to store nothing; then
 * random ones: bytes, valid requests that were damaged, and payloads of all sorts. Whatever comes, the
 * answer is never INTERNAL, the service lives on, its log holds no error, and no row is half stored:
 * the numbers of a session are the sum of what its rows count, and every acknowledged row is there.
 */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { RpcFailure } from "../support/grpc-client.ts";
import { properties } from "../support/random.ts";
import {
  failureOf,
  nextSeq,
  push,
  type Row,
  STREAMS,
  type Stream,
  tracesOf,
} from "../support/pushing.ts";
import { frame, rawCall } from "../support/http2-frames.ts";
import { useService } from "../support/use-service.ts";
import { damagedRequest, encodePush, SESSIONS, wildRequest } from "../support/wild-requests.ts";

const { service, client } = useService({});

const METHODS = {
  messages: SessionService.method.pushSessionMessage,
  events: SessionService.method.pushSessionEvent,
} as const;

/** Appended to a valid request. */
const BROKEN_TAILS: readonly (readonly [string, string])[] = [
  ["a tag that is cut off", "80"],
  ["a field that is longer than the message", "1a7f6869"],
  ["field number 0", "0000"],
  ["a wire type that does not exist", "1f"],
  ["the end of a group that did not begin", "0c"],
  ["a number of eleven bytes", "a806ffffffffffffffffffff01"],
];

const REFUSED = { code: "INVALID_ARGUMENT", reason: "INVALID_REQUEST" };

describe.each(STREAMS)("%s: a push is INVALID_ARGUMENT and stores nothing with", (stream) => {
  test.each(BROKEN_TAILS)("%s", async (_, hex) => {
    const { outcome, traces } = await tracesOf(client, stream, (sessionId) => {
      const bytes = Buffer.concat([encodePush(stream, { sessionId }), Buffer.from(hex, "hex")]);
      return failureOf(client.unaryBytes(METHODS[stream], bytes));
    });
    expect(outcome).toMatchObject(REFUSED);
    expect(traces).toEqual([]);
  });
});

/** What a push of a session that is never deleted may be answered; anything else is a bug. */
const ANSWERS = [
  "OK",
  "INVALID_ARGUMENT",
  "ALREADY_EXISTS",
  "FAILED_PRECONDITION",
  "RESOURCE_EXHAUSTED",
];
/** gRPC's number of ANSWERS, and of UNIMPLEMENTED: a second frame, an unknown encoding. */
const RAW_ANSWERS = [0, 3, 6, 8, 9, 12];

const AT_ONCE = 8;

async function answerOf(call: Promise<unknown>): Promise<string> {
  return call.then(
    () => "OK",
    (error: unknown) => {
      if (error instanceof RpcFailure) return error.code;
      throw error;
    },
  );
}

/** Alive, no defect in its log, and every session whole. */
async function isWhole(): Promise<void> {
  const errors = service.log.filter((line) => /"level":("error"|"fatal"|[56]0)/.test(line));
  expect(errors).toEqual([]);
  const { items } = await client.unary(SessionService.method.listSessions, { size: 1_000 });
  for (const id of items.map(({ metadata }) => metadata?.id ?? "")) {
    for (const name of STREAMS) await isContiguous(name, id);
  }
}

async function isContiguous(name: Stream, id: string): Promise<void> {
  let expected = 1n;
  for (const row of await allRows(name, id)) {
    expect(row.seq).toBe(expected);
    expected = nextSeq(row);
  }
  expect((await push(client, name, { sessionId: id })).seq).toBe(expected);
}

async function allRows(name: Stream, id: string): Promise<readonly Row[]> {
  const rows: Row[] = [];
  const { listSessionMessages, listSessionEvents } = SessionService.method;
  for (let afterSeq = 0n; ; ) {
    const request = { sessionId: id, afterSeq, pageSize: 1_000 };
    const page =
      name === "messages"
        ? await client.unary(listSessionMessages, request)
        : await client.unary(listSessionEvents, request);
    rows.push(...page.items);
    if (!page.hasMore) return rows;
    afterSeq = page.nextAfterSeq;
  }
}

describe("any input", () => {
  test("random bytes as body or message of a unary call break nothing", async () => {
    const paths = SessionService.methods
      .filter(({ methodKind, name }) => methodKind === "unary" && name !== "DeleteSession")
      .map(({ name }) => `/${SessionService.typeName}/${name}`);
    const call = fc.record({
      path: fc.constantFrom(...paths),
      body: fc.uint8Array({ maxLength: 64 }),
      isFramed: fc.boolean(),
      isCompressed: fc.boolean(),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(call, { minLength: 1, maxLength: AT_ONCE }), async (calls) => {
        const answers = await Promise.all(
          calls.map(({ path, body, isFramed, isCompressed }) =>
            rawCall(service.grpcAddress, {
              path,
              body: isFramed ? frame(body, isCompressed) : body,
              ...(isCompressed ? { headers: { "grpc-encoding": "gzip" } } : {}),
            }),
          ),
        );
        for (const { status } of answers) expect([...RAW_ANSWERS, 5]).toContain(status);
      }),
      properties({ runs: 60 }),
    );
    await isWhole();
  });

  test("damaged copies of valid requests break nothing", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(damagedRequest, { minLength: 1, maxLength: AT_ONCE }),
        async (calls) => {
          const answers = await Promise.all(
            calls.map(({ stream: name, bytes }) =>
              answerOf(client.unaryBytes(METHODS[name], bytes)),
            ),
          );
          for (const answer of answers) expect(ANSWERS).toContain(answer);
        },
      ),
      properties({ runs: 150 }),
    );
    await isWhole();
  });

  test("rows of random payloads are stored exactly as they were acknowledged", async () => {
    const acknowledged = new Map<string, Row>();
    const bounds = properties({ runs: 150 });
    await fc.assert(
      fc.asyncProperty(
        fc.array(wildRequest, { minLength: 1, maxLength: AT_ONCE }),
        async (calls) => {
          await Promise.all(
            calls.map(async (one) => {
              const pushing = push(client, one.stream, { ...one.fields, sessionId: one.sessionId });
              expect(ANSWERS).toContain(await answerOf(pushing));
              const row = await pushing.catch(() => undefined);
              if (row !== undefined) acknowledged.set(row.id, { ...row, deduplicated: false });
            }),
          );
        },
      ),
      bounds,
    );
    // Each run sends one to eight; with almost none accepted, the refusals would show one check only.
    // Some seeds fence a session early by a high epoch, and fewer are accepted after that.
    expect(acknowledged.size).toBeGreaterThan(bounds.numRuns / 10);
    await isWhole();
    const stored = new Map<string, Row>();
    for (const id of SESSIONS) {
      for (const name of STREAMS) {
        for (const row of await allRows(name, id)) stored.set(row.id, row);
      }
    }
    for (const [id, row] of acknowledged) expect(stored.get(id)).toEqual(row);
  });
});
