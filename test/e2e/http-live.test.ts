/**
 * Streams over HTTP as their clients know them: curl, and the EventSource that browsers have. Two
 * services share a PostgreSQL; what one is asked to stream is pushed to the other as well.
 */
import { spawn } from "node:child_process";
import { readFile } from "node:fs/promises";
import type { Socket } from "node:net";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { type OpenDatabase, openDatabase } from "../support/database.ts";
import { cleanUp } from "../support/embedded-fixture.ts";
import { API, ask, Following, Received } from "../support/http-clients.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { type MergedEvent, mergeFragments } from "../support/merging.ts";
import { createdSession, newSession, push, watch } from "../support/pushing.ts";
import { expectedOf } from "../support/recorded.ts";
import { type ServiceProcess, startAgain, startService } from "../support/service-process.ts";
import { ownStreams, type StreamEvent } from "../support/streams.ts";
import { startTcpProxy, type TcpProxy } from "../support/broken-network.ts";
import { needs, toolPath } from "../support/tools.ts";
import { useService } from "../support/use-service.ts";

/** With frequent heartbeats. */
const { service: strict, client: strictly } = useService("strict");
let shared: OpenDatabase;
let here: ServiceProcess;
let there: ServiceProcess;
let client: RpcClient;
let other: RpcClient;
const followings: Following[] = [];
const proxies: TcpProxy[] = [];

beforeAll(async () => {
  shared = await openDatabase();
  const start = () => startService({ databaseUrl: shared.url });
  [here, there] = await Promise.all([start(), start()]);
  client = new RpcClient(here.grpcAddress);
  other = new RpcClient(there.grpcAddress);
});

afterEach(async () => {
  for (const following of followings.splice(0)) following.close();
  for (const proxy of proxies.splice(0)) await proxy.stop();
});

afterAll(async () => {
  for (const one of [client, other]) one.close();
  await Promise.all([here.stop(), there.stop()]);
  await shared.stop();
  await cleanUp();
});

function urlOf(address: string, sessionId: string, rest: string): string {
  return `http://${address}${API}/sessions/${sessionId}/${rest}`;
}

function follow(url: string): Following {
  const following = new Following(url);
  followings.push(following);
  return following;
}

/** A proxy, which can be cut, to the HTTP port of a service. */
async function cuttable({ httpAddress }: ServiceProcess): Promise<TcpProxy> {
  const proxy = await startTcpProxy({ host: "127.0.0.1", port: Number(httpAddress.split(":")[1]) });
  proxies.push(proxy);
  return proxy;
}

function upTo(count: number): readonly string[] {
  return Array.from({ length: count }, (_, at) => String(at + 1));
}

/** Events of every kind, and what a runner that compresses pushes of them. */
const RAW: readonly StreamEvent[] = ownStreams().flatMap(({ events }) => events);
const ROWS: readonly MergedEvent[] = mergeFragments(RAW, { eventsMax: 7 });

function pushRow(at: RpcClient, sessionId: string, row: MergedEvent) {
  const { fragments, ...event } = row;
  return push(at, "events", { sessionId, ...event, ...(fragments && { fragments }) });
}

function parsedAll(following: Following): readonly unknown[] {
  return following.given.map(({ data }): unknown => JSON.parse(data));
}

async function rawHttp(socket: Socket): Promise<Received> {
  const received = new Received(socket);
  await expect.poll(() => received.text).toContain("\r\n\r\n");
  return received;
}

describe("messages", () => {
  test("reach an EventSource once and in order, through cuts, from either service", async () => {
    const sessionId = newSession();
    const proxy = await cuttable(here);
    const following = follow(urlOf(`127.0.0.1:${proxy.port}`, sessionId, "messages"));
    await following.untilOpened();
    for (let at = 1; at <= 120; at += 1) {
      await push(at % 2 === 0 ? client : other, "messages", { sessionId, payload: `line\n${at}` });
      if (at % 40 === 0) proxy.cut();
    }
    await following.until(120);
    expect(following.ids).toEqual(upTo(120));
    expect(following.opened).toBeGreaterThanOrEqual(2);
    const rest = await fetch(urlOf(here.httpAddress, sessionId, "messages?limit=1000"));
    expect(parsedAll(following)).toEqual(await rest.json());
  });

  test("begin after after_seq; Last-Event-ID has precedence; the default is the beginning", async () => {
    const sessionId = newSession();
    for (let at = 1; at <= 5; at += 1) await push(client, "messages", { sessionId });
    const idsFor = async (rest: string, lastEventId?: string): Promise<readonly string[]> => {
      const headers = [
        "Accept: text/event-stream",
        ...(lastEventId === undefined ? [] : [`Last-Event-ID: ${lastEventId}`]),
      ];
      const path = `${API}/sessions/${sessionId}/messages${rest}`;
      const socket = await ask(here.httpAddress, path, { headers });
      const received = await rawHttp(socket);
      await expect.poll(() => received.text).toContain(": watch_state LIVE 5\n\n");
      socket.destroy();
      return [...received.text.matchAll(/^id: (\d+)$/gm)].map(([, id = ""]) => id);
    };
    expect(await idsFor("?after_seq=2")).toEqual(["3", "4", "5"]);
    expect(await idsFor("?after_seq=2", "4")).toEqual(["5"]);
    expect(await idsFor("?after_seq=4", "0")).toEqual(upTo(5));
    expect(await idsFor("?after_seq=4", "")).toEqual(["5"]);
    expect(await idsFor("")).toEqual(upTo(5));
    expect(await idsFor("?after_seq=5")).toEqual([]);
  });
});

