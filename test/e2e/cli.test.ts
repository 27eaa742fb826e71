/**
 * The command line against a real service: what a shell script can rely on. One test of each command, and
 * each that is about the process itself, starts a process; the others run the command here.
 */
import { readdir, appendFile, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { once } from "node:events";
import { join } from "node:path";
import postgres from "postgres";
import { beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { runHere } from "../support/command-line.ts";
import { createDatabase } from "../support/database.ts";
import { makeDirectory, remainsIn } from "../support/embedded-fixture.ts";
import { type CommandResult, runCommand, startCommand } from "../support/service-process.ts";
import { useService } from "../support/use-service.ts";

const { service } = useService({ embedded: true });
/** For tests that end it. */
const { service: own } = useService({});
let directory: string;

beforeAll(async () => {
  directory = await makeDirectory();
});

function client(): Readonly<Record<string, string>> {
  return { SESSION_LEDGER_ADDRESS: service.grpcAddress };
}

/** As a process. */
function run(args: readonly string[], input?: string | Uint8Array) {
  return runCommand(args, { env: client(), ...(input === undefined ? {} : { input }) });
}

function here(args: readonly string[], input?: string | Uint8Array) {
  return runHere(args, { env: client(), ...(input === undefined ? {} : { input }) });
}

function textOf(lines: readonly string[]): string {
  return lines.map((line) => `${line}\n`).join("");
}

function events(count: number, name = "step"): readonly string[] {
  return Array.from({ length: count }, (_, index) =>
    JSON.stringify({ type: "CUSTOM", name, value: index }),
  );
}

async function payloadsOf(session: string): Promise<readonly string[]> {
  const { stdout, exitCode } = await here(["tail", session, "--format", "payload"]);
  expect(exitCode).toBe(0);
  return stdout.split("\n").slice(0, -1);
}

const rowSchema = z.object({
  sessionId: z.string(),
  seq: z.string(),
  eventType: z.string(),
  payload: z.string(),
});

const summarySchema = z.object({
  pushed: z.number(),
  deduplicated: z.number(),
  refused: z.number(),
  refusedByReason: z.record(z.string(), z.number()),
  lastSeq: z.string(),
});

async function push(session: string, args: readonly string[], input?: string | Uint8Array) {
  return summed(await here(["push", "-s", session, "--json", ...args], input));
}

function summed(result: CommandResult) {
  return { ...result, summary: summarySchema.parse(JSON.parse(result.stdout)) };
}

describe("push", () => {
  test("stores the exact bytes of each line, in order", async () => {
    const lines = [
      '{"type":"RUN_STARTED","threadId":"t","runId":"r"}',
      '{ "delta" : "é 😀 \\u0000 \\ud800" , "type":"TEXT_MESSAGE_CHUNK", "messageId" :"m"}',
      '{"type":"CUSTOM","name":"n","value":1.0e2}',
    ];
    const input = `\uFEFF${lines.join("\r\n\n")}`;
    const { exitCode, summary } = summed(await run(["push", "bytes", "--json"], input));
    expect(exitCode).toBe(0);
    expect(summary).toMatchObject({ pushed: 3, refused: 0, lastSeq: "3" });
    expect(await payloadsOf("bytes")).toEqual(lines);
  });

  test("stores nothing twice in a second run, and continues where a file has grown", async () => {
    const file = join(directory, "grown.jsonl");
    const lines = [...events(3), ...events(3)];
    await writeFile(file, `${lines.join("\n")}\n`);
    expect((await push("grown", ["-f", file])).summary).toMatchObject({ pushed: 6 });
    expect((await push("grown", ["-f", file])).summary).toMatchObject({
      pushed: 0,
      deduplicated: 6,
    });
    await appendFile(file, events(1, "more").join(""));
    expect((await push("grown", ["-f", file])).summary).toMatchObject({
      pushed: 1,
      deduplicated: 6,
    });
    expect(await payloadsOf("grown")).toEqual([...lines, ...events(1, "more")]);
  });

  test("stores the same input again with another key prefix or without keys", async () => {
    const input = events(2).join("\n");
    for (const args of [[], ["--key-prefix", "again"], ["--no-keys"], ["--no-keys"]]) {
      expect((await push("again", args, input)).summary).toMatchObject({ pushed: 2 });
    }
    expect(await payloadsOf("again")).toHaveLength(8);
  });

  test("reports refused lines by number and continues", async () => {
    const bad = [
      '{"type":"CUSTOM"',
      '{"type":"TEXT_MESSAGE_CONTENT","messageId":"m"}',
      `{"type":"CUSTOM","name":"n","value":"${"x".repeat(4_170_000)}"}`,
    ];
    const [first, last] = events(2);
    const input = Buffer.concat([
      Buffer.from([first, ...bad].join("\n")),
      Buffer.from([0x0a, 0xff, 0x0a]),
      Buffer.from(last ?? ""),
    ]);
    const { exitCode, summary, stderr } = await push("refused", [], input);
    expect(exitCode).toBe(1);
    expect(summary).toMatchObject({
      pushed: 2,
      refused: 4,
      refusedByReason: { NOT_JSON: 1, INVALID_REQUEST: 1, PAYLOAD_TOO_LARGE: 1, NOT_UTF8: 1 },
    });
    expect(stderr).toMatch(/line 2 refused: the line is not a JSON object/);
    expect(stderr).toMatch(/line 3 refused: INVALID_REQUEST: .*delta/);
    expect(stderr).toMatch(/line 4 refused: PAYLOAD_TOO_LARGE/);
    expect(stderr).toMatch(/line 5 refused: the line is not UTF-8/);
    expect(await payloadsOf("refused")).toEqual([first, last]);
  });

  test("ends at the first refused line with --stop-on-refused", async () => {
    const [first, last] = events(2);
    const { exitCode } = await push("stop", ["--stop-on-refused"], `${first}\n{}\n${last}`);
    expect(exitCode).toBe(1);
    expect(await payloadsOf("stop")).toEqual([first]);
  });

  test("ends at once where every line would be refused", async () => {
    const { exitCode, summary, stderr } = await push("no/such id", [], events(50).join("\n"));
    expect(exitCode).toBe(4);
    expect(summary).toMatchObject({ pushed: 0, refused: 0 });
    expect(stderr).toMatch(/line 1: INVALID_REQUEST: session_id/);
  });

  test("can be run again with the same arguments after SIGINT", async () => {
    const lines = events(60);
    const args = ["push", "-s", "interrupted"];
    const interrupted = startCommand(args, client(), { isInputOpen: true });
    interrupted.stdin.write(textOf(lines.slice(0, 30)));
    expect(await here(["tail", "-s", "interrupted", "-f", "-n", "20"])).toMatchObject({
      exitCode: 0,
    });
    interrupted.kill("SIGINT");
    expect((await interrupted.result).exitCode).toBe(130);
    expect((await payloadsOf("interrupted")).length).toBeLessThan(lines.length);

    expect((await here(args, textOf(lines))).exitCode).toBe(0);
    expect(await payloadsOf("interrupted")).toEqual(lines);
  });
});

describe("push --stream", () => {
  const expanded = async (session: string): Promise<readonly string[]> => {
    const { stdout } = await here(["tail", session, "--expand", "--format", "payload"]);
    return stdout.split("\n").slice(0, -1);
  };

  test("stores every event once and in order, and merges texts", async () => {
    const deltas = Array.from({ length: 2_000 }, (_, n) =>
      JSON.stringify({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: `${n} ` }),
    );
    const lines = [
      '{"type":"RUN_STARTED","threadId":"streamed","runId":"r"}',
      '{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}',
      ...deltas,
      '{"type":"TEXT_MESSAGE_END","messageId":"m"}',
      '{"type":"RUN_FINISHED","threadId":"streamed","runId":"r"}',
    ];
    const args = ["push", "streamed", "--stream", "--json"];
    const { exitCode, summary } = summed(await run(args, lines.join("\n")));
    expect(exitCode).toBe(0);
    expect(summary).toMatchObject({ pushed: 2_004, refused: 0, lastSeq: "2004" });
    expect(await expanded("streamed")).toEqual(lines);
    expect((await payloadsOf("streamed")).length).toBeLessThan(200);
  });

  test("reports refused lines by number, of this command and of the service, and continues", async () => {
    const [one, two, three] = events(3);
    const input = [one, "{", two, '{"type":"RUN_STARTED"}', "", three].join("\n");
    const { exitCode, summary, stderr } = await push("stream-refused", ["--stream"], input);
    expect(exitCode).toBe(1);
    expect(summary).toMatchObject({ pushed: 3, refused: 2 });
    expect(stderr).toContain("line 2 refused: the line is not a JSON object");
    expect(stderr).toMatch(/line 4 refused: .*threadId/);
    expect(await expanded("stream-refused")).toEqual([one, two, three]);
  });

  test("ends at the first refused line with --stop-on-refused", async () => {
    const [one, two] = events(2);
    const input = [one, '{"type":"RUN_STARTED"}', two].join("\n");
    const args = ["--stream", "--stop-on-refused"];
    const { exitCode, summary } = await push("stream-stop", args, input);
    expect(exitCode).toBe(1);
    expect(summary).toMatchObject({ refused: 1 });
    expect(await expanded("stream-stop")).toEqual([one]);
  });

  test("ends at once where every line would be refused", async () => {
    const { exitCode, stderr } = await push("no/such id", ["--stream"], events(5).join("\n"));
    expect(exitCode).toBe(4);
    expect(stderr).toMatch(/line 1: INVALID_REQUEST: .*session_id.*continue with --from-line 1/);
  });

  test("ends after SIGINT with the line from which --from-line continues", async () => {
    const lines = events(600);
    const args = ["push", "stream-interrupted", "--stream"];
    const interrupted = startCommand(args, client(), { isInputOpen: true });
    interrupted.stdin.write(textOf(lines.slice(0, 300)));
    await here(["tail", "-s", "stream-interrupted", "-f", "-n", "20"]);
    interrupted.kill("SIGINT");
    const { exitCode, stderr } = await interrupted.result;
    const [, line = ""] = /continue with --from-line (\d+)/.exec(stderr) ?? [];
    expect({ exitCode, stderr }).toMatchObject({ exitCode: 130 });
    expect(Number(line)).toBeGreaterThan(1);
    const rest = await here([...args, "--from-line", line], textOf(lines));
    expect(rest.exitCode).toBe(0);
    expect(await expanded("stream-interrupted")).toEqual(lines);
  });

  test.each([
    [["--stream", "--as", "text"], "--stream: expected events"],
    [["--stream", "--no-keys"], "cannot be used with"],
    [["--stream", "--key-prefix", "k"], "cannot be used with"],
  ])("refuses %j", async (args, said) => {
    const { exitCode, stderr } = await here(["push", "s", ...args], "");
    expect(exitCode).toBe(2);
    expect(stderr).toContain(said);
  });
});

describe("push --as", () => {
  test("stores texts as messages of a user, and nothing twice in a second run", async () => {
    const input = "hello\n\n{not JSON}\n";
    const first = await push("texts", ["--as", "text"], input);
    expect(first).toMatchObject({ exitCode: 0, summary: { pushed: 2, refused: 0 } });
    const second = await push("texts", ["--as", "text"], input);
    expect(second.summary).toMatchObject({ pushed: 0, deduplicated: 2 });
    const { stdout } = await here(["tail", "texts", "--stream", "messages", "--format", "payload"]);
    expect(stdout).toBe("hello\n{not JSON}\n");
  });

  test("stores the messages that an export has written", async () => {
    await here(["say", "from", "hello", "--sender-id", "U1"]);
    const { stdout } = await here(["tail", "from", "--stream", "messages"]);
    const { summary } = await push("to", ["--as", "messages"], `${stdout}{}\n`);
    expect(summary).toMatchObject({ pushed: 1, refusedByReason: { NO_TYPE: 1 } });
    const copied = await here(["tail", "to", "--stream", "messages"]);
    expect(JSON.parse(copied.stdout)).toMatchObject({
      eventType: "user",
      payload: "hello",
      sender: { id: "U1" },
    });
  });
});

describe("tail", () => {
  test("prints rows as JSON lines, after a cursor, up to a limit", async () => {
    const lines = events(5);
    await push("rows", [], lines.join("\n"));
    const { stdout, exitCode } = await run(["tail", "-s", "rows", "--after", "1", "-n", "2"]);
    expect(exitCode).toBe(0);
    const rows = stdout.trimEnd().split("\n");
    expect(rows.map((row) => rowSchema.parse(JSON.parse(row)))).toEqual([
      { sessionId: "rows", seq: "2", eventType: "CUSTOM", payload: lines[1] },
      { sessionId: "rows", seq: "3", eventType: "CUSTOM", payload: lines[2] },
    ]);
  });

  test("follows until SIGINT, and exits with 0", async () => {
    await push("follow", [], events(1).join("\n"));
    const tail = startCommand(["tail", "-s", "follow", "-f", "--format", "payload"], client());
    const seen: string[] = [];
    for await (const line of tail.stdout) {
      seen.push(line);
      if (seen.length === 1) await push("follow", ["--no-keys"], events(1, "later").join("\n"));
      if (seen.length === 2) tail.kill("SIGINT");
    }
    expect(seen).toEqual([...events(1), ...events(1, "later")]);
    expect((await tail.result).exitCode).toBe(0);
  });

  test("ends silently when the reader of its output closes", async () => {
    // More than a pipe holds.
    await push("pipe", [], events(20, "x".repeat(10_000)).join("\n"));
    const tail = startCommand(["tail", "-s", "pipe", "-f"], client());
    tail.closeOutput();
    await push("pipe", ["--no-keys"], events(2).join("\n"));
    expect(await tail.result).toEqual({ exitCode: 0, stderr: "" });
  });

  test("ends with 4 for an unknown session", async () => {
    const { exitCode, stderr, stdout } = await here(["tail", "-s", "nowhere"]);
    expect({ exitCode, stdout }).toEqual({ exitCode: 4, stdout: "" });
    expect(stderr).toContain("SESSION_NOT_FOUND");
  });
});

test("sessions prints one JSON line a session, newest first", async () => {
  await push("listed-1", [], events(1).join("\n"));
  await push("listed-2", [], events(1).join("\n"));
  const { stdout, exitCode } = await run(["sessions", "-n", "2"]);
  expect(exitCode).toBe(0);
  const schema = z.object({ metadata: z.object({ id: z.string() }) });
  const ids = stdout
    .trimEnd()
    .split("\n")
    .map((line) => schema.parse(JSON.parse(line)).metadata.id);
  expect(ids).toEqual(["listed-2", "listed-1"]);
});

describe("create, say and describe", () => {
  test("make a session with labels, send messages to it, and show it", async () => {
    const made = await run(["create", "Triage", "--label", "team=infra", "--label", "a=b=c"]);
    expect(made).toMatchObject({ exitCode: 0, stderr: "" });
    const id = made.stdout.trim();
    const from = ["--sender-id", "u1", "--sender-name", "Ada"];
    expect(await here(["say", id, "Is anybody there?", ...from])).toEqual({
      exitCode: 0,
      stdout: "1\n",
      stderr: "",
    });
    const text = '{"a": 1}\n\n  é 😀';
    expect((await here(["say", id, "-"], `${text}\n`)).stdout).toBe("2\n");
    const told = await here(["tail", id, "--stream", "messages"]);
    const rows = told.stdout
      .trimEnd()
      .split("\n")
      .map((row) => JSON.parse(row) as unknown);
    const sender = { id: "u1", displayName: "Ada" };
    expect(rows).toMatchObject([
      { eventType: "user", payload: "Is anybody there?", sender },
      { eventType: "user", payload: text },
    ]);
    const json = await here(["sessions", id]);
    expect(JSON.parse(json.stdout)).toMatchObject({
      metadata: { id },
      name: "Triage",
      labels: '{"team":"infra","a":"b=c"}',
      messageSeq: "2",
      waiting: "2",
    });
    const table = await here(["sessions", id, "-o", "table"]);
    expect(table.stdout).toMatch(
      new RegExp(`^ID +${id}\nNAME +Triage\nSTATE +waiting_for_runner\nCREATED +20`),
    );
    expect(table.stdout).toMatch(/^WAITING +2\n/m);
    expect(table.stdout).not.toContain("OPEN RUN");
  });

  test("send a message once when a script gives its key twice", async () => {
    for (const _ of [1, 2]) {
      const said = await here(["say", "said-once", "hello", "--key", "k"]);
      expect(said).toMatchObject({ exitCode: 0, stdout: "1\n" });
    }
    const other = await here(["say", "said-once", "other", "--key", "k"]);
    expect(other).toMatchObject({ exitCode: 4, stdout: "" });
    expect(other.stderr).toContain("KEY_REUSED");
  });

  test("refuse bytes that are not UTF-8, and a text above the limit", async () => {
    const bytes = await here(["say", "refused-text", "-"], Buffer.from([0xff]));
    expect(bytes).toMatchObject({ exitCode: 2, stderr: expect.stringContaining("UTF-8") });
    const long = await here(["say", "refused-text", "-"], "x".repeat(34_000_001));
    expect(long).toMatchObject({ exitCode: 2, stderr: expect.stringContaining("34000000 bytes") });
    expect(await here(["sessions", "refused-text"])).toMatchObject({ exitCode: 4, stdout: "" });
  });

  test("show control characters of a name as escapes, and more columns with wide", async () => {
    const named = await here(["create", "a\u001b[31m\nb", "--project", "p9"]);
    const id = named.stdout.trim();
    const short = await here(["sessions", "-n", "1", "-o", "table"]);
    const [heading = "", line = ""] = short.stdout.split("\n");
    expect(heading.split(/  +/)).toEqual(["CREATED", "LAST ACTIVITY", "STATE", "ID", "NAME"]);
    expect(line).toContain(`${id}  a\\u001b[31m\\u000ab`);
    const wide = await here(["sessions", "-n", "1", "-o", "wide"]);
    expect(wide.stdout).toMatch(/ WAITING +OPEN RUN +PROJECT +NAME\n/);
    expect(wide.stdout).toContain(" p9 ");
  });
});

describe("without a service", () => {
  test.each([
    ["push", ["push", "-s", "a"]],
    ["tail", ["tail", "-s", "a"]],
    ["tail -f", ["tail", "-s", "a", "-f"]],
    ["sessions", ["sessions"]],
    ["create", ["create", "a"]],
    ["say", ["say", "a", "-"]],
  ])("%s ends with 3", async (_, args) => {
    const nobody = createServer().listen(0, "127.0.0.1");
    await once(nobody, "listening");
    const address = nobody.address();
    nobody.close();
    await once(nobody, "close");
    if (address === null || typeof address === "string") throw new Error("no port");
    const to = ["--address", `127.0.0.1:${address.port}`, "--retry-for", "300ms"];
    const { exitCode, stderr } = await runHere([...args, ...to], { input: events(1).join() });
    expect(exitCode).toBe(3);
    expect(stderr).toContain("UNAVAILABLE");
  });
});

test("push and tail -f survive a kill and a restart of the service: every line once, in order", async () => {
  const env = { SESSION_LEDGER_ADDRESS: own.grpcAddress };
  const lines = events(400);
  const tail = startCommand(
    ["tail", "-s", "followed", "-f", "-n", "400", "--format", "payload"],
    env,
  );
  const pushing = startCommand(["push", "-s", "followed"], env, { isInputOpen: true });
  pushing.stdin.write(textOf(lines.slice(0, 100)));
  const seen: string[] = [];
  for await (const line of tail.stdout) {
    seen.push(line);
    if (seen.length !== 50) continue;
    await own.kill("SIGKILL");
    pushing.stdin.end(textOf(lines.slice(100)));
    await own.restart();
  }
  const retried = { exitCode: 0, stderr: expect.stringContaining("trying again for 60 s") };
  expect(await tail.result).toEqual(retried);
  expect(await pushing.result).toMatchObject(retried);
  expect(seen).toEqual(lines);
});

test("push --stream survives a kill and a restart of the service: every line once, in order", async () => {
  const env = { SESSION_LEDGER_ADDRESS: own.grpcAddress };
  const lines = events(4_000);
  const tail = startCommand(["tail", "-s", "streamed", "-f", "--format", "payload"], env);
  const args = ["push", "-s", "streamed", "--stream", "--json"];
  const pushing = startCommand(args, env, { isInputOpen: true });
  pushing.stdin.write(textOf(lines.slice(0, 1_000)));
  let seen = 0;
  for await (const _ of tail.stdout) {
    seen += 1;
    if (seen < 500) continue;
    await own.kill("SIGKILL");
    pushing.stdin.end(textOf(lines.slice(1_000)));
    await own.restart();
    break;
  }
  tail.kill("SIGINT");
  const printed: string[] = [];
  for await (const line of pushing.stdout) printed.push(line);
  const result = { ...(await pushing.result), stdout: printed.join("\n") };
  expect(result).toMatchObject({
    exitCode: 0,
    stderr: expect.stringContaining("trying again for 60 s"),
  });
  expect(summed(result).summary).toMatchObject({ pushed: 4_000, lastSeq: "4000" });
  const { stdout } = await runHere(["tail", "streamed", "--format", "payload"], { env });
  expect(stdout.split("\n").slice(0, -1)).toEqual(lines);
});

describe("serve and migrate", () => {
  test("a wrong environment ends with 2 and names every variable", async () => {
    const env = { GRPC_ADDRESS: "0.0.0.0:9000", LOG_LEVEL: "loud", QUEUE_BYTES_MAX: "0" };
    const { exitCode, stderr, stdout } = await runCommand(["serve"], { env });
    expect({ exitCode, stdout }).toEqual({ exitCode: 2, stdout: "" });
    for (const name of Object.keys(env)) expect(stderr).toContain(`${name}: expected`);
  });

  // Once it was 4, which is for what somebody else has.
  test.each([
    ["AUTH_TOKENS_FILE", { AUTH_TOKENS_FILE: "{}" }],
    ["AUTH_TOKENS_FILE", { AUTH_TOKENS_FILE: undefined }],
    ["AUTH_TOKENS", { AUTH_TOKENS: "{}" }],
    ["TLS_CERT_FILE", { TLS_CERT_FILE: "none", TLS_KEY_FILE: "none" }],
    [
      "OIDC_JWKS_FILE",
      { OIDC_JWKS_FILE: "{}", OIDC_ISSUER: "https://issuer.example", OIDC_AUDIENCE: "a" },
    ],
  ])(
    "a bad %s ends with 2 and one line that names it, and no process is left",
    async (setting, given) => {
      const dataDir = await makeDirectory();
      const env: Record<string, string> = { DATA_DIR: dataDir };
      for (const [name, text] of Object.entries(given)) {
        const isFile = name.endsWith("_FILE");
        env[name] = isFile ? join(directory, `${name}-${text}.txt`) : (text ?? "");
        if (isFile && text !== undefined) await writeFile(env[name], text);
      }
      const { exitCode, stderr } = await runCommand(["serve"], { env });
      expect(exitCode).toBe(2);
      expect(stderr).toMatch(
        new RegExp(`^[^\n]*"level":"fatal"[^\n]*"msg":"${setting}: [^\n]+\n$`),
      );
      expect(await remainsIn(dataDir)).toEqual([]);
      // Bug: a database was made and migrated before the files were read.
      expect(await readdir(dataDir)).toEqual([]);
    },
  );

  test("a port in use ends with 4, and no process is left", async () => {
    const dataDir = await makeDirectory();
    const env = { GRPC_ADDRESS: service.grpcAddress, DATA_DIR: dataDir };
    const { exitCode, stderr } = await runCommand(["serve"], { env });
    expect(stderr).toContain(service.grpcAddress);
    expect(exitCode).toBe(4);
    expect(await remainsIn(dataDir)).toEqual([]);
  });

  test("a DATA_DIR in use ends with 4 and names its owner", async () => {
    const { exitCode, stderr } = await runCommand(["migrate", "status"], {
      env: { DATA_DIR: service.dataDir },
    });
    expect(exitCode).toBe(4);
    expect(stderr).toContain(String(service.pid));
  });

  test("migrate goes up and down, and status prints the version", async () => {
    const { url } = await createDatabase();
    const env = { DATABASE_URL: url };
    const codes: (number | null)[] = [];
    for (const command of ["status", "up", "status", "down", "down --yes", "status"]) {
      codes.push((await runCommand(["migrate", ...command.split(" ")], { env })).exitCode);
    }
    expect(codes).toEqual([1, 0, 0, 2, 0, 1]);
  });

  test("migrate works on an embedded database that no service uses", async () => {
    const dataDir = await makeDirectory();
    const env = { DATA_DIR: dataDir };
    expect(await runCommand(["migrate", "up"], { env })).toMatchObject({ exitCode: 0 });
    expect(await remainsIn(dataDir)).toEqual([]);
  });

  test("embedded url prints the URL of the running embedded database", async () => {
    const env = { DATA_DIR: service.dataDir };
    const { exitCode, stdout } = await runCommand(["embedded", "url"], { env });
    expect([exitCode, stdout]).toEqual([
      0,
      expect.stringMatching(/^postgres:\/\/postgres:[\w-]+@127\.0\.0\.1:\d+\/postgres\n$/),
    ]);
    const sql = postgres(stdout.trim(), { max: 1 });
    expect(await sql`select count(*) >= 0 as "exists" from sessions`).toEqual([{ exists: true }]);
    await sql.end();
    const none = await runCommand(["embedded", "url"], { env: { DATA_DIR: directory } });
    expect(none).toMatchObject({ exitCode: 4, stdout: "" });
    expect(none.stderr).toContain("no embedded PostgreSQL runs in");
  });
});
