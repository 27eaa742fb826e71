/**
 * The web page in Chromium: bytes of its first load, first paint of a long session, frames while it scrolls,
 * from the push of a token to its pixels, and the heap during a live tail. Each beside a baseline of the same
 * run: an empty page, a page with plain lines, or a page that only reads the same bytes.
 *
 * `--parts load,paint,scroll,latency,heap`; `--calls` events of the long session, `--seconds` of the live tail.
 */
import type { Browser } from "playwright-core";
import { firstLoadOf, openChromium, startPages } from "../support/browser.ts";
import { manyEvents, pushAll, rename } from "../support/inspector-sessions.ts";
import type { Bench, Findings } from "./bench.ts";
import { latencyOf, median, rounded } from "./figures.ts";
import {
  type BenchPage,
  heapAfterCollection,
  openBenchPage,
  PLAIN_LINES,
  readerOf,
  scrolled,
} from "./inspector-page.ts";
import { tailTo } from "./inspector-tail.ts";
import { type Ledger, startLedger } from "./servers.ts";

const EVENTS = 100_000;
const EVENTS_QUICK = 5_000;
const TAIL_SECONDS = 600;
const TAIL_SECONDS_QUICK = 5;
/** Of a token model that is fast. */
const TAIL_EVENTS_PER_SECOND = 200;
/** Each token has a frame of its own. */
const LATENCY_EVENTS_PER_SECOND = 20;
const LATENCY_SECONDS = 20;
const LATENCY_SECONDS_QUICK = 2;
const SCROLL_MS = 5_000;
/** At 60 frames a second three are lost: a person sees it. */
const LONG_FRAME_MS = 50;
const PARTS = ["load", "paint", "scroll", "latency", "heap"] as const;

interface Place {
  readonly ledger: Ledger;
  readonly browser: Browser;
  /** The page of a session. */
  readonly sessionUrl: (sessionId: string) => string;
  readonly emptyUrl: string;
  readonly longSession: string;
  /** In the last message of the long session. */
  readonly lastText: string;
}

export async function benchInspector(bench: Bench): Promise<Findings> {
  const { quick, calls, parts = PARTS } = bench.options;
  const ledger = await startLedger(bench);
  const empty = bench.undo.use(await startPages());
  const browser = await openChromium();
  bench.undo.defer(() => browser.close());
  const events = calls ?? (quick ? EVENTS_QUICK : EVENTS);
  const place: Place = {
    ledger,
    browser,
    sessionUrl: (sessionId) => `http://${ledger.httpAddress}/sessions/${sessionId}`,
    emptyUrl: `http://127.0.0.1:${empty.port}/`,
    longSession: "bench-long",
    lastText: "Last of all.",
  };
  await fill(place, events);
  const measure: Readonly<Record<(typeof PARTS)[number], () => Promise<unknown>>> = {
    load: () => loadBytes(place),
    paint: () => firstPaints(bench, place),
    scroll: () => scrolling(bench, place),
    latency: () => latencies(bench, place),
    heap: () => heapOfTail(bench, place),
  };
  const found: Record<string, unknown> = { load: { events, rounds: bench.options.rounds } };
  for (const part of PARTS) {
    if (!parts.includes(part)) continue;
    found[`${part}Figures`] = await measure[part]();
    bench.progress(`${part}: ${JSON.stringify(found[`${part}Figures`])}`);
  }
  return { ...found, chromium: browser.version() };
}

async function fill({ ledger, longSession, lastText }: Place, events: number): Promise<void> {
  await pushAll(ledger, longSession, [
    ...manyEvents(events),
    { type: "TEXT_MESSAGE_START", messageId: "last", role: "assistant" },
    { type: "TEXT_MESSAGE_CONTENT", messageId: "last", delta: lastText },
    { type: "TEXT_MESSAGE_END", messageId: "last" },
  ]);
  await rename(ledger, longSession, "The long session");
}

/** Documents, scripts, styles, fonts and pictures with their headers; not the data. */
async function loadBytes({ browser, ledger, longSession, sessionUrl, ...place }: Place) {
  const list = `http://${ledger.httpAddress}/`;
  const bytesOf = async (url: string, text: string): Promise<number> => {
    const load = await firstLoadOf(browser, url, (page) => page.getByText(text).first().waitFor());
    return load.bytes;
  };
  return {
    sessionsBytes: await bytesOf(list, "The long session"),
    sessionBytes: await bytesOf(sessionUrl(longSession), place.lastText),
    baseline: { emptyPageBytes: (await firstLoadOf(browser, place.emptyUrl)).bytes },
  };
}

/** From the start of the navigation to the frame that shows the last message. */
async function firstPaints(bench: Bench, place: Place) {
  const { browser, longSession, lastText, sessionUrl, emptyUrl } = place;
  const rounds: { session: number; empty: number; plainFetch: number }[] = [];
  for (let round = 0; round <= bench.options.rounds; round += 1) {
    bench.signal.throwIfAborted();
    await using page = await openBenchPage(browser, { awaits: lastText });
    await page.goto(sessionUrl(longSession));
    const session = await page.shownAfterMs();
    const plainFetch = await newestPageMs(page, place);
    await using blank = await openBenchPage(browser, { awaits: "" });
    await blank.goto(emptyUrl);
    const found = { session, empty: await blank.firstPaintMs(), plainFetch };
    if (round > 0) rounds.push(found); // The first warms up.
  }
  const all = (of: keyof (typeof rounds)[number]) => rounded(median(rounds.map((one) => one[of])));
  return {
    sessionMs: all("session"),
    baseline: { emptyPageMs: all("empty"), fetchOfNewestPageMs: all("plainFetch") },
    rounds,
  };
}

