/** A session on a phone, wrong addresses, the row of an address, JSON in texts, and the way to two runs. */
import { beforeAll, describe, expect, test } from "vitest";
import { called, pushAll, run, say, spoken } from "../support/inspector-sessions.ts";
import { items, region, useInspector } from "../support/inspector.ts";
import { needs } from "../support/tools.ts";
import { useService } from "../support/use-service.ts";

/** What the browser of a phone leaves of 390 × 844 pixels. */
const PHONE = { width: 390, height: 664 };
const EXCHANGES = 6;

const inspector = useInspector();
const { service } = useService();
const at = (path: string): string => `http://${service.httpAddress}${path}`;

beforeAll(async () => {
  for (let n = 0; n < EXCHANGES; n += 1) {
    await say(service, "phone", { payload: `Question ${n}` });
    await pushAll(service, "phone", run(`r${n}`, spoken(`m${n}`, `Answer ${n}.`)));
  }
  const args = JSON.stringify({ q: JSON.stringify({ inner: [1, 2, { deep: "yes" }] }) });
  await pushAll(service, "texts", [
    ...run("one", called({ id: "c1", name: "search", args: [args], result: '{"found":1}' })),
    { type: "CUSTOM", name: "odd", value: { broken: "{not json}", empty: "{}" } },
  ]);
  const steps = Array.from({ length: 100 }, (_, value) => ({ type: "CUSTOM", name: "s", value }));
  await pushAll(service, "rows", steps);
});

/** Messages of which all is in sight. */
const SEEN = `(() => {
  const feed = document.querySelector("[role=feed]").getBoundingClientRect();
  return [...document.querySelectorAll("article[aria-label^='Message of']")].filter((one) => {
    const { top, bottom } = one.getBoundingClientRect();
    return top >= feed.top && bottom <= feed.bottom;
  }).length;
})()`;

/** The chosen row of the events is in sight, below the head of the table. */
const ROW_SEEN = `(() => {
  const grid = document.querySelector("section[aria-label=Events] [role=grid]");
  const row = grid.querySelector("[role=row][aria-selected=true]");
  if (row === null) return "no row";
  const [outer, inner] = [grid.getBoundingClientRect(), row.getBoundingClientRect()];
  const head = grid.querySelector("[role=row]").getBoundingClientRect();
  return inner.top >= head.bottom - 1 && inner.bottom <= outer.bottom + 1;
})()`;

describe("in chromium", needs("chromium"), () => {
  test("a phone shows more than four short messages of a conversation", async () => {
    await inspector.visit(at("/nothing"), {}, async (page) => {
      await page.setViewportSize(PHONE);
      await page.goto(at("/sessions/phone"));
      await items(page)
        .getByText(`Answer ${EXCHANGES - 1}.`)
        .waitFor();
      await page.getByRole("article", { name: `Run r${EXCHANGES - 1}, end` }).waitFor();
      await expect.poll(() => page.evaluate<number>(SEEN)).toBeGreaterThan(4);
      // The name is asked for when somebody writes.
      const name = page.getByRole("textbox", { name: "as", exact: true });
      expect(await name.isVisible()).toBe(false);
      await page.getByRole("textbox", { name: "Message" }).focus();
      await name.waitFor();
      await page.getByRole("textbox", { name: "Message" }).fill("Hello");
      await page.getByRole("button", { name: "Send" }).click();
      await items(page).getByText("Hello").waitFor();
    });
  });

  test("a wrong address has a page that leads to all sessions", async () => {
    await inspector.visit(at("/sesions/phone"), {}, async (page) => {
      await page.getByText("This address has no page.").waitFor();
      await page.getByRole("link", { name: "All sessions" }).click();
      await page.getByRole("link", { name: "phone" }).first().waitFor();
      expect(new URL(page.url()).pathname).toBe("/");
    });
  });

  test.each([1, 30, 60, 99])("the row of event %i in the address is in sight", async (seq) => {
    await inspector.visit(at(`/sessions/rows?at=${seq}`), {}, async (page) => {
      const row = region(page, "Events").getByRole("row", { selected: true });
      await expect.poll(() => row.getByRole("gridcell").first().innerText()).toBe(String(seq));
      await expect.poll(() => page.evaluate(ROW_SEEN)).toBe(true);
    });
  });

  test("JSON in a text of JSON is shown as JSON, and other text as text", async () => {
    await inspector.visit(at("/sessions/texts"), {}, async (page) => {
      const card = page.getByRole("article", { name: /^Tool call search/ });
      await card.getByRole("button", { expanded: false }).click();
      const shown = card.getByRole("region", { name: "Arguments" });
      await expect.poll(() => shown.getByText("{inner}").count()).toBe(1);
      await expect.poll(() => shown.getByText("inner:").count()).toBe(1);
      const odd = region(page, "Events").getByRole("row").filter({ hasText: "odd" });
      await odd.click();
      const details = region(page, "Events").locator(".events-json");
      await details.getByText('"{not json}"').waitFor();
      await details.getByText('"{}"').waitFor();
    });
  });

  test("runs are compared only when two exist", async () => {
    await inspector.visit(at("/sessions/texts"), {}, async (page) => {
      const compare = page.getByRole("link", { name: "Compare runs" });
      await page.getByRole("article", { name: "Run one, end" }).waitFor();
      expect(await compare.count()).toBe(0);
      await page.goto(at("/sessions/texts/compare"));
      await page.getByText("This session has one run.").waitFor();
      await page.getByRole("combobox", { name: "Session of run B" }).selectOption("phone");
      await page.getByRole("heading", { name: "Figures" }).waitFor();
      await page.goto(at("/sessions/phone"));
      await compare.click();
      await page.getByRole("heading", { name: "Figures" }).waitFor();
    });
  });
});
