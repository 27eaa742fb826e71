/**
 * What another web page, or a stranger on the network, can do through the inspector: frame it, write by it, read
 * by it under another name, or have it where it is switched off.
 */
import { once } from "node:events";
import { createServer, request, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { makeSession } from "../support/inspector-sessions.ts";
import { useInspector } from "../support/inspector.ts";
import { needs } from "../support/tools.ts";
import { useService } from "../support/use-service.ts";

const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; " +
  "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const PATHS = ["/", "/sessions/s", "/sessions/s/compare"];

const inspector = useInspector();
const { service } = useService();
const { service: off } = useService("limited");
let sessionId: string;

beforeAll(async () => {
  sessionId = await makeSession(service, { name: "Safe" });
});

interface Answer {
  readonly status: number | undefined;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: string;
}

/** Not by fetch, which sends no other Host. */
async function ask(
  path: string,
  { at = service.httpAddress, method = "GET", headers = {} } = {},
): Promise<Answer> {
  const url = new URL(path, `http://${at}`);
  const asked = request(url, { method, headers }).end();
  const [answer] = await once(asked, "response");
  return { status: answer.statusCode, headers: answer.headers, body: await text(answer) };
}

/** Scripts and styles that the page names. test/e2e/inspector.test.ts has the other headers. */
async function assets(): Promise<readonly string[]> {
  const { body } = await ask("/");
  const found = [...body.matchAll(/(?:src|href)="(\/[^"]+)"/g)].map(([, path = ""]) => path);
  expect(found.length).toBeGreaterThan(1);
  return found;
}

describe("the pages of the inspector", () => {
  test("have the policy and its companions on every address, without a token", async () => {
    for (const path of [...PATHS, ...(await assets())]) {
      const { status, headers } = await ask(path);
      expect({ path, status }).toEqual({ path, status: 200 });
      expect(headers).toMatchObject({
        "content-security-policy": POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
      });
      expect(headers["set-cookie"]).toBeUndefined();
    }
  });

  test("answer 421 under the name of another host, as an attack by DNS rebinding has it", async () => {
    for (const path of [...PATHS, ...(await assets())]) {
      const { status } = await ask(path, { headers: { host: "rebound.example" } });
      expect({ path, status }).toEqual({ path, status: 421 });
    }
  });

  test("are 404 with INSPECTOR=off, and the API stays", async () => {
    const at = off.httpAddress;
    for (const path of [...PATHS, ...(await assets())]) {
      const { status, headers } = await ask(path, { at });
      expect({ path, status }).toEqual({ path, status: 404 });
      expect(headers["content-type"]).toContain("application/problem+json");
    }
    expect((await ask("/api/ambient/v1/sessions", { at })).status).toBe(200);
  });
});

describe("a page of another origin in chromium", needs("chromium"), () => {
  let evil: Server;
  let evilUrl: string;

  beforeAll(async () => {
    const base = `http://${service.httpAddress}`;
    const api = `${base}/api/ambient/v1/sessions/${sessionId}`;
    const pages: Readonly<Record<string, string>> = {
      "/frame": `<title>f</title><iframe src="${base}/sessions/${sessionId}"></iframe>`,
      "/form": `<title>p</title><form method="post" enctype="text/plain" action="${api}/messages">
        <input name='{"payload":"by a form","x":"' value='"}'></form>`,
    };
    evil = createServer(({ url = "" }, response) => {
      response.setHeader("content-type", "text/html").end(pages[url]);
    }).listen(0, "127.0.0.1");
    await once(evil, "listening");
    // Another name of this machine is another origin.
    evilUrl = `http://localhost:${portOf(evil)}`;
  });

  afterAll(async () => {
    evil.closeAllConnections();
    evil.close();
    await once(evil, "close");
  });

  /** What the session has in the end. */
  async function messages(): Promise<unknown> {
    const { body } = await ask(`/api/ambient/v1/sessions/${sessionId}/messages`);
    return JSON.parse(body);
  }

  test("cannot frame the inspector, nor read or write with fetch or a form", async () => {
    const context = await inspector.context();
    const page = await context.newPage();
    const refused = page.waitForEvent("console", (line) => line.text().includes("frame-ancestors"));
    await page.goto(`${evilUrl}/frame`);
    await refused;
    const [, frame] = page.frames();
    const framed = await frame?.evaluate("document.body?.innerText ?? ''").catch(() => "");
    expect(framed).not.toContain("Safe");

    await page.goto(`${evilUrl}/form`);
    const url = JSON.stringify(
      `http://${service.httpAddress}/api/ambient/v1/sessions/${sessionId}/messages`,
    );
    const outcomes: unknown = await page.evaluate(`(async () => {
      const attempt = (init) => fetch(${url}, init).then((r) => r.type + " " + r.status, () => "refused");
      const body = JSON.stringify({ payload: "by another page" });
      return [
        await attempt({}),
        await attempt({ method: "POST", body, headers: { "content-type": "application/json" } }),
        await attempt({ method: "POST", body, headers: { "content-type": "text/plain" } }),
        await attempt({ method: "POST", body, mode: "no-cors" }),
      ];
    })()`);
    // An opaque answer tells the page nothing, not even its status.
    expect(outcomes).toEqual(["refused", "refused", "refused", "opaque 0"]);

    const answered = page.waitForResponse((response) => response.request().isNavigationRequest());
    await page.evaluate("document.forms[0].submit()");
    expect((await answered).status()).toBe(415);
    expect(await messages()).toEqual([]);
    await context.close();
  });
});

function portOf(server: Server): number {
  const address: AddressInfo | string | null = server.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  return address.port;
}
