/** Pages of other origins: what a browser asks, what it is answered, and a real page in Chromium. */
import { beforeAll, describe, expect, test } from "vitest";
import { runInPage } from "../support/browser.ts";
import { bearer, type Caller } from "../support/callers.ts";
import { newSession } from "../support/pushing.ts";
import { NAMED_ORIGIN as NAMED } from "../support/shared-services.ts";
import { needs } from "../support/tools.ts";
import { pageUrl, sharedIssuer, useService } from "../support/use-service.ts";

const API = "/api/ambient/v1";

/** Without HTTP_ORIGINS, and without tokens. */
const closed = useService();
const { service } = useService("tokens");
const shown = newSession();
let runner: Caller;
let viewer: Caller;
beforeAll(async () => {
  const issuer = await sharedIssuer("tokens");
  runner = await issuer.signed("runner", ["runner"]);
  viewer = await issuer.signed("viewer", ["viewer"]);
});

type Headers = Readonly<Record<string, string>>;

function ask(path: string, headers: Headers = {}, init: RequestInit = {}): Promise<Response> {
  return fetch(`http://${service.httpAddress}${path}`, {
    ...init,
    headers: { origin: NAMED, ...headers },
  });
}

function preflight(path: string, origin: string): Promise<Response> {
  const headers = { origin, "access-control-request-method": "POST" };
  return ask(path, headers, { method: "OPTIONS" });
}

function corsOf({ headers }: Response): readonly string[] {
  return [...headers.keys()].filter((name) => name.startsWith("access-control-"));
}

describe("the question of a browser before a request", () => {
  const path = `${API}/sessions/s/events`;

  test("is answered for a named origin, without a token", async () => {
    const response = await preflight(path, NAMED);
    expect(response.status).toBe(204);
    expect(Object.fromEntries(response.headers)).toMatchObject({
      "access-control-allow-origin": NAMED,
      "access-control-allow-methods": "GET, HEAD, POST",
      "access-control-max-age": "7200",
      vary: "Origin",
    });
    const allowed = (response.headers.get("access-control-allow-headers") ?? "").split(", ");
    expect(allowed.toSorted()).toEqual([
      "authorization",
      "content-type",
      "idempotency-key",
      "last-event-id",
      "producer-epoch",
      "traceparent",
    ]);
  });

  test.each([`${NAMED}:8443`, "http://chat.example", `${NAMED}.evil.example`, "null"])(
    "is refused for %s",
    async (origin) => {
      const response = await preflight(path, origin);
      expect(response.status).toBe(405);
      expect(corsOf(response)).toEqual([]);
      expect(response.headers.get("vary")).toBe("Origin");
    },
  );

  test("is 404 for a path without a route", async () => {
    expect((await preflight("/nothing", NAMED)).status).toBe(404);
  });

  test("is refused by a service without HTTP_ORIGINS, whose answers name no origin", async () => {
    const headers = { origin: NAMED, "access-control-request-method": "POST" };
    const url = `http://${closed.service.httpAddress}${API}/sessions`;
    const refused = await fetch(url, { method: "OPTIONS", headers });
    expect({ status: refused.status, cors: corsOf(refused) }).toEqual({ status: 405, cors: [] });
    const read = await fetch(url, { headers });
    expect({ status: read.status, cors: corsOf(read) }).toEqual({ status: 200, cors: [] });
  });
});

