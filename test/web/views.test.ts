/**
 * Every view in a wide and a narrow window, light and dark: axe finds nothing serious, and the checks of a visit hold, so no view
 * breaks the Content-Security-Policy, asks another origin or has an error of a script.
 */
import type { Page } from "playwright-core";
import { beforeAll, describe, expect, test } from "vitest";
import { firstLoadOf } from "../support/browser.ts";
import {
  conversationIn,
  failing,
  fiveAgents,
  makeSession,
  pushAll,
  say,
  ARABIC,
} from "../support/inspector-sessions.ts";
import { seriousFindings, useInspector } from "../support/inspector.ts";
import { needs } from "../support/tools.ts";
import { useService } from "../support/use-service.ts";

/** What the spec allows the first load, compressed. */
const FIRST_LOAD_BYTES_MAX = 250_000;

/** Those of the smallest and the largest supported window. */
const WIDTHS = [1440, 380] as const;

const inspector = useInspector();
// A ledger of its own: two views show all sessions, also those of an attacker in another file.
const { service } = useService({});
let empty: string;

beforeAll(async () => {
  empty = await makeSession(service, { name: "Nothing yet" });
  for (const [n, { events }] of fiveAgents().entries()) {
    await say(service, `agent-${n}`, {
      payload: "What is the time?",
      sender: { display_name: "Ann" },
    });
    await pushAll(
      service,
      `agent-${n}`,
      events.map(({ payload }) => payload),
    );
  }
  await pushAll(service, "failing", failing());
  await pushAll(service, "arabic", conversationIn(ARABIC));
});

const VIEWS: readonly (readonly [string, () => string])[] = [
  ["the sessions", () => "/"],
  ["a session of the first agent", () => "/sessions/agent-0"],
  ["a session of the second agent", () => "/sessions/agent-1"],
  ["a session at a number", () => "/sessions/agent-2?at=12"],
  ["a session that failed", () => "/sessions/failing"],
  ["a session in Arabic", () => "/sessions/arabic"],
  ["an empty session", () => `/sessions/${empty}`],
  ["a session that is not there", () => "/sessions/none"],
  ["the comparison", () => "/sessions/agent-3/compare"],
  ["the storage", () => "/storage"],
  ["the storage of a session", () => "/storage?session=agent-0"],
  ["the service", () => "/service"],
  ["the reference of the API", () => "/docs"],
  ["the API", () => "/docs?op=pushEvents"],
];

/**
 * What a person cannot reach: the page is wider than the window, or a control stays outside of it, or below another
 * element, when it has the focus.
 */
const OUT_OF_REACH = `(async () => {
  const nameOf = (one) => one.tagName + " " + (one.ariaLabel ?? one.innerText ?? one.name).slice(0, 60);
  const frame = () => new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)));
  const { scrollWidth } = document.documentElement;
  const found = scrollWidth > innerWidth ? ["the page: " + scrollWidth] : [];
  const controls = "button, a[href], input, select, textarea, [role=slider]";
  for (const one of document.querySelectorAll(controls)) {
    if (!one.isConnected || one.disabled || !one.checkVisibility()) continue;
    one.focus();
    one.scrollIntoView({ block: "nearest", inline: "nearest" });
    await frame();
    if (!one.isConnected) continue; // A list has drawn other rows.
    const { left, top, width, height } = one.getBoundingClientRect();
    const right = Math.min(left + width, innerWidth);
    const bottom = Math.min(top + height, innerHeight);
    if (left < -1 || top < -1 || right - left < Math.min(width, 24) || bottom - top < Math.min(height, 12))
      found.push("outside: " + nameOf(one));
    const there = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
    if (there === null || !(one.contains(there) || there.contains(one)))
      found.push("covered: " + nameOf(one) + " by " + (there && nameOf(there)));
  }
  return found;
})()`;

/** As a window of 1440 × 900 pixels whose page is drawn twice as large. */
async function zoom(page: Page): Promise<void> {
  const debug = await page.context().newCDPSession(page);
  const metrics = { width: 720, height: 450, deviceScaleFactor: 2, mobile: false };
  await debug.send("Emulation.setDeviceMetricsOverride", metrics);
}

describe("in chromium", needs("chromium"), () => {
  test.each(VIEWS)("at a zoom of 200 % nothing is out of reach in %s", async (_name, path) => {
    const url = `http://${service.httpAddress}${path()}`;
    await inspector.visit(url, {}, async (page) => {
      await zoom(page);
      await page.getByRole("main").waitFor();
      await expect.poll(() => page.getByText(/^Loading/).count()).toBe(0);
      expect(await page.evaluate("[innerWidth, devicePixelRatio]")).toEqual([720, 2]);
      // A list that is read again moves under the look.
      await expect.poll(() => page.evaluate(OUT_OF_REACH)).toEqual([]);
    });
  });

  test.each(VIEWS)(
    "axe finds nothing serious in %s, wide or narrow, light or dark",
    async (_name, path) => {
      const url = `http://${service.httpAddress}${path()}`;
      await inspector.visit(url, {}, async (page) => {
        await page.getByRole("main").waitFor();
        await expect.poll(() => page.getByText(/^Loading/).count()).toBe(0);
        for (const width of WIDTHS) {
          await page.setViewportSize({ width, height: 800 });
          for (const colorScheme of ["light", "dark"] as const) {
            await page.emulateMedia({ colorScheme });
            const found = await seriousFindings(page);
            expect({ width, colorScheme, found }).toEqual({ width, colorScheme, found: [] });
          }
        }
      });
    },
  );

  test.each([
    ["the sessions", "/"],
    ["a session", "/sessions/agent-0"],
  ])("the first load of %s is small", async (_name, path) => {
    const url = `http://${service.httpAddress}${path}`;
    const { bytes } = await firstLoadOf(inspector.browser(), url, async (page) => {
      await page.getByRole("main").waitFor();
      await expect.poll(() => page.getByText(/^Loading/).count()).toBe(0);
    });
    expect(bytes).toBeGreaterThan(10_000); // An empty page is not a page.
    expect(bytes).toBeLessThan(FIRST_LOAD_BYTES_MAX);
  });
});
