/**
 * Every REST route of a running service, asked with what it takes and with what it does not. Each
 * answer is held against the OpenAPI document that the same service serves.
 */
import { beforeAll, describe, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { expand } from "@session-ledger/compressor/expand";
import { type Asked, OpenApi } from "../support/openapi.ts";
import { newSession, push } from "../support/pushing.ts";
import { useService } from "../support/use-service.ts";

const API = "/api/ambient/v1";

const { service, client } = useService();
let openApi: OpenApi;

beforeAll(async () => {
  const document = await fetch(`http://${service.httpAddress}/openapi.json`);
  openApi = new OpenApi(await document.json());
});
/** Asks, and holds the answer against the document: `at` is the path as the document has it. */
async function ask(at: string, path: string, init: RequestInit = {}): Promise<Response> {
  const response = await fetch(`http://${service.httpAddress}${API}${path}`, init);
  const asked: Asked = { method: init.method ?? "GET", path: `${API}${at}` };
  expect(await openApi.fault(asked, response.clone()), `${asked.method} ${path}`).toBeUndefined();
  return response;
}

const post = (body: unknown, headers: Record<string, string> = {}): RequestInit => ({
  method: "POST",
  headers: { "content-type": "application/json", ...headers },
  body: JSON.stringify(body),
});

const EVENTS: readonly (readonly [string, object, object?])[] = [
  ["RUN_STARTED", { threadId: "t", runId: "r1", parentRunId: "r0" }],
  ["TEXT_MESSAGE_START", { messageId: "m1", role: "assistant" }],
  [
    "TEXT_MESSAGE_CONTENT",
    { messageId: "m1", delta: "Hello" },
    { eventCount: 2, fragments: { lengths: [3, 4] } },
  ],
  ["TEXT_MESSAGE_END", { messageId: "m1" }],
  ["RUN_FINISHED", { threadId: "t", runId: "r1" }],
];

/** A session with one run: numbers 1 to 6, of which 3 and 4 are one row. */
async function sessionWithRun(): Promise<string> {
  const sessionId = newSession();
  for (const [index, [eventType, fields, more = {}]] of EVENTS.entries()) {
    const payload = JSON.stringify({ type: eventType, ...fields });
    const createdAt = { seconds: 1_700_000_000n + BigInt(index), nanos: 123_456_000 };
    await push(client, "events", { sessionId, eventType, payload, createdAt, ...more });
  }
  return sessionId;
}

async function problemOf(response: Response): Promise<Record<string, unknown>> {
  expect(response.headers.get("content-type")).toBe("application/problem+json");
  const problem: unknown = await response.json();
  return { ...Object(problem) };
}

describe("sessions", () => {
  const LIST = "/sessions";
  const ONE = "/sessions/{id}";

  test("are listed, read and deleted", async () => {
    const name = "a name";
    const projectId = newSession(); // Sessions of other files are in the list too.
    const request = { name, projectId };
    const { metadata } = await client.unary(SessionService.method.createSession, request);
    const id = metadata?.id ?? "";
    const listed = await ask(LIST, `/sessions?page=1&size=1&project_id=${projectId}`);
    expect(await listed.json()).toMatchObject({
      items: [{ metadata: { id, kind: "Session", href: `${API}/sessions/${id}` }, name }],
      metadata: { page: 1, size: 1 },
    });
    const read = await ask(ONE, `/sessions/${id}`);
    expect(await read.json()).toMatchObject({ metadata: { id }, name });
    const deleted = await ask(ONE, `/sessions/${id}`, { method: "DELETE" });
    expect(deleted.status).toBe(204);
    for (const method of ["GET", "DELETE"]) {
      const gone = await ask(ONE, `/sessions/${id}`, { method });
      expect(gone.status, `of ${method}`).toBe(404);
    }
    expect((await ask("/sessions/{id}/runs", `/sessions/${id}/runs`)).status).toBe(404);
  });

  test("are filtered and ordered by the parameters of the query", async () => {
    const projectId = newSession();
    const ids: Record<string, string> = {};
    for (const [name, labels] of [
      ["Blue whale", '{"team":"a=b","env":"test"}'],
      ["red fox", '{"team":"a=b"}'],
      ["BLUEBIRD", '{"team":"c"}'],
    ] as const) {
      const request = { name, labels, projectId };
      const { metadata } = await client.unary(SessionService.method.createSession, request);
      ids[name] = metadata?.id ?? "";
    }
    const at = (name: string, rest: string) => `/sessions/${ids[name]}${rest}`;
    await ask("/sessions/{id}/messages", at("red fox", "/messages"), post({ payload: "hi" }));
    await ask("/sessions/{id}/messages", at("Blue whale", "/messages"), post({ payload: "hi" }));
    const started = { type: "RUN_STARTED", threadId: ids["BLUEBIRD"], runId: "r" };
    await ask("/sessions/{id}/events", at("BLUEBIRD", "/events"), post(started));
    const names = async (query: string) => {
      const listed = await ask(LIST, `/sessions?project_id=${projectId}&${query}`);
      expect(listed.status, `of ${query}`).toBe(200);
      const { items, metadata } = Object(await listed.json());
      expect(metadata.total).toBe(items.length);
      return items.map(({ name }: { name: string }) => name);
    };
    expect(await names("")).toEqual(["BLUEBIRD", "red fox", "Blue whale"]);
    expect(await names("query=bLuE")).toEqual(["BLUEBIRD", "Blue whale"]);
    expect(await names("query=%25")).toEqual([]);
    expect(await names(`query=${ids["red fox"]?.toUpperCase().slice(-20)}`)).toEqual(["red fox"]);
    await ask(ONE + "/status", at("red fox", "/status"), {
      ...post({ phase: "Stopping" }),
      method: "PATCH",
    });
    expect(await names("phase=Stopping")).toEqual(["red fox"]);
    expect(await names("labels=team%3Da%3Db")).toEqual(["red fox", "Blue whale"]);
    expect(await names("labels=team=a=b&labels=env=test")).toEqual(["Blue whale"]);
    expect(await names("running=true")).toEqual(["BLUEBIRD"]);
    expect(await names("waiting=true")).toEqual(["red fox", "Blue whale"].toSorted().toReversed());
    expect(await names("waiting=true&order_by=waiting")).toEqual(["red fox", "Blue whale"]);
    expect(await names("order_by=activity")).toEqual(["BLUEBIRD", "Blue whale", "red fox"]);
    for (const [query, field] of [
      ["labels=team", "labels.0"],
      ["order_by=name", "order_by"],
      ["order_by=waiting", "order_by"],
    ]) {
      const refused = await ask(LIST, `/sessions?${query}`);
      expect(refused.status, `of ${query}`).toBe(400);
      expect(await problemOf(refused)).toMatchObject({ violations: [{ field }] });
    }
  });

  test("tell how their last ended run failed, if the list asks for it", async () => {
    const id = newSession();
    const run = (runId: string, end: object) => [
      { type: "RUN_STARTED", threadId: id, runId },
      { type: "RUN_ERROR", message: "", ...end },
    ];
    const pushed = (events: readonly object[]) =>
      ask("/sessions/{id}/events", `/sessions/${id}/events`, post(events));
    const failureOf = async (query: string): Promise<unknown> => {
      const listed = await ask(LIST, `/sessions?query=${id}&${query}`);
      return Object(await listed.json()).items[0].failure;
    };
    await pushed(run("r1", { message: "é".repeat(1_100), code: "E1" }));
    expect(await failureOf("failures=true")).toMatchObject({
      runId: "r1",
      seq: "2",
      message: "é".repeat(1_024),
      code: "E1",
    });
    expect(await failureOf("failures=false")).toBeUndefined();
    await pushed(run("r2", { message: "x".repeat(8_192) }));
    expect(await failureOf("failures=true")).toMatchObject({ runId: "r2", seq: "4", message: "" });
    await pushed([{ type: "RUN_STARTED", threadId: id, runId: "r3" }]);
    expect(await failureOf("failures=true")).toMatchObject({ runId: "r2" });
    await pushed([{ type: "RUN_FINISHED", threadId: id, runId: "r3" }]);
    expect(await failureOf("failures=true")).toBeUndefined();
  });

  test("have a new name, labels or annotations after a PATCH", async () => {
    const made = await client.unary(SessionService.method.createSession, { name: "old" });
    const id = made.metadata?.id ?? "";
    const patch = (body: unknown) =>
      ask(ONE, `/sessions/${id}`, { ...post(body), method: "PATCH" });
    const labels = '{"team":"a"}';
    const changed = await patch({ labels, annotations: "" });
    expect(changed.status).toBe(200);
    expect(await changed.json()).toMatchObject({ name: "old", labels, annotations: "" });
    const named = await patch({ name: "new" });
    const session: unknown = await named.json();
    expect(session).toMatchObject({ name: "new", labels });
    expect(await (await ask(ONE, `/sessions/${id}`)).json()).toEqual(session);
    for (const [body, field] of [
      [{ name: "" }, "name"],
      [{ labels: 1 }, "labels"],
      [{ phase: "Running" }, "phase"],
    ] as const) {
      const refused = await patch(body);
      expect(refused.status).toBe(400);
      expect(await problemOf(refused)).toMatchObject({ violations: [{ field }] });
    }
  });

  test("an empty page has an empty list of items", async () => {
    const page = await ask(LIST, "/sessions?page=10000&size=1");
    expect(await page.json()).toMatchObject({ items: [], metadata: { size: 0 } });
  });
});

describe("messages", () => {
  const PATH = "/sessions/{id}/messages";

  test("are written and read as an array", async () => {
    const sessionId = newSession();
    const at = `/sessions/${sessionId}/messages`;
    const before = Date.now();
    const first = await ask(PATH, at, post({ payload: "hi" }));
    expect(first.status).toBe(201);
    const message: unknown = await first.json();
    expect(message).toEqual({
      id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      session_id: sessionId,
      seq: 1,
      event_type: "user",
      payload: "hi",
      created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/),
    });
    expect(Date.parse(Object(message).created_at)).toBeGreaterThanOrEqual(before);
    const second = await ask(PATH, at, post({ event_type: "assistant", payload: "" }));
    const answer: unknown = await second.json();
    const read = async (query: string) => (await ask(PATH, `${at}${query}`)).json();
    expect(await read("")).toEqual([message, answer]);
    expect(await read("?after_seq=1")).toEqual([answer]);
    expect(await read("?after_seq=2")).toEqual([]);
    expect(await read("?limit=1")).toEqual([message]);
  });

  test("a message keeps its sender and the time at which it was sent", async () => {
    const at = `/sessions/${newSession()}/messages`;
    const sender = {
      id: "U1",
      name: "ann",
      display_name: "Ann",
      is_bot: true,
      channel: "slack",
      channel_id: "C1",
      thread_id: "T1",
    };
    const said = { sender, sent_at: "2026-11-22T02:54:40.1234567+01:00", payload: "hi" };
    const written: unknown = await (await ask(PATH, at, post(said))).json();
    expect(written).toMatchObject({ sender, sent_at: "2026-11-22T01:54:40.123456Z" });
    expect(await (await ask(PATH, at)).json()).toEqual([written]);
  });

  test("a message with an empty type is a user message", async () => {
    const at = `/sessions/${newSession()}/messages`;
    const written = await ask(PATH, at, post({ event_type: "", payload: "x" }));
    expect(await written.json()).toMatchObject({ event_type: "user" });
  });

  test("a retry with the key gets the first message, and other content is 409", async () => {
    const at = `/sessions/${newSession()}/messages`;
    const key = { "idempotency-key": "k" };
    const first = await ask(PATH, at, post({ payload: "x" }, key));
    const again = await ask(PATH, at, post({ payload: "x" }, key));
    expect([first.status, again.status]).toEqual([201, 201]);
    expect(await again.json()).toEqual(await first.json());
    expect(first.headers.get("idempotent-replayed")).toBeNull();
    expect(again.headers.get("idempotent-replayed")).toBe("true");
    const other = await ask(PATH, at, post({ payload: "y" }, key));
    expect(other.status).toBe(409);
    expect(await problemOf(other)).toMatchObject({ reason: "KEY_REUSED" });
  });

  test("the path is a stream for `Accept: text/event-stream`, and the answer has Vary", async () => {
    const at = `/sessions/${newSession()}/messages`;
    await ask(PATH, at, post({ payload: "x" }));
    const leaving = new AbortController();
    const headers = { accept: "text/event-stream" };
    const url = `http://${service.httpAddress}${API}${at}`;
    const stream = await fetch(url, { headers, signal: leaving.signal });
    expect(stream.headers.get("content-type")).toMatch(/^text\/event-stream/);
    expect(stream.headers.get("vary")).toBe("Accept");
    leaving.abort();
    const both = { accept: "application/json, text/event-stream;q=0.5" };
    const array = await ask(PATH, at, { headers: both });
    expect(array.headers.get("vary")).toBe("Accept");
    expect(await array.json()).toHaveLength(1);
    const head = await fetch(url, { method: "HEAD", headers });
    expect(head.headers.get("content-type")).toBe("application/json");
  });
});

