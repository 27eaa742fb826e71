/**
 * The edges of a body of lines: slow callers, slow handlers, memory, tokens that end, and a stop. The
 * limits of time are short here, so these servers have a handler of the test.
 */
import { setImmediate as nextTurn } from "node:timers/promises";
import { once } from "node:events";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import {
  type PushSessionEventsRequest,
  type PushSessionEventsResponse,
  PushSessionEventsResponseSchema,
} from "../../gen/ambient/v1/event_stream_pb.ts";
import type { ServiceError } from "../../src/base/errors.ts";
import { FairShare } from "../../src/base/fair-share.ts";
import type { Caller, Conversation } from "../../src/contract/context.ts";
import { HTTP_LIMITS } from "../../src/http/plumbing/listener.ts";
import { bearer } from "../support/callers.ts";
import { rawConnection, rawExchange, startHttp } from "../support/http-fixture.ts";
import { LinesUpload } from "../support/http-clients.ts";
import { createdSession, newSession, rowsOf } from "../support/pushing.ts";
import { sharedCallers, type UsedService, useService } from "../support/use-service.ts";

const PATH = "/api/ambient/v1/sessions/s/events";
const HEAD = `POST ${PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n`;

/** A handler that counts what it gets, and takes a batch when it is told to. */
class Counting implements Conversation<PushSessionEventsRequest> {
  readonly #caller: Caller<PushSessionEventsResponse>;
  /** Batches wait for `takeOn`. */
  readonly #isSlow: boolean;
  payloads: string[] = [];
  left: string | undefined;
  keptBytes = 0;

  constructor(
    caller: Caller<PushSessionEventsResponse>,
    { isSlow = false }: { readonly isSlow?: boolean } = {},
  ) {
    this.#caller = caller;
    this.#isSlow = isSlow;
  }

  get record() {
    return { sessionId: "s", counts: { events: this.payloads.length } };
  }

  heard({ frame }: PushSessionEventsRequest): boolean {
    if (frame.case === "open") {
      this.#say({ case: "opened", value: { producerEpoch: 1n } });
      setImmediate(() => this.#caller.hearOn());
    } else if (frame.case === "batch") {
      this.payloads.push(...frame.value.events.map(({ payload }) => payload));
      return !this.#isSlow;
    }
    return false;
  }

  takeOn(): void {
    this.#caller.hearOn();
  }

  misheard(error: ServiceError): void {
    this.#end(error);
  }

  heardAll(): void {
    this.#end();
  }

  sent(): void {}

  over(error: ServiceError): void {
    this.left = error.message;
  }

  #end(error?: ServiceError): void {
    const lastClientSeq = BigInt(this.payloads.length);
    this.#say({
      case: "committed",
      value: { lastClientSeq, firstSeq: 1n, lastSeq: lastClientSeq },
    });
    this.#caller.end(error);
  }

  #say(
    frame: NonNullable<MessageInitShape<typeof PushSessionEventsResponseSchema>["frame"]>,
  ): void {
    this.#caller.send(create(PushSessionEventsResponseSchema, { frame }));
  }
}

/** The conversations of a server, in the order of their requests. */
function counting(options: { readonly isSlow?: boolean } = {}) {
  const talks: Counting[] = [];
  return {
    talks,
    pushSessionEvents: (caller: Caller<PushSessionEventsResponse>) => {
      const talk = new Counting(caller, options);
      talks.push(talk);
      return talk;
    },
  };
}

