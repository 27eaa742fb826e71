/**
 * grpcurl, with only the address of the service: it finds the contract by reflection, and prints
 * messages as JSON and the details of errors.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import {
  endService,
  NO_OTHERS_ADDRESS,
  type ServiceProcess,
  startService,
} from "../support/service-process.ts";
import { needs, toolPath } from "../support/tools.ts";
import { useService } from "../support/use-service.ts";

const { service } = useService();
let stopping: ServiceProcess | undefined;
const running = new Set<ChildProcess>();

afterAll(async () => {
  for (const child of running) child.kill("SIGKILL");
  if (stopping !== undefined) await endService(stopping);
});

const SERVICE = "ambient.v1.SessionService";
/** grpcurl ends with this plus the number of the status. */
const STATUS_EXIT = 64;

interface Printed {
  readonly exitCode: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function start(args: readonly string[]) {
  const child = spawn(toolPath("grpcurl"), ["-plaintext", ...args], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  running.add(child);
  child.once("exit", () => running.delete(child));
  return child;
}

async function run(args: readonly string[]): Promise<Printed> {
  const child = start(args);
  const [stdout, stderr] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, "exit"),
  ]);
  return { exitCode: child.exitCode, stdout, stderr };
}

/** A call of the service, with its request as JSON; the answer as JSON. */
async function call(method: string, request: object): Promise<unknown> {
  const args = ["-d", JSON.stringify(request), service.grpcAddress, `${SERVICE}/${method}`];
  const { stdout, stderr, exitCode } = await run(args);
  expect({ stderr, exitCode }).toEqual({ stderr: "", exitCode: 0 });
  return JSON.parse(stdout);
}

async function refusal(method: string, request: object): Promise<Printed> {
  return run(["-d", JSON.stringify(request), service.grpcAddress, `${SERVICE}/${method}`]);
}

/** JSON objects as grpcurl prints them, one after the other, over several lines each. */
async function* objects(child: { readonly stdout: Readable }): AsyncGenerator {
  let lines: string[] = [];
  for await (const line of createInterface({ input: child.stdout })) {
    lines.push(line);
    if (line !== "}") continue;
    yield JSON.parse(lines.join("\n"));
    lines = [];
  }
}

const rowSchema = z.object({ id: z.string(), createdAt: z.iso.datetime() });

describe("reflection", () => {
  test("grpcurl: list names the services", needs("grpcurl"), async () => {
    const { stdout } = await run([service.grpcAddress, "list"]);
    expect(stdout.split("\n")).toEqual(expect.arrayContaining([SERVICE, "grpc.health.v1.Health"]));
    const methods = await run([service.grpcAddress, "list", SERVICE]);
    expect(methods.stdout.trim().split("\n")).toEqual(
      SessionService.methods.map(({ name }) => `${SERVICE}.${name}`).toSorted(),
    );
  });

  test("grpcurl: describe shows a service and a message", needs("grpcurl"), async () => {
    const described = await run([service.grpcAddress, "describe", SERVICE]);
    expect(described.stdout).toMatch(
      /rpc PushSessionEvent \( \.ambient\.v1\.PushSessionEventRequest \) returns \( \.ambient\.v1\.SessionEvent \);/,
    );
    const name = "ambient.v1.PushSessionEventRequest";
    const message = await run([service.grpcAddress, "describe", name]);
    for (const field of [
      "string session_id = 1;",
      "optional .google.protobuf.Timestamp completed_at = 4;",
      "int32 event_count = 5;",
      "string idempotency_key = 100;",
      "optional .ambient.v1.Fragments fragments = 103;",
    ]) {
      expect(message.stdout).toContain(field);
    }
  });
});

describe("reflection of health", () => {
  test("grpcurl: describe and call work without proto files", needs("grpcurl"), async () => {
    const health = await run([service.grpcAddress, "describe", "grpc.health.v1.Health"]);
    expect(health).toMatchObject({ exitCode: 0, stderr: "" });
    expect(health.stdout).toContain("rpc Check (");
    const checked = await run([service.grpcAddress, "grpc.health.v1.Health/Check"]);
    expect(JSON.parse(checked.stdout)).toEqual({ status: "SERVING" });
  });
});

