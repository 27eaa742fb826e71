/** How a page looks, wide and narrow, light and dark, and drawn twice as large. */
import type { Page } from "playwright-core";
import { expect } from "vitest";
import { seriousFindings } from "./inspector.ts";

/** Those of the smallest and the largest supported window, and one between. */
const WIDTHS = [1440, 820, 380] as const;

/**
 * What a person cannot reach: the page is wider than the window, or a control stays outside of it, or below another
 * element, when it has the focus.
 */
const OUT_OF_REACH = `(() => {
  const nameOf = (one) => one.tagName + " " + (one.ariaLabel ?? one.innerText ?? one.name).slice(0, 60);
  const { scrollWidth } = document.documentElement;
  const found = scrollWidth > innerWidth ? ["the page: " + scrollWidth] : [];
  const controls = "button, a[href], input, select, textarea, [role=slider]";
  for (const one of document.querySelectorAll(controls)) {
    if (!one.isConnected || one.disabled || !one.checkVisibility()) continue;
    one.focus();
    one.scrollIntoView({ block: "nearest", inline: "nearest" });
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

/** As a window of 1440 × 900 pixels whose page is drawn twice as large, while `act` runs. */
async function zoomed(page: Page, act: () => Promise<void>): Promise<void> {
  const debug = await page.context().newCDPSession(page);
  const metrics = { width: 720, height: 450, deviceScaleFactor: 2, mobile: false };
  await debug.send("Emulation.setDeviceMetricsOverride", metrics);
  await act();
  await debug.detach();
}

export async function isShown(page: Page): Promise<void> {
  await page.getByRole("main").waitFor();
  await expect.poll(() => page.getByText(/^Loading/).count()).toBe(0);
}

/** What axe finds serious, with the look; rejects when something stays out of reach. */
export async function faultsOfLooks(page: Page): Promise<readonly object[]> {
  await isShown(page);
  const path = new URL(page.url()).pathname;
  const before = page.viewportSize();
  const faults: object[] = [];
  for (const width of WIDTHS) {
    await page.setViewportSize({ width, height: 800 });
    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme });
      // The dark look has the same elements: only their contrast differs.
      const found = await seriousFindings(
        page,
        colorScheme === "dark" ? "color-contrast" : undefined,
      );
      if (found.length > 0) faults.push({ path, width, colorScheme, found });
    }
  }
  await zoomed(page, async () => {
    expect(await page.evaluate("[innerWidth, devicePixelRatio]")).toEqual([720, 2]);
    // A list that is read again moves under the look.
    const found = async () => ({ path, found: await page.evaluate(OUT_OF_REACH) });
    await expect.poll(found).toEqual({ path, found: [] });
  });
  if (before !== null) await page.setViewportSize(before);
  return faults;
}
