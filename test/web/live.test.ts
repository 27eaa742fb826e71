/** A session while it happens: a runner writes, a page is open, and the service is killed in between. */
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { createSessionWriter } from "@session-ledger/runner";
import { pushAll, say } from "../support/inspector-sessions.ts";
import { items, readConversation, region, tokensIn, useInspector } from "../support/inspector.ts";
import { openDatabase, type OpenDatabase } from "../support/database.ts";
import {
  endService,
  type ServiceProcess,
  startAgain,
  startService,
} from "../support/service-process.ts";
import { needs } from "../support/tools.ts";
import { pace } from "../support/eventually.ts";

const inspector = useInspector();
let database: OpenDatabase;
let service: ServiceProcess;

beforeAll(async () => {
  database = await openDatabase();
  service = await startService({ databaseUrl: database.url });
});

afterAll(async () => {
  await endService(service);
  await database.stop();
});

/** The same addresses again, so that page and runner find it. */
async function restarted(): Promise<void> {
  service = await startAgain(service);
}

/** The page cuts a text of 20,000 characters. */
const TOKENS_MAX = 1_500;

/** Says `token0. token1. …`, and then nothing but counts, until it is stopped; the first token is event 3. */
class Runner {
  readonly #writer;
  readonly #ended: Promise<void>;
  /** In ten milliseconds. */
  readonly #pace: number;
  #count = 0;
  #isStopped = false;

  constructor(sessionId: string, { pace: ofAgent = 1 } = {}) {
    this.#pace = ofAgent;
    this.#writer = createSessionWriter({ address: service.grpcAddress, sessionId });
    this.#writer.event({ type: "RUN_STARTED", threadId: sessionId, runId: "live" });
    this.#writer.event({ type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" });
    this.#ended = this.#talk();
  }

  /** Of tokens, and of the events after them. */
  get count(): number {
    return this.#count;
  }

  async #talk(): Promise<void> {
    while (!this.#isStopped) {
      for (let said = 0; said < this.#pace; said += 1, this.#count += 1) {
        if (this.#count >= TOKENS_MAX) {
          // Not CUSTOM: each of those is a message too, which the writer pushes one after the other.
          this.#writer.event({ type: "RAW", event: this.#count });
          continue;
        }
        const delta = `token${this.#count}. `;
        this.#writer.event({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta });
      }
      await pace(10);
    }
  }

  /** Ends the run; resolves with the number of its tokens when the service has all of it. */
  async end(): Promise<number> {
    this.#isStopped = true;
    await this.#ended;
    this.#writer.event({ type: "TEXT_MESSAGE_END", messageId: "m" });
    this.#writer.event({ type: "RUN_FINISHED", threadId: "t", runId: "live" });
    const { complete } = await this.#writer.close({ timeoutMs: 60_000 });
    if (!complete) throw new Error("the runner has not delivered all of it");
    return Math.min(this.#count, TOKENS_MAX);
  }
}

/** The tokens of the one message, as the page shows them. */
async function shownTokens(page: Page): Promise<readonly number[]> {
  return tokensIn(await page.getByRole("article", { name: "Message of Agent" }).innerText());
}

/** The event that the scrubber shows, and the tokens beside it, of one instant of the page. */
async function shownInstant(page: Page): Promise<Instant> {
  const { seq, text } = instantSchema.parse(await page.evaluate(READ_INSTANT));
  return { seq, tokens: tokensIn(text) };
}

interface Instant {
  readonly seq: number;
  readonly tokens: readonly number[];
}

const instantSchema = z.object({ seq: z.number(), text: z.string() });
const READ_INSTANT = `({
  seq: Number(document.querySelector("[role=slider][aria-label='Event shown']").ariaValueNow),
  text: document.querySelector("[aria-label='Message of Agent']")?.innerText ?? "",
})`;

/** The tokens up to an event: two others come before the first one. */
const tokensAt = (seq: number): readonly number[] =>
  upTo(Math.min(Math.max(seq - 2, 0), TOKENS_MAX));

/** Each move of the pointer shows another instant, with the tokens up to it and no others. */
async function drag(page: Page, parts: readonly number[]): Promise<void> {
  for (const part of parts) {
    const before = await shownInstant(page);
    await pointAt(page, part);
    await expect.poll(async () => (await shownInstant(page)).seq).not.toBe(before.seq);
    await expect
      .poll(async () => {
        const { seq, tokens } = await shownInstant(page);
        return tokens.join() === tokensAt(seq).join();
      })
      .toBe(true);
  }
}