describe("rows", () => {
  test("grpcurl: push a message, push an event, list both", needs("grpcurl"), async () => {
    const message = { sessionId: "s1", eventType: "user", payload: "hi" };
    const pushed = await call("PushSessionMessage", message);
    expect(pushed).toEqual({ ...rowSchema.parse(pushed), ...message, seq: "1" });
    const messages = await call("ListSessionMessages", { sessionId: "s1" });
    expect(messages).toEqual({ items: [pushed], nextAfterSeq: "1", nextBeforeSeq: "1" });

    const payload = '{"type":"RUN_STARTED","threadId":"t","runId":"r"}';
    const event = { sessionId: "s1", eventType: "RUN_STARTED", payload };
    const stored = await call("PushSessionEvent", event);
    expect(stored).toEqual({
      ...rowSchema.parse(stored),
      ...event,
      seq: "1",
      eventCount: 1,
      runId: "r",
    });
    const events = await call("ListSessionEvents", { session_id: "s1", page_size: 1 });
    expect(events).toEqual({ items: [stored], nextAfterSeq: "1", nextBeforeSeq: "1" });
  });

  test("grpcurl: a watch prints older rows, then new ones", needs("grpcurl"), async () => {
    const push = (payload: string) =>
      call("PushSessionMessage", { sessionId: "watched", eventType: "user", payload });
    const first = await push("one");
    const request = JSON.stringify({ sessionId: "watched" });
    const watch = start(["-d", request, service.grpcAddress, `${SERVICE}/WatchSessionMessages`]);
    const rows = objects(watch);
    expect(await rows.next()).toEqual({ done: false, value: first });
    const second = await push("two");
    expect(await rows.next()).toEqual({ done: false, value: second });
    watch.kill("SIGTERM");
    expect((await rows.next()).done).toBe(true);
  });

  test(
    "grpcurl: a watch ends at the head with snapshot_only, and -max-time bounds an endless one",
    needs("grpcurl"),
    async () => {
      const message = { sessionId: "bounded", eventType: "user", payload: "hi" };
      const pushed = await call("PushSessionMessage", message);
      const snapshot = { sessionId: "bounded", snapshotOnly: true };
      expect(await call("WatchSessionMessages", snapshot)).toEqual(pushed);
      const bounded = await run([
        "-max-time",
        "5",
        "-d",
        JSON.stringify({ sessionId: "bounded" }),
        service.grpcAddress,
        `${SERVICE}/WatchSessionMessages`,
      ]);
      expect(JSON.parse(bounded.stdout)).toEqual(pushed);
      expect(bounded.stderr).toContain("Code: DeadlineExceeded");
      expect(bounded.exitCode).toBe(STATUS_EXIT + 4);
    },
  );
});

test("grpcurl: a stream of raw events prints frame by frame", needs("grpcurl"), async () => {
  const method = `${SERVICE}/PushSessionEvents`;
  const stream = spawn(toolPath("grpcurl"), ["-plaintext", "-d", "@", service.grpcAddress, method]);
  running.add(stream);
  const ended = once(stream, "exit");
  const answers = objects(stream);
  const send = (frame: object): void => void stream.stdin.write(JSON.stringify(frame));

  send({ open: { session_id: "raw" } });
  const opened = { producerEpoch: "1", maxUnacknowledgedBytes: expect.stringMatching(/^\d+$/) };
  expect(await answers.next()).toEqual({ done: false, value: { opened } });
  const tokens = ["It ", "is ", "noon."].map((delta) => ({
    payload: JSON.stringify({ type: "TEXT_MESSAGE_CONTENT", messageId: "m1", delta }),
  }));
  send({ batch: { first_client_seq: 1, events: tokens } });
  send({ flush: {} });
  const committed = { lastClientSeq: "3", firstSeq: "1", lastSeq: "3" };
  expect(await answers.next()).toEqual({ done: false, value: { committed } });

  const end = '{"type":"TEXT_MESSAGE_END","messageId":"m1"}';
  send({ batch: { first_client_seq: 4, events: [{ payload: "{}" }, { payload: end }] } });
  stream.stdin.end();
  const refused = { clientSeq: "4", status: { code: 3, message: expect.any(String) } };
  expect(await answers.next()).toMatchObject({ value: { refused } });
  expect(await answers.next()).toEqual({
    done: false,
    value: { committed: { lastClientSeq: "5", firstSeq: "1", lastSeq: "4" } },
  });
  expect(await answers.next()).toEqual({ done: true, value: undefined });
  expect(await ended).toEqual([0, null]);

  const merged = '{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"It is noon."}';
  expect(await call("ListSessionEvents", { sessionId: "raw" })).toMatchObject({
    items: [
      { seq: "1", eventCount: 3, payload: merged },
      { seq: "4", eventCount: 1, payload: end },
    ],
  });
});

