/** The projects of examples/, each run by its one command, without a network. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, onTestFinished, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { openChromium } from "../support/browser.ts";
import { needs, toolPath } from "../support/tools.ts";
import { useService } from "../support/use-service.ts";

/** Its own: an example names its session, as other tests do. */
const { service, client } = useService({});
const EXAMPLES = fileURLToPath(new URL("../../examples", import.meta.url));
/** Made by .ci/run: the Python package, and what its tests need. */
const PYTHON = join(EXAMPLES, "../clients/python/.venv-frameworks/bin/python");

/** The command of examples/README.md, on the ledger of this test. */
function start(name: string): ChildProcess {
  const env = {
    ...process.env,
    LEDGER_GRPC: service.grpcAddress,
    LEDGER_HTTP: service.httpAddress,
    PYTHON,
    PORT: "0",
  };
  const stdio = ["ignore", "pipe", "inherit"] as const;
  const child = spawn(process.execPath, [join(EXAMPLES, "start.ts"), name], {
    env,
    stdio: [...stdio],
  });
  running.add(child);
  child.once("exit", () => running.delete(child));
  return child;
}

const running = new Set<ChildProcess>();
afterAll(() => {
  for (const child of running) child.kill("SIGTERM");
});

async function outputOf(name: string): Promise<string> {
  const child = start(name);
  if (child.stdout === null) throw new Error("no output");
  const [output, [code]] = await Promise.all([text(child.stdout), once(child, "exit")]);
  expect(code).toBe(0);
  return output;
}

test("a runner with tools answers two questions", async () => {
  const output = await outputOf("typescript-runner");
  expect(output).toContain('tool_use: {"tool":"multiply"');
  expect(output).toMatch(/assistant: It is 42\.[^]*assistant: It is noon\.\n$/);
});

test("curl: a person and a runner talk", needs("curl"), async () => {
  expect(await outputOf("curl")).toBe(
    "## User\n\n> What is the time?\n\n## Assistant\n\n> It is noon.\n",
  );
});

test("a graph in Python is recorded", async ({ skip }) => {
  if (!existsSync(PYTHON) && process.env["REQUIRE_TOOLS"] !== "1") skip("no Python environment");
  const output = await outputOf("langgraph-python");
  expect(output).toBe("user: What is the time?\nassistant: It is noon.\n");
});

test("a pool answers every session once, though one member is killed", async () => {
  const lines = (await outputOf("kubernetes-pool")).trim().split("\n");
  expect(lines.map((line) => line.replace(/.*: /, ""))).toEqual(
    Array.from({ length: 12 }, (_, n) => `It is ${n * 7}.`),
  );
  for (const line of lines) {
    const [sessionId = ""] = line.split(": ");
    const { items } = await client.unary(SessionService.method.listSessionMessages, { sessionId });
    expect(items.filter(({ eventType }) => eventType === "assistant")).toHaveLength(1);
  }
});

/** In place of `npm install`, until the end of the test. */
function install(name: string): void {
  const modules = join(EXAMPLES, name, "node_modules");
  if (existsSync(modules)) return;
  symlinkSync("../../test/frameworks/node_modules", modules);
  onTestFinished(() => rmSync(modules));
}

test("a streamed run of the OpenAI Agents SDK is recorded", async () => {
  install("openai-agents");
  expect(await outputOf("openai-agents")).toBe(
    [
      "Let me look.It is noon.",
      "user: What is the time?",
      "assistant: Let me look.",
      "tool: 12:00",
      "assistant: It is noon.\n",
    ].join("\n"),
  );
});

describe("the chat of CopilotKit", () => {
  test("chromium: a thread is shown again after a restart", needs("chromium"), async () => {
    toolPath("chromium");
    install("copilotkit-app");
    const browser = await openChromium();
    try {
      for (const [at, question] of ["one", "two"].entries()) {
        const app = start("copilotkit-app");
        if (app.stdout === null) throw new Error("no output");
        const [line]: unknown[] = await once(createInterface({ input: app.stdout }), "line");
        const page = await browser.newPage();
        await page.goto(String(line).replace("open ", ""));
        const items = page.locator("li");
        await expect.poll(() => items.count()).toBe(at * 2);
        await page.fill("input", question);
        await page.click("button");
        await expect
          .poll(() => items.allTextContents())
          .toEqual(
            ["one", "two"]
              .slice(0, at + 1)
              .flatMap((said) => [`user: ${said}`, `assistant: You said: "${said}"`]),
          );
        await page.close();
        app.kill("SIGTERM");
        await once(app, "exit");
      }
    } finally {
      await browser.close();
    }
  });
});

test("each example is on the page of examples, with its command", () => {
  const page = readFileSync(join(EXAMPLES, "README.md"), "utf8");
  const folders = readdirSync(EXAMPLES, { withFileTypes: true }).filter((one) => one.isDirectory());
  expect(folders.length).toBe(6);
  for (const { name } of folders) expect(page).toContain(`\`npx node examples/start.ts ${name}\``);
});
