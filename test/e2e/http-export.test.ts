/** A downloaded export equals the pushed rows, or is visibly broken off. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { buffer } from "node:stream/consumers";
import { gunzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { API, ask, Received } from "../support/http-clients.ts";
import { mergeFragments } from "../support/merging.ts";
import { GOOD, newSession, push } from "../support/pushing.ts";
import { expectedOf, noVersionAccepts } from "../support/recorded.ts";
import { ownStreams, recordedStreams, type StreamEvent } from "../support/streams.ts";
import { needs, toolPath } from "../support/tools.ts";
import { useService } from "../support/use-service.ts";

const { service, client } = useService();

/** Of the recordings, the shortest of each agent. */
const STREAMS = [...ownStreams(), ...shortest()];
const RAW: readonly StreamEvent[] = STREAMS.flatMap(({ events }) => events).filter(
  (event) => !noVersionAccepts(event),
);

function shortest() {
  const byAgent = Object.groupBy(recordedStreams() ?? [], ({ agent }) => agent);
  return Object.values(byAgent).flatMap((streams = []) =>
    streams
      .filter(({ events }) => events.length > 0)
      .toSorted((a, b) => a.events.length - b.events.length)
      .slice(0, 1),
  );
}

function pathOf(sessionId: string, query = ""): string {
  return `${API}/sessions/${sessionId}/export${query}`;
}

async function exported(sessionId: string, query = "", headers = {}): Promise<Response> {
  return fetch(`http://${service.httpAddress}${pathOf(sessionId, query)}`, { headers });
}

function linesOf(text: string): readonly unknown[] {
  expect(text === "" || text.endsWith("\n")).toBe(true);
  return text
    .split("\n")
    .slice(0, -1)
    .map((line): unknown => JSON.parse(line));
}

async function pushMerged(sessionId: string): Promise<void> {
  for (const { fragments, ...event } of mergeFragments(RAW)) {
    await push(client, "events", { sessionId, ...event, ...(fragments && { fragments }) });
  }
}

describe("an export", () => {
  test("of events has one raw event a line as it was pushed, merged or not", async () => {
    const sessionId = newSession();
    await pushMerged(sessionId);
    const plain = await exported(sessionId, "", { "accept-encoding": "identity" });
    expect(plain.status).toBe(200);
    expect(Object.fromEntries(plain.headers)).toMatchObject({
      "content-type": "application/x-ndjson",
      "content-disposition": `attachment; filename="session-${sessionId}.events.jsonl"`,
      vary: "Accept-Encoding",
    });
    expect(plain.headers.has("content-encoding")).toBe(false);
    const text = await plain.text();
    expect(linesOf(text)).toEqual(RAW.map((event) => expectedOf(event).value));

    const socket = await ask(service.httpAddress, pathOf(sessionId), {
      version: "1.0",
      headers: ["Accept-Encoding: br, gzip;q=0.8"],
    });
    const bytes = await buffer(socket);
    const bodyAt = bytes.indexOf("\r\n\r\n") + 4;
    expect(bytes.subarray(0, bodyAt).toString()).toMatch(/content-encoding: gzip/i);
    expect(bytes.length).toBeLessThan(text.length);
    expect(gunzipSync(bytes.subarray(bodyAt)).toString()).toBe(text);
  });

  test("of messages has the messages of a page, one a line", async () => {
    const sessionId = newSession();
    for (const payload of ["", "a\nb", "\u2028 😀", '{"a":\r\n1}']) {
      await push(client, "messages", { sessionId, payload });
    }
    const page = await fetch(`http://${service.httpAddress}${API}/sessions/${sessionId}/messages`);
    const lines = linesOf(await (await exported(sessionId, "?stream=messages")).text());
    expect(lines).toEqual(await page.json());
    expect(await (await exported(sessionId)).text()).toBe(""); // No event yet.
  });

  test("keeps an event with line breaks on one line, and a row without an index whole", async () => {
    const sessionId = newSession();
    const event = { type: "CUSTOM", name: "n", value: { text: "a\n\rb", n: [1, 2] } };
    const pretty = JSON.stringify(event, undefined, 2);
    await push(client, "events", { sessionId, payload: pretty });
    await push(client, "events", { sessionId, payload: pretty.replaceAll("\n", "\r\n") });
    const whole = { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "abc" };
    await push(client, "events", {
      sessionId,
      eventType: whole.type,
      payload: JSON.stringify(whole),
      eventCount: 3,
    });
    const text = await (await exported(sessionId)).text();
    expect(linesOf(text)).toEqual([event, event, whole]);
    expect(text).not.toContain("\r");
  });

  test("[curl] is saved under its file name and unpacked", needs("curl"), async () => {
    const sessionId = `${newSession()}:x`;
    await push(client, "events", { sessionId });
    const args = ["-s", "--compressed", "-OJ", "-w", "%{filename_effective}"];
    const child = spawn(
      toolPath("curl"),
      [
        ...args,
        "--output-dir",
        service.dataDir,
        `http://${service.httpAddress}${pathOf(sessionId)}`,
      ],
      { stdio: ["ignore", "pipe", "ignore"] },
    );
    const received = new Received(child.stdout);
    await once(child, "close");
    expect(received.text).toMatch(/session-s-[0-9a-f-]+_x\.events\.jsonl$/);
    const file = await readFile(join(service.dataDir, basename(received.text)), "utf8");
    expect(linesOf(file)).toEqual([JSON.parse(GOOD.events.payload)]);
  });

  test("has the same headers for HEAD as for GET", async () => {
    const sessionId = newSession();
    await push(client, "events", { sessionId });
    const address = `http://${service.httpAddress}${pathOf(sessionId)}`;
    const head = await fetch(address, { method: "HEAD" });
    const get = await fetch(address);
    const ofConnection = ["connection", "date", "keep-alive", "transfer-encoding"];
    const kept = ([name]: [string, string]) => !ofConnection.includes(name);
    expect([...head.headers].filter(kept)).toEqual([...get.headers].filter(kept));
    expect(await head.text()).toBe("");
    await get.text();
    const missing = await fetch(`http://${service.httpAddress}${pathOf(newSession())}`, {
      method: "HEAD",
    });
    expect(missing.status).toBe(404);
  });
});

