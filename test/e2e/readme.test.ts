/**
 * Runs the examples of the README, and of the pages that continue them, as they are written: in order, on
 * one service.
 */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { z } from "zod";
import { user } from "../support/agui-events.ts";
import { PAGE_CLIENTS } from "../support/agui-pages.ts";
import { cleanUp, makeDirectory } from "../support/embedded-fixture.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { push, rowsOf, watch } from "../support/pushing.ts";
import { blocksOf, comparable, examplesOf, sectionOf } from "../support/readme.ts";
import {
  endService,
  type ServiceProcess,
  startAgain,
  startService,
} from "../support/service-process.ts";
import { needs, toolPath } from "../support/tools.ts";
import { claim, say } from "../support/turns.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const pageOf = (name: string): string => readFileSync(join(ROOT, name), "utf8");
const README = pageOf("README.md");
const HTTP = pageOf("docs/http.md");
const ADDRESS = "127.0.0.1:9000";
const HTTP_ADDRESS = "127.0.0.1:8000";
const execute = promisify(execFile);

let service: ServiceProcess;
let client: RpcClient;

beforeAll(async () => {
  service = await startService({ embedded: true });
  client = new RpcClient(service.grpcAddress);
});

afterAll(async () => {
  client.close();
  await endService(service);
  await cleanUp();
});

const NETWORK = sectionOf(pageOf("docs/security.md"), "A trial");
const PAGES = [
  README,
  pageOf("docs/push-streams.md"),
  HTTP.slice(0, HTTP.indexOf("\n## Authentication\n")),
];
const EXAMPLES = PAGES.flatMap(examplesOf).map(({ block, command, output }) => ({
  isGrpcurls: block.includes("grpcurl "),
  shown: { command, output: comparable(output) },
}));

/** With another grpcurl only its words are new. */
const isOlder = inject("project") === "older-grpcurl";

test("grpcurl: the examples of the README print what it shows", needs("grpcurl"), async () => {
  const examples = EXAMPLES.filter(({ isGrpcurls }) => isGrpcurls);
  expect(examples.length).toBeGreaterThan(4);
  const folder = dirname(toolPath("grpcurl"));
  for (const { shown } of examples) expect(await run(shown.command, folder)).toEqual(shown);
});

test.skipIf(isOlder)(
  "the examples of the command line and of HTTP (curl) print what the README shows",
  needs("curl"),
  async () => {
    const examples = EXAMPLES.filter(({ isGrpcurls }) => !isGrpcurls);
    expect(examples.length).toBeGreaterThan(2);
    for (const { shown } of examples) expect(await run(shown.command, "")).toEqual(shown);
  },
);

describe("the README on networks", () => {
  /** The settings that the last line of the block starts the service with. */
  const [block = ""] = blocksOf(NETWORK, "sh");
  const [, before = "", settings = ""] =
    /^([^]*?)(GRPC_ADDRESS=[^]*)npm start\n$/.exec(block) ?? [];
  let home: string;
  let guarded: ServiceProcess;

  test(
    "the commands make a certificate and tokens, and the service starts with them",
    needs("openssl"),
    async () => {
      home = await makeDirectory();
      const shell = { cwd: home, env: { ...process.env, HOME: home } };
      await execute("bash", ["-c", `set -e\n${before}`], shell);
      const { stdout } = await execute("bash", ["-c", `${settings} env -0`], shell);
      const names = [...settings.matchAll(/([A-Z_]+)=/g)].map(([, name = ""]) => name);
      const given = stdout.split("\0").map((line) => /^(\w+)=([^]*)$/.exec(line) ?? []);
      const env = given.flatMap(([, name = "", value = ""]) =>
        names.includes(name) ? [[name, value.replace(/:[89]000$/, ":0")] as const] : [],
      );
      expect(env).toHaveLength(5);
      guarded = await startService({ env: Object.fromEntries(env) });
      expect(guarded.grpcAddress).toMatch(/^0\.0\.0\.0:/);
    },
  );

  test("the examples print what it shows (openssl)", needs("grpcurl"), async ({ skip }) => {
    if (needs("openssl").skip) skip("openssl is not installed");
    const examples = examplesOf(NETWORK);
    expect(examples.length).toBeGreaterThan(2);
    const folder = dirname(toolPath("grpcurl"));
    const address = guarded.grpcAddress.replace("0.0.0.0", "127.0.0.1");
    const on = { ...guarded, grpcAddress: address, home };
    for (const { command, output } of examples)
      expect(await run(command, folder, on)).toEqual({ command, output: comparable(output) });
  });

  afterAll(() => (guarded === undefined ? undefined : endService(guarded)));
});

interface Where extends Pick<ServiceProcess, "grpcAddress" | "httpAddress"> {
  /** What `~` is. */
  readonly home?: string;
}

