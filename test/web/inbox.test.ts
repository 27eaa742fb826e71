/** The inbox in a real browser: every open question, answered in place, and counted in the title. */
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { makeSession, pushAll, say } from "../support/inspector-sessions.ts";
import { faultsOfLooks } from "../support/inspector-looks.ts";
import { useInspector } from "../support/inspector.ts";
import { endService, type ServiceProcess, startService } from "../support/service-process.ts";
import { needs } from "../support/tools.ts";

const inspector = useInspector();
/** Its own: the inbox has the questions of all sessions. */
let service: ServiceProcess;
let url: string;

beforeAll(async () => {
  service = await startService();
  url = `http://${service.httpAddress}/`;
});
afterAll(() => endService(service));

async function ask(name: string, interrupt: object = {}): Promise<string> {
  const id = await makeSession(service, { name });
  const call = { toolCallId: `call-${id}` };
  const run = { threadId: id, runId: `run-${id}` };
  const interrupts = [
    { id: `ask-${id}`, reason: "tool_approval", message: `May I, ${name}?`, ...call, ...interrupt },
  ];
  await pushAll(service, id, [
    { type: "RUN_STARTED", ...run },
    { type: "TOOL_CALL_START", ...call, toolCallName: "drop_table" },
    { type: "TOOL_CALL_ARGS", ...call, delta: '{"table":"users"}' },
    { type: "TOOL_CALL_END", ...call },
    { type: "RUN_FINISHED", ...run, outcome: { type: "interrupt", interrupts } },
  ]);
  return id;
}

const questions = (page: Page) => page.locator(".inbox-session");

async function answersOf(id: string): Promise<unknown> {
  const response = await fetch(`${url}api/ambient/v1/sessions/${id}/messages`);
  return response.json();
}

describe("in chromium", needs("chromium"), () => {
  test("questions are listed, the longest wait first, and answered in place", async () => {
    await inspector.visit(`${url}inbox`, {}, async (page) => {
      await page.getByText("No agent waits for a person.").waitFor();
      expect(await faultsOfLooks(page)).toEqual([]);
      await page.goto(url);
      expect(await faultsOfLooks(page)).toEqual([]); // Of a ledger without sessions.
      await page.goto(`${url}inbox`);
      const first = await ask("First");
      const second = await ask("Second", { reason: "question", toolCallId: undefined });
      await expect.poll(() => page.title()).toBe("(2) Inbox · session-ledger");
      await expect.poll(() => questions(page).count()).toBe(2);
      const texts = await questions(page).allInnerTexts();
      expect(texts[0]).toMatch(/First[^]+May I, First\?[^]+drop_table[^]+users/);
      expect(texts[1]).toMatch(/Second[^]+May I, Second\?/);
      // By the keyboard alone.
      await page.keyboard.press("j");
      await page.keyboard.press("a");
      await expect.poll(() => questions(page).count()).toBe(1);
      await expect.poll(() => page.title()).toBe("(1) Inbox · session-ledger");
      const answer = {
        interruptId: `ask-${first}`,
        status: "resolved",
        payload: { approved: true },
      };
      expect(JSON.stringify(await answersOf(first))).toContain(
        JSON.stringify(JSON.stringify([answer])).slice(2, -2),
      );
      await questions(page).getByRole("textbox", { name: "Answer" }).fill("On the cliffs");
      await questions(page).getByRole("button", { name: "Answer", exact: true }).click();
      await page.getByText("No agent waits for a person.").waitFor();
      await expect.poll(() => page.title()).toBe("Inbox · session-ledger");
      expect(JSON.stringify(await answersOf(second))).toContain("On the cliffs");
    });
  });

  test("an answer by somebody else removes the question, and a name opens its place", async () => {
    const id = await ask("Elsewhere");
    await inspector.visit(`${url}inbox`, {}, async (page) => {
      await questions(page).getByRole("link", { name: "Elsewhere" }).click();
      await expect.poll(() => page.url()).toMatch(new RegExp(`/sessions/${id}\\?at=5$`));
      await page.getByText("waits for a person").first().waitFor();
      await page.goBack();
      await questions(page).waitFor();
      await say(service, id, { payload: "Somebody answers" });
      await page.getByText("No agent waits for a person.").waitFor();
    });
  });

  test("a question of a graph is answered in place, with a value or a text", async () => {
    const id = await makeSession(service, { name: "Graph" });
    const run = { threadId: id, runId: "graph" };
    const value = JSON.stringify({ question: "Which rows?", rows: [1, 2] });
    await pushAll(service, id, [
      { type: "RUN_STARTED", ...run },
      { type: "CUSTOM", name: "on_interrupt", value },
      { type: "RUN_FINISHED", ...run },
    ]);
    await inspector.visit(`${url}inbox`, {}, async (page) => {
      const asking = questions(page).filter({ hasText: "Graph" });
      await asking.getByText("Which rows?").first().waitFor();
      expect(await asking.getByRole("button", { name: "Do not answer" }).count()).toBe(0);
      expect(await faultsOfLooks(page)).toEqual([]);
      await asking.getByRole("textbox", { name: "Answer" }).fill('{"rows":[1]}');
      await asking.getByRole("button", { name: "Answer", exact: true }).click();
      await page.getByText("No agent waits for a person.").waitFor();
      const stored = { forwardedProps: { command: { resume: { rows: [1] } } } };
      expect(JSON.stringify(await answersOf(id))).toContain(
        JSON.stringify(JSON.stringify(stored)).slice(2, -2),
      );
    });
  });

  test("a thousand questions are read page by page", async () => {
    const names = Array.from({ length: 1_000 }, (_, n) => `many-${n}`);
    for (let at = 0; at < names.length; at += 50)
      await Promise.all(names.slice(at, at + 50).map((name) => ask(name)));
    await inspector.visit(`${url}inbox`, {}, async (page) => {
      await page.getByText("1,000 sessions wait for you").waitFor();
      expect(await questions(page).count()).toBe(25);
      await page.getByRole("button", { name: "More questions" }).click();
      await expect.poll(() => questions(page).count()).toBe(50);
      expect(await faultsOfLooks(page)).toEqual([]);
      await page.goto(url);
      expect(await faultsOfLooks(page)).toEqual([]);
    });
  });
});