/** What the service and the browser need for the newest thousand events, without a page around them. */
function newestPageMs(page: BenchPage, { longSession }: Place): Promise<number> {
  return page.run<number>(`
    const base = "/api/ambient/v1/sessions/${longSession}";
    const { eventSeq } = await (await fetch(base)).json();
    const began = performance.now();
    const path = base + "/events/history?limit=1000&after_seq=" + Math.max(0, eventSeq - 1000);
    await (await fetch(path)).json();
    return performance.now() - began;
  `);
}

/** The list of events and the conversation, a screen at a time, as a held Page Up does. */
async function scrolling(bench: Bench, place: Place) {
  const { browser, longSession, lastText, sessionUrl, emptyUrl } = place;
  const forMs = bench.options.quick ? 1_000 : SCROLL_MS;
  await using page = await openBenchPage(browser, { awaits: lastText });
  await page.goto(sessionUrl(longSession));
  await page.shownAfterMs();
  const conversation = await scrolled(page, { forMs, region: "Conversation" });
  const events = await scrolled(page, { forMs, region: "Events" });
  await using lines = await openBenchPage(browser, { awaits: "" });
  await lines.goto(emptyUrl);
  await lines.run(PLAIN_LINES);
  const plain = await scrolled(lines, { forMs, region: "Plain" });
  const figures = (deltasMs: readonly number[]) => ({
    frames: deltasMs.length,
    longFrames: deltasMs.filter((ms) => ms > LONG_FRAME_MS).length,
    frame: latencyOf(deltasMs),
  });
  return {
    longFrameMs: LONG_FRAME_MS,
    conversation: figures(conversation),
    events: figures(events),
    baseline: { plainLines: figures(plain) },
  };
}

/** A token from the call of its push to the frame with its text; or to a plain reader of the stream. */
async function latencies(bench: Bench, place: Place) {
  const { browser, ledger, sessionUrl } = place;
  const { quick, rounds } = bench.options;
  const seconds = quick ? LATENCY_SECONDS_QUICK : LATENCY_SECONDS;
  const load = { seconds, eventsPerSecond: LATENCY_EVENTS_PER_SECOND };
  const found: { pixels: number[]; reader: number[] } = { pixels: [], reader: [] };
  for (let round = 0; round < rounds; round += 1) {
    const shown = `bench-pixels-${round}`;
    await using tail = await tailTo(bench, ledger, { sessionId: shown, by: "pushes" });
    await using page = await openBenchPage(browser, { awaits: tail.opening });
    await page.goto(sessionUrl(shown));
    await page.shownAfterMs();
    await page.countTokens();
    const sent = await tail.run(load);
    found.pixels.push(...(await page.tokenDelaysMs(sent)));

    const read = `bench-reader-${round}`;
    await using other = await tailTo(bench, ledger, { sessionId: read, by: "pushes" });
    await using reader = await readerOf(browser, ledger.httpAddress, read);
    const sentToReader = await other.run(load);
    found.reader.push(...(await reader.tokenDelaysMs(sentToReader)));
  }
  return {
    eventsPerSecond: LATENCY_EVENTS_PER_SECOND,
    tokens: found.pixels.length,
    pushToPixels: latencyOf(found.pixels),
    baseline: { pushToPlainReader: latencyOf(found.reader) },
  };
}

async function heapOfTail(bench: Bench, place: Place) {
  const { browser, ledger, sessionUrl, emptyUrl } = place;
  const { quick, seconds = quick ? TAIL_SECONDS_QUICK : TAIL_SECONDS } = bench.options;
  await using tail = await tailTo(bench, ledger, { sessionId: "bench-tail", by: "writer" });
  await using page = await openBenchPage(browser, { awaits: tail.opening });
  await page.goto(sessionUrl("bench-tail"));
  await page.shownAfterMs();
  const sampled = [{ second: 0, mib: await heapAfterCollection(page) }];
  const steps = Math.min(10, seconds);
  for (let step = 1; step <= steps; step += 1) {
    const load = { seconds: seconds / steps, eventsPerSecond: TAIL_EVENTS_PER_SECOND };
    const { last } = await tail.run(load);
    await page.untilShown(last);
    sampled.push({ second: (seconds / steps) * step, mib: await heapAfterCollection(page) });
    bench.progress(`heap: ${JSON.stringify(sampled.at(-1))}`);
  }
  await using blank = await openBenchPage(browser, { awaits: "" });
  await blank.goto(emptyUrl);
  return {
    eventsPerSecond: TAIL_EVENTS_PER_SECOND,
    seconds,
    sampled,
    baseline: { emptyPageMiB: await heapAfterCollection(blank) },
  };
}
