/**
 * Sessions and events written over HTTP: one event, arrays and bodies of lines, with keys and with
 * numbers. Each answer is compared with the OpenAPI document of the same service.
 */
import { beforeAll, describe, expect, test } from "vitest";
import { SessionService } from "../../gen/ambient/v1/sessions_pb.ts";
import {
  type LinesUpload as Lines,
  LinesUpload,
  type UploadAnswer,
} from "../support/http-clients.ts";
import { OpenApi } from "../support/openapi.ts";
import { PushStreamClient } from "../support/push-stream.ts";
import { newSession } from "../support/pushing.ts";
import { useService } from "../support/use-service.ts";

const API = "/api/ambient/v1";
const JSON_TYPE = "application/json";
const LINES_TYPE = "application/x-ndjson";

const { service, client } = useService();
let openApi: OpenApi;

beforeAll(async () => {
  const document = await fetch(`http://${service.httpAddress}/openapi.json`);
  openApi = new OpenApi(await document.json());
});

type Headers = Readonly<Record<string, string>>;

async function post(path: string, body: string, headers: Headers): Promise<UploadAnswer> {
  const url = `http://${service.httpAddress}${API}${path}`;
  const response = await fetch(url, { method: "POST", headers, body });
  const place = path.replace(/\/sessions\/[^/]+/, "/sessions/{id}");
  const asked = { method: "POST", path: `${API}${place}` };
  expect(await openApi.fault(asked, response.clone())).toBeUndefined();
  const told = { ...Object(await response.json()) };
  return { status: response.status, headers: Object.fromEntries(response.headers), told };
}

function push(sessionId: string, events: unknown, headers: Headers = {}): Promise<UploadAnswer> {
  const text = typeof events === "string" ? events : JSON.stringify(events);
  return post(`/sessions/${sessionId}/events`, text, { "content-type": JSON_TYPE, ...headers });
}

function lines(sessionId: string, text: string, headers: Headers = {}): Promise<UploadAnswer> {
  return post(`/sessions/${sessionId}/events`, text, { "content-type": LINES_TYPE, ...headers });
}

function open(sessionId: string, headers: Headers = {}): Lines {
  return new LinesUpload(service.httpAddress, `${API}/sessions/${sessionId}/events`, headers);
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

  test("of a thousand events is stored whole, and one more is refused", async () => {
    const id = newSession();
    const events = Array.from({ length: 1_001 }, (_, at) => raw(at));
    expect(await push(id, events)).toMatchObject({
      status: 400,
      told: { detail: expect.stringContaining("the body must have 1 to 1000 events") },
    });
    expect((await push(id, events.slice(1))).told).toEqual({ first_seq: 1, last_seq: 1_000 });
  });

  const WRONG: readonly (readonly [string, string, string])[] = [
    ['{"type":"RAW"', "", "the body is not valid JSON: it ends too early"],
    ["[]", "", "the body must have 1 to 1000 events"],
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
      [{ "client-seq": "x", "producer-epoch": "1" }, "Client-Seq"],
      [{ "client-seq": "1" }, "Producer-Epoch"],
      [{ "client-seq": "1", "producer-epoch": "1", "idempotency-key": "k" }, "Idempotency-Key"],
      [{ "idempotency-key": "k".repeat(129) }, "Idempotency-Key"],
    ];
    for (const [headers, field] of wrong) {
      const { status, told } = await push(id, raw(1), headers);
      expect({ status, told }).toMatchObject({ status: 400, told: { violations: [{ field }] } });
    }
  });

  test("with Client-Seq is numbered: known numbers are skipped, a gap is refused", async () => {
    const id = newSession();
    const at = (seq: number): Headers => ({ "producer-epoch": "7", "client-seq": String(seq) });
    const first = await push(id, [raw(1), raw(2)], at(1));
    expect(first.told).toEqual({
      producer_epoch: "7",
      last_client_seq: 2,
      first_seq: 1,
      last_seq: 2,
      refused_count: 0,
    });
    const again = await push(id, [raw(1), raw(2), raw(3)], at(1));
    expect(again.told).toMatchObject({ last_client_seq: 3, first_seq: 3, last_seq: 3 });
    const known = await push(id, raw(3), at(3));
    expect(known.told).toEqual({ producer_epoch: "7", last_client_seq: 3, refused_count: 0 });
    const gap = await push(id, raw(5), at(5));
    expect(gap).toMatchObject({
      status: 400,
      told: {
        violations: [{ field: "Client-Seq", description: expect.stringContaining("at most 4") }],
        last_client_seq: 3,
      },
    });
    expect(await storedIn(id)).toEqual([raw(1), raw(2), raw(3)]);
  });
});

