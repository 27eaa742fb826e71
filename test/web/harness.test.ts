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
  "/bad": `<html lang="en"><title>Bad</title><main><h1>Bad</h1>
    <script src="/alert.js"></script><script src="/throws.js"></script>
    <p style="color: red"><script>window.ran = 1</script></p>
    <img src="http://foreign.example/pixel.png" alt=""><button></button></main></html>`,
  "/alert.js": `alert("from a script")`,
  "/throws.js": `throw new Error("from a script")`,
};
const TROUBLES = [
  /^dialog: from a script/,
  /^policy: script-src-elem inline/,
  /^policy: style-src-attr inline/,
  /^request: http:\/\/foreign\.example\/pixel\.png/,
  /^error: Error: from a script/,
];

beforeAll(async () => {
  server = createServer(({ url: path = "" }, response) => {
    const type = path.endsWith(".js") ? "text/javascript" : "text/html";
    const policy = "default-src 'self'; img-src *";
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

  test("fails on a page with a dialog, inline code, a foreign request or an error, and axe sees a mute button", async () => {
    const trouble = expect.arrayContaining(TROUBLES.map((text) => expect.stringMatching(text)));
    const visit = inspector.visit(`${url}/bad`, {}, async (page, seen) => {
      // The browser tells of it when the page may have been loaded.
      await expect.poll(() => troublesIn(seen, url)).toEqual(trouble);
      expect(await seriousFindings(page)).toEqual([
        expect.stringMatching(/^button-name: button: /),
      ]);
    });
    await expect(visit).rejects.toMatchObject({ actual: trouble });
  });
});