/** On the service of this test, in place of the one that the README starts. */
async function run(
  command: string,
  folder: string,
  { grpcAddress, httpAddress, home }: Where = service,
): Promise<{ command: string; output: string }> {
  const path = [folder, process.env["PATH"]].filter(Boolean).join(delimiter);
  const own = home === undefined ? {} : { HOME: home };
  const env = { ...process.env, ...own, PATH: path, SESSION_LEDGER_ADDRESS: grpcAddress };
  const script = command.replaceAll(ADDRESS, grpcAddress).replaceAll(HTTP_ADDRESS, httpAddress);
  const { stdout, stderr } = await execute("bash", ["-c", script], { cwd: ROOT, env }).catch(
    (error: { readonly stdout: string; readonly stderr: string }) => error,
  );
  return { command, output: comparable(stdout + stderr) };
}

test("the README is short, and shows the example as it is in its folder", () => {
  expect(blocksOf(README, "ts")).toEqual([pageOf("examples/runner.ts")]);
  expect(README.split(/\s+/).length).toBeLessThanOrEqual(1_100);
});

test.skipIf(isOlder)("the example of the writer runs and reads its events back", async () => {
  const args = ["examples/writer.ts", "readme-writer", service.grpcAddress];
  const { stdout, stderr } = await execute(process.execPath, args, { cwd: ROOT });
  expect(stderr).toBe("");
  expect(stdout.split("\n")).toEqual([
    "1n RUN_STARTED ",
    "2n TEXT_MESSAGE_START ",
    "3n TEXT_MESSAGE_CONTENT It",
    "4n TEXT_MESSAGE_CONTENT  is",
    "5n TEXT_MESSAGE_CONTENT  noon",
    "6n TEXT_MESSAGE_CONTENT .",
    "7n TEXT_MESSAGE_END ",
    "8n RUN_FINISHED ",
    "",
  ]);
  const messages = await rowsOf(client, "messages", "readme-writer");
  expect(messages.map(({ eventType }) => eventType)).toEqual([
    "user",
    "lifecycle",
    "assistant",
    "lifecycle",
  ]);
});

// Regression: the session of the example had a run without an end, so the example hung.
test.skipIf(isOlder)(
  "the example of an AG-UI client ends and prints what the README shows",
  needs("curl"),
  async () => {
    const [source = ""] = blocksOf(HTTP, "js");
    const [, shown = ""] = /\/\/ (\[.*\])$/m.exec(source) ?? [];
    const script = source.replaceAll(HTTP_ADDRESS, service.httpAddress);
    const args = ["--input-type=module", "-e", script]; // So that it finds the packages of ROOT.
    const { stdout } = await execute(process.execPath, args, { cwd: ROOT });
    expect(stdout.trim()).toBe(shown);
  },
);

const transcriptSchema = z.object({
  messages: z.array(z.object({ role: z.string(), content: z.string() })),
});

