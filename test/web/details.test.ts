/** What a session page shows beside texts: thoughts, activities, pictures, pending calls, forks; and its theme. */
import { beforeAll, describe, expect, test } from "vitest";
import { called, pushAll, run, say, spoken } from "../support/inspector-sessions.ts";
import { isRead, region, useInspector } from "../support/inspector.ts";
import { needs } from "../support/tools.ts";
import { useService } from "../support/use-service.ts";

const inspector = useInspector();
const { service } = useService();
const url = (): string => `http://${service.httpAddress}/sessions/details`;
const [PICTURE, THOUGHT] = ["https://example.com/plan.png", "First I look at the plan."];

beforeAll(async () => {
  const content = [
    { type: "text", text: "What is on it?" },
    { type: "image", source: { type: "url", value: PICTURE, mimeType: "image/png" } },
  ];
  await say(service, "details", {
    payload: JSON.stringify({ id: "q1", role: "user", content }),
    sender: { display_name: "Ann" },
  });
  await pushAll(service, "details", [
    ...run("first", [
      { type: "REASONING_START", messageId: "t1" },
      { type: "REASONING_MESSAGE_START", messageId: "t1", role: "reasoning" },
      { type: "REASONING_MESSAGE_CONTENT", messageId: "t1", delta: THOUGHT },
      { type: "REASONING_MESSAGE_END", messageId: "t1" },
      { type: "REASONING_END", messageId: "t1" },
      {
        type: "ACTIVITY_SNAPSHOT",
        messageId: "a1",
        activityType: "PLAN",
        content: { step: "measure" },
      },
      ...spoken("m1", "A house."),
    ]),
    ...run("open", called({ id: "c1", name: "measure", args: ['{"unit":"m"}'] })).slice(0, -1),
  ]);

  await say(service, "branched", { payload: "What is it?" });
  await pushAll(service, "branched", run("first", spoken("m1", "A house.")));
  await say(service, "branched", { payload: "And this?" });
  await pushAll(service, "branched", run("second", spoken("m2", "A tree.")));
});

/** As the timeline and the charts read the colours for their canvas. */
const READ_COLOUR = `(() => {
  const probe = document.createElement("span");
  document.body.append(probe);
  getComputedStyle(probe).color;
  probe.style.color = "rgb(1, 2, 3)";
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
})()`;

describe("in chromium", needs("chromium"), () => {
  test("keys go from item to item, items open to their details, and a call waits for its result", async () => {
    await inspector.visit(url(), {}, async (page) => {
      await isRead(page, { message: "Message of Ann", run: "Run open, start" });
      const focused = () => page.evaluate("document.activeElement.ariaLabel");
      await page.keyboard.press("k");
      await expect.poll(focused).toMatch(/^Tool call measure/);
      await page.keyboard.press("k");
      await expect.poll(focused).toBe("Run open, start");
      await page.keyboard.press("j");
      await expect.poll(focused).toMatch(/^Tool call measure/);

      const thinking = page.getByRole("article", { name: "Thinking" });
      const title = thinking.getByRole("button", { name: "Thought" });
      expect(await title.getAttribute("aria-expanded")).toBe("false");
      await title.click();
      await thinking.locator("p").getByText(THOUGHT).waitFor();
      const activity = page.getByRole("article", { name: "Activity PLAN" });
      await activity.getByRole("button", { name: "Activity" }).click();
      await activity.getByText("measure").waitFor();
      const question = page.getByRole("article", { name: "Message of Ann" });
      const link = question.getByRole("link", { name: PICTURE });
      expect(await link.getAttribute("rel")).toBe("noopener noreferrer");
      expect(await page.locator("main img").count()).toBe(0);

      const card = page.getByRole("article", { name: "Tool call measure, pending" });
      await card.getByText("no result yet").waitFor();
      const result = { type: "TOOL_CALL_RESULT", messageId: "r1", toolCallId: "c1", content: "12" };
      await pushAll(service, "details", [result]);
      await page.getByRole("article", { name: "Tool call measure, done" }).waitFor();
      expect(await card.count()).toBe(0);
    });
  });

  test("a person forks a session at an event, and goes from the fork to the parent and back", async () => {
    await inspector.visit(
      `http://${service.httpAddress}/sessions/branched?at=5`,
      {},
      async (page) => {
        const events = region(page, "Events");
        await events.getByRole("row").filter({ hasText: "RUN_FINISHED" }).first().click();
        await events.getByRole("button", { name: "Fork here" }).click();
        const toParent = page.getByRole("link", { name: "Forked from branched" });
        await toParent.waitFor();
        const forkUrl = page.url();
        expect(forkUrl).toMatch(/\/sessions\/[0-9a-f-]{36}$/);
        await page.getByText("A house.").first().waitFor();
        expect(await page.getByText("A tree.").count()).toBe(0);
        await toParent.click();
        await page.getByText("A tree.").first().waitFor();
        expect(page.url()).toMatch(/\/sessions\/branched\?at=\d+$/);
        await page.getByRole("button", { name: "1 fork" }).click();
        await page.getByRole("dialog").getByRole("link").click();
        await toParent.waitFor();
        expect(page.url()).toBe(forkUrl);
      },
    );
  });

  test("the theme is chosen, and stays; a new colour counts at once", async () => {
    await inspector.visit(url(), { scheme: "light" }, async (page) => {
      const colour = () => page.evaluate("getComputedStyle(document.body).backgroundColor");
      const light = await colour();
      await page.getByRole("button", { name: /^Theme: system/ }).click();
      await page.getByRole("button", { name: /^Theme: light/ }).click();
      await page.getByRole("button", { name: /^Theme: dark/ }).waitFor();
      expect(await colour()).not.toBe(light);
      await page.reload();
      await page.getByRole("button", { name: /^Theme: dark/ }).waitFor();
      expect(await colour()).not.toBe(light);
      // Bug: without motion every bar of the timeline was black, because a change of a colour was a transition.
      expect(await page.evaluate(READ_COLOUR)).toBe("rgb(1, 2, 3)");
    });
  });
});
