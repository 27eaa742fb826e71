/** Pages under measurement. Their scripts take the times, so that the way to this process is in no figure. */
import type { Browser, CDPSession, Page } from "playwright-core";
import { rounded } from "./figures.ts";
import type { Sent } from "./inspector-tail.ts";

const MIB = 1_048_576;
const WAIT_MS = 120_000;

export interface BenchPage extends AsyncDisposable {
  readonly page: Page;
  readonly debug: CDPSession;
  goto(url: string): Promise<void>;
  /** The body of an async function. */
  run<T>(script: string): Promise<T>;
  /** From the start of the navigation to the frame in which the awaited text is there. */
  shownAfterMs(): Promise<number>;
  firstPaintMs(): Promise<number>;
  /** From now on the page notes in which frame a token is there first. */
  countTokens(): Promise<void>;
  tokenDelaysMs(sent: Sent): Promise<readonly number[]>;
  untilShown(text: string): Promise<void>;
}

export async function openBenchPage(
  browser: Browser,
  { awaits }: { readonly awaits: string },
): Promise<BenchPage> {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  const page = await context.newPage();
  page.setDefaultTimeout(WAIT_MS);
  await page.addInitScript(`(${WATCH_TEXT})(${JSON.stringify(awaits)})`);
  const debug = await context.newCDPSession(page);
  const run = <T>(script: string): Promise<T> => page.evaluate<T>(`(async () => { ${script} })()`);
  return {
    page,
    debug,
    run,
    goto: async (url) => {
      await page.goto(url);
    },
    shownAfterMs: () => run<number>("return benchShown"),
    firstPaintMs: () => run<number>(FIRST_PAINT),
    countTokens: () => run<void>(COUNT_TOKENS),
    async tokenDelaysMs({ atMs, last }) {
      const seen = await run<Record<string, number>>(`
        while (!benchTokens.has(${JSON.stringify(last)})) await new Promise(requestAnimationFrame);
        return Object.fromEntries(benchTokens);
      `);
      return [...atMs].flatMap(([text, sentMs]) => {
        const shownMs = seen[text];
        return shownMs === undefined ? [] : [shownMs - sentMs];
      });
    },
    untilShown: (text) =>
      page.getByText(text).last().waitFor({ state: "attached", timeout: WAIT_MS }),
    [Symbol.asyncDispose]: () => context.close(),
  };
}

/** A page of the service without a view, which reads the events of a session and keeps only times. */
export async function readerOf(
  browser: Browser,
  httpAddress: string,
  sessionId: string,
): Promise<BenchPage> {
  const reader = await openBenchPage(browser, { awaits: "" });
  // Any document of this origin will do.
  await reader.goto(`http://${httpAddress}/openapi.json`);
  await reader.run(`
    globalThis.benchTokens = new Map();
    const answer = await fetch("/api/ambient/v1/sessions/${sessionId}/events", {
      headers: { accept: "text/event-stream" },
    });
    const pieces = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    void (async () => {
      for (let rest = ""; ; ) {
        const { value, done } = await pieces.read();
        if (done) return;
        rest += value;
        for (const [token] of rest.matchAll(/token\\d+\\./g))
          if (!benchTokens.has(token)) benchTokens.set(token, performance.timeOrigin + performance.now());
        rest = rest.slice(rest.lastIndexOf("\\n\\n") + 1);
      }
    })();
  `);
  return reader;
}

/** In MiB, after a collection. */
export async function heapAfterCollection({ debug }: BenchPage): Promise<number> {
  await debug.send("HeapProfiler.collectGarbage");
  const { usedSize } = await debug.send("Runtime.getHeapUsage");
  return rounded(usedSize / MIB);
}

/** Scrolls the region up and down by a screen every few frames; the time from each frame to the next. */
export function scrolled(
  page: BenchPage,
  { forMs, region }: { readonly forMs: number; readonly region: string },
): Promise<readonly number[]> {
  return page.run<readonly number[]>(`
    const region = document.querySelector(${JSON.stringify(`[aria-label="${region}"]`)});
    if (region === null) throw new Error("there is no region ${region}");
    const all = [region, ...region.querySelectorAll("*")];
    const deepest = (one, other) => (other.scrollHeight > one.scrollHeight ? other : one);
    const box = all.filter((one) => one.scrollHeight > one.clientHeight + 100
      && /auto|scroll/.test(getComputedStyle(one).overflowY)).reduce(deepest);
    const deltas = [];
    let last = await new Promise(requestAnimationFrame);
    const until = last + ${forMs};
    let step = -box.clientHeight;
    while (last < until) {
      const before = box.scrollTop;
      box.scrollTop += step / 2;
      if (box.scrollTop === before) step = -step;
      const now = await new Promise(requestAnimationFrame);
      deltas.push(now - last);
      last = now;
    }
    return deltas;
  `);
}

/** A list of the browser's own, of as many lines as a page of events. */
export const PLAIN_LINES = `
  const list = document.createElement("div");
  list.setAttribute("aria-label", "Plain");
  list.style.cssText = "height: 800px; overflow-y: scroll";
  for (let n = 0; n < 1000; n += 1) {
    const line = document.createElement("p");
    line.textContent = "line " + n;
    list.append(line);
  }
  document.body.append(list);
`;

/** Resolves \`benchShown\` in the frame after the text has come. */
const WATCH_TEXT = `(text) => {
  if (text === "") return;
  globalThis.benchShown = new Promise((resolve) => {
    const look = () => {
      if (!document.documentElement?.textContent.includes(text)) return;
      observer.disconnect();
      // The frame after next begins when this one has been painted.
      requestAnimationFrame(() => requestAnimationFrame((atMs) => resolve(atMs)));
    };
    const observer = new MutationObserver(look);
    observer.observe(document, { childList: true, subtree: true, characterData: true });
  });
}`;

const FIRST_PAINT = `
  for (;;) {
    const [paint] = performance.getEntriesByName("first-paint");
    if (paint !== undefined) return paint.startTime;
    // Nothing is painted for a page without content.
    document.body.append("empty");
    await new Promise(requestAnimationFrame);
  }
`;

const COUNT_TOKENS = `
  globalThis.benchTokens = new Map();
  const fresh = new Set();
  const note = (atMs) => {
    for (const token of fresh) benchTokens.set(token, performance.timeOrigin + atMs);
    fresh.clear();
  };
  new MutationObserver((changes) => {
    const before = fresh.size;
    const nodes = changes.flatMap(({ target, addedNodes }) => [target, ...addedNodes]);
    for (const node of new Set(nodes)) {
      // The text of a large parent is not read again for each child that comes.
      const text = node.nodeType === Node.TEXT_NODE || node.childElementCount < 50 ? node.textContent : "";
      for (const [token] of text.matchAll(/token\\d+\\./g))
        if (!benchTokens.has(token)) fresh.add(token);
    }
    if (fresh.size === before) return;
    // The frame after next begins when this one has been painted.
    requestAnimationFrame(() => requestAnimationFrame(note));
  }).observe(document.body, { childList: true, subtree: true, characterData: true });
`;