describe("the list of events", () => {
  const PATH = "/sessions/{id}/events/history";
  const seqsOf = async (id: string, query: string) => {
    const page: unknown = await (await ask(PATH, `/sessions/${id}/events/history${query}`)).json();
    const { items, ...rest } = Object(page);
    return { seqs: items.map((item: { seq: number }) => item.seq), ...rest };
  };

  test("is a page with its cursors and total", async () => {
    const id = await sessionWithRun();
    const page: unknown = await (await ask(PATH, `/sessions/${id}/events/history?limit=3`)).json();
    expect(page).toEqual({
      kind: "SessionEventList",
      page: 1,
      size: 3,
      total: 6,
      items: [
        expect.objectContaining({ seq: 1, event_type: "RUN_STARTED", event_count: 1 }),
        expect.objectContaining({ seq: 2 }),
        {
          id: expect.any(String),
          session_id: id,
          seq: 3,
          event_type: "TEXT_MESSAGE_CONTENT",
          payload: '{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"Hello"}',
          created_at: "2023-11-14T22:13:22.123456Z",
          event_count: 2,
          run_id: "r1",
        },
      ],
      next_after_seq: 4,
      has_more: true,
    });
    expect(await seqsOf(id, "?after_seq=4")).toMatchObject({ seqs: [5, 6], has_more: false });
  });

  test("is read backwards from the newest row", async () => {
    const id = await sessionWithRun();
    const newest = await seqsOf(id, "?descending=true&limit=2");
    expect(newest).toMatchObject({ seqs: [6, 5], next_before_seq: 5, has_more: true });
    expect(await seqsOf(id, "?descending=true&before_seq=5")).toMatchObject({
      seqs: [3, 2, 1],
      next_before_seq: 1,
      has_more: false,
    });
    expect(await seqsOf(id, "?before_seq=3")).toMatchObject({ seqs: [1, 2] });
  });

  test("gives a merged row with its index, from which it expands", async () => {
    const id = await sessionWithRun();
    const page: unknown = await (
      await ask(PATH, `/sessions/${id}/events/history?fragments=true`)
    ).json();
    const [, , row, single] = Object(page).items;
    expect(single.fragments).toBeUndefined();
    const fragments = Buffer.from(row.fragments, "base64");
    const { seq, payload, event_type: eventType, event_count: eventCount } = row;
    const expandable = { seq: BigInt(seq), eventType, payload, eventCount, fragments };
    const events = [...expand({ ...expandable, createdAtMicros: 0n })];
    expect(events.map((event) => JSON.parse(event.payload).delta)).toEqual(["He", "llo"]);
  });

  test("gives the times of the commits, which order the rows of both streams", async () => {
    const id = await sessionWithRun();
    const items = async (path: typeof PATH | "/sessions/{id}/messages", query: string) => {
      const route = path.replace("{id}", id);
      const page: unknown = await (await ask(path, `${route}${query}`)).json();
      const list: readonly { recorded_at?: string }[] = Array.isArray(page)
        ? page
        : Object(page).items;
      return list.map(({ recorded_at: at }) => at);
    };
    const up = await items(PATH, "?recorded=true");
    expect(up).toEqual(Array.from(up, () => expect.stringMatching(/^20.*\.\d{6}Z$/)));
    const micros = up.map((at = "") =>
      Number(`${at.slice(11, 19)}${at.slice(20, 26)}`.replaceAll(":", "")),
    );
    expect(micros).toEqual(micros.toSorted((one, other) => one - other));
    expect(await items(PATH, "?recorded=true&descending=true")).toEqual(up.toReversed());
    expect(await items(PATH, "?recorded=true&event_type=RUN_STARTED")).toEqual(up.slice(0, 1));
    expect(await items(PATH, "?limit=1")).toEqual([undefined]);
    expect(await items(PATH, "?recorded=true&expand=true&limit=1")).toEqual([undefined]);
    const messages = `/sessions/${id}/messages`;
    const { created_at: saidAt } = Object(
      await (await ask("/sessions/{id}/messages", messages, post({ payload: "hi" }))).json(),
    );
    const [recordedAt] = await items("/sessions/{id}/messages", "?recorded=true");
    expect(recordedAt).toEqual(expect.stringMatching(/^20.*\.\d{6}Z$/));
    expect(Date.parse(recordedAt ?? "")).toBeGreaterThanOrEqual(Date.parse(saidAt) - 1_000);
    expect(await items("/sessions/{id}/messages", "")).toEqual([undefined]);
    const headers = { accept: "text/event-stream" };
    const refused = await ask("/sessions/{id}/messages", `${messages}?recorded=true`, { headers });
    expect(refused.status).toBe(400);
    expect(JSON.stringify(await refused.json())).toContain(
      "recorded must not be given for a stream",
    );
  });

  test("returns each raw event with expand", async () => {
    const id = await sessionWithRun();
    const page = await ask(PATH, `/sessions/${id}/events/history?expand=true&after_seq=2&limit=2`);
    expect(await page.json()).toMatchObject({
      items: [
        { seq: 3, event_count: 1, payload: expect.stringContaining('"delta":"He"') },
        { seq: 4, event_count: 1, payload: expect.stringContaining('"delta":"llo"') },
      ],
      next_after_seq: 4,
      has_more: true,
    });
  });

  test("filters by type, run and time, and then has no total", async () => {
    const id = await sessionWithRun();
    const types = await seqsOf(id, "?event_type=RUN_STARTED&event_type=RUN_FINISHED");
    expect(types).toMatchObject({ seqs: [1, 6], next_after_seq: 6 });
    expect(types).not.toHaveProperty("total");
    expect(await seqsOf(id, "?run_id=r1")).toMatchObject({ seqs: [1, 2, 3, 5, 6] });
    expect(await seqsOf(id, "?run_id=r2")).toMatchObject({ seqs: [], next_after_seq: 6 });
    const from = "2023-11-14T22:13:22.123456Z";
    expect((await seqsOf(id, `?start_time=${from}`)).seqs).toEqual([3, 5, 6]);
    expect((await seqsOf(id, `?end_time=${from}`)).seqs).toEqual([1, 2, 3]);
    const zone = encodeURIComponent("2023-11-14T23:13:22.123456+01:00");
    expect((await seqsOf(id, `?start_time=${zone}&end_time=${zone}`)).seqs).toEqual([3]);
  });
});

