/**
 * The inspector in a real Chromium. Each visit has a browser context of its own, and ends with the checks that
 * hold for every page: no dialog, no request to another origin, no violation of the Content-Security-Policy,
 * no error of a script.
 */
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import type { Browser, BrowserContext, Locator, Page, Request } from "playwright-core";
import { afterAll, beforeAll, expect } from "vitest";
import { z } from "zod";
import { openChromium } from "./browser.ts";
import { needs } from "./tools.ts";

/** Longer than any step of a page takes on a busy machine. */
const LIMIT_MS = 60_000;

/** Of a page whose test failed. */
const SHOWN_CHARS_MAX = 2_000;

export interface Look {
  readonly width?: 1440 | 900 | 380;
  readonly scheme?: "light" | "dark";
  /** Other origins that the page may ask. */
  readonly asks?: readonly string[];
}

/** What a page did; the checks at the end of a visit read it. */
export interface Seen {
  readonly requests: Request[];
  readonly dialogs: string[];
  readonly violations: string[];
  readonly errors: string[];
}

export interface Inspector {
  /** Visits a path of the service; the checks run when `look` has ended without an error. */
  visit(
    url: string,
    look: Look,
    act: (page: Page, seen: Seen, context: BrowserContext) => Promise<void>,
  ): Promise<void>;
  /** A context that nothing watches, closed after the file. */
  context(): Promise<BrowserContext>;
  /** For measurements. */
  browser(): Browser;
}

/** Call it at the top of a test file: the browser runs from the first hook on, and ends after the file. */
export function useInspector(): Inspector {
  let browser: Browser | undefined;
  beforeAll(async () => {
    if (!needs("chromium").skip) browser = await openChromium();
  });
  afterAll(() => browser?.close());
  const running = (): Browser => {
    if (browser === undefined) throw new Error("the browser is there from the first hook on");
    return browser;
  };
  return {
    context: () => running().newContext(),
    browser: running,
    async visit(url, look, act) {
      const { width = 1440, scheme = "light", asks = [] } = look;
      const context = await running().newContext({
        viewport: { width, height: width < 600 ? 740 : 900 },
        colorScheme: scheme,
        reducedMotion: "reduce",
      });
      context.setDefaultTimeout(LIMIT_MS);
      try {
        const { page, seen } = await watched(context);
        await page.goto(url);
        await act(page, seen, context).catch(async (cause: unknown) => {
          const text = await page.locator("body").innerText();
          throw new Error(`the page showed: ${text.slice(0, SHOWN_CHARS_MAX)}`, { cause });
        });
        expect(troublesIn(seen, new URL(url).origin, asks)).toEqual([]);
      } finally {
        await context.close();
      }
    },
  };
}

const REPORT_VIOLATIONS = `document.addEventListener("securitypolicyviolation", (event) => {
  const { effectiveDirective, blockedURI, sourceFile, lineNumber } = event;
  reportViolation(effectiveDirective + " " + blockedURI + " at " + sourceFile + ":" + lineNumber);
});`;

/** What a page may not do, of what it did. */
export function troublesIn(
  seen: Seen,
  origin: string,
  others: readonly string[] = [],
): readonly string[] {
  const known = [origin, ...others];
  const asked = seen.requests
    .map((request) => request.url())
    .filter((url) => !known.some((one) => isOf(url, one)));
  return [
    ...seen.dialogs.map((text) => `dialog: ${text}`),
    ...asked.map((url) => `request: ${url}`),
    ...seen.violations.map((text) => `policy: ${text}`),
    ...seen.errors.map((text) => `error: ${text}`),
  ];
}

function isOf(url: string, origin: string): boolean {
  return url.startsWith(`${origin}/`) || /^(?:data|blob|about):/.test(url);
}