describe("a slow caller", () => {
  const short = { ...HTTP_LIMITS, headersLimitMs: 200, requestLimitMs: 400, checkIntervalMs: 50 };

  /** Resolves when a request that began now has passed the limit of its time. */
  async function limitPasses(address: string): Promise<void> {
    const head = `POST ${PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n`;
    const answer = await rawExchange(address, `${head}Content-Length: 100\r\n\r\n{`);
    expect(answer).toMatch(/^HTTP\/1\.1 408 /);
  }

  test("may be silent between two lines for longer than a request may take", async () => {
    const { talks, pushSessionEvents } = counting();
    await using http = await startHttp({ pushSessionEvents }, { limits: short });
    const upload = new LinesUpload(http.server.address, PATH);
    upload.write("1\n");
    await expect.poll(() => talks[0]?.payloads).toEqual(["1"]);
    await limitPasses(http.server.address);
    upload.write("\n");
    await limitPasses(http.server.address);
    upload.write("2\n");
    expect(await upload.end()).toMatchObject({ status: 200, told: { last_client_seq: 2 } });
    const recorded = () => http.records.find(({ events }) => events === 2);
    await expect.poll(recorded).toMatchObject({ status: 200, sessionId: "s" });
  });

  test("has each line answered with 408 that takes longer; earlier lines are stored", async () => {
    const { pushSessionEvents } = counting();
    await using http = await startHttp({ pushSessionEvents }, { limits: short });
    const upload = new LinesUpload(http.server.address, PATH);
    upload.write('1\n2\n{"type"');
    const { status, told } = await upload.answer;
    expect({ status, told }).toMatchObject({
      status: 408,
      told: { status: 408, detail: "the line did not arrive in time", last_client_seq: 2 },
    });
  });

  test("who sends on after the answer is disconnected", async () => {
    const { pushSessionEvents } = counting();
    await using http = await startHttp({ pushSessionEvents }, { limits: short });
    const socket = rawConnection(http.server.address);
    socket.write(`${HEAD}Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n`);
    const [answer] = await once(socket, "data");
    expect(String(answer)).toMatch(/^HTTP\/1\.1 408 /);
    await once(socket, "close");
  });
});

test("a slow handler is waited for: nothing more is read, and nothing is lost", async () => {
  const { talks, pushSessionEvents } = counting({ isSlow: true });
  const memory = new FairShare({ max: 100 * 1024 * 1024 });
  await using http = await startHttp({ pushSessionEvents }, {}, { memory });
  const upload = new LinesUpload(http.server.address, PATH);
  const line = `"${"x".repeat(1_000)}"\n`;
  // Each write is a chunk of HTTP, and the handler takes one at a time.
  for (let at = 0; at < 200; at += 1) upload.write(line.repeat(100));
  await expect.poll(() => talks[0]?.payloads.length ?? 0).toBeGreaterThan(0);
  for (let at = 0; at < 100; at += 1) await http.ask("/nothing"); // Time to read 20 MB.
  expect(memory.held).toBeLessThan(512 * 1024);
  const answered = upload.end();
  const done = new AbortController();
  void answered.finally(() => done.abort());
  while (!done.signal.aborted) {
    talks[0]?.takeOn();
    await nextTurn();
  }
  expect(await answered).toMatchObject({ status: 200, told: { last_client_seq: 20_000 } });
});

describe("memory", () => {
  test("unfinished lines wait for room, but for one, and give way to other requests", async () => {
    const memory = new FairShare({ max: 2 * 1024 * 1024 });
    const lineRoomBytes = 1024 * 1024;
    const { pushSessionEvents } = counting();
    const given = { pushSessionEvents, listSessions: () => Promise.reject(new Error("asked")) };
    await using http = await startHttp(given, { requestBytesMax: 2_000_000 }, { memory });
    const uploads = Array.from({ length: 12 }, () => {
      const upload = new LinesUpload(http.server.address, PATH);
      upload.write(`1\n${"x".repeat(800_000)}`);
      return upload;
    });
    await expect.poll(() => memory.held).toBeGreaterThan(1_000_000);
    expect((await http.ask("/sessions")).status).toBe(500);
    expect(memory.held).toBeLessThanOrEqual(memory.max + lineRoomBytes);
    for (const upload of uploads) upload.kill();
    await expect.poll(() => memory.held).toBeLessThan(100_000);
  });

  test("is held for the bytes that the handler keeps, and given back at the end", async () => {
    const memory = new FairShare({ max: 2 * 1024 * 1024 });
    const { talks, pushSessionEvents } = counting();
    await using http = await startHttp({ pushSessionEvents }, {}, { memory });
    const upload = new LinesUpload(http.server.address, PATH);
    upload.write("1\n");
    await expect.poll(() => talks[0]?.payloads).toEqual(["1"]);
    const [talk] = talks;
    if (talk === undefined) throw new Error("nobody asked");
    talk.keptBytes = 500_000;
    upload.write("2\n");
    await expect.poll(() => memory.held).toBeGreaterThan(500_000);
    talk.keptBytes = 0;
    expect((await upload.end()).status).toBe(200);
    await expect.poll(() => memory.held).toBeLessThan(100_000);
  });
});

