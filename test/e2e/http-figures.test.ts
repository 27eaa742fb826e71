/** The sums and the state of a running service over HTTP, checked with its OpenAPI document, and its metrics. */
import { beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { SessionService } from "../../gen/ambient/v1/sessions_pb.ts";
import { eventually } from "../support/eventually.ts";
import { OpenApi } from "../support/openapi.ts";
import { newSession, push, rowsOf } from "../support/pushing.ts";
import { useService } from "../support/use-service.ts";

const API = "/api/ambient/v1";

const { service, client } = useService({});
let openApi: OpenApi;

beforeAll(async () => {
  const document = await fetch(`http://${service.httpAddress}/openapi.json`);
  openApi = new OpenApi(await document.json());
});

async function ask(at: string, path: string): Promise<Response> {
  const response = await fetch(`http://${service.httpAddress}${API}${path}`);
  const asked = { method: "GET", path: `${API}${at}` };
  expect(await openApi.fault(asked, response.clone()), `GET ${path}`).toBeUndefined();
  return response;
}

const figuresSchema = z.object({
  instance: z.string(),
  at: z.string(),
  rows_stored: z.object({ messages: z.number(), events: z.number() }),
  calls: z.number(),
  commits: z.object({
    count: z.number(),
    seconds: z.number(),
    buckets: z.array(z.object({ up_to_seconds: z.number().optional(), count: z.number() })),
  }),
  watchers: z.number(),
  refusals: z.array(z.object({ reason: z.string(), count: z.number(), last_at: z.string() })),
});

async function figures() {
  return figuresSchema.parse(await (await ask("/service", "/service")).json());
}

test("the sums of a session and of all sessions have what was pushed", async () => {
  const sessionId = newSession();
  const fragment = (delta: string, more: object) =>
    push(client, "events", {
      sessionId,
      eventType: "TEXT_MESSAGE_CONTENT",
      payload: JSON.stringify({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta }),
      ...more,
    });
  await fragment("Hello", { eventCount: 2, fragments: { lengths: [3, 4] } });
  await push(client, "messages", { sessionId });
  const size = JSON.stringify({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "" }).length;
  const at = "/sessions/{id}/storage";
  const events = await ask(at, `/sessions/${sessionId}/storage`);
  expect(await events.json()).toEqual({
    kind: "SessionStorage",
    items: [
      {
        stream: "events",
        event_type: "TEXT_MESSAGE_CONTENT",
        rows: 1,
        raw_events: 2,
        bytes: size + 5 + 4, // The index has two lengths, their tag and their number.
        raw_bytes: 2 * size + 5,
      },
    ],
    next_after_seq: 2,
    has_more: false,
  });
  const messages = await ask(at, `/sessions/${sessionId}/storage?stream=messages`);
  expect(await messages.json()).toMatchObject({
    items: [{ stream: "messages", event_type: "user", rows: 1, bytes: 2, raw_bytes: 2 }],
    next_after_seq: 1,
  });
  const none = await ask(at, `/sessions/${sessionId}/storage?after_seq=2`);
  expect(await none.json()).toMatchObject({ items: [], next_after_seq: 2, has_more: false });
  const all = await ask("/storage", "/storage");
  expect(await all.json()).toMatchObject({
    kind: "Storage",
    sessions: 1,
    messages: 1,
    raw_events: 2,
    rows: 2,
    bytes: size + 5 + 4 + 2,
    disk_bytes: expect.any(Number),
    sampled: 1,
    types: [
      { stream: "messages", event_type: "user" },
      { stream: "events", event_type: "TEXT_MESSAGE_CONTENT", raw_events: 2 },
    ],
  });
});

test.each([
  ["/sessions/{id}/storage", "/sessions/s/storage?stream=rows", "stream"],
  ["/sessions/{id}/storage", "/sessions/s/storage?after_seq=x", "after_seq"],
  ["/sessions/{id}/storage", "/sessions/a%20b/storage", "id"],
  ["/storage", "/storage?project_id=a", "project_id"],
  ["/service", "/service?page=1", "page"],
])("a refusal names the wrong parameter: %s, %s", async (at, path, field) => {
  const response = await ask(at, path);
  expect(response.status).toBe(400);
  expect(await response.json()).toMatchObject({ violations: [{ field }] });
});

test("the state of the service has the figures of /metrics, after the work that they count", async () => {
  const before = await figures();
  const sessionId = newSession();
  await push(client, "messages", { sessionId });
  await push(client, "events", { sessionId });
  const unknown = { id: newSession() };
  const refusal = client.unary(SessionService.method.getSession, unknown);
  await expect(refusal).rejects.toMatchObject({ code: "NOT_FOUND" });
  // A call is counted when it has ended, and its caller may know of that sooner.
  const after = await eventually(async () => {
    const now = await figures();
    expect(now.calls - before.calls).toBe(3);
    return now;
  });
  expect(after.instance).toBe(before.instance);
  expect(after.rows_stored.messages - before.rows_stored.messages).toBe(1);
  expect(after.rows_stored.events - before.rows_stored.events).toBe(1);
  expect(after.commits.count - before.commits.count).toBe(2);
  expect(after.commits.seconds).toBeGreaterThan(before.commits.seconds);
  expect(after.commits.buckets.at(-1)).toEqual({ count: after.commits.count });
  const refused = after.refusals.find(({ reason }) => reason === "SESSION_NOT_FOUND");
  expect(refused?.count).toBe(1);
  expect(Date.parse(refused?.last_at ?? "")).toBeGreaterThanOrEqual(Date.parse(before.at));
  expect(Date.parse(refused?.last_at ?? "")).toBeLessThanOrEqual(Date.parse(after.at));
  const scraped = await (await fetch(`http://${service.opsAddress}/metrics`)).text();
  expect(scraped).toContain(
    `session_ledger_rows_stored_total{stream="messages"} ${after.rows_stored.messages}`,
  );
  expect(scraped).toContain(`session_ledger_commit_duration_seconds_count ${after.commits.count}`);
});

async function counted(rule: string): Promise<number> {
  const text = await (await fetch(`http://${service.opsAddress}/metrics`)).text();
  const line = text.split("\n").find((one) => one.includes(`violations_total{rule="${rule}"}`));
  return Number(line?.split(" ").at(-1) ?? 0);
}

test("an event out of order is stored, and counted under the rule that it breaks", async () => {
  const sessionId = newSession();
  const event = (payload: { readonly type: string }): Promise<unknown> =>
    push(client, "events", {
      sessionId,
      eventType: payload.type,
      payload: JSON.stringify(payload),
    });
  const outside = await counted("outside_run");
  const withoutStart = await counted("fragment_without_start");
  const content = { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "x" };
  await event(content);
  await event({ type: "RUN_STARTED", threadId: "t", runId: "r" } as { readonly type: string });
  await event(content);
  expect(await rowsOf(client, "events", sessionId)).toHaveLength(3);
  expect(await counted("outside_run")).toBe(outside + 1);
  expect(await counted("fragment_without_start")).toBe(withoutStart + 1);
});
