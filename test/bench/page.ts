/**
 * What a person waits for on the page, in a real Chromium on the machine of the service: from a push to its
 * text on the screen, over the same on a page that only appends what an EventSource brings; the first paint
 * of a long session, over that of a short one; and from the last key of a search to the first text, over
 * the call of the API alone.
 */
import type { Browser, Page } from "playwright-core";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { openChromium } from "../support/browser.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { manyEvents, pushAll, say } from "../support/inspector-sessions.ts";
import type { Bench, Findings } from "./bench.ts";
import { type Latency, latencyOf, rounded } from "./figures.ts";
import { fillLists } from "./lists.ts";
import { type Ledger, startLedger } from "./servers.ts";

const { pushSessionMessage, searchTexts } = SessionService.method;

const LONG = 100_000;
const SHORT = 500;
const TEXTS = 100_000;
const TIMES = 40;
const QUICK = { long: 500, texts: 500, times: 1 };
const KEY_DELAY_MS = 60;

export async function benchPage(bench: Bench): Promise<Findings> {
  const { quick } = bench.options;
  const amount = quick ? QUICK : { long: LONG, texts: TEXTS, times: TIMES };
  const ledger = await startLedger(bench);
  const client = new RpcClient(ledger.address);
  bench.undo.defer(() => client.close());
  bench.progress(`storing ${amount.long} events`);
  await pushAll(ledger, "long", manyEvents(amount.long));
  await pushAll(ledger, "short", manyEvents(SHORT));
  await fillLists(bench, ledger, { sessions: amount.texts, texts: amount.texts });
  const browser = await openChromium();
  bench.undo.defer(() => browser.close());
  const measure: Measure = { bench, ledger, client, browser, times: amount.times };
  return {
    load: amount,
    "push to screen": await pushToScreen(measure),
    "first paint": await firstPaints(measure),
    search: await searches(measure),
  };
}

interface Measure {
  readonly bench: Bench;
  readonly ledger: Ledger;
  readonly client: RpcClient;
  readonly browser: Browser;
  readonly times: number;
}

/** Resolves with the wall-clock time, in milliseconds, of the frame that has the text. */
const SCREEN = `globalThis.onScreen = (text) => new Promise((resolve) => {
  const look = () => {
    if (!document.body?.textContent.includes(text)) return false;
    observer.disconnect();
    // The task after a frame: what changed before it is drawn.
    requestAnimationFrame(() => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => resolve(performance.timeOrigin + performance.now());
      port2.postMessage(0);
    });
    return true;
  };
  const observer = new MutationObserver(look);
  if (!look()) observer.observe(document, { childList: true, subtree: true, characterData: true });
});`;

function wallMs(): number {
  return performance.timeOrigin + performance.now();
}

async function pushToScreen(measure: Measure): Promise<Findings> {
  const { bench, ledger } = measure;
  const origin = `http://${ledger.httpAddress}`;
  await say(ledger, "live", { payload: "begin" });
  const took: Record<"page" | "plain", Latency | undefined> = { page: undefined, plain: undefined };
  for (const kind of ["plain", "page"] as const) {
    bench.progress(`push to screen: ${kind}`);
    const page = await newPage(measure);
    await page.goto(kind === "page" ? `${origin}/sessions/live` : `${origin}/openapi.json`);
    if (kind === "plain") await page.evaluate(FOLLOW);
    await page.evaluate(`onScreen("begin")`);
    took[kind] = latencyOf(await pushes(measure, page, kind));
    await page.context().close();
  }
  const { page, plain } = took;
  return { page, plain, "page / plain": over(page, plain) };
}

const FOLLOW = `document.body.textContent = "";
new EventSource("/api/ambient/v1/sessions/live/messages").onmessage = ({ data }) => {
  document.body.append(data);
};`;

async function pushes(measure: Measure, page: Page, kind: string): Promise<readonly number[]> {
  const tookMs: number[] = [];
  for (let at = 0; at <= measure.times; at += 1) {
    measure.bench.signal.throwIfAborted();
    const payload = `${kind} ${at}.`;
    const shown = page.evaluate<number>(`onScreen(${JSON.stringify(payload)})`);
    const beganMs = wallMs();
    const row = { sessionId: "live", eventType: "user", payload };
    await measure.client.unary(pushSessionMessage, row);
    const tookOneMs = (await shown) - beganMs;
    if (at > 0) tookMs.push(tookOneMs);
  }
  return tookMs;
}

/** From the beginning of the navigation; the scripts of the page are in the browser's cache. */
async function firstPaints(measure: Measure): Promise<Findings> {
  const of = async (sessionId: string, text: string): Promise<Latency> => {
    measure.bench.progress(`first paint: ${sessionId}`);
    const page = await newPage(measure);
    const tookMs: number[] = [];
    for (let at = 0; at <= measure.times; at += 1) {
      measure.bench.signal.throwIfAborted();
      await page.goto("about:blank");
      await page.goto(`http://${measure.ledger.httpAddress}/sessions/${sessionId}`);
      const shownMs = await page.evaluate<number>(`onScreen(${JSON.stringify(text)})`);
      if (at > 0) tookMs.push(shownMs - (await page.evaluate<number>("performance.timeOrigin")));
    }
    await page.context().close();
    return latencyOf(tookMs);
  };
  const long = await of("long", "Answer");
  const short = await of("short", "Answer");
  return { long, short, "long / short": over(long, short) };
}

/** Each word is in one text; the time begins with the event of its last key. */
async function searches(measure: Measure): Promise<Findings> {
  const { bench, ledger, client } = measure;
  bench.progress("search as you type");
  const page = await newPage(measure);
  await page.goto(`http://${ledger.httpAddress}/`);
  const field = page.getByRole("searchbox").first();
  await field.waitFor();
  await page.evaluate(
    `addEventListener("keydown", ({ timeStamp }) => { globalThis.keyMs = timeStamp; }, true)`,
  );
  const typed: number[] = [];
  const called: number[] = [];
  for (let at = 0; at <= measure.times; at += 1) {
    bench.signal.throwIfAborted();
    const query = `rare${at * 17 + 3}`;
    const beganMs = performance.now();
    await client.unary(searchTexts, { query });
    const calledMs = performance.now() - beganMs;
    await field.fill("");
    const shown = page.evaluate<number>(`onScreen(${JSON.stringify(`everywhere ${query} `)})`);
    await field.pressSequentially(query, { delay: KEY_DELAY_MS });
    const typedMs = (await shown) - (await page.evaluate<number>("performance.timeOrigin + keyMs"));
    if (at === 0) continue; // Warms up.
    typed.push(typedMs);
    called.push(calledMs);
  }
  await page.context().close();
  const [asTyped, call] = [latencyOf(typed), latencyOf(called)];
  return { "as typed": asTyped, call, "as typed / call": over(asTyped, call) };
}

async function newPage({ browser }: Measure): Promise<Page> {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  await context.addInitScript(SCREEN);
  return await context.newPage();
}

function over(one: Latency | undefined, other: Latency | undefined): number {
  return rounded((one?.p50Ms ?? Number.NaN) / (other?.p50Ms ?? Number.NaN));
}