describe("events", () => {
  test("arrive uncompressed and live through cuts, without loss or duplicates", async () => {
    const sessionId = newSession();
    await pushRow(client, sessionId, { ...at0(RAW), eventCount: 1, fragments: undefined });
    const proxy = await cuttable(here);
    const url = urlOf(`127.0.0.1:${proxy.port}`, sessionId, "events?state_frames=true");
    const following = follow(url);
    await expect.poll(() => following.named.length).toBe(1);
    proxy.cut(); // Before any event came: "now" must not be later the second time.
    for (const [at, row] of ROWS.entries()) {
      await pushRow(at % 2 === 0 ? client : other, sessionId, row);
      if (at % Math.ceil(ROWS.length / 4) === 0) proxy.cut();
    }
    await following.until(RAW.length);
    expect(following.ids).toEqual(upTo(RAW.length + 1).slice(1));
    expect(parsedAll(following)).toEqual(RAW.map((event) => expectedOf(event).value));
    expect(following.opened).toBeGreaterThanOrEqual(2);
    expect(ROWS.length).toBeLessThan(RAW.length);
  });

  test("without an index arrive as a whole row, once, also after a reconnect at that row", async () => {
    const sessionId = newSession();
    const proxy = await cuttable(here);
    const following = follow(urlOf(`127.0.0.1:${proxy.port}`, sessionId, "events"));
    await following.untilOpened();
    const payload = '{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"abc"}';
    const whole = { sessionId, eventType: "TEXT_MESSAGE_CONTENT", payload, eventCount: 3 };
    await push(client, "events", whole);
    await following.until(1);
    proxy.cut();
    await following.untilOpened(2);
    await push(client, "events", whole);
    await following.until(2);
    proxy.cut();
    await push(client, "events", { sessionId });
    await following.until(3);
    expect(following.ids).toEqual(["1", "4", "7"]);
    expect(following.given[1]?.data).toBe(payload);
  });

  test("after a cursor inside a merged row are the rest of that row", async () => {
    const sessionId = newSession();
    const payload = '{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"abc"}';
    const fragments = { lengths: [2, 2, 2] };
    const merged = { eventType: "TEXT_MESSAGE_CONTENT", payload, eventCount: 3, fragments };
    await push(client, "events", { sessionId, ...merged });
    const following = follow(urlOf(here.httpAddress, sessionId, "events?after_seq=1"));
    await following.until(2);
    expect(following.ids).toEqual(["2", "3"]);
    expect(parsedAll(following)).toMatchObject([{ delta: "b" }, { delta: "c" }]);
  });

  test("with line breaks between their tokens do not break the SSE frame", async () => {
    const sessionId = newSession();
    const following = follow(urlOf(here.httpAddress, sessionId, "events"));
    await following.untilOpened();
    const event = { type: "CUSTOM", name: "n", value: ["\n\ndata: x", { a: 1 }] };
    const payload = JSON.stringify(event, undefined, 1);
    await push(client, "events", { sessionId, payload });
    await push(client, "events", { sessionId, payload: payload.replaceAll("\n", "\r\n\r\n") });
    await following.until(2);
    expect(parsedAll(following)).toEqual([event, event]);
    expect(following.given[0]?.data).toBe(payload);
  });
});

