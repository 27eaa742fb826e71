/** The checks at the end of each visit: a check that finds nothing must not pass on a bad page. */
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { seriousFindings, troublesIn, useInspector } from "../support/inspector.ts";
import { needs } from "../support/tools.ts";

const inspector = useInspector();
let server: Server;
let url: string;

const PAGES: Readonly<Record<string, string>> = {
  "/good": `<html lang="en"><title>Good</title><main><h1>Good</h1></main></html>`,
  "/dialog": `<title>a</title><script src="/alert.js"></script>`,
  "/alert.js": `alert("from a script")`,
  "/inline": `<title>b</title><p style="color: red"><script>window.ran = 1</script>`,
  "/foreign": `<title>c</title><img src="http://foreign.example/pixel.png">`,
  "/error": `<title>d</title><script src="/throws.js"></script>`,
  "/throws.js": `throw new Error("from a script")`,
  "/mute": `<html lang="en"><title>e</title><main><h1>e</h1><button></button></main></html>`,
};

beforeAll(async () => {
  server = createServer(({ url: path = "" }, response) => {
    const type = path.endsWith(".js") ? "text/javascript" : "text/html";
    const policy = path === "/foreign" ? "default-src *" : "default-src 'self'";
    response.setHeader("content-security-policy", policy).setHeader("content-type", type);
    response.end(PAGES[path]);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  url = `http://127.0.0.1:${address.port}`;
});

afterAll(async () => {
  server.closeAllConnections();
  server.close();
  await once(server, "close");
});

describe("a visit in chromium", needs("chromium"), () => {
  test("passes on a page that does nothing wrong", async () => {
    await inspector.visit(`${url}/good`, {}, async (page) => {
      expect(await seriousFindings(page)).toEqual([]);
    });
  });

  test.each([
    ["/dialog", /^dialog: from a script/],
    ["/inline", /^policy: script-src-elem inline/],
    ["/inline", /^policy: style-src-attr inline/],
    ["/foreign", /^request: http:\/\/foreign\.example\/pixel\.png/],
    ["/error", /^error: Error: from a script/],
  ])("fails on %s by %s", async (path, message) => {
    const trouble = expect.arrayContaining([expect.stringMatching(message)]);
    const visit = inspector.visit(url + path, {}, async (_page, seen) => {
      // The browser tells of it when the page may have been loaded.
      await expect.poll(() => troublesIn(seen, url)).toEqual(trouble);
    });
    await expect(visit).rejects.toMatchObject({ actual: trouble });
  });

  test("has the findings of axe", async () => {
    await inspector.visit(`${url}/mute`, {}, async (page) => {
      expect(await seriousFindings(page)).toEqual([
        expect.stringMatching(/^button-name: button: /),
      ]);
    });
  });
});