describe("a body of lines", () => {
  test("is stored in order, merged, and numbered from 1", async () => {
    const id = newSession();
    const events = [raw(1), ...Array.from({ length: 500 }, (_, at) => said(`${at} `)), raw(2)];
    const { status, told } = await lines(id, `\n  ${linesOf(events)}\r\n\n`);
    expect({ status, told }).toEqual({
      status: 200,
      told: {
        producer_epoch: "1",
        last_client_seq: 502,
        first_seq: 1,
        last_seq: 502,
        refused_count: 0,
      },
    });
    expect(await rowsIn(id)).toBe(3);
    expect(await storedIn(id)).toEqual(events);
  });

  test("is committed while it is open", async () => {
    const id = newSession();
    const upload = open(id);
    for (let at = 1; at <= 3; at += 1) {
      upload.line(raw(at));
      await expect.poll(() => storedIn(id).catch(() => [])).toHaveLength(at);
    }
    expect(await upload.end()).toMatchObject({ status: 200, told: { last_client_seq: 3 } });
  });

  test("has its last line taken without a line feed, and characters cut between two pieces", async () => {
    const id = newSession();
    const upload = open(id);
    const text = Buffer.from(`${JSON.stringify(raw("é😀"))}\n${JSON.stringify(raw("ß"))}`);
    for (const byte of text) upload.write(Uint8Array.of(byte));
    expect((await upload.end()).told).toMatchObject({ last_client_seq: 2 });
    expect(await storedIn(id)).toEqual([raw("é😀"), raw("ß")]);
  });

  test("without a line tells where the epoch stands, and stores nothing", async () => {
    const id = newSession();
    const epoch = { "producer-epoch": "5" };
    await lines(id, linesOf([raw(1), raw(2)]), epoch);
    expect((await lines(id, "", epoch)).told).toEqual({
      producer_epoch: "5",
      last_client_seq: 2,
      refused_count: 0,
    });
  });

  test("lists the refused events with their problems, and the others are stored", async () => {
    const id = newSession();
    const text = `${linesOf([raw(1)])}nonsense\n{"type":"TEXT_MESSAGE_END"}\n${linesOf([raw(2)])}`;
    const { status, told } = await lines(id, text);
    expect({ status, told }).toMatchObject({
      status: 200,
      told: {
        last_client_seq: 4,
        first_seq: 1,
        last_seq: 2,
        refused_count: 2,
        refused: [
          {
            client_seq: 2,
            problem: { status: 400, reason: "INVALID_REQUEST", violations: [{ field: "" }] },
          },
          {
            client_seq: 3,
            problem: {
              violations: [
                {
                  field: "messageId",
                  description: "messageId must be a string, but is absent",
                },
              ],
            },
          },
        ],
      },
    });
    expect(await storedIn(id)).toEqual([raw(1), raw(2)]);
  });

  test("counts all refused events, and describes the first hundred", async () => {
    const { told } = await lines(newSession(), "nonsense\n".repeat(1_000));
    expect(told).toMatchObject({ refused_count: 1_000, last_client_seq: 1_000 });
    expect(told["refused"]).toHaveLength(100);
    expect(told).not.toHaveProperty("first_seq");
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
      [linesOf([raw(2)]).repeat(1_001), { description: expect.stringContaining("1 to 1000") }],
      ["", { description: expect.stringContaining("1 to 1000") }],
    ] as const) {
      const refused = await lines(id, body, other);
      expect(refused).toMatchObject({ status: 400, told: { violations: [violation] } });
    }
    expect(await storedIn(id)).toEqual(events);
  });

  test("with a key and a line that is not UTF-8 is refused whole", async () => {
    const id = newSession();
    const body = new Uint8Array([...new TextEncoder().encode(linesOf([raw(1)])), 0xff]);
    const response = await fetch(`http://${service.httpAddress}${API}/sessions/${id}/events`, {
      method: "POST",
      headers: { "content-type": LINES_TYPE, "idempotency-key": "k" },
      body,
    });
    expect(await response.json()).toMatchObject({
      status: 400,
      violations: [{ description: "the line of event 2 is not UTF-8" }],
    });
  });

  test("refuses a key beside Client-Seq", async () => {
    const headers = { "idempotency-key": "k", "producer-epoch": "1", "client-seq": "1" };
    const { status, told } = await lines(newSession(), "", headers);
    const description = expect.stringContaining("Producer-Epoch and Client-Seq make");
    const violations = [{ field: "Idempotency-Key", description }];
    expect({ status, told }).toMatchObject({ status: 400, told: { violations } });
  });

  test("killed in the middle leaves its complete lines, and goes on by Client-Seq", async () => {
    const id = newSession();
    const events = Array.from({ length: 40 }, (_, at) => (at % 3 === 0 ? raw(at) : said(`${at} `)));
    const epoch = { "producer-epoch": "9" };
    const upload = open(id, epoch);
    upload.line(...events.slice(0, 25));
    upload.write(JSON.stringify(events[25]).slice(0, -1)); // A line that never ends.
    await expect.poll(() => storedIn(id).catch(() => [])).not.toHaveLength(0);
    upload.kill();
    await expect.poll(() => storedIn(id)).toHaveLength(25);
    const { told } = await lines(id, "", epoch);
    expect(told).toMatchObject({ last_client_seq: 25 });
    const rest = { ...epoch, "client-seq": "21" }; // Five of them are known.
    expect((await lines(id, linesOf(events.slice(20)), rest)).told).toMatchObject({
      last_client_seq: 40,
      last_seq: 40,
    });
    expect(await storedIn(id)).toEqual(events);
  });

  test("killed at any byte, then sent again whole, is stored once", async () => {
    const id = newSession();
    const events = Array.from({ length: 30 }, (_, at) => (at % 4 === 0 ? raw(at) : said(`${at} `)));
    const text = Buffer.from(linesOf(events));
    const epoch = { "producer-epoch": "3" };
    for (let at = 1; at < text.length; at += 97) {
      const upload = open(id, epoch);
      upload.write(text.subarray(0, at));
      await expect.poll(() => rowsIn(id).catch(() => -1)).toBeGreaterThan(-1);
      upload.kill();
    }
    expect((await lines(id, text.toString(), epoch)).told).toMatchObject({ last_client_seq: 30 });
    expect(await storedIn(id)).toEqual(events);
  });

  test("of an old epoch is fenced at once by one of a higher epoch, and learns what it stored", async () => {
    const id = newSession();
    const old = open(id, { "producer-epoch": "1" });
    old.line(raw("old"));
    await expect.poll(() => storedIn(id).catch(() => [])).toHaveLength(1);
    const young = open(id, { "producer-epoch": "2" });
    expect(await old.answer).toMatchObject({
      status: 409,
      told: { reason: "STALE_EPOCH", last_client_seq: 1, first_seq: 1, last_seq: 1 },
    });
    young.line(raw("young"));
    expect(await young.end()).toMatchObject({ status: 200, told: { last_client_seq: 1 } });
    const late = await lines(id, linesOf([raw("late")]), { "producer-epoch": "1" });
    expect(late).toMatchObject({ status: 409, told: { reason: "STALE_EPOCH" } });
    expect(await storedIn(id)).toEqual([raw("old"), raw("young")]);
  });

  test("and a stream over gRPC of the same epoch are one writer: the newer one goes on", async () => {
    const id = newSession();
    const upload = open(id, { "producer-epoch": "4" });
    upload.line(raw(1));
    await expect.poll(() => storedIn(id).catch(() => [])).toHaveLength(1);
    const { stream, opened } = await PushStreamClient.open(client, {
      sessionId: id,
      producerEpoch: 4n,
    });
    expect(opened.lastClientSeq).toBe(1n);
    expect(await upload.answer).toMatchObject({ status: 409, told: { reason: "STREAM_REPLACED" } });
    stream.batch(2, [{ payload: JSON.stringify(raw(2)) }]);
    expect(await stream.committed(2)).toMatchObject({ firstSeq: 2n, lastSeq: 2n });
    stream.end();
  });

  test("ends at a line that is not UTF-8 or too long; the lines before it are stored", async () => {
    const wrong = Buffer.from([0x22, 0xff, 0x22, 0x0a]);
    const long = Buffer.alloc(4_194_305, "x");
    for (const [bytes, status, why] of [
      [wrong, 400, "the line of event 2 is not UTF-8"],
      [long, 413, "the line of event 2 has more than 4194304 bytes"],
    ] as const) {
      const id = newSession();
      const upload = open(id);
      upload.line(raw(1));
      upload.write(bytes);
      expect(await upload.answer).toMatchObject({
        status,
        told: { detail: why, last_client_seq: 1, last_seq: 1 },
      });
      expect(await storedIn(id)).toEqual([raw(1)]);
      upload.kill();
    }
  });

  test("ends when its session is deleted", async () => {
    const id = newSession();
    const upload = open(id);
    upload.line(raw(1));
    await expect.poll(() => storedIn(id).catch(() => [])).toHaveLength(1);
    await client.unary(SessionService.method.deleteSession, { id });
    expect(await upload.answer).toMatchObject({
      status: 404,
      told: { reason: "SESSION_DELETED", last_client_seq: 1 },
    });
  });
});