describe("an export that cannot finish", () => {
  const ROWS = 300;
  const payload = JSON.stringify({ type: "CUSTOM", name: "n", value: "x".repeat(100_000) });

  async function largeSession(): Promise<string> {
    const sessionId = newSession();
    const pushing = Array.from({ length: 4 }, async () => {
      for (let at = 0; at < ROWS / 4; at += 1) await push(client, "events", { sessionId, payload });
    });
    await Promise.all(pushing);
    return sessionId;
  }

  test.each(["1.0", "1.1"])("is broken off, and HTTP/%s can tell", async (version) => {
    const sessionId = await largeSession();
    const socket = await ask(service.httpAddress, pathOf(sessionId), { version });
    await once(socket, "readable"); // It has begun, and some 10 MB of buffers hold it up.
    await client.unary(SessionService.method.deleteSession, { id: sessionId });
    const failed = once(socket, "error");
    const received = new Received(socket);
    expect((await failed)[0]).toMatchObject({ code: "ECONNRESET" });
    expect(received.text.length).toBeLessThan(ROWS * payload.length);
    expect(received.hasEnded).toBe(false);
  });

  test("stops reading when its caller leaves, and counts no error", async () => {
    const sessionId = await largeSession();
    const socket = await ask(service.httpAddress, pathOf(sessionId));
    await once(socket, "readable");
    socket.destroy();
    const lines = () => service.log.filter((line) => line.includes(sessionId)).join("\n");
    await expect.poll(lines).toContain('"left":true');
    expect(lines()).not.toContain("export broke off");
  });
});

describe("a refused export", () => {
  test("of an unknown, deleted or invalid session has its own status", async () => {
    const deleted = newSession();
    await push(client, "events", { sessionId: deleted });
    await client.unary(SessionService.method.deleteSession, { id: deleted });
    const answers = await Promise.all([newSession(), deleted, "a%20b"].map((id) => exported(id)));
    expect(answers.map(({ status }) => status)).toEqual([404, 404, 400]);
    expect(
      await Promise.all(answers.map((answer): Promise<unknown> => answer.json())),
    ).toMatchObject([
      { reason: "SESSION_NOT_FOUND" },
      { reason: "SESSION_DELETED" },
      { violations: [{ field: "id" }] },
    ]);
  });
});
