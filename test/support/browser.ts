/** A real Chromium, empty pages to run scripts in, and the size of a page. */
import { type Browser, chromium, type Page } from "playwright-core";
import { toolPath } from "./tools.ts";

export function openChromium(): Promise<Browser> {
  return chromium.launch({ executablePath: toolPath("chromium") });
}

/**
 * Runs the script in the page. The script is the body of an async function; its value is the answer, and an
 * error that it throws is `{ error }`.
 */
export async function runInPage(script: string, url: string): Promise<unknown> {
  const browser = await openChromium();
  try {
    const page = await browser.newPage();
    await page.goto(url);
    const error = "(error) => ({ error: String(error) })";
    return await page.evaluate(`(async () => { ${script} })().catch(${error})`);
  } finally {
    await browser.close();
  }
}

export interface Load {
  /** What came over the wire, headers included. */
  readonly bytes: number;
  readonly urls: readonly string[];
}

/** What the page itself is made of, until `shown` resolves: not its data. Nothing is in a cache. */
export async function firstLoadOf(
  browser: Browser,
  url: string,
  shown: (page: Page) => Promise<void> = async () => undefined,
): Promise<Load> {
  const context = await browser.newContext();
  try {
    const page = await context.newPage();
    const debug = await context.newCDPSession(page);
    const asked = new Map<string, string>();
    let bytes = 0;
    debug.on("Network.requestWillBeSent", ({ requestId, type, request }) => {
      if (type !== "Fetch" && type !== "XHR") asked.set(requestId, request.url);
    });
    debug.on("Network.loadingFinished", ({ requestId, encodedDataLength }) => {
      if (asked.has(requestId)) bytes += encodedDataLength;
    });
    await debug.send("Network.enable");
    await page.goto(url);
    await shown(page);
    return { bytes, urls: [...asked.values()] };
  } finally {
    await context.close();
  }
}
