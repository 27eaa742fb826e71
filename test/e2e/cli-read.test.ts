/** The commands that list and show: filters, watches, feeds, runs and transcripts. */
import { PassThrough } from "node:stream";
import { createInterface } from "node:readline";
import { describe, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { runHere, runWith } from "../support/command-line.ts";
import { newSession } from "../support/pushing.ts";
import { endService, runCommand, startAgain, startService } from "../support/service-process.ts";
import { claim, emit, finish, say } from "../support/turns.ts";
import { useService } from "../support/use-service.ts";

const { createSession, deleteSession } = SessionService.method;

const { service, client } = useService();

const env = () => ({ SESSION_LEDGER_ADDRESS: service.grpcAddress });
const here = (...args: readonly string[]) => runHere(args, { env: env() });

async function made(projectId: string, labels = ""): Promise<string> {
  const request = { name: `of ${projectId}`, projectId, labels };
  const { metadata } = await client.unary(createSession, request);
  return metadata?.id ?? "";
}

async function linesOf(...args: readonly string[]): Promise<readonly unknown[]> {
  const { stdout, stderr, exitCode } = await here(...args);
  expect({ stderr, exitCode }).toMatchObject({ exitCode: 0 });
  return stdout
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line));
}

const running = (...args: readonly string[]) => runningAt(env(), args);

/** A command that runs until the test ends it: its lines, one by one. */
function runningAt(settings: Readonly<Record<string, string>>, args: readonly string[]) {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const controller = new AbortController();
  const exit = runWith(args, { env: settings, stdout, stderr, signal: controller.signal });
  const lines = createInterface({ input: stdout })[Symbol.asyncIterator]();
  return {
    async next(): Promise<string> {
      const { value } = await lines.next();
      return String(value);
    },
    async end(): Promise<number> {
      controller.abort();
      return exit;
    },
  };
}

describe("sessions", () => {
  test("lists only sessions that pass all filters, in the requested order", async () => {
    const project = newSession();
    const [idle, waits, runs] = [
      await made(project),
      await made(project, '{"team":"blue"}'),
      await made(project, '{"team":"blue"}'),
    ];
    await say(client, waits, "hello");
    await say(client, runs, "hello");
    await claim(client, { sessionId: runs, runId: "r1" });
    const ids = async (...args: readonly string[]) => {
      const listed = await linesOf("sessions", "--project", project, ...args);
      return listed.map((one) => Object(one).metadata.id);
    };
    expect(await ids()).toEqual([runs, waits, idle]);
    expect(await ids("--waiting", "--order", "waiting")).toEqual([waits]);
    expect(await ids("--running")).toEqual([runs]);
    expect(await ids("--label", "team=blue", "--query", project)).toEqual([runs, waits]);
    expect(await ids("--label", "team=red")).toEqual([]);
    await say(client, idle, "hello");
    expect(await ids("--order", "activity", "--limit", "1")).toEqual([idle]);
  });

  test("with --watch prints the sessions, then each change, until SIGINT", async () => {
    const project = newSession();
    const first = await made(project);
    const watch = running("sessions", "--watch", "--project", project, "--json");
    expect(JSON.parse(await watch.next())).toMatchObject({ resourceId: first });
    const second = await made(project);
    expect(JSON.parse(await watch.next())).toMatchObject({
      type: "EVENT_TYPE_CREATED",
      resourceId: second,
      session: { metadata: { id: second } },
    });
    await client.unary(deleteSession, { id: second });
    expect(JSON.parse(await watch.next())).toEqual({
      type: "EVENT_TYPE_DELETED",
      resourceId: second,
    });
    expect(await watch.end()).toBe(0);
  });

  test("with --watch as a table names the change, and shows what waits", async () => {
    const project = newSession();
    const watch = running("sessions", "-w", "--project", project, "-o", "table");
    expect(await watch.next()).toMatch(/^CHANGE\s+ID\s.*WAITING\s+OPEN RUN/);
    // The list was empty, so the watch is live when this command has seen the session twice at most.
    const id = await made(project);
    expect(await watch.next()).toContain(id);
    await say(client, id, "hello");
    let line = "";
    while (!line.startsWith("updated")) line = await watch.next();
    expect(line).toContain(id);
    expect(await watch.end()).toBe(0);
  });

  test("with --watch refuses an order and a query", async () => {
    const { stderr, exitCode } = await here("sessions", "--watch", "--query", "x");
    expect({ stderr, exitCode }).toEqual({
      stderr:
        "session-ledger: --watch: expected no --query, no --parent, no --agent and no --order\n",
      exitCode: 2,
    });
  });
});