describe("runs", () => {
  test("are listed", async () => {
    const id = await sessionWithRun();
    const page = await ask("/sessions/{id}/runs", `/sessions/${id}/runs`);
    expect(await page.json()).toEqual({
      kind: "SessionRunList",
      items: [
        {
          run_id: "r1",
          parent_run_id: "r0",
          status: "finished",
          first_seq: 1,
          last_seq: 6,
          started_at: "2023-11-14T22:13:20.123456Z",
          ended_at: "2023-11-14T22:13:24.123456Z",
          raw_events: 6,
          rows: 5,
          bytes: EVENTS.map(([type, fields]) => JSON.stringify({ type, ...fields }).length).reduce(
            (sum, length) => sum + length,
          ),
        },
      ],
      next_after_seq: 6,
      has_more: false,
    });
  });
});

describe("the transcript", () => {
  const PATH = "/sessions/{id}/transcript";

  test("has a JSON form and a text form", async () => {
    const id = await sessionWithRun();
    const data = await ask(PATH, `/sessions/${id}/transcript`);
    expect(await data.json()).toMatchObject({
      session_id: id,
      up_to_seq: 6,
      messages: [{ id: "m1", role: "assistant", content: "Hello" }],
      interrupts: [],
    });
    const read = async (format: string) => {
      const answer = await ask(PATH, `/sessions/${id}/transcript?format=${format}`);
      return [answer.headers.get("content-type"), await answer.text()];
    };
    expect(await read("text")).toEqual(["text/plain; charset=utf-8", "Assistant:\n    Hello\n"]);
    expect(await read("markdown")).toEqual([
      "text/markdown; charset=utf-8",
      "## Assistant\n\n> Hello\n",
    ]);
  });

  test("shows the conversation at up_to_seq", async () => {
    const id = await sessionWithRun();
    const then = await ask(PATH, `/sessions/${id}/transcript?up_to_seq=3`);
    expect(await then.json()).toMatchObject({ up_to_seq: 3, messages: [{ content: "He" }] });
    const before = await ask(PATH, `/sessions/${id}/transcript?up_to_seq=1`);
    expect(await before.json()).toMatchObject({ up_to_seq: 1, messages: [] });
  });
});

