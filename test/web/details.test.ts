/** What a session page shows beside texts, and what a person does with the pointer: opens, copies, brushes, plays faster. */
import { beforeAll, describe, expect, test } from "vitest";
import { called, pushAll, run, say, spoken } from "../support/inspector-sessions.ts";
import { region, useInspector } from "../support/inspector.ts";
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
});

describe("in chromium", needs("chromium"), () => {
  test("thinking is closed at first, activities open to their content, and a picture is a reference", async () => {
    await inspector.visit(url(), {}, async (page) => {
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
    });
  });

  test("a call of an open run is pending until its result comes", async () => {
    await inspector.visit(url(), {}, async (page) => {
      const card = page.getByRole("article", { name: "Tool call measure, pending" });
      await card.getByText("no result yet").waitFor();
      const result = { type: "TOOL_CALL_RESULT", messageId: "r1", toolCallId: "c1", content: "12" };
      await pushAll(service, "details", [result]);
      await page.getByRole("article", { name: "Tool call measure, done" }).waitFor();
      expect(await card.count()).toBe(0);
    });
  });

  test("a part of the timeline is brushed and zoomed by the wheel", async () => {
    await inspector.visit(url(), {}, async (page) => {
      const timeline = region(page, "Timeline");
      const fit = timeline.getByRole("button", { name: "Fit" });
      await timeline.getByText(/^2 runs/).waitFor();
      const box = await timeline.locator("canvas").last().boundingBox();
      if (box === null) throw new Error("the timeline is not drawn");
      const y = box.y + box.height / 2;
      await page.mouse.move(box.x + box.width * 0.3, y);
      await page.keyboard.down("Shift");
      await page.mouse.down();
      await page.mouse.move(box.x + box.width * 0.5, y, { steps: 4 });
      await page.mouse.up();
      await page.keyboard.up("Shift");
      await expect.poll(() => fit.isDisabled()).toBe(false);
      await fit.click();
      await expect.poll(() => fit.isDisabled()).toBe(true);
      await page.mouse.move(box.x + box.width * 0.5, y);
      await page.mouse.wheel(0, -200);
      await expect.poll(() => fit.isDisabled()).toBe(false);
    });
  });

  test("j and k go through the items of the conversation", async () => {
    await inspector.visit(url(), {}, async (page) => {
      // The log has taken the place of the transcript, which has no runs.
      await page.getByRole("article", { name: "Run open, start" }).waitFor();
      const focused = () => page.evaluate("document.activeElement.ariaLabel");
      await page.keyboard.press("k");
      await expect.poll(focused).toMatch(/^Tool call measure/);
      await page.keyboard.press("k");
      await expect.poll(focused).toBe("Run open, start");
      await page.keyboard.press("j");
      await expect.poll(focused).toMatch(/^Tool call measure/);
    });
  });

  test("the theme is chosen, and stays", async () => {
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
    });
  });
});
