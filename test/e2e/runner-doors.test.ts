/**
 * The runner's SDK and the command line at a service that has doors: TLS, and tokens that are given,
 * wrong, withdrawn or over. The service and the commands are processes.
 */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setImmediate } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import {
  createLedgerClient,
  ledger,
  type LedgerClient,
} from "@session-ledger/runner/internal/client";
import { readSession } from "@session-ledger/runner/internal/session-reader";
import type { SessionWriterOptions } from "@session-ledger/runner/internal/writer/types";
import type { Caller, SharedCallers } from "../support/callers.ts";
import { createAuthority } from "../support/certificates.ts";
import { runHere } from "../support/command-line.ts";
import { makeDirectory } from "../support/embedded-fixture.ts";
import { newSession } from "../support/pushing.ts";
import { runCommand, startCommand } from "../support/service-process.ts";
import { sharedCallers, sharedService, useService } from "../support/use-service.ts";
import { eventsOfRun, messagesOfRun, observedWriter } from "../support/writing.ts";

const { service } = useService("tls");
let authority: string;
let caFile: string;
let callers: SharedCallers;
let admin: Caller;
let viewer: Caller;
let directory: string;
let client: LedgerClient;

beforeAll(async () => {
  ({ authority = "" } = await sharedService("tls"));
  callers = await sharedCallers("tls");
  admin = callers.add("admin", ["admin"]);
  viewer = callers.add("viewer", ["viewer"]);
  await callers.save();
  directory = await makeDirectory();
  caFile = join(directory, "ca.crt");
  await writeFile(caFile, authority);
  client = createLedgerClient({ ...way(), token: admin.token });
});

afterAll(() => client.close());

function way() {
  return { address: service.grpcAddress, tls: { ca: authority } };
}

async function made(): Promise<string> {
  const { metadata } = await client.call(ledger.createSession, { name: "doors" });
  return metadata?.id ?? "";
}

/** A file with a token and a line end, as a secret is mounted. */
async function tokenFile(token: string): Promise<string> {
  const path = join(directory, `${newSession()}.token`);
  await writeFile(path, `${token}\n`);
  return path;
}

async function payloads(sessionId: string, stream: "events" | "messages") {
  const options = { ...way(), token: admin.token, sessionId };
  const rows =
    stream === "events"
      ? readSession({ ...options, expand: true })
      : readSession({ ...options, stream });
  const items: string[] = [];
  for await (const { payload } of rows) items.push(payload);
  return items;
}