/** Moves the pointer to a part of the bar, from 0 to 1. */
async function pointAt(page: Page, part: number): Promise<void> {
  const box = await page.getByRole("slider", { name: "Event shown" }).boundingBox();
  if (box === null) throw new Error("the bar is not drawn");
  await page.mouse.move(box.x + box.width * part, box.y + box.height / 2);
}

async function numberOf(page: Page, attribute: "aria-valuenow" | "aria-valuemax"): Promise<number> {
  const bar = page.getByRole("slider", { name: "Event shown" });
  return Number(await bar.getAttribute(attribute));
}

const isLive = (page: Page): Promise<void> =>
  page
    .getByRole("status")
    .getByText(/^\W*live$/)
    .waitFor();

const upTo = (count: number): readonly number[] => Array.from({ length: count }, (_, n) => n);

describe("a live session in chromium", needs("chromium"), () => {
  test("grows, comes back by itself after the service was killed, reports the loss, and has all of it once", async () => {
    await say(service, "killed", { payload: "Count, please." });
    await inspector.visit(`http://${service.httpAddress}/sessions/killed`, {}, async (page) => {
      await items(page).getByText("Count, please.").waitFor();
      const runner = new Runner("killed");
      await items(page).getByText("token20.").waitFor();
      await isLive(page);
      await service.kill("SIGKILL");
      await page.getByRole("status").getByText("reconnecting").waitFor();
      const away = runner.count;
      await expect.poll(() => runner.count).toBeGreaterThan(away + 20);
      await restarted();
      await isLive(page);
      const back = await numberOf(page, "aria-valuemax");
      await expect.poll(() => numberOf(page, "aria-valuemax")).toBeGreaterThan(back + 50);
      const count = await runner.end();
      await expect.poll(() => shownTokens(page)).toEqual(upTo(count));
      await page.getByRole("article", { name: "Run live, end" }).waitFor();
      // A page that was not there for any of it shows the same.
      const live = await readConversation(page);
      await page.reload();
      await expect.poll(() => shownTokens(page)).toEqual(upTo(count));
      await expect
        .poll(async () => (await readConversation(page)).items.map(({ label }) => label))
        .toEqual(live.items.map(({ label }) => label));
    });
  });

  test("is dragged through while 500 events a second come and the service is killed, and each instant is whole", async () => {
    await say(service, "dragged", { payload: "Count, please." }); // The page looks for its session once.
    await inspector.visit(`http://${service.httpAddress}/sessions/dragged`, {}, async (page) => {
      const runner = new Runner("dragged", { pace: 5 });
      await items(page).getByText("token100.").waitFor();
      await pointAt(page, 0.9);
      await page.mouse.down();
      await drag(page, [0.7, 0.2, 0.5, 0.05, 0.8, 0.3]);
      // The pointer rests: what comes does not move the page.
      const held = await numberOf(page, "aria-valuenow");
      const head = await numberOf(page, "aria-valuemax");
      await expect.poll(() => numberOf(page, "aria-valuemax")).toBeGreaterThan(head + 500);
      expect(await numberOf(page, "aria-valuenow")).toBe(held);
      await service.kill("SIGKILL");
      await page.getByRole("status").getByText("reconnecting").waitFor();
      await drag(page, [0.2, 0.7]);
      const away = await numberOf(page, "aria-valuemax");
      await restarted();
      await isLive(page);
      await expect.poll(() => numberOf(page, "aria-valuemax")).toBeGreaterThan(away + 100);
      await drag(page, [0.3, 0.9]);
      await page.mouse.up();
      await page.getByRole("button", { name: "Live" }).click();
      const count = await runner.end();
      await expect.poll(() => shownTokens(page)).toEqual(upTo(count));
    });
  });

  test("opens while the service is away, and is shown when it is back", async () => {
    await pushAll(service, "away", [{ type: "RAW", event: { text: "before" } }]);
    // The parts of the page are there; the session is not.
    await inspector.visit(`http://${service.httpAddress}/sessions/other`, {}, async (page) => {
      await page.getByText("All sessions").or(region(page, "Conversation")).first().waitFor();
      await page.getByRole("link", { name: "Sessions", exact: true }).click();
      const link = page.getByRole("link", { name: "away" }).first();
      await link.waitFor();
      await service.kill("SIGKILL");
      await link.click();
      await page
        .getByRole("status")
        .getByText("reconnecting")
        .or(page.getByRole("alert"))
        .first()
        .waitFor();
      await restarted();
      await isLive(page);
      const row = region(page, "Events").getByRole("row").filter({ hasText: "RAW" });
      await expect.poll(() => row.count()).toBe(1);
    });
  });
});