/**
 * What a route must refuse, with the parameter that it must name. bad-input-http.test.ts has the wrong values
 * of each parameter alone.
 */
type Refused = readonly [at: string, query: string, field: string];
const REFUSED: readonly Refused[] = [
  ["/sessions", "?limit=1", "limit"],
  ["/sessions/{id}/messages", "?after_seq=9223372036854775807", "after_seq"],
  ["/sessions/{id}/messages", "?after_seq=1", "after_seq"],
  ["/sessions/{id}/events/history", "?after_seq=7", "after_seq"],
  ["/sessions/{id}/events/history", "?event_type=lower", "event_type[0]"],
  ["/sessions/{id}/events/history", "?event_type=RAW&event_type=", "event_type[1]"],
  ["/sessions/{id}/events/history", `?${"event_type=RAW&".repeat(65)}`, "event_type"],
  ["/sessions/{id}/events/history", "?run_id=a&run_id=b", "run_id"],
  // Once a page of nothing.
  [
    "/sessions/{id}/events/history",
    "?start_time=2026-01-02T00:00:00Z&end_time=2026-01-01T00:00:00Z",
    "end_time",
  ],
  ["/sessions/{id}/events/history", "?before_seq=2&after_seq=1", "before_seq"],
  ["/sessions/{id}/runs", "?after_seq=7", "after_seq"],
  ["/sessions/{id}/transcript", "?up_to_seq=7", "up_to_seq"],
];