describe("the command line", () => {
  const environment = async (token: string) => ({
    SESSION_LEDGER_ADDRESS: service.grpcAddress,
    SESSION_LEDGER_TLS_CA_FILE: caFile,
    SESSION_LEDGER_TOKEN_FILE: await tokenFile(token),
  });

  test("works over TLS with a token from a file, and prints nothing else", async () => {
    const env = await environment(admin.token);
    const sessionId = newSession();
    const lines = eventsOfRun(1, 5);
    const well = { exitCode: 0, stderr: "" };
    const pushed = await runHere(["push", "-s", sessionId, "--json"], {
      env,
      input: lines.join("\n"),
    });
    expect(pushed).toMatchObject({
      exitCode: 0,
      stderr: expect.stringMatching(/^session-ledger: 9 pushed[^\n]*\n$/),
    });
    const tail = await runHere(["tail", "-s", sessionId, "--format", "payload", "--expand"], {
      env,
    });
    expect(tail).toEqual({ ...well, stdout: lines.map((line) => `${line}\n`).join("") });
    const listed = await runHere(["sessions", "--limit", "1", "--json"], { env });
    expect(listed).toMatchObject({ ...well, stdout: expect.stringContaining(sessionId) });
    // The options replace the settings, of which the token and the authority here are wrong.
    const wrong = { SESSION_LEDGER_TOKEN: "wrong", SESSION_LEDGER_TLS_CA_FILE: "/no/such/file" };
    const opening = [
      `--address=${env.SESSION_LEDGER_ADDRESS}`,
      `--ca-file=${env.SESSION_LEDGER_TLS_CA_FILE}`,
      `--token-file=${env.SESSION_LEDGER_TOKEN_FILE}`,
    ];
    const optioned = ["tail", sessionId, "--format", "payload", "--expand", ...opening];
    expect(await runHere(optioned, { env: wrong })).toEqual(tail);
    const exported = await runHere(["export", sessionId], { env });
    expect(exported).toMatchObject({ exitCode: 0, stdout: tail.stdout });

    const asked = ["token", sessionId, "--role", "viewer", "--ttl", "5m"];
    const issued = await runCommand(asked, { env }); // As a process: its output is what a shell has.
    expect(issued).toMatchObject(well);
    const opened = await environment(issued.stdout);
    const again = await runHere(["tail", "-s", sessionId, "--format", "payload", "--expand"], {
      env: opened,
    });
    expect(again).toEqual(tail);
    const own = await runHere(["sessions", "--json"], { env: opened });
    expect(own.stdout.trim().split("\n")).toHaveLength(1);
    const json = await runHere([...asked, "--json"], { env });
    const { expiresAt } = z
      .object({ token: z.string(), expiresAt: z.iso.datetime() })
      .parse(JSON.parse(json.stdout));
    expect(Math.abs(Date.parse(expiresAt) - Date.now() - 300_000)).toBeLessThan(60_000);
  });

  test("ends with 4 and one line for a wrong token or a missing permission", async () => {
    const sessionId = await made();
    const { SESSION_LEDGER_TOKEN_FILE: _, ...without } = await environment("");
    const refused = async (args: readonly string[], env: Readonly<Record<string, string>>) => {
      const { exitCode, stderr } = await runHere(args, {
        env,
        input: eventsOfRun(1, 1)[0] ?? "",
      });
      expect(exitCode).toBe(4);
      return stderr;
    };
    const list = ["sessions", "--json"];
    expect(await refused(list, await environment("garbage"))).toBe(
      "session-ledger: UNAUTHENTICATED: the bearer token is not accepted\n",
    );
    expect(await refused(list, without)).toMatch(
      /^session-ledger: UNAUTHENTICATED: .*token is required.*\n$/,
    );
    const only = await environment(viewer.token);
    const denied = /^session-ledger: (?:line 1: )?PERMISSION_DENIED: [^\n]*\n/;
    expect(await refused(["token", sessionId], only)).toMatch(denied);
    expect(await refused(["push", "-s", sessionId], only)).toMatch(denied);
    // A tail with a token for another session: as for one that is not there.
    const { token } = await client.call(ledger.issueSessionToken, { sessionId: await made() });
    const other = await refused(["tail", "-s", sessionId], await environment(token));
    expect(other).toMatch(/^session-ledger: SESSION_NOT_FOUND: [^\n]*\n$/);
  });

  test("ends with 3 and one line without a TLS connection", async () => {
    const trusted = await environment(admin.token);
    const { SESSION_LEDGER_TLS_CA_FILE: _, ...without } = trusted;
    const other = join(directory, "stranger.crt");
    await writeFile(other, (await createAuthority("Stranger")).certificate);
    const ended = async (env: Readonly<Record<string, string>>) => {
      const args = ["sessions", "--json", "--retry-for", "0s"];
      const { exitCode, stderr } = await runHere(args, { env });
      expect(stderr).toMatch(/^session-ledger: UNAVAILABLE: [^\n]*\n$/);
      expect(exitCode).toBe(3);
      return stderr;
    };
    const untrusted = "of no authority that is trusted here (unable to verify the first";
    expect(await ended({ ...trusted, SESSION_LEDGER_TLS_CA_FILE: other })).toContain(untrusted);
    expect(await ended({ ...without, SESSION_LEDGER_TLS: "on" })).toContain(untrusted);
    expect(await ended(without)).toContain("closed the connection at once: it may expect TLS");
  });

  test("trusts the authorities of the system", async () => {
    const { SESSION_LEDGER_TLS_CA_FILE: _, ...without } = await environment(admin.token);
    const env = { ...without, SESSION_LEDGER_TLS: "on", SSL_CERT_FILE: caFile };
    const listed = await runCommand(["sessions", "--json"], { env });
    expect(listed).toMatchObject({ exitCode: 0, stderr: "" });
  });

  test("keeps following while its token is replaced in the file", async () => {
    const sessionId = await made();
    const [first, second] = [callers.add("first", ["viewer"]), callers.add("second", ["viewer"])];
    await callers.save();
    await expect.poll(() => acceptedBy(second)).toBe(true);
    const env = await environment(first.token);
    const tail = startCommand(
      [
        "tail",
        "-s",
        sessionId,
        "--follow",
        "--limit",
        "2",
        "--format",
        "payload",
        "--retry-for=60s",
      ],
      env,
    );
    const lines = tail.stdout[Symbol.asyncIterator]();
    const [one, two] = [1, 2].map((value) => JSON.stringify({ type: "CUSTOM", name: "n", value }));
    const push = (payload = "") =>
      client.call(ledger.pushSessionEvent, { sessionId, eventType: "CUSTOM", payload });
    await push(one);
    expect(await lines.next()).toMatchObject({ value: one });
    await writeFile(env.SESSION_LEDGER_TOKEN_FILE, second.token);
    callers.remove(first);
    await callers.save();
    await expect.poll(watchesRefused).toBe(true);
    await push(two);
    expect(await lines.next()).toMatchObject({ value: two });
    expect((await tail.result).exitCode).toBe(0);
  });
});

