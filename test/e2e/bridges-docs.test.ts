/** The bridge of docs/writing.md, with a runner, a service, and a stub of the model that it calls. */
import { once } from "node:events";
import { readFile, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { expect, test } from "vitest";
import { z } from "zod";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import type { PlatformBridge } from "@session-ledger/runner/internal/sdk/bridge";
import { createRunner } from "@session-ledger/runner/internal/sdk/loop";
import { makeDirectory } from "../support/embedded-fixture.ts";
import { newSession } from "../support/pushing.ts";
import { blocksOf, sectionOf } from "../support/readme.ts";
import { say } from "../support/turns.ts";
import { useService } from "../support/use-service.ts";

const LINES_MAX = 29;

const ledger = useService();

/** The page's bridge, as it is but for the places of the package and of the model. */
async function bridgeOfPage(model: string): Promise<PlatformBridge> {
  const page = await readFile("docs/writing.md", "utf8");
  const [code = ""] = blocksOf(sectionOf(page, "Write a bridge"), "js");
  expect(code.trim().split("\n").length).toBeLessThanOrEqual(LINES_MAX);
  const placed = code
    .replace("@session-ledger/runner/bridge", import.meta.resolve("@session-ledger/runner/bridge"))
    .replace("http://127.0.0.1:11434", model);
  const file = join(await makeDirectory(), "bridge.mjs");
  await writeFile(file, placed);
  const made = z.object({ OllamaBridge: z.custom<new () => PlatformBridge>() });
  return new (made.parse(await import(file)).OllamaBridge)();
}

test("the bridge of the page answers, with the history, and tells an error of the model", async () => {
  const asked: unknown[] = [];
  const server = createServer((request, response) => {
    void text(request).then((body) => {
      asked.push(JSON.parse(body));
      if (asked.length > 2) return response.writeHead(503).end();
      for (const content of ["Hel", "lo", ""]) {
        response.write(`${JSON.stringify({ message: { role: "assistant", content } })}\n`);
      }
      return response.end();
    });
  });
  server.listen(0, "127.0.0.1").unref();
  await once(server, "listening");
  const { port } = z.object({ port: z.number() }).parse(server.address());
  const bridge = await bridgeOfPage(`http://127.0.0.1:${port}`);
  const sessionId = newSession();
  const { client } = ledger;
  const runner = createRunner(bridge, { address: ledger.service.grpcAddress, sessionId });
  const ended = runner.run();
  for (const [at, question] of ["one", "two", "three"].entries()) {
    await say(client, sessionId, question);
    await expect.poll(() => runner.stats.turns).toBe(at + 1);
  }
  await runner.stop();
  await ended;
  expect(asked[1]).toMatchObject({
    messages: [{ role: "user" }, { role: "assistant", content: "Hello" }, { role: "user" }],
  });
  const { messages } = await client.unary(SessionService.method.getTranscript, { sessionId });
  expect(JSON.parse(messages)).toMatchObject([
    { role: "user", content: "one" },
    { role: "assistant", content: "Hello" },
    { role: "user", content: "two" },
    { role: "assistant", content: "Hello" },
    { role: "user", content: "three" },
  ]);
  expect(runner.stats.failures).toBe(1);
});