test("a caller that leaves ends its conversation, and the record says so", async () => {
  const { talks, pushSessionEvents } = counting();
  await using http = await startHttp({ pushSessionEvents });
  const upload = new LinesUpload(http.server.address, PATH);
  upload.write("1\n2");
  await expect.poll(() => talks[0]?.payloads).toEqual(["1"]);
  upload.kill();
  await expect.poll(() => talks[0]?.left).toBe("the caller left");
  expect(talks[0]?.payloads).toEqual(["1"]);
  expect(await http.recorded("request")).toMatchObject({ left: true, events: 1, status: 499 });
});

describe("at a service", () => {
  const { service: guarded } = useService("tokens");
  const { client: redacting, service: strict } = useService("strict");
  const { service, client } = useService({});

  const event = (at: number): string => `{"type":"RAW","event":${at}}\n`;
  const pathOf = (id: string): string => `/api/ambient/v1/sessions/${id}/events`;

  /** An upload of which two events are stored. */
  async function openUpload(
    { httpAddress }: UsedService,
    id: string,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<LinesUpload> {
    const upload = new LinesUpload(httpAddress, pathOf(id), headers);
    upload.write(event(1) + event(2));
    const url = `http://${httpAddress}${pathOf(id)}/history`;
    const total = async () => Object(await (await fetch(url, { headers })).json()).total;
    await expect.poll(total).toBe(2);
    return upload;
  }

  test("the end of a token ends an upload with what is stored", async () => {
    const callers = await sharedCallers("tokens");
    const gone = callers.add("gone", ["admin"]);
    await callers.save();
    const ended = await openUpload(guarded, newSession(), bearer(gone));
    callers.remove(gone);
    await callers.save();
    expect(await ended.answer).toMatchObject({
      status: 401,
      told: { reason: "UNAUTHENTICATED", last_client_seq: 2, last_seq: 2 },
    });
  });

  test("a stop ends an upload with what is stored", async () => {
    const stopped = await openUpload(service, "stop");
    stopped.write(`${event(3)}{"type"`);
    const end = service.stop();
    const answer = await stopped.answer;
    expect(answer).toMatchObject({ status: 503, told: { reason: "SHUTTING_DOWN" } });
    expect(await end).toBe(0);
    await service.restart();
    const stored = (await rowsOf(client, "events", "stop")).length;
    expect([2, 3]).toContain(stored);
    expect(answer.told["last_client_seq"]).toBe(stored);
  });

  test("a secret that is cut into two events of an array is redacted", async () => {
    const id = await createdSession(redacting);
    const secret = `ghp_${"a1B2".repeat(9)}`;
    const parts = [secret.slice(0, 13), `${secret.slice(13)} `];
    const body = parts.map((delta) => ({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta }));
    const pushed = await fetch(`http://${strict.httpAddress}${pathOf(id)}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    expect(await pushed.json()).toEqual({ first_seq: 1, last_seq: 2 });
    const [row] = await rowsOf(redacting, "events", id);
    expect(row?.payload).toMatch(/"delta":"ghp_\*+ "/);
  });
});
