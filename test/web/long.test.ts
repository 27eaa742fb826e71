/** A session of 100,000 events: what matters is at hand, and the page stays small. */
import type { Page } from "playwright-core";
import { beforeAll, describe, expect, test } from "vitest";
import { manyEvents, pushAll } from "../support/inspector-sessions.ts";
import { items, region, useInspector } from "../support/inspector.ts";
import { faultsOfLooks } from "../support/inspector-looks.ts";
import { needs } from "../support/tools.ts";
import { useService } from "../support/use-service.ts";

const EVENTS = 100_000;
/** The rows of it alone are above 30 MiB of JSON. */
const HEAP_MIB_MAX = 400;
const ELEMENTS_MAX = 5_000;
const MIB = 1_048_576;

const inspector = useInspector();
const { service } = useService();
let url: string;

beforeAll(async () => {
  url = `http://${service.httpAddress}/sessions/long`;
  await pushAll(service, "long", manyEvents(EVENTS));
});

async function heapMib(page: Page): Promise<number> {
  const debug = await page.context().newCDPSession(page);
  await debug.send("HeapProfiler.collectGarbage");
  const { usedSize } = await debug.send("Runtime.getHeapUsage");
  return usedSize / MIB;
}

function elements(page: Page): Promise<number> {
  return page.evaluate<number>("document.querySelectorAll('*').length");
}

describe("a long session in chromium", needs("chromium"), () => {
  test("shows its end at once, its beginning and its middle on the way, in bounded memory", async () => {
    await inspector.visit(url, {}, async (page) => {
      await items(page).getByText("Answer 199:").waitFor();
      const grid = region(page, "Events").getByRole("grid");
      await expect
        .poll(async () => Number(await grid.getAttribute("aria-rowcount")))
        .toBeGreaterThan(10_000);
      await page.getByRole("slider", { name: "Event shown" }).focus();
      await page.keyboard.press("Home");
      await page.getByRole("article", { name: "Run run-0, start" }).waitFor();
      await page.keyboard.press("End");
      await items(page).getByText("Answer 199:").waitFor();
      const sum = region(page, "Timeline").getByText(/200 runs · 2,000 calls/);
      await expect.poll(() => sum.count()).toBe(1);
      expect(await faultsOfLooks(page)).toEqual([]);
      await items(page).getByText("Answer 199:").waitFor();
      expect(await elements(page)).toBeLessThan(ELEMENTS_MAX);
      expect(await heapMib(page)).toBeLessThan(HEAP_MIB_MAX);
      await page.goto(`${url}?at=50000`);
      // The run that ends with this event.
      await items(page).getByText("Answer 99:").waitFor();
      await page.getByRole("article", { name: "Run run-99, end" }).waitFor();
      expect(await page.getByRole("article", { name: "Run run-100, start" }).count()).toBe(0);
    });
  });
});