describe("errors are printed with their details", () => {
  test("grpcurl: a refusal names the wrong fields", needs("grpcurl"), async () => {
    const event = { sessionId: "s1", eventType: "TEXT_MESSAGE_CONTENT", payload: "{}" };
    const { exitCode, stderr } = await refusal("PushSessionEvent", event);
    expect(exitCode).toBe(STATUS_EXIT + 3);
    expect(stderr).toContain("Code: InvalidArgument");
    expect(stderr).toContain("payload.messageId must be a string, but is absent");
    const [, info = "", badRequest = ""] = stderr.split(/\n {2}\d\)\s/);
    expect(JSON.parse(info)).toEqual({
      "@type": "type.googleapis.com/google.rpc.ErrorInfo",
      reason: "INVALID_REQUEST",
      domain: "session-ledger",
    });
    expect(JSON.parse(badRequest)).toEqual({
      "@type": "type.googleapis.com/google.rpc.BadRequest",
      fieldViolations: ["messageId", "delta"].map((name) => ({
        field: `payload.${name}`,
        description: `payload.${name} must be a string, but is absent`,
      })),
    });
  });

  test(
    "grpcurl: an unknown session and an unknown method have their own errors",
    needs("grpcurl"),
    async () => {
      const unknown = await refusal("GetSession", { id: "never-seen" });
      expect(unknown.exitCode).toBe(STATUS_EXIT + 5);
      expect(unknown.stderr).toContain('"reason": "SESSION_NOT_FOUND"');
    },
  );
});

describe("health, as grpc_health_probe asks for it", () => {
  const CHECK = "grpc.health.v1.Health/Check";
  // A probe brings the definition along; it works where reflection is off.
  const PROTOS = fileURLToPath(new URL("../../proto", import.meta.url));
  const PROBE = ["-import-path", PROTOS, "-proto", "grpc/health/v1/health.proto"];
  const check = (address: string, name: string, secondsMax = "60") =>
    run([
      ...PROBE,
      "-max-time",
      secondsMax,
      "-d",
      JSON.stringify({ service: name }),
      address,
      CHECK,
    ]);

  test("grpcurl: the server and the service are SERVING", needs("grpcurl"), async () => {
    for (const name of ["", SERVICE]) {
      const { stdout, exitCode } = await check(service.grpcAddress, name);
      expect(JSON.parse(stdout)).toEqual({ status: "SERVING" });
      expect(exitCode).toBe(0);
    }
  });

  test("grpcurl: an unknown service is NOT_FOUND", needs("grpcurl"), async () => {
    const { stderr, exitCode } = await check(service.grpcAddress, "no.such.Service");
    expect(stderr).toContain("Code: NotFound");
    expect(exitCode).toBe(STATUS_EXIT + 5);
  });

  test("grpcurl: a stop is NOT_SERVING, then the connection closes", needs("grpcurl"), async () => {
    stopping = await startService({ addresses: { grpcAddress: NO_OTHERS_ADDRESS } });
    const watch = start([...PROBE, stopping.grpcAddress, "grpc.health.v1.Health/Watch"]);
    const states = objects(watch);
    expect((await states.next()).value).toEqual({ status: "SERVING" });
    const ended = stopping.stop();
    expect((await states.next()).value).toEqual({ status: "NOT_SERVING" });
    expect((await states.next()).done).toBe(true);
    expect(await ended).toBe(0);
    const gone = await check(stopping.grpcAddress, "", "5");
    expect(gone.exitCode).toBe(1);
    // Up to 1.9.3 it continues with "connection refused"; 1.9.4 tries until its time is over.
    expect(gone.stderr).toContain("Failed to dial target host");
  });
});