async function watched(context: BrowserContext): Promise<{ page: Page; seen: Seen }> {
  const seen: Seen = { requests: [], dialogs: [], violations: [], errors: [] };
  await context.exposeFunction("reportViolation", (text: string) => seen.violations.push(text));
  await context.addInitScript(REPORT_VIOLATIONS);
  const page = await context.newPage();
  page.on("request", (request) => seen.requests.push(request));
  page.on("dialog", (dialog) => {
    seen.dialogs.push(dialog.message());
    void dialog.dismiss().catch(() => undefined); // The page may be closed already.
  });
  page.on("pageerror", (error) => seen.errors.push(error.stack ?? error.message));
  page.on("console", (message) => {
    // A refused request is a line of the console too; tests of refusals look at the page instead.
    const isRefusal = message.text().startsWith("Failed to load resource");
    if (message.type() === "error" && !isRefusal) seen.errors.push(message.text());
  });
  return { page, seen };
}

const axeSource = readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const findingsSchema = z.array(
  z.looseObject({
    id: z.string(),
    impact: z.string().nullable(),
    nodes: z.array(z.looseObject({ target: z.array(z.unknown()), failureSummary: z.string() })),
  }),
);

/** What axe finds serious or critical, with the elements; by all rules, or only by one. */
export async function seriousFindings(page: Page, rule?: string): Promise<readonly string[]> {
  // By the debugger: the policy of the page lets no other script in.
  if ((await page.evaluate("typeof axe")) === "undefined") await page.evaluate(await axeSource);
  const options = { resultTypes: ["violations"], ...(rule && { runOnly: [rule] }) };
  const violations = await page.evaluate(
    `axe.run(${JSON.stringify(options)}).then(({ violations }) => violations)`,
  );
  return findingsSchema
    .parse(violations)
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .flatMap(({ id, nodes }) =>
      nodes.map(({ target, failureSummary }) => `${id}: ${target.join(" ")}: ${failureSummary}`),
    );
}

// The parts of the session page, by role and name, and what they show.

export function region(page: Page, name: string): Locator {
  return page.getByRole("region", { name, exact: true });
}

/**
 * Resolves when the whole session is read: its newest rows may come first, without the messages of people. The
 * items change under the reader, and under their keys, until then.
 */
export function isRead(
  page: Page,
  { message, run }: { readonly message: string; readonly run: string },
): Promise<void> {
  const has = (name: string) => ({ has: page.getByRole("article", { name }) });
  return page.getByRole("feed").filter(has(message)).filter(has(run)).waitFor();
}

/** Items of the conversation that are drawn now. */
export function items(page: Page): Locator {
  return page.getByRole("feed").getByRole("article");
}

const readSchema = z.object({
  size: z.number(),
  items: z.array(z.object({ at: z.number(), label: z.string(), text: z.string() })),
});

export type Read = z.infer<typeof readSchema>;

/** The whole conversation, read from its beginning to its end as a person scrolls through it. */
export async function readConversation(page: Page): Promise<Read> {
  return readSchema.parse(await page.evaluate(READ_ALL));
}

const READ_ALL = `(async () => {
  const feed = document.querySelector("[role=feed]");
  const frame = () => new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)));
  const found = new Map();
  let size = 0;
  const collect = () => {
    for (const item of feed.querySelectorAll("article")) {
      size = Number(item.getAttribute("aria-setsize"));
      const at = Number(item.getAttribute("aria-posinset"));
      found.set(at, { at, label: item.getAttribute("aria-label"), text: item.innerText });
    }
  };
  feed.scrollTop = 0;
  await frame();
  collect();
  for (let screen = 0; screen < 10000; screen += 1) {
    const before = feed.scrollTop;
    feed.scrollTop += feed.clientHeight * 0.7;
    await frame();
    collect();
    if (feed.scrollTop === before) break;
  }
  return { size, items: [...found.values()].sort((a, b) => a.at - b.at) };
})()`;

/** Letters and digits alone, without the numbers of a list: Markdown and the page differ in the rest. */
export function lettersOf(text: string): string {
  return text.replaceAll(/^[\s#>*]*\d+[.)]\s/gm, "").replaceAll(/[^\p{L}\p{N}]/gu, "");
}

/** Numbers of tokens in a text, in the order of the text. */
export function tokensIn(text: string): readonly number[] {
  return [...text.matchAll(/token(\d+)\./g)].map(([, number]) => Number(number));
}