describe("runs and transcript", () => {
  test("show the runs and the conversation of a session, as a process too", async () => {
    const id = await made(newSession());
    await say(client, id, "What\u001b[31m time is \u202eit?");
    await claim(client, { sessionId: id, runId: "r1" });
    const text = { messageId: "m1", delta: "Noon." };
    await emit(client, id, { type: "TEXT_MESSAGE_CHUNK", role: "assistant", ...text });
    await finish(client, id, "r1");
    expect(await linesOf("runs", id)).toMatchObject([
      { runId: "r1", status: "RUN_STATUS_FINISHED", firstSeq: "1", lastSeq: "3", rawEvents: "3" },
    ]);
    const table = (await here("runs", id, "-o", "table")).stdout.split("\n");
    expect(table[0]).toMatch(/^STARTED +ENDED +STATUS +EVENTS +RUN$/);
    expect(table[1]).toMatch(/Z +\S+Z +finished +3 +r1$/);
    const [transcript] = await linesOf("transcript", id);
    expect(JSON.parse(Object(transcript).messages)).toMatchObject([
      { role: "user" },
      { role: "assistant", content: "Noon." },
    ]);
    const shown = await runCommand(["transcript", id, "-o", "text"], { env: env() });
    expect(shown).toMatchObject({ exitCode: 0, stderr: "" });
    expect(shown.stdout).toBe("User:\n    What␛[31m time is \\u202eit?\n\nAssistant:\n    Noon.\n");
    const { stdout } = await here("transcript", id, "--output", "markdown");
    expect(stdout).toContain("## Assistant");
  });

  test.each(["runs", "transcript"])("%s ends with 4 for an unknown session", async (verb) => {
    const { stderr, exitCode } = await here(verb, newSession());
    expect(exitCode).toBe(4);
    expect(stderr).toContain("SESSION_NOT_FOUND");
  });
});

describe("feed", () => {
  test("prints the rows of a project, and the cursor from which a later feed continues", async () => {
    const project = newSession();
    const [one, other] = [await made(project), await made(project)];
    await say(client, one, "first");
    await say(client, other, "second");
    const first = await here("feed", "messages", "--project", project, "--limit", "1");
    expect(JSON.parse(first.stdout)).toMatchObject({ message: { payload: "first" } });
    const { cursor } = JSON.parse(first.stdout);
    expect(first.stderr).toBe(`session-ledger: continue with --cursor ${cursor}\n`);
    const rest = await here("feed", "messages", "--project", project, "--cursor", cursor);
    expect(JSON.parse(rest.stdout)).toMatchObject({ message: { payload: "second" } });
    expect(rest.stderr).toContain("continue with --cursor ");
    const table = await here("feed", "messages", "--project", project, "-o", "wide");
    expect(table.stdout).toMatch(/^RECORDED +SESSION +SEQ +TYPE +PROJECT +PAYLOAD\n/);
    expect(table.stdout).toContain("second");
  });

  test("begins at a time, has only the requested types, and follows until SIGINT", async () => {
    const project = newSession();
    const id = await made(project);
    await claim(client, { sessionId: id, runId: "r1" }).catch(() => undefined);
    await emit(client, id, { type: "RUN_STARTED", threadId: id, runId: "r1" });
    await finish(client, id, "r1");
    const filter = ["--project", project, "--type", "RUN_STARTED", "--type", "RUN_ERROR"];
    const rows = await linesOf("feed", "events", ...filter, "--since", "2020-01-01");
    expect(rows).toMatchObject([{ event: { eventType: "RUN_STARTED" } }]);
    expect(await linesOf("feed", "events", ...filter, "--since", "2099-01-01")).toEqual([]);
    const feed = running("feed", "events", "--follow", ...filter);
    expect(JSON.parse(await feed.next())).toMatchObject({ event: { seq: "1" } });
    await emit(client, id, { type: "RUN_STARTED", threadId: id, runId: "r2" });
    expect(JSON.parse(await feed.next())).toMatchObject({ event: { seq: "3" } });
    expect(await feed.end()).toBe(0);
  });

  test("refuses a wrong stream, time and cursor", async () => {
    expect(await here("feed", "rows")).toMatchObject({ exitCode: 2 });
    const since = await here("feed", "events", "--since", "yesterday");
    expect(since).toMatchObject({ exitCode: 2 });
    expect(since.stderr).toContain("Expected a time since 1970");
    const cursor = await here("feed", "events", "--cursor", "nonsense");
    expect(cursor).toMatchObject({ exitCode: 4 });
    expect(cursor.stderr).toContain("cursor must be one of an earlier feed of events");
  });
});

test("sessions --watch and feed --follow go on through a kill and a restart of the service", async () => {
  const first = await startService();
  const own = { SESSION_LEDGER_ADDRESS: first.grpcAddress };
  const run = (...args: readonly string[]) => runHere(args, { env: own });
  await run("say", "s1", "one");
  const watch = runningAt(own, ["sessions", "--watch", "--json"]);
  const feed = runningAt(own, ["feed", "messages", "--follow", "--json"]);
  expect(JSON.parse(await watch.next())).toMatchObject({ resourceId: "s1" });
  expect(JSON.parse(await feed.next())).toMatchObject({ message: { payload: "one" } });
  await first.kill("SIGKILL");
  const second = await startAgain(first);
  await run("say", "s1", "two");
  await run("create", "new");
  for (let name = ""; name !== "new"; ) name = JSON.parse(await watch.next()).session.name;
  for (let text = ""; text !== "two"; ) text = JSON.parse(await feed.next()).message.payload;
  expect(await Promise.all([watch.end(), feed.end()])).toEqual([0, 0]);
  await endService(second);
});