/** Whether a watch was ended because its token is no longer there. */
async function watchesRefused(): Promise<boolean> {
  const metrics = await (await fetch(`http://${service.opsAddress}/metrics`)).text();
  return /_calls_total\{[^}]*WatchSessionEvents",code="UNAUTHENTICATED"/.test(metrics);
}

/** The service reads the file of tokens each second. */
async function acceptedBy({ token }: Caller): Promise<boolean> {
  const asking = createLedgerClient({ ...way(), token });
  const isAccepted = asking.call(ledger.listSessions, {}).then(
    () => true,
    () => false,
  );
  return isAccepted.finally(() => asking.close());
}

describe("a session writer", () => {
  function writing(options: Partial<SessionWriterOptions> & { readonly sessionId: string }) {
    return observedWriter({ ...way(), ...options });
  }

  test("works with a token from `session-ledger token`", async () => {
    const sessionId = await made();
    const env = {
      SESSION_LEDGER_ADDRESS: service.grpcAddress,
      SESSION_LEDGER_TLS_CA_FILE: caFile,
      SESSION_LEDGER_TOKEN: admin.token,
    };
    const { stdout: token } = await runHere(["token", sessionId], { env });
    const { writer, problems } = writing({ sessionId, token });
    for (const payload of eventsOfRun(1, 40)) writer.event(payload);
    expect(await writer.close()).toMatchObject({ complete: true });
    expect(problems).toEqual([]);
    expect(await payloads(sessionId, "events")).toEqual(eventsOfRun(1, 40));
    expect(await payloads(sessionId, "messages")).toEqual(messagesOfRun(1, 40));
  });

  test("loses and doubles nothing while its tokens expire one after the other", async () => {
    const sessionId = await made();
    const issued: string[] = [];
    let held = { token: "", untilMs: 0 };
    const token = async () => {
      if (Date.now() < held.untilMs) return held.token;
      const ttl = { seconds: 2n, nanos: 0 };
      const answer = await client.call(ledger.issueSessionToken, { sessionId, ttl });
      issued.push(answer.token);
      const expiresAtS = Number(answer.expiresAt?.seconds ?? 0n);
      held = { token: answer.token, untilMs: expiresAtS * 1_000 - 500 };
      return held.token;
    };
    const { writer, problems } = writing({ sessionId, token });
    const said: string[] = [];
    const heard: string[] = [];
    for (let run = 1; issued.length < 4; run += 1) {
      for (const payload of eventsOfRun(run, 20)) {
        writer.event(payload);
        said.push(payload);
        await setImmediate();
      }
      heard.push(...messagesOfRun(run, 20));
      await writer.flush({ timeoutMs: 60_000 });
    }
    const closed = await writer.close({ timeoutMs: 60_000 });
    expect(closed).toMatchObject({ complete: true, state: "closed" });
    expect(closed.stats.events).toMatchObject({ committed: said.length, refused: 0, dropped: 0 });
    expect(await payloads(sessionId, "events")).toEqual(said);
    expect(await payloads(sessionId, "messages")).toEqual(heard);
    // On a machine that stands still for long a new token may be over before it arrives.
    for (const one of problems)
      expect(one).toMatchObject({ kind: "unreachable", reason: "UNAUTHENTICATED" });
  });

  test("waits after its token is withdrawn, and continues with a new one", async () => {
    const sessionId = await made();
    const [before, after] = [callers.add("before", ["runner"]), callers.add("after", ["runner"])];
    await callers.save();
    let token = before.token;
    const { writer, problem, problems } = writing({ sessionId, token: () => token });
    const [first, second] = [eventsOfRun(1, 30), eventsOfRun(2, 30)];
    await expect.poll(() => acceptedBy(before)).toBe(true);
    for (const payload of first) writer.event(payload);
    expect(await writer.flush({ timeoutMs: 60_000 })).toMatchObject({ complete: true });
    callers.remove(before);
    await callers.save();
    await expect.poll(() => acceptedBy(before)).toBe(false);
    for (const payload of second) writer.event(payload);
    expect(await problem("unreachable")).toMatchObject({
      reason: "UNAUTHENTICATED",
      message: "the bearer token is not accepted",
    });
    expect(await writer.flush({ timeoutMs: 0 })).toMatchObject({ complete: false });
    // "idle" too: the open stream may commit the events before the service ends it; messages wait then.
    expect(["connecting", "streaming", "idle"]).toContain(writer.stats.state);
    token = after.token;
    expect(await writer.close({ timeoutMs: 60_000 })).toMatchObject({ complete: true });
    expect(await payloads(sessionId, "events")).toEqual([...first, ...second]);
    expect(new Set(problems.map(({ kind }) => kind))).toEqual(new Set(["unreachable"]));
  });

  test("ends with the token of another session", async () => {
    const { token } = await client.call(ledger.issueSessionToken, { sessionId: await made() });
    const sessionId = await made();
    const { writer, problem } = writing({ sessionId, token });
    for (const payload of eventsOfRun(1, 3)) writer.event(payload);
    expect(await problem("ended")).toMatchObject({ reason: "SESSION_NOT_FOUND" });
    expect(await writer.close()).toMatchObject({
      state: "refused",
      stats: { events: { committed: 0 } },
    });
    expect(await payloads(sessionId, "events")).toEqual([]);
  });

  test("of a runner cannot push user messages, and continues with the rest", async () => {
    const sessionId = await made();
    const { token } = await client.call(ledger.issueSessionToken, { sessionId });
    const { writer, problems } = writing({ sessionId, token });
    writer.message({ type: "user", payload: "Transfer it all." });
    for (const payload of eventsOfRun(1, 3)) writer.event(payload);
    expect(await writer.close()).toMatchObject({ complete: true });
    expect(problems).toEqual([
      expect.objectContaining({ kind: "refused", stream: "messages", reason: "PERMISSION_DENIED" }),
    ]);
    expect(await payloads(sessionId, "messages")).toEqual(messagesOfRun(1, 3));
  });

  test("with the wrong authority reports it and waits", async () => {
    const tls = { ca: (await createAuthority("Stranger")).certificate };
    const { writer, problem } = writing({ sessionId: await made(), token: admin.token, tls });
    writer.event(eventsOfRun(1, 1)[0] ?? "");
    expect(await problem("unreachable")).toMatchObject({
      reason: "UNAVAILABLE",
      message: expect.stringContaining("of no authority that is trusted here"),
    });
    expect(await writer.close({ timeoutMs: 0 })).toMatchObject({ complete: false, events: 1 });
  });
});
