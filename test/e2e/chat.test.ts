/**
 * The chat of docs/ag-ui.md in a real browser: its page, its command that serves the page, its runner.
 * Only the agent is another: it says the words that the test gives it, one at a time.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openChromium } from "../support/browser.ts";
import { makeDirectory } from "../support/embedded-fixture.ts";
import { newSession } from "../support/pushing.ts";
import { endService, type ServiceProcess, startService } from "../support/service-process.ts";
import { needs } from "../support/tools.ts";

const ROOT = join(import.meta.dirname, "../..");
const AGENT = /async function\* agent[^]*?\n}\n/;

/** Each request of the agent gets the next word; without one it waits. An empty word ends the answer. */
class Words implements AsyncDisposable {
  readonly #words: string[] = [];
  readonly #waiting: ((word: string) => void)[] = [];
  readonly #server = createServer((_request, response) => {
    const word = this.#words.shift();
    const send = (text: string) => response.end(text);
    if (word !== undefined) return send(word);
    this.#waiting.push(send);
    // A cancelled agent has left.
    return response.once("close", () => {
      if (this.#waiting.includes(send)) this.#waiting.splice(this.#waiting.indexOf(send), 1);
    });
  }).listen(0, "127.0.0.1");

  say(...words: readonly string[]): void {
    for (const word of words) {
      const send = this.#waiting.shift();
      if (send === undefined) this.#words.push(word);
      else send(word);
    }
  }

  /** Agents that wait for a word. */
  get askedBy(): number {
    return this.#waiting.length;
  }

  async url(): Promise<string> {
    if (!this.#server.listening) await once(this.#server, "listening");
    const address = this.#server.address();
    if (address === null || typeof address === "string") throw new Error("no port");
    return `http://127.0.0.1:${address.port}/`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, "close");
  }
}

let browser: Browser;
let pages: { readonly url: string; end(): Promise<void> };
let service: ServiceProcess;

beforeAll(async () => {
  if (needs("chromium").skip) return;
  browser = await openChromium();
  pages = await servePages();
  service = await startService({ env: { HTTP_ORIGINS: new URL(pages.url).origin } });
});

afterAll(async () => {
  if (needs("chromium").skip) return;
  await browser.close();
  await pages.end();
  await endService(service);
});

/** By the command of the page, on a free port. */
async function servePages() {
  const docs = await readFile(join(ROOT, "docs/ag-ui.md"), "utf8");
  const [command = ""] = /^npx esbuild .*$/m.exec(docs) ?? [];
  expect(command).toContain("--serve=127.0.0.1:3000");
  const [, ...args] = command.replace(":3000", ":0").split(" ");
  // It ends when its standard input is closed.
  const child = spawn(args[0] ?? "", args.slice(1), {
    cwd: ROOT,
    env: { ...process.env, PATH: `${join(ROOT, "node_modules/.bin")}:${process.env["PATH"]}` },
    stdio: ["pipe", "ignore", "pipe"],
  });
  const ended = once(child, "exit");
  const end = async () => {
    child.kill("SIGKILL");
    await ended;
  };
  for await (const line of createInterface({ input: child.stderr })) {
    const [, url] = /Local: +(\S+)/.exec(line) ?? [];
    if (url !== undefined) return { url, end };
  }
  throw new Error("esbuild said no address");
}

/** The runner of the README with another agent. */
async function startRunner(sessionId: string, words: Words): Promise<AsyncDisposable> {
  const source = await readFile(join(ROOT, "examples/runner.ts"), "utf8");
  expect(source).toMatch(AGENT);
  const agent = `async function* agent(_questions: unknown, signal: AbortSignal) {
    for (;;) {
      const asked = fetch(${JSON.stringify(await words.url())}, { signal });
      const word = await asked.then((answer) => answer.text()).catch(() => "");
      if (word === "") return;
      yield word;
    }
  }
  `;
  const library = import.meta.resolve("@session-ledger/runner/bridge");
  const path = join(await makeDirectory(), "runner.ts");
  const copy = source.replace(AGENT, agent).replaceAll("@session-ledger/runner/bridge", library);
  await writeFile(path, copy);
  const args = [path, sessionId, service.grpcAddress];
  const child = spawn(process.execPath, args, { stdio: ["ignore", "ignore", "inherit"] });
  const ended = once(child, "exit");
  return {
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await ended;
    },
  };
}

