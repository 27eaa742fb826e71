/** The other three parts of a session, which share its cursor: timeline, events and state. */
import { beforeAll, describe, expect, test } from "vitest";
import { called, pushAll, run, spoken } from "../support/inspector-sessions.ts";
import { items, region, useInspector } from "../support/inspector.ts";
import { needs } from "../support/tools.ts";
import { useService } from "../support/use-service.ts";

const inspector = useInspector();
const { service } = useService();
const WORDS = ["The ", "answer ", "is ", "forty-two."];
const EVENTS = [
  ...run("parts-1", [
    { type: "STEP_STARTED", stepName: "think" },
    { type: "STATE_SNAPSHOT", snapshot: { progress: 0, topic: "numbers" } },
    ...spoken("p1", ...WORDS),
    { type: "STATE_DELTA", delta: [{ op: "replace", path: "/progress", value: 1 }] },
    { type: "STEP_FINISHED", stepName: "think" },
  ]),
  ...run("parts-2", [
    ...called({ id: "p-a", name: "add", args: ['{"a":40}'], result: "42" }),
    ...called({ id: "p-b", name: "multiply", args: ['{"a":21}'], result: "42" }),
  ]),
];

beforeAll(() => pushAll(service, "parts", EVENTS));

const url = (query = ""): string => `http://${service.httpAddress}/sessions/parts${query}`;

/** What the filters find is in packages/react/test/scene.test.ts, the bars in timeline.test.ts. */
describe("in chromium", needs("chromium"), () => {
  test("the events are rows or raw events, are filtered, and open to their JSON and fragments", async () => {
    await inspector.visit(url(), {}, async (page) => {
      const events = region(page, "Events");
      const rows = events.getByRole("row").filter({ hasText: "TEXT_MESSAGE_CONTENT" });
      const shown = async () => {
        const count = await events.getByRole("grid").getAttribute("aria-rowcount");
        return Number(count) - 1;
      };
      const merged = EVENTS.length - (WORDS.length - 1);
      await rows.first().waitFor();
      // The service has merged the words into one row.
      await expect.poll(() => rows.count()).toBe(1);
      await expect.poll(shown).toBe(merged);
      const isRaw = events.getByRole("button", { name: "Events", exact: true });
      await isRaw.click();
      await expect.poll(() => rows.count()).toBe(WORDS.length);
      await expect.poll(shown).toBe(EVENTS.length);
      await events.getByRole("button", { name: "Rows", exact: true }).click();
      await expect.poll(shown).toBe(merged);
      await events.getByLabel("Run", { exact: true }).selectOption("parts-2");
      await expect.poll(shown).toBe(10);
      await events.getByLabel("Type", { exact: true }).selectOption("TOOL_CALL_RESULT");
      await expect.poll(shown).toBe(2);
      await events.getByRole("button", { name: "Clear" }).click();
      await expect.poll(shown).toBe(merged);
      await page.keyboard.press("/");
      await page.keyboard.type("forty-two");
      await expect.poll(shown).toBe(1);
      await rows.click();
      const fragments = events.getByRole("table", { name: "Fragments" });
      await fragments.getByText("forty-two.").waitFor();
      await expect.poll(() => fragments.getByRole("row").count()).toBe(WORDS.length + 1);
      await events.getByText("messageId").first().waitFor();
      await fragments.getByRole("button").first().click();
      await expect.poll(() => new URL(page.url()).search).toBe("?at=5");
      await items(page).getByText("The", { exact: true }).waitFor();
    });
  });

  test("the state is that of the cursor, with what the last change made of it", async () => {
    await inspector.visit(url(), {}, async (page) => {
      await region(page, "Events").getByRole("row").nth(2).waitFor();
      await page.getByRole("tab", { name: "State" }).click();
      const state = region(page, "State");
      await state.getByText("numbers").waitFor();
      await expect.poll(() => state.innerText()).toMatch(/changed: ?\s*progress:\s*0\s*1/);
      await state.getByRole("button", { name: "Change before" }).click();
      await expect.poll(() => state.innerText()).not.toMatch(/changed:/);
      await expect.poll(() => new URL(page.url()).search).toBe("?at=3");
      await page.getByRole("button", { name: "Run before" }).click();
      await state.getByText("No state yet at this event").waitFor();
    });
  });

  test("the timeline leads to the beginning of a bar, and is zoomed by keys, brush and wheel", async () => {
    await inspector.visit(url(), {}, async (page) => {
      const timeline = region(page, "Timeline");
      const fit = timeline.getByRole("button", { name: "Fit" });
      await timeline.getByText(/2 runs · 2 calls/).waitFor();
      await expect.poll(() => fit.isDisabled()).toBe(true);
      await page.keyboard.press("+");
      await expect.poll(() => fit.isDisabled()).toBe(false);
      await page.keyboard.press("0");
      await expect.poll(() => fit.isDisabled()).toBe(true);
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
      await timeline.getByRole("button", { name: "Table" }).click();
      const grid = timeline.getByRole("grid", { name: "Bars of the timeline" });
      for (const name of ["Run 1", "Run 2", "think", "add", "multiply"])
        await grid.getByRole("row").filter({ hasText: name }).first().waitFor();
      await grid.getByRole("row").filter({ hasText: "multiply" }).click();
      // Its input and its output are side by side.
      await grid.getByRole("region", { name: "Input" }).waitFor();
      await grid.getByRole("region", { name: "Output" }).waitFor();
      await expect.poll(() => new URL(page.url()).search).toMatch(/^\?at=\d+$/);
      const at = Number(new URL(page.url()).searchParams.get("at"));
      expect(EVENTS[at - 1]).toMatchObject({ type: "TOOL_CALL_START", toolCallName: "multiply" });
    });
  });

  test("the scrubber shows each instant of the session in all parts, and an address leads to it", async () => {
    await inspector.visit(url(), {}, async (page) => {
      await items(page).getByText("The answer is forty-two.").waitFor();
      const bar = page.getByRole("slider", { name: "Event shown" });
      // The bar has its length, and the page its last shape, when the whole log is read.
      await expect.poll(() => bar.getAttribute("aria-valuemax")).toBe(String(EVENTS.length));
      await region(page, "Timeline")
        .getByText(/2 runs/)
        .waitFor();
      const box = await bar.boundingBox();
      if (box === null) throw new Error("the bar is not drawn");
      // The event of the second word.
      const x = box.x + (box.width * 6) / EVENTS.length;
      await page.mouse.click(x, box.y + box.height / 2);
      await expect.poll(() => bar.getAttribute("aria-valuenow")).toBe("6");
      await items(page).getByText("The answer", { exact: true }).waitFor();
      const selected = region(page, "Events").locator("[role=row][aria-selected=true]");
      await expect.poll(() => selected.innerText()).toContain("TEXT_MESSAGE_CONTENT");
      await page.getByRole("button", { name: "Live" }).click();
      await items(page).getByText("The answer is forty-two.").waitFor();
      await page.goto(url("?at=6"));
      await items(page).getByText("The answer", { exact: true }).waitFor();
      const number = page.getByRole("textbox", { name: "Number of the event" });
      await expect.poll(() => number.inputValue()).toBe("6");
    });
  });
});