describe("a refusal names the wrong parameter", () => {
  let id: string;
  beforeAll(async () => {
    id = await sessionWithRun();
  });

  /** Undefined when it is a 400 that names the field and nothing else. */
  async function faultOf(response: Response, field: string): Promise<string | undefined> {
    const { status, violations, detail } = await problemOf(response);
    const fields = Array.isArray(violations) ? violations.map((one) => Object(one).field) : [];
    const isNamed = String(detail).includes(field.replace(/\[.*/, ""));
    if (status === 400 && isNamed && fields.join() === field) return undefined;
    return `${String(status)} of ${fields.join()}: ${String(detail)}`;
  }

  test.each(REFUSED)("GET %s%s: %s", async (at, query, field) => {
    expect(
      await faultOf(await ask(at, `${at.replace("{id}", id)}${query}`), field),
    ).toBeUndefined();
  });

  const BELOW = ["", "/messages", "/events/history", "/runs", "/transcript"];

  test.each(BELOW)("GET /sessions/{id}%s of an invalid or unknown id", async (below) => {
    const at = `/sessions/{id}${below}`;
    for (const wrong of ["a b", "é", "x".repeat(129), "%00"]) {
      const path = `/sessions/${wrong === "%00" ? wrong : encodeURIComponent(wrong)}${below}`;
      expect(await faultOf(await ask(at, path), "id")).toBeUndefined();
    }
    for (const fine of ["x".repeat(128), "never.seen:1_-"]) {
      const missing = await ask(at, `/sessions/${fine}${below}`);
      expect(await problemOf(missing)).toMatchObject({
        status: 404,
        reason: "SESSION_NOT_FOUND",
      });
    }
  });

  test.each<readonly [unknown, string]>([
    [{}, "payload"],
    [{ payload: null }, "payload"],
    [{ payload: "x", event_type: "shout" }, "event_type"],
    [{ payload: "x", eventType: "user" }, "eventType"],
    [[], ""],
    ["x", ""],
    [null, ""],
  ])("POST a message of %j: %s", async (body, field) => {
    const path = `/sessions/${id}/messages`;
    const response = await ask("/sessions/{id}/messages", path, post(body));
    expect(await faultOf(response, field)).toBeUndefined();
  });

  test("a POST with a key that is too long names the header", async () => {
    const key = { "idempotency-key": "k".repeat(129) };
    const path = `/sessions/${id}/messages`;
    const response = await ask("/sessions/{id}/messages", path, post({ payload: "x" }, key));
    expect(await faultOf(response, "Idempotency-Key")).toBeUndefined();
  });

  test("a POST with a key that is not UTF-8 names the header", async () => {
    const path = `/sessions/${id}/messages`;
    const key = { "idempotency-key": "\u00e9" }; // fetch sends one byte for it.
    const response = await ask("/sessions/{id}/messages", path, post({ payload: "x" }, key));
    expect(await faultOf(response, "Idempotency-Key")).toBeUndefined();
  });

  test("no refused request stored anything", async () => {
    const messages = await ask("/sessions/{id}/messages", `/sessions/${id}/messages`);
    expect(await messages.json()).toEqual([]);
  });
});

test("a key that is not ASCII is the same key over HTTP and over gRPC", async () => {
  const sessionId = newSession();
  const key = "clé-鍵";
  const stored = await push(client, "messages", { sessionId, idempotencyKey: key });
  // fetch sends one byte for each character: these are the bytes of UTF-8, as curl sends them.
  const header = { "idempotency-key": Buffer.from(key).toString("latin1") };
  const body = { event_type: stored.eventType, payload: stored.payload };
  const at = `/sessions/${sessionId}/messages`;
  const again = await ask("/sessions/{id}/messages", at, post(body, header));
  expect(await again.json()).toMatchObject({ seq: Number(stored.seq) });
  expect(again.headers.get("idempotent-replayed")).toBe("true");
});