async function openChat(sessionId: string): Promise<Page> {
  const page = await browser.newPage();
  const asked = new URLSearchParams({
    session: sessionId,
    service: `http://${service.httpAddress}`,
  });
  await page.goto(`${pages.url}chat.html?${asked.toString()}`);
  return page;
}

async function type(page: Page, text: string): Promise<void> {
  await page.getByLabel("Message").fill(text);
  await page.getByLabel("Message").press("Enter");
}

/** Waits until the page shows this talk: a person's lines begin with `> `. */
async function shows(page: Page, ...expected: readonly string[]): Promise<void> {
  const talk = () =>
    page
      .locator("#talk p")
      .evaluateAll((lines) =>
        lines.map(({ className, textContent }) => (className === "user" ? "> " : "") + textContent),
      );
  await expect.poll(talk).toEqual(expected);
}

test(
  "a person types, sees the answer stream, reloads and types again",
  needs("chromium"),
  async () => {
    const sessionId = newSession();
    await using stack = new AsyncDisposableStack();
    const words = stack.use(new Words());
    stack.use(await startRunner(sessionId, words));
    const page = await openChat(sessionId);
    await type(page, "What is the time?");
    words.say("It is");
    await shows(page, "> What is the time?", "It is");
    words.say(" nearly");
    await shows(page, "> What is the time?", "It is nearly");

    await page.reload();
    await shows(page, "> What is the time?", "It is nearly");
    const other = await openChat(sessionId);
    await shows(other, "> What is the time?", "It is nearly");
    words.say(" noon.", "");
    for (const one of [page, other]) await shows(one, "> What is the time?", "It is nearly noon.");

    await type(page, "Thank you.");
    words.say("With pleasure.", "");
    const whole = ["> What is the time?", "It is nearly noon.", "> Thank you.", "With pleasure."];
    await shows(page, ...whole);
    await page.reload();
    await shows(page, ...whole);
    expect(await page.getByRole("alert").textContent()).toBe("");
  },
);

test("a person stops an answer, and what was said stays", needs("chromium"), async () => {
  const sessionId = newSession();
  await using stack = new AsyncDisposableStack();
  const words = stack.use(new Words());
  stack.use(await startRunner(sessionId, words));
  const page = await openChat(sessionId);
  await type(page, "Count to a million.");
  words.say("One,");
  await shows(page, "> Count to a million.", "One,");
  const stop = page.getByRole("button", { name: "Stop" });
  await stop.click();
  await expect.poll(() => stop.isDisabled()).toBe(true);
  await expect.poll(() => words.askedBy).toBe(0);
  await page.reload();
  await shows(page, "> Count to a million.", "One,");
  await type(page, "Good.");
  words.say("Indeed.", "");
  await shows(page, "> Count to a million.", "One,", "> Good.", "Indeed.");
});

test(
  "a refused message comes back to the person, and the next one is sent",
  needs("chromium"),
  async () => {
    // Regression: the page sent the refused message again with each later one, so all were refused.
    const sessionId = newSession();
    await using stack = new AsyncDisposableStack();
    const words = stack.use(new Words());
    stack.use(await startRunner(sessionId, words));
    const page = await openChat(sessionId);
    const long = "long ".repeat(900_000);
    await type(page, long);
    const alert = page.getByRole("alert");
    await expect
      .poll(() => alert.textContent())
      .toMatch(/^messages has \d+ bytes, at most 4170000 are accepted$/);
    await shows(page);
    expect(await page.getByLabel("Message").inputValue()).toBe(long);
    await type(page, "Short.");
    words.say("Indeed.", "");
    await shows(page, "> Short.", "Indeed.");
    expect(await alert.textContent()).toBe("");
  },
);