describe("an answer", () => {
  const input = { threadId: "none", runId: "r", messages: [], tools: [], context: [], state: {} };
  const JSON_BODY = { "content-type": "application/json" };
  const ROUTES: readonly (readonly [string, string, Headers, unknown])[] = [
    ["GET", "/openapi.json", {}, undefined],
    ["GET", `${API}/sessions`, {}, undefined],
    ["GET", `${API}/sessions/${shown}/messages`, {}, undefined],
    ["GET", `${API}/sessions/${shown}/messages`, { accept: "text/event-stream" }, undefined],
    ["GET", `${API}/sessions/${shown}/events`, {}, undefined],
    ["GET", `${API}/sessions/${shown}/export`, {}, undefined],
    ["GET", `${API}/sessions/${newSession()}`, {}, undefined],
    ["POST", `${API}/sessions/${shown}/events`, JSON_BODY, { type: "RAW", event: 1 }],
    ["POST", `/agui/sessions/${shown}`, JSON_BODY, input],
    ["GET", "/copilotkit/info", {}, undefined],
    ["POST", "/copilotkit/agent/default/connect", JSON_BODY, input],
    ["GET", "/nothing", {}, undefined],
  ];

  beforeAll(async () => {
    const body = JSON.stringify({ type: "RAW", event: 0 });
    const headers = { ...JSON_BODY, ...bearer(runner) };
    await ask(`${API}/sessions/${shown}/events`, headers, { method: "POST", body });
  });

  test.each(ROUTES)(
    "to %s %s names a named origin, and no other",
    async (method, path, more, body) => {
      const init = { method, ...(body === undefined ? {} : { body: JSON.stringify(body) }) };
      for (const origin of [NAMED, "https://evil.example"]) {
        const leave = new AbortController();
        const headers = { ...more, ...bearer(runner), origin };
        const response = await ask(path, headers, { ...init, signal: leave.signal });
        const allowed = response.headers.get("access-control-allow-origin");
        expect({ origin, allowed }).toEqual({ origin, allowed: origin === NAMED ? NAMED : null });
        expect(response.headers.get("vary")?.split(", ")).toContain("Origin");
        expect(corsOf(response)).not.toContain("access-control-allow-credentials");
        leave.abort();
      }
    },
  );

  test("without a token, or without the right, can be read by the page too", async () => {
    for (const [headers, status] of [
      [{}, 401],
      [bearer(viewer), 403],
    ] as const) {
      const init = { method: "POST", body: "{}" };
      const path = `${API}/sessions/${shown}/events`;
      const response = await ask(path, { ...JSON_BODY, ...headers }, init);
      expect(response.status).toBe(status);
      expect(response.headers.get("access-control-allow-origin")).toBe(NAMED);
    }
  });
});

/** Runs in the page: pushes an event twice with a key and lines once, then reads all live. */
function pushing(address: string, sessionId: string, token: string): string {
  return `
    const url = "http://${address}${API}/sessions/${sessionId}/events";
    const authorization = "Bearer ${token}";
    const json = { authorization, "content-type": "application/json", "idempotency-key": "k" };
    const push = (headers, body) => fetch(url, { method: "POST", headers, body });
    const event = JSON.stringify({ type: "RAW", event: "from a page" });
    const first = await push(json, event);
    const again = await push(json, event);
    const ndjson = { authorization, "content-type": "application/x-ndjson" };
    const lines = await push(ndjson, event + "\\n" + event + "\\n");
    const live = await fetch(url, { headers: { authorization, "last-event-id": "0" } });
    const reader = live.body.pipeThrough(new TextDecoderStream()).getReader();
    let seen = "";
    while (!seen.includes("id: 3")) seen += (await reader.read()).value;
    return {
      first: await first.json(),
      again: again.headers.get("idempotent-replayed"),
      lines: await lines.json(),
      live: seen.split("from a page").length - 1,
    };
  `;
}

describe("a page in chromium", () => {
  test("of a named origin pushes events and reads them", needs("chromium"), async () => {
    const script = pushing(service.httpAddress, newSession(), runner.token);
    expect(await runInPage(script, pageUrl("localhost"))).toEqual({
      first: { first_seq: 1, last_seq: 1 },
      again: "true",
      lines: { first_seq: 2, last_seq: 3 },
      live: 3,
    });
  });

  test("of another origin can do neither, and nothing is stored", needs("chromium"), async () => {
    const [another, unnamed] = [newSession(), newSession()];
    const refused = { error: "TypeError: Failed to fetch" };
    // The same page by another name is another origin.
    const script = pushing(service.httpAddress, another, runner.token);
    expect(await runInPage(script, pageUrl("127.0.0.1"))).toEqual(refused);
    const toClosed = pushing(closed.service.httpAddress, unnamed, "");
    expect(await runInPage(toClosed, pageUrl("localhost"))).toEqual(refused);
    const path = `${API}/sessions/${unnamed}`;
    expect((await ask(`${API}/sessions/${another}`, bearer(runner))).status).toBe(404);
    expect((await fetch(`http://${closed.service.httpAddress}${path}`)).status).toBe(404);
  });
});
