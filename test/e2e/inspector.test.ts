/** The page of the inspector as HTTP serves it; test/web looks at it in a browser. */
import { beforeAll, describe, expect, test } from "vitest";
import { startHttp, type HttpFixture } from "../support/http-fixture.ts";

const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; " +
  "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

let fixture: HttpFixture;

beforeAll(async () => {
  fixture = await startHttp();
  return () => fixture.server.stop();
});

const ask = (path: string, init: RequestInit = {}): Promise<Response> =>
  fetch(`http://${fixture.server.address}${path}`, init);

async function script(): Promise<string> {
  const html = await (await ask("/")).text();
  return /src="([^"]+\.js)"/.exec(html)?.[1] ?? "";
}

describe("the page", () => {
  test.each(["/", "/sessions/a%2Fb?at=7", "/sessions/s/compare?a=1&b=2"])(
    "is at %s, with a policy that allows nothing but its own files",
    async (path) => {
      const answer = await ask(path);
      expect(answer.status).toBe(200);
      expect(answer.headers.get("content-type")).toBe("text/html; charset=utf-8");
      expect(answer.headers.get("content-security-policy")).toBe(POLICY);
      expect(answer.headers.get("x-content-type-options")).toBe("nosniff");
      expect(answer.headers.get("referrer-policy")).toBe("no-referrer");
      expect(await answer.text()).not.toMatch(/<script(?![^>]* src=)|<style| style=| on\w+=/);
    },
  );

  test("is asked for again each time, and answered by its ETag", async () => {
    const { headers } = await ask("/");
    expect(headers.get("cache-control")).toBe("no-cache");
    const etag = headers.get("etag") ?? "";
    // As a browser does; Node's fetch would ask for a whole answer.
    const asBrowsers = { "if-none-match": etag, "cache-control": "max-age=0" };
    const again = await ask("/", { headers: asBrowsers });
    expect(again.status).toBe(304);
  });

  test.each([
    ["br", "br"],
    ["gzip", "gzip"],
    ["identity", null],
  ])("has files that are kept for a year, compressed for %s", async (accepted, encoding) => {
    const answer = await ask(await script(), { headers: { "accept-encoding": accepted } });
    expect(answer.headers.get("content-type")).toMatch(/^(?:text|application)\/javascript/);
    expect(answer.headers.get("cache-control")).toBe("public, max-age=31536000, immutable");
    expect(answer.headers.get("content-encoding")).toBe(encoding);
    expect(answer.headers.get("vary")).toBe("accept-encoding");
    expect(await answer.text()).toContain("import");
  });

  test("has the length of a file in the answer to HEAD", async () => {
    const answer = await ask(await script(), { method: "HEAD" });
    expect(answer.status).toBe(200);
    expect(Number(answer.headers.get("content-length"))).toBeGreaterThan(1_000);
  });
});

test.each([
  "/assets/none.js",
  "/assets/..%2findex.html",
  "/assets/.hidden",
  "/assets/",
  "/index.html",
])("%s is a problem, as every wrong path is", async (path) => {
  const answer = await ask(path);
  expect(answer.status).toBe(404);
  expect(answer.headers.get("content-type")).toBe("application/problem+json");
  expect(await answer.json()).toMatchObject({ detail: "nothing exists at this path" });
});

// A person who followed a wrong link saw JSON, and no way on.
test("an unknown address has the page for a browser, and a problem for a program", async () => {
  const browser = { headers: { accept: "text/html,application/xhtml+xml,*/*;q=0.8" } };
  for (const path of ["/sesions/s", "/sessions/s/none", "/api/none"]) {
    const page = await ask(path, browser);
    expect([page.status, page.headers.get("content-type")]).toEqual([
      404,
      "text/html; charset=utf-8",
    ]);
    expect(page.headers.get("content-security-policy")).toContain("default-src 'none'");
    expect(await page.text()).toBe(await (await ask("/")).text());
    const problem = await ask(path, { headers: { accept: "*/*" } });
    expect([problem.status, problem.headers.get("content-type")]).toEqual([
      404,
      "application/problem+json",
    ]);
  }
  expect((await ask("/sesions/s", { method: "POST", ...browser })).status).toBe(404);
  const method = await ask("/api/ambient/v1/search", { method: "DELETE", ...browser });
  expect(method.headers.get("content-type")).toBe("application/problem+json");
});

test("another method is refused, and the answer names those of the page", async () => {
  const answer = await ask("/", { method: "POST" });
  expect([answer.status, answer.headers.get("allow")]).toEqual([405, "GET, HEAD"]);
});

test("the page needs no token, and its data does", async () => {
  const refusal = Promise.reject(new Error("the token was asked for"));
  refusal.catch(() => undefined);
  const authenticator = { asks: true, authenticate: () => refusal, refusalOf: () => undefined };
  await using closed = await startHttp({}, {}, { authenticator });
  expect((await fetch(`http://${closed.server.address}/`)).status).toBe(200);
  expect((await closed.ask("/sessions")).status).toBe(500);
});

test("a service with INSPECTOR=off has no page", async () => {
  await using without = await startHttp({}, { inspector: false });
  for (const path of ["/", "/sessions/s", "/assets/index.js"]) {
    const answer = await fetch(`http://${without.server.address}${path}`, {
      headers: { accept: "text/html" },
    });
    expect([answer.status, answer.headers.get("content-type")]).toEqual([
      404,
      "application/problem+json",
    ]);
  }
});
