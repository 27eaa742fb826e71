/** What a session page shows while its parts are still being read: only what is known. */
import type { Page, Route } from "playwright-core";
import { beforeAll, describe, expect, test } from "vitest";
import { failing, FAILURE, called, pushAll, run, say } from "../support/inspector-sessions.ts";
import { items, region, useInspector } from "../support/inspector.ts";
import { needs } from "../support/tools.ts";
import { useService } from "../support/use-service.ts";

const inspector = useInspector();
const { service } = useService();
const at = (path: string): string => `http://${service.httpAddress}${path}`;

/** One row of its own for each event, more than the newest page has. */
const STEPS = 1_000;

beforeAll(async () => {
  const steps = Array.from({ length: STEPS }, (_, value) => ({
    type: "CUSTOM",
    name: "step",
    value,
  }));
  await pushAll(service, "painted", run("before", steps));
  await say(service, "painted", { payload: "Look it up.", sender: { display_name: "Ann" } });
  const look = called({ id: "c1", name: "search", args: ['{"q":1}'] });
  await pushAll(service, "painted", run("looks", look).slice(0, -1));
  const result = { messageId: "result", toolCallId: "c1", content: "found" };
  await pushAll(service, "painted", [
    { type: "TOOL_CALL_RESULT", ...result },
    { type: "RUN_FINISHED", threadId: "t", runId: "looks" },
    ...failing(),
    { type: "RUN_STARTED", threadId: "t", runId: "asks" },
    {
      type: "RUN_FINISHED",
      threadId: "t",
      runId: "asks",
      outcome: {
        type: "interrupt",
        interrupts: [{ id: "i1", reason: "approval", message: "May I deploy?" }],
      },
    },
  ]);
});

/** Requests of this kind wait until they are released. */
async function hold(page: Page, kind: RegExp): Promise<() => Promise<void>> {
  const held: Route[] = [];
  let isHolding = true;
  await page.route(kind, async (route) => {
    if (isHolding) held.push(route);
    else await route.continue();
  });
  return async () => {
    isHolding = false;
    await Promise.all(held.map((route) => route.continue()));
  };
}

const ROWS = /\/events\/history\?/;
const OLD_ROWS = /\/events\/history\?after_seq/;
const MESSAGES = /\/messages\?after_seq=0.*recorded/;

describe("before all is read, in chromium", needs("chromium"), () => {
  test("without rows and messages, nothing stands in their place", async () => {
    await inspector.visit(at("/nothing"), {}, async (page) => {
      const [rows, messages] = [await hold(page, ROWS), await hold(page, MESSAGES)];
      await page.goto(at("/sessions/painted"));
      await region(page, "Conversation").getByText("Loading …").waitFor();
      const text = await page.locator("main").innerText();
      expect(text).not.toMatch(/\b0 (?:of|events|rows|messages)\b|No events|no event|Nothing was/);
      expect(await page.locator(".header-counts").innerText()).not.toMatch(/events|rows|messages/);
      expect(await page.getByRole("textbox", { name: "Number of the event" }).inputValue()).toBe(
        "",
      );
      await region(page, "Events").getByText("Loading …").waitFor();
      await page.getByRole("tab", { name: "State" }).click();
      await region(page, "State").getByText("Loading …").waitFor();
      await rows();
      await messages();
      await region(page, "State").getByText("This session has no shared state").waitFor();
      await expect.poll(() => region(page, "Conversation").getByText("Loading …").count()).toBe(0);
    });
  });

  test("with the newest rows, calls have their times, a run its failure, and an approval waits for the messages", async () => {
    await inspector.visit(at("/nothing"), {}, async (page) => {
      const [rows, messages] = [await hold(page, OLD_ROWS), await hold(page, MESSAGES)];
      await page.goto(at("/sessions/painted"));
      const failed = page.getByRole("article", { name: "Run failed, error" });
      await failed.getByText(FAILURE).waitFor();
      const call = page.getByRole("article", { name: "Tool call search, done" });
      expect(await call.innerText()).not.toMatch(/(?<![\d.])0 (?:ms|s)\b/);
      expect(await call.innerText()).toMatch(/\d:\d\d:\d\d/);
      const approve = page.getByRole("button", { name: "Approve" });
      expect(await approve.count()).toBe(0);
      expect(await items(page).getByText("Look it up.").count()).toBe(0);
      await region(page, "Conversation").getByText("Loading …").waitFor();
      const header = page.locator(".header-counts");
      expect(await header.innerText()).not.toMatch(/rows|messages/);
      const sum = region(page, "Timeline").getByText("more are being read");
      await sum.waitFor();

      await messages();
      await approve.waitFor();
      const question = page.getByRole("article", { name: "Message of Ann" });
      await question.getByText("Look it up.").waitFor();
      expect(await question.getByText("waiting").count()).toBe(0);

      await rows();
      await expect.poll(() => header.innerText()).toMatch(/rows\s+1,0\d\d\s+message\s+1\b/);
      await expect.poll(() => sum.count()).toBe(0);
      await expect.poll(() => region(page, "Conversation").getByText("Loading …").count()).toBe(0);
    });
  });

  test("an event of the address that is not read yet has no earlier moment in its place", async () => {
    await inspector.visit(at("/nothing"), {}, async (page) => {
      const rows = await hold(page, OLD_ROWS);
      await page.goto(at("/sessions/painted?at=500"));
      await region(page, "Conversation").getByText("Loading …").waitFor();
      await page.locator(".scrubber-type").getByText("loading …").waitFor();
      expect(await items(page).count()).toBe(0);
      await rows();
      await page.getByRole("article", { name: "Run before, start" }).waitFor();
      await page.locator(".scrubber-type").getByText("CUSTOM").waitFor();
    });
  });
});
