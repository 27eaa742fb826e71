/** The README does what it says: its examples are run as they stand there, in order, on one service. */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { EVENT_COUNT_MAX } from "../../src/agui/event-count.ts";
import { JSON_DEPTH_MAX } from "../../src/agui/payload.ts";
import { EXPANDED_BYTES_MAX } from "../../src/compressor/fragments.ts";
import { SERVICE_SETTINGS } from "../../src/config-table.ts";
import { cleanUp, makeDirectory } from "../support/embedded-fixture.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { push, rowsOf, watch } from "../support/pushing.ts";
import { blocksOf, comparable, examplesOf, tableRowsOf } from "../support/readme.ts";
import { endService, type ServiceProcess, startService } from "../support/service-process.ts";
import { needs, toolPath } from "../support/tools.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const README = readFileSync(join(ROOT, "README.md"), "utf8");
const ADDRESS = "127.0.0.1:9000";
const execute = promisify(execFile);

let service: ServiceProcess;
let client: RpcClient;

beforeAll(async () => {
  service = await startService();
  client = new RpcClient(service.grpcAddress);
});

afterAll(async () => {
  client.close();
  await endService(service);
  await cleanUp();
});

test("grpcurl: the examples give what they show", needs("grpcurl"), async () => {
  const path = [dirname(toolPath("grpcurl")), process.env["PATH"]].join(delimiter);
  const env = { ...process.env, PATH: path, SESSION_LEDGER_ADDRESS: service.grpcAddress };
  const examples = examplesOf(README);
  expect(examples.length).toBeGreaterThan(5);
  for (const { command, output } of examples) {
    const script = command.replaceAll(ADDRESS, service.grpcAddress);
    const { stdout, stderr } = await execute("bash", ["-c", script], { cwd: ROOT, env }).catch(
      (error: { readonly stdout: string; readonly stderr: string }) => error,
    );
    expect(comparable(stdout + stderr), command).toBe(comparable(output));
  }
});

describe("the runner", () => {
  const source = blocksOf(README, "ts")[0] ?? "";

  test("has about twenty lines, and the types are right", async () => {
    const code = source.split("\n").filter((line) => line.trim() !== "");
    expect(code.length).toBeLessThanOrEqual(28);
    const folder = await makeDirectory();
    writeRunner(folder, source);
    writeFileSync(
      join(folder, "tsconfig.json"),
      JSON.stringify({
        extends: join(ROOT, "tsconfig.json"),
        compilerOptions: { typeRoots: [join(ROOT, "node_modules/@types")], lib: ["es2024"] },
        include: ["runner.ts"],
      }),
    );
    const tsc = join(ROOT, "node_modules/.bin/tsc");
    const { stdout } = await execute(tsc, ["--noEmit", "-p", folder]).catch(
      (error: { readonly stdout: string }) => error,
    );
    expect(stdout).toBe("");
  });

  test("answers each message once, also when it was killed in between", async () => {
    const sessionId = "readme-runner";
    const folder = await makeDirectory();
    const answers = watch(client, "messages", sessionId);
    const say = async (payload: string) => {
      await push(client, "messages", { sessionId, payload });
      expect(await answers.next()).toMatchObject({ value: { eventType: "user", payload } });
    };
    const answer = async (payload: string) =>
      expect(await answers.next()).toMatchObject({ value: { eventType: "assistant", payload } });

    await say("one");
    const first = startRunner(folder, source, sessionId);
    await answer("You said: one");
    await first.end();
    await say("two");
    const second = startRunner(folder, source, sessionId);
    await answer("You said: two");
    await say("three");
    await answer("You said: three");
    // RUN_FINISHED comes after the answer.
    const events = watch(client, "events", sessionId);
    const types: string[] = [];
    while (types.length < 15) types.push((await events.next()).value?.eventType ?? "none");
    await second.end();
    for (const stream of [answers, events]) stream.cancel();
    expect(types.filter((type) => type === "RUN_FINISHED")).toHaveLength(3);
    expect(await rowsOf(client, "messages", sessionId)).toHaveLength(6);
    expect(await rowsOf(client, "events", sessionId)).toHaveLength(15);
  });

  function writeRunner(folder: string, text: string): string {
    const file = join(folder, "runner.ts");
    writeFileSync(file, text.replaceAll('"./src/', `"${ROOT}src/`));
    return file;
  }

  function startRunner(folder: string, text: string, sessionId: string) {
    const args = [writeRunner(folder, text), sessionId, service.grpcAddress];
    const child = spawn(process.execPath, args, { stdio: ["ignore", "inherit", "inherit"] });
    const ended = once(child, "exit");
    return {
      async end() {
        child.kill("SIGKILL");
        await ended;
      },
    };
  }
});

describe("what the tables say is so:", () => {
  const rows = tableRowsOf(README);
  const settings = Object.values(SERVICE_SETTINGS);

  test("defaults of settings", () => {
    const named = rows.filter(([variable = ""]) => /^`[A-Z_]+`$/.test(variable));
    expect(named.length).toBeGreaterThan(0);
    for (const [variable, fallback] of named) {
      const setting = settings.find(({ name }) => `\`${name}\`` === variable);
      expect(setting, variable).toBeDefined();
      const shown = setting?.fallback === undefined ? "not set" : `\`${setting.fallback}\``;
      expect(fallback, variable).toBe(shown);
    }
  });

  test("limits that can be set", () => {
    const limits = [...README.matchAll(/`([A-Z_]+_MAX)`, (\d+)/g)];
    expect(limits.length).toBeGreaterThan(5);
    for (const [, name, value] of limits) {
      expect(settings.find((setting) => setting.name === name)?.fallback, name).toBe(value);
    }
  });

  test.each([
    ["events that a row stands for", `${EVENT_COUNT_MAX}`],
    ["a row when it is expanded", `${EXPANDED_BYTES_MAX} bytes`],
    ["depth of a payload", `${JSON_DEPTH_MAX} levels`],
  ])("%s", (limit, value) => {
    expect(rows.find(([name]) => name === limit)?.[1]).toBe(value);
  });
});

test("every document and folder that is linked is there", () => {
  for (const document of ["README.md", "CONTRIBUTING.md", "docs/architecture.md"]) {
    const url = pathToFileURL(join(ROOT, document));
    const text = readFileSync(url, "utf8");
    const links = [...text.matchAll(/\]\((?!https?:|#)([^)#]+)/g)].map(([, link = ""]) => link);
    const missing = links.filter((link) => !existsSync(new URL(link, url)));
    expect(missing, document).toEqual([]);
  }
});