describe("a service that followers watch", () => {
  test("loses no event for its followers when it is killed and started again", async () => {
    const sessionId = newSession();
    const victim = await startService({ databaseUrl: shared.url });
    const urls = ["messages", "events"].map((rest) => urlOf(victim.httpAddress, sessionId, rest));
    const [messages, events] = urls.map((url) => follow(url));
    if (messages === undefined || events === undefined) throw new Error("nobody follows");
    await messages.untilOpened();
    await events.untilOpened();
    const pushBoth = async (count: number): Promise<void> => {
      for (let at = 0; at < count; at += 1) {
        await push(client, "messages", { sessionId });
        await push(client, "events", { sessionId });
      }
    };
    await pushBoth(20);
    await messages.until(5);
    await victim.kill("SIGKILL");
    await pushBoth(20);
    const again = await startAgain(victim);
    await pushBoth(20);
    await messages.until(60);
    await events.until(60);
    expect(messages.ids).toEqual(upTo(60));
    expect(events.ids).toEqual(upTo(60));
    expect(messages.opened).toBe(2);
    await again.stop();
  });

  test("ends its streams with a reason at a stop, and does not wait for readers that are stuck", async () => {
    const sessionId = newSession();
    const stopping = await startService({ databaseUrl: shared.url });
    const following = follow(urlOf(stopping.httpAddress, sessionId, "events"));
    await following.untilOpened();
    const path = `${API}/sessions/${sessionId}/events`;
    const received = await rawHttp(await ask(stopping.httpAddress, path));
    const unread = await ask(stopping.httpAddress, path);
    expect(await stopping.stop()).toBe(0);
    await expect.poll(() => received.hasEnded).toBe(true);
    expect(received.text).toMatch(/event: error\n(retry: \d+\n)?data: \{/);
    expect(received.text).toContain('"reason":"SHUTTING_DOWN"');
    expect(received.text.endsWith("0\r\n\r\n")).toBe(true); // Whole, and not torn off.
    await expect.poll(() => following.named).toMatchObject([{ name: "error" }]);
    expect(following.isClosed).toBe(false); // It will come back.
    unread.destroy();
    expect(stopping.log.join("\n")).not.toContain("requests cut at the stop limit");
  });
});

describe("a stream", () => {
  test("sends heartbeats and its watch state", async () => {
    const sessionId = await createdSession(strictly);
    await push(strictly, "messages", { sessionId });
    const headers = ["Accept: text/event-stream"];
    const path = `${API}/sessions/${sessionId}/messages`;
    const plain = await rawHttp(await ask(strict.httpAddress, path, { headers }));
    const pings = () => plain.text.match(/^: ping$/gm)?.length ?? 0;
    await expect.poll(pings).toBeGreaterThan(2);
    const comments = [...plain.text.matchAll(/^: (watch_state .*)$/gm)].map(([, text]) => text);
    expect(comments).toEqual(["watch_state CATCHING_UP 0", "watch_state LIVE 1"]);
    expect(plain.text).not.toContain("event:");

    const following = follow(urlOf(strict.httpAddress, sessionId, "messages?state_frames=true"));
    await expect.poll(() => following.named.length).toBe(2);
    expect(following.named).toEqual([
      { name: "watch_state", data: '{"state":"CATCHING_UP","seq":0}', id: "" },
      { name: "watch_state", data: '{"state":"LIVE","seq":1}', id: "1" },
    ]);
  });

  test("of a deleted session ends with the reason, and its EventSource stops", async () => {
    const sessionId = newSession();
    await push(client, "messages", { sessionId });
    const following = follow(urlOf(here.httpAddress, sessionId, "messages"));
    await following.until(1);
    await other.unary(SessionService.method.deleteSession, { id: sessionId });
    await expect.poll(() => following.named.length).toBe(1);
    expect(JSON.parse(following.named[0]?.data ?? "")).toMatchObject({
      status: 404,
      reason: "SESSION_DELETED",
    });
    await expect.poll(() => following.isClosed).toBe(true);
    expect(following.refusedWith).toBe(404);
  });

  // Regression: each reader that left counted as a call that was refused.
  test("is released when its caller leaves", async () => {
    const sessionId = newSession();
    const metricsText = async () => (await fetch(`http://${there.opsAddress}/metrics`)).text();
    const openNow = async (): Promise<readonly number[]> => {
      const metrics = await metricsText();
      return ["sse_streams", "watchers"].map((name) =>
        [...metrics.matchAll(new RegExp(`^session_ledger_${name}\\{.*\\} (\\d+)$`, "gm"))]
          .map(([, value]) => Number(value))
          .reduce((sum, value) => sum + value, 0),
      );
    };
    await expect.poll(openNow).toEqual([0, 0]);
    const sockets = await Promise.all(
      Array.from({ length: 5 }, () =>
        ask(there.httpAddress, `${API}/sessions/${sessionId}/events`),
      ),
    );
    await expect.poll(openNow).toEqual([5, 5]);
    const following = watch(other, "events", sessionId);
    await expect.poll(openNow).toEqual([5, 6]);
    following.cancel();
    for (const socket of sockets) socket.destroy();
    await expect.poll(openNow).toEqual([0, 0]);
    expect(await metricsText()).not.toContain('refused_total{reason="CANCELLED"}');
  });

  test("to a caller that does not read is paused, and not buffered in memory", async () => {
    const sessionId = newSession();
    const rows = 300;
    const value = "x".repeat(64 * 1024);
    const payload = JSON.stringify({ type: "CUSTOM", name: "n", value });
    const pushing = Array.from({ length: 4 }, async () => {
      for (let at = 0; at < rows / 4; at += 1) await push(client, "events", { sessionId, payload });
    });
    await Promise.all(pushing);
    const path = `${API}/sessions/${sessionId}/events?after_seq=0`;
    const before = await rssBytes(here);
    const still = await Promise.all(Array.from({ length: 20 }, () => ask(here.httpAddress, path)));
    // One that reads: it begins after the others and ends before them.
    const reading = follow(urlOf(here.httpAddress, sessionId, "events?after_seq=0"));
    await reading.until(rows);
    expect(reading.ids).toEqual(upTo(rows));
    // They asked for 375 MiB; measured: 83 MiB more, and 399 where `write() === false` is not waited for.
    expect((await rssBytes(here)) - before).toBeLessThan(150 * 1024 * 1024);
    // And one that continues to read gets every row.
    const [first] = still;
    if (first === undefined) throw new Error("nobody stood still");
    const received = await rawHttp(first);
    await expect.poll(() => received.text.includes(`\nid: ${rows}\n`)).toBe(true);
    const ids = [...received.text.matchAll(/^id: (\d+)$/gm)].map(([, id]) => id);
    expect(ids).toEqual(upTo(rows));
    for (const socket of still) socket.destroy();
  });
});

async function rssBytes({ pid }: ServiceProcess): Promise<number> {
  const [, kib = ""] =
    /VmRSS:\s+(\d+) kB/.exec(await readFile(`/proc/${pid}/status`, "utf8")) ?? [];
  return Number(kib) * 1024;
}

describe("curl", () => {
  test(
    "[curl] prints a stream as it arrives, over HTTP/1.1 and HTTP/2",
    needs("curl"),
    async () => {
      const sessionId = newSession();
      await push(client, "messages", { sessionId, payload: "one" });
      for (const version of ["--http1.0", "--http1.1"]) {
        const args = ["-sN", "-i", version, "-H", "Accept: text/event-stream"];
        const url = urlOf(here.httpAddress, sessionId, "messages");
        const child = spawn(toolPath("curl"), [...args, url], {
          stdio: ["ignore", "pipe", "ignore"],
        });
        const received = new Received(child.stdout);
        await expect.poll(() => received.text).toContain(": watch_state LIVE");
        const { seq } = await push(other, "messages", { sessionId, payload: version });
        await expect.poll(() => received.text).toContain(`\nid: ${seq}\ndata: {`);
        const [head = "", body = ""] = received.text.split("\r\n\r\n");
        expect(head).toMatch(/^HTTP\/1\.1 200/);
        expect(head.toLowerCase()).toContain("content-type: text/event-stream; charset=utf-8");
        expect(head.toLowerCase()).toContain("cache-control: no-cache");
        expect(head.toLowerCase()).toContain("x-accel-buffering: no");
        expect(head.toLowerCase().includes("chunked")).toBe(version === "--http1.1");
        expect(body).not.toContain("\r");
        child.kill();
      }
    },
  );

  test("[curl] HEAD is answered at once and leaves no watch open", needs("curl"), async () => {
    const url = urlOf(there.httpAddress, newSession(), "events");
    const child = spawn(toolPath("curl"), ["-sI", url], { stdio: ["ignore", "pipe", "ignore"] });
    const received = new Received(child.stdout);
    await expect.poll(() => received.hasEnded).toBe(true);
    expect(received.text).toContain("text/event-stream");
    const metrics = async () => (await fetch(`http://${there.opsAddress}/metrics`)).text();
    await expect.poll(metrics).toMatch(/watchers\{stream="events"\} 0/);
  });
});

function at0<T>(values: readonly T[]): T {
  const [first] = values;
  if (first === undefined) throw new Error("there is none");
  return first;
}