describe.skipIf(isOlder)("the example of a runner", () => {
  const RUNNER = "examples/runner.ts";
  const MESSAGES_MAX = 20;

  test("fits the README", () => {
    const source = readFileSync(join(ROOT, RUNNER), "utf8");
    const code = source.split("\n").filter((line) => !/^\s*(?:\/\/.*)?$/.test(line));
    expect(code.length).toBeLessThanOrEqual(10);
  });

  test("answers each message once, also after it was killed", async () => {
    const sessionId = "readme-runner";
    const answers = watch(client, "messages", sessionId);
    const ask = async (payload: string) => {
      await push(client, "messages", { sessionId, payload });
      expect(await answers.next()).toMatchObject({ value: { eventType: "user", payload } });
    };
    let count = 0;
    const answer = async (payload: string) => {
      expect(await answers.next()).toMatchObject({ value: { eventType: "assistant", payload } });
      // The row of the message can be stored before the end of the run.
      await expect.poll(() => finished(sessionId)).toBe(++count);
    };

    await ask("one");
    const first = startRunner(sessionId);
    await answer("You said: one");
    await first.end();
    await ask("two");
    const second = startRunner(sessionId);
    await answer("You said: two");
    await ask("three");
    await answer("You said: three");
    await second.end();
    answers.cancel();
    expect(await payloadsOf(sessionId)).toHaveLength(6);
    // A reader of the conversation sees each question before its answer.
    expect(await transcriptOf(sessionId)).toEqual([
      ["user", "one"],
      ["assistant", "You said: one"],
      ["user", "two"],
      ["assistant", "You said: two"],
      ["user", "three"],
      ["assistant", "You said: three"],
    ]);
  });

  test.each(PAGE_CLIENTS)("answers a message that is typed into $name", async (on) => {
    const sessionId = `readme-typed-${on.name.replaceAll(/\W/g, "-")}`;
    const runner = startRunner(sessionId);
    const page = on.open(service.httpAddress, sessionId);
    page.type(user("u1", "hi"));
    await page.run();
    expect(page.messages.map(({ content }) => content)).toEqual(["hi", "You said: hi"]);
    await runner.end();
  });

  test("takes over the run of a runner that was lost, and answers its message", async () => {
    const sessionId = "readme-lost";
    await say(client, sessionId, "one");
    await claim(client, { sessionId, runId: "lost" });
    const runner = startRunner(sessionId);
    await expect.poll(() => payloadsOf(sessionId)).toEqual(["one", "You said: one"]);
    await expect.poll(() => finished(sessionId)).toBe(1);
    await runner.end();
    const types = (await rowsOf(client, "events", sessionId)).map(({ eventType }) => eventType);
    expect(types.slice(0, 3)).toEqual(["RUN_STARTED", "RUN_ERROR", "RUN_STARTED"]);
  });

  // Regression: it died with forty lines of bytes.
  test("a runner that a later one replaces reports it in a sentence, and ends with 1", async () => {
    const sessionId = "readme-two";
    await say(client, sessionId, "one");
    const first = startRunner(sessionId);
    await expect.poll(() => finished(sessionId)).toBe(1);
    const second = startRunner(sessionId);
    // Either may claim a message, and the first that the later one claims replaces the other.
    for (let n = 2; !first.hasEnded() && n < MESSAGES_MAX; n += 1) {
      await say(client, sessionId, String(n));
      // The run that the first one was in is not finished.
      await expect.poll(() => ends(sessionId)).toBeGreaterThanOrEqual(n);
    }
    await expect.poll(() => first.hasEnded()).toBe(true);
    expect(await first.ended).toEqual([1, null]);
    expect(first.said()).toMatch(/^producer_epoch \d+ .*: another writer took over\n$/m);
    expect(first.said()).not.toMatch(/\n {4}at |Uint8Array|Metadata/);
    await second.end();
  });

  // npx puts a shell between, which ended alone.
  test("a kill of the command for programs ends the runner", async () => {
    const [, program = ""] =
      /`(\S+) examples\/runner\.ts`: the first command has a shell/.exec(README) ?? [];
    const args = [RUNNER, "readme-killed", service.grpcAddress];
    const child = spawn(program, args, { cwd: ROOT, stdio: "ignore" });
    const ended = once(child, "exit");
    await say(client, "readme-killed", "one");
    await expect.poll(() => finished("readme-killed")).toBe(1);
    child.kill("SIGTERM");
    expect(await ended).toEqual([0, null]);
  });

  test("the runner answers the command of the README", async () => {
    const runner = startRunner("talk");
    const block = blocksOf(README, "sh").find((text) => text.includes("--session talk")) ?? "";
    const [said = ""] = /^npm run -s ledger -- say .*\n/.exec(block) ?? [];
    await run(said, "");
    const answer = "You said: Is anybody there?";
    await expect.poll(() => payloadsOf("talk")).toEqual(["Is anybody there?", answer]);
    await runner.end();
  });

  test("regression: the runner ended when the service restarted", async () => {
    const sessionId = "readme-restart";
    await push(client, "messages", { sessionId, payload: "before" });
    const runner = startRunner(sessionId);
    await expect.poll(() => payloadsOf(sessionId)).toHaveLength(2);
    await service.stop();
    await expect.poll(() => runner.said()).not.toBe("");
    service = await startAgain(service);
    client.close();
    client = new RpcClient(service.grpcAddress);
    await push(client, "messages", { sessionId, payload: "after" });
    const expected = ["before", "You said: before", "after", "You said: after"];
    await expect.poll(() => payloadsOf(sessionId)).toEqual(expected);
    expect(runner.said()).not.toContain("\n    at ");
    await runner.end();
  });

  const payloadsOf = async (sessionId: string) =>
    (await rowsOf(client, "messages", sessionId)).map(({ payload }) => payload);

  const finished = async (sessionId: string) =>
    (await rowsOf(client, "events", sessionId)).filter((row) => row.eventType === "RUN_FINISHED")
      .length;

  const ends = async (sessionId: string) =>
    (await rowsOf(client, "events", sessionId)).filter(({ eventType }) =>
      ["RUN_FINISHED", "RUN_ERROR"].includes(eventType),
    ).length;

  async function transcriptOf(sessionId: string): Promise<readonly (readonly string[])[]> {
    const base = `http://${service.httpAddress}/api/ambient/v1/sessions/${sessionId}`;
    const response = await fetch(`${base}/transcript`);
    const { messages } = transcriptSchema.parse(await response.json());
    return messages.map(({ role, content }) => [role, content]);
  }

  function startRunner(sessionId: string) {
    const args = [RUNNER, sessionId, service.grpcAddress];
    const child = spawn(process.execPath, args, { cwd: ROOT, stdio: ["ignore", "ignore", "pipe"] });
    const ended = once(child, "exit");
    let said = "";
    child.stderr.on("data", (text: Buffer) => (said += text.toString()));
    return {
      hasEnded: () => child.exitCode !== null,
      /** The exit code, and the signal. */
      ended,
      /** What it printed as errors. */
      said: () => said,
      async end() {
        child.kill("SIGKILL");
        await ended;
      },
    };
  }
});

test.each(["README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/clients.md"])(
  "every file and folder that %s links to exists",
  (document) => {
    const url = pathToFileURL(join(ROOT, document));
    const text = readFileSync(url, "utf8");
    const links = [...text.matchAll(/\]\((?!https?:|#)([^)#]+)/g)].map(([, link = ""]) => link);
    expect(links.filter((link) => !existsSync(new URL(link, url)))).toEqual([]);
  },
);
