/**
 * Sessions and events written over HTTP: one event, arrays and bodies of lines, with keys and epochs. Each answer is compared with the OpenAPI document of the same service.
 */
import { type IncomingMessage, request as httpRequest } from "node:http";
import { text as textOf } from "node:stream/consumers";
import { beforeAll, describe, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { OpenApi } from "../support/openapi.ts";
import { PushStreamClient } from "../support/push-stream.ts";
import { createdSession, newSession, rowsOf } from "../support/pushing.ts";
import { useService } from "../support/use-service.ts";

const API = "/api/ambient/v1";
const JSON_TYPE = "application/json";
const LINES_TYPE = "application/x-ndjson";

const { service, client } = useService();
const { service: redactingService, client: redacting } = useService("strict");
let openApi: OpenApi;

beforeAll(async () => {
  const document = await fetch(`http://${service.httpAddress}/openapi.json`);
  openApi = new OpenApi(await document.json());
});

type Headers = Readonly<Record<string, string>>;

interface PushAnswer {
  readonly status: number;
  readonly headers: Headers;
  /** The body, parsed. */
  readonly told: Readonly<Record<string, unknown>>;
}

async function post(path: string, body: string, headers: Headers): Promise<PushAnswer> {
  const url = `http://${service.httpAddress}${API}${path}`;
  const response = await fetch(url, { method: "POST", headers, body });
  const place = path.replace(/\/sessions\/[^/]+/, "/sessions/{id}");
  const asked = { method: "POST", path: `${API}${place}` };
  expect(await openApi.fault(asked, response.clone())).toBeUndefined();
  const told = { ...Object(await response.json()) };
  return { status: response.status, headers: Object.fromEntries(response.headers), told };
}

function push(sessionId: string, events: unknown, headers: Headers = {}): Promise<PushAnswer> {
  const text = typeof events === "string" ? events : JSON.stringify(events);
  return post(`/sessions/${sessionId}/events`, text, { "content-type": JSON_TYPE, ...headers });
}

function lines(sessionId: string, text: string, headers: Headers = {}): Promise<PushAnswer> {
  return post(`/sessions/${sessionId}/events`, text, { "content-type": LINES_TYPE, ...headers });
}

const raw = (event: unknown): object => ({ type: "RAW", event });
const said = (delta: string): object => ({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta });
const linesOf = (events: readonly object[]): string =>
  events.map((event) => `${JSON.stringify(event)}\n`).join("");

/** The events as they were pushed. */
async function storedIn(sessionId: string): Promise<readonly unknown[]> {
  const request = { sessionId, expand: true, pageSize: 1_000 };
  const { items } = await client.unary(SessionService.method.listSessionEvents, request);
  return items.map(({ payload }): unknown => JSON.parse(payload));
}

async function rowsIn(sessionId: string): Promise<number> {
  const request = { sessionId, pageSize: 1_000 };
  const { items } = await client.unary(SessionService.method.listSessionEvents, request);
  return items.length;
}

describe("POST /sessions", () => {
  test("makes a session with every field, and names its path", async () => {
    const fields = {
      name: "n",
      prompt: "p",
      llmModel: "m",
      parentSessionId: "parent",
      labels: "l",
      annotations: "a",
      projectId: "project",
    };
    const body = JSON.stringify(fields);
    const { status, headers, told } = await post("/sessions", body, { "content-type": JSON_TYPE });
    expect({ status, told }).toMatchObject({ status: 201, told: fields });
    const at = headers["location"] ?? "";
    expect(at).toMatch(/^\/api\/ambient\/v1\/sessions\/[0-9a-f-]{36}$/);
    const read = await fetch(`http://${service.httpAddress}${at}`);
    expect(await read.json()).toEqual(told);
  });

  test.each([
    [{}, "name", "name must be a text"],
    [{ name: "" }, "name", "name must not be empty"],
    [
      { name: "n", llmModel: "x".repeat(1_025) },
      "llmModel",
      "llmModel must have at most 1024 bytes",
    ],
    [{ name: "n", llm_model: "x" }, "llm_model", "llm_model is not known here"],
    [{ name: "n", parentSessionId: "a b" }, "parentSessionId", "parentSessionId must be 1 to 128"],
    [[], "", "the body must be an object with a name"],
  ])("refuses %j and names the field", async (body, field, description) => {
    const text = JSON.stringify(body);
    const { status, told } = await post("/sessions", text, { "content-type": JSON_TYPE });
    const violations = [{ field, description: expect.stringContaining(description) }];
    expect({ status, told }).toMatchObject({ status: 400, told: { violations } });
  });
});

// A person who knows another API gets the name that means the same here.
test.each([
  ["/sessions?limit=3", "limit", "size"],
  ["/sessions?pageSize=3", "pageSize", "size"],
  ["/sessions?q=a", "q", "query"],
  ["/sessions/s/messages?size=3", "size", "limit"],
  ["/sessions/s/messages?after=3", "after", "after_seq"],
  ["/sessions/s/messages?aftr_seq=3", "aftr_seq", "after_seq"],
  ["/sessions/s/messages?nonsense=3", "nonsense", undefined],
])("GET %s is refused, and names the parameter that was meant", async (path, field, meant) => {
  const hint = meant === undefined ? "" : `; did you mean ${meant}?`;
  const response = await fetch(`http://${service.httpAddress}${API}${path}`);
  expect(response.status).toBe(400);
  const violations = [{ field, description: `${field} is not known here${hint}` }];
  expect(await response.json()).toMatchObject({ violations });
});

describe("one event, or an array", () => {
  test("is stored byte for byte, and its numbers are answered", async () => {
    const id = newSession();
    const text = '{ "type": "RAW",  "event": 1.0 }';
    expect((await push(id, text)).told).toEqual({ first_seq: 1, last_seq: 1 });
    const array = `[ ${text} ,\n{"type":"RAW","event":"],[\\"}"}]`;
    expect((await push(id, array)).told).toEqual({ first_seq: 2, last_seq: 3 });
    const { items } = await client.unary(SessionService.method.listSessionEvents, {
      sessionId: id,
    });
    expect(items.map(({ payload }) => payload)).toEqual([
      text,
      text,
      '{"type":"RAW","event":"],[\\"}"}',
    ]);
  });

  test("has its fragments merged into one row, which expands to them", async () => {
    const id = newSession();
    const events = Array.from({ length: 100 }, (_, at) => said(`${at} `));
    expect((await push(id, events)).told).toEqual({ first_seq: 1, last_seq: 100 });
    expect(await rowsIn(id)).toBe(1);
    expect(await storedIn(id)).toEqual(events);
  });

  test("repeated with its key is stored once, and gets the first answer", async () => {
    const id = newSession();
    const events = [raw(1), said("a"), said("b"), raw(2)];
    const key = { "idempotency-key": "k" };
    const first = await push(id, events, key);
    expect(first.headers["idempotent-replayed"]).toBeUndefined();
    await push(id, raw("between"));
    const again = await push(id, events, key);
    expect(again).toMatchObject({ status: 200, told: { first_seq: 1, last_seq: 4 } });
    expect(again.headers["idempotent-replayed"]).toBe("true");
    expect(again.told).toEqual(first.told);
    for (const other of [
      events.slice(1),
      [...events, raw(3)],
      raw(1),
      [{ ...raw(1) }, said("ab")],
    ]) {
      const { status, told } = await push(id, other, key);
      const violations = [{ field: "Idempotency-Key" }];
      expect({ status, told }).toMatchObject({
        status: 409,
        told: { reason: "KEY_REUSED", violations },
      });
    }
    expect(await storedIn(id)).toEqual([...events, raw("between")]);
  });

  test("many times at once with one key is stored once", async () => {
    const id = newSession();
    const events = [raw(1), raw(2)];
    const key = { "idempotency-key": "k" };
    const answers = await Promise.all(Array.from({ length: 16 }, () => push(id, events, key)));
    expect(new Set(answers.map(({ told }) => JSON.stringify(told))).size).toBe(1);
    expect(await storedIn(id)).toEqual(events);
  });

  test("with a key is the same push as over gRPC", async () => {
    const id = newSession();
    const payload = '{"type":"RAW","event":1}';
    await push(id, payload, { "idempotency-key": "k" });
    const request = { sessionId: id, eventType: "RAW", payload, idempotencyKey: "k" };
    const row = await client.unary(SessionService.method.pushSessionEvent, request);
    expect(row).toMatchObject({ seq: 1n, deduplicated: true });
  });

  test("comes after the received events of a push stream of its session", async () => {
    const id = newSession();
    const { stream } = await PushStreamClient.open(client, { sessionId: id, maxAgeMs: 5_000 });
    const payloads = [said("a"), said("b"), {}].map((event) => JSON.stringify(event));
    stream.batch(
      1,
      payloads.map((payload) => ({ payload })),
    );
    await stream.refused(); // So the fragments have come.
    expect((await push(id, [raw(1), raw(2)])).told).toEqual({ first_seq: 3, last_seq: 4 });
    stream.end();
    await stream.rest();
    expect(await storedIn(id)).toEqual([said("a"), said("b"), raw(1), raw(2)]);
  });

  test("is fenced by Producer-Epoch", async () => {
    const id = newSession();
    const epoch = (value: number): Headers => ({ "producer-epoch": String(value) });
    expect((await push(id, [raw(1)], epoch(2))).status).toBe(200);
    expect((await push(id, [raw(2)], epoch(3))).status).toBe(200);
    const { status, told } = await push(id, [raw(3)], epoch(2));
    expect({ status, told }).toMatchObject({
      status: 409,
      told: { reason: "STALE_EPOCH", detail: expect.stringMatching(/^Producer-Epoch 2 is below/) },
    });
    expect(await storedIn(id)).toEqual([raw(1), raw(2)]);
  });

  test("of ten thousand events is stored whole, and one more is refused", async () => {
    const id = newSession();
    const events = Array.from({ length: 10_001 }, (_, at) => raw(at));
    expect(await push(id, events)).toMatchObject({
      status: 400,
      told: { detail: expect.stringContaining("the body must have 1 to 10000 events") },
    });
    expect((await push(id, events.slice(1))).told).toEqual({ first_seq: 1, last_seq: 10_000 });
  });

  test("with a secret that is cut into two events is redacted", async () => {
    const id = await createdSession(redacting);
    const secret = `ghp_${"a1B2".repeat(9)}`;
    const deltas = [secret.slice(0, 13), `${secret.slice(13)} `];
    const pushed = await fetch(
      `http://${redactingService.httpAddress}${API}/sessions/${id}/events`,
      {
        method: "POST",
        headers: { "content-type": JSON_TYPE },
        body: JSON.stringify(deltas.map((delta) => said(delta))),
      },
    );
    expect(await pushed.json()).toEqual({ first_seq: 1, last_seq: 2 });
    const [row] = await rowsOf(redacting, "events", id);
    expect(row?.payload).toMatch(/"delta":"ghp_\*+ "/);
  });

  const WRONG: readonly (readonly [string, string, string])[] = [
    ['{"type":"RAW"', "", "the body is not valid JSON: it ends too early"],
    ["[]", "", "the body must have 1 to 10000 events"],
    ["5", "", "the event must be a JSON object"],
    ["{}", "type", "type is required"],
    ['[{"type":"RAW","event":1},7]', "[1]", "[1] must be a JSON object"],
    ['[{"type":"RAW","event":1},{}]', "[1].type", "[1].type is required"],
    ['{"type":"TEXT_MESSAGE_END"}', "messageId", "messageId must be a string, but is absent"],
    [
      '[{"type":"RAW","event":1},{"type":"TEXT_MESSAGE_END"}]',
      "[1].messageId",
      "[1].messageId must be a string, but is absent",
    ],
    ['{"type":"RAW","event":1,"event":2}', "event", "event must be given once"],
    ["", "Content-Type", "Content-Type must be application/json or application/x-ndjson"],
  ];

  test.each(WRONG)("refuses %s, names the place, and stores nothing", async (body, field, why) => {
    const id = newSession();
    const { status, told } = await push(id, body);
    expect(told).toMatchObject({
      status: body === "" ? 415 : 400,
      detail: expect.stringContaining(why),
      violations: [{ field, description: expect.stringContaining(why) }],
    });
    expect(status).toBe(told["status"]);
    const read = await fetch(`http://${service.httpAddress}${API}/sessions/${id}`);
    expect(read.status).toBe(404);
  });

  test("refuses a payload that is too large, and names the event", async () => {
    const id = newSession();
    const { status, told } = await push(id, [raw(1), raw("x".repeat(4_170_000))]);
    expect({ status, told }).toMatchObject({
      status: 413,
      told: { reason: "PAYLOAD_TOO_LARGE", violations: [{ field: "[1]" }] },
    });
  });

  test("refuses wrong headers by name", async () => {
    const id = newSession();
    const wrong: readonly (readonly [Headers, string])[] = [
      [{ "producer-epoch": "-1" }, "Producer-Epoch"],
      [{ "client-seq": "1", "producer-epoch": "1" }, "Client-Seq"],
      [{ "idempotency-key": "k".repeat(129) }, "Idempotency-Key"],
    ];
    for (const [headers, field] of wrong) {
      const { status, told } = await push(id, raw(1), headers);
      expect({ status, told }).toMatchObject({ status: 400, told: { violations: [{ field }] } });
    }
  });
});

describe("a body of lines", () => {
  test("is one push: stored in order and merged, without empty lines and a last line feed", async () => {
    const id = newSession();
    const events = [raw(1), ...Array.from({ length: 500 }, (_, at) => said(`${at} `)), raw("é😀")];
    const { status, told } = await lines(id, `\n  ${linesOf(events).trimEnd()}`);
    expect({ status, told }).toEqual({ status: 200, told: { first_seq: 1, last_seq: 502 } });
    expect(await rowsIn(id)).toBe(3);
    expect(await storedIn(id)).toEqual(events);
  });

  test("with a wrong line stores nothing, and the error names the line by its index", async () => {
    const id = newSession();
    const text = `${linesOf([raw(1)])}\n{"type":"TEXT_MESSAGE_END"}\n${linesOf([raw(2)])}`;
    expect(await lines(id, text)).toMatchObject({
      status: 400,
      told: { violations: [{ field: "[1].messageId" }] },
    });
    const read = await fetch(`http://${service.httpAddress}${API}/sessions/${id}`);
    expect(read.status).toBe(404);
  });

  test("with a key is one push, like an array: stored once, or not at all", async () => {
    const id = newSession();
    const key = { "idempotency-key": "k" };
    const events = [raw(1), said("a"), said("b")];
    const text = `\n${linesOf(events).trimEnd()}`;
    expect((await lines(id, text, key)).told).toEqual({ first_seq: 1, last_seq: 3 });
    const again = await lines(id, text, key);
    expect(again.told).toEqual({ first_seq: 1, last_seq: 3 });
    expect(again.headers["idempotent-replayed"]).toBe("true");
    expect((await push(id, events, key)).headers["idempotent-replayed"]).toBe("true");
    expect(await lines(id, linesOf([raw(2)]), key)).toMatchObject({
      status: 409,
      told: { reason: "KEY_REUSED" },
    });
    const other = { "idempotency-key": "other" };
    for (const [body, violation] of [
      [`${linesOf([raw(2)])}{"type":"NONE"}`, { field: expect.stringMatching(/^\[1\]/) }],
      [linesOf([raw(2)]).repeat(10_001), { description: expect.stringContaining("1 to 10000") }],
      ["", { description: expect.stringContaining("1 to 10000") }],
    ] as const) {
      const refused = await lines(id, body, other);
      expect(refused).toMatchObject({ status: 400, told: { violations: [violation] } });
    }
    expect(await storedIn(id)).toEqual(events);
  });

  test("with a line that is not UTF-8 is refused whole", async () => {
    const id = newSession();
    const body = new Uint8Array([...new TextEncoder().encode(linesOf([raw(1)])), 0xff]);
    const response = await fetch(`http://${service.httpAddress}${API}/sessions/${id}/events`, {
      method: "POST",
      headers: { "content-type": LINES_TYPE },
      body,
    });
    expect(await response.json()).toMatchObject({
      status: 400,
      violations: [{ description: "the line of event 2 is not UTF-8" }],
    });
  });

  test("in pieces of any size is the same body", async () => {
    const id = newSession();
    const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
    const url = `http://${service.httpAddress}${API}/sessions/${id}/events`;
    const headers = { "content-type": LINES_TYPE };
    const request = httpRequest(url, { method: "POST", headers }, resolve).once("error", reject);
    for (const byte of Buffer.from(linesOf([raw("é😀"), raw("ß")])))
      request.write(Uint8Array.of(byte));
    request.end();
    expect(await textOf(await promise)).toBe('{"first_seq":1,"last_seq":2}');
    expect(await storedIn(id)).toEqual([raw("é😀"), raw("ß")]);
  });

  test("whose caller leaves before its end stores nothing", async () => {
    const id = await createdSession(client);
    const url = `http://${service.httpAddress}${API}/sessions/${id}/events`;
    const request = httpRequest(url, { method: "POST", headers: { "content-type": LINES_TYPE } });
    request.on("error", () => undefined);
    const written = Promise.withResolvers<void>();
    request.write(linesOf([raw(1), raw(2)]), () => written.resolve());
    await written.promise;
    request.destroy();
    await push(id, raw("after"));
    expect(await storedIn(id)).toEqual([raw("after")]);
  });
});
