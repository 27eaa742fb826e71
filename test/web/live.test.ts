/** A session while it happens: a runner writes, a page is open, and the service is killed in between. */
import { setTimeout as delay } from "node:timers/promises";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createSessionWriter } from "../../src/runner/index.ts";
import { makeDirectory } from "../support/embedded-fixture.ts";
import { pushAll, say } from "../support/inspector-sessions.ts";
import { useInspector } from "../support/inspector.ts";
import { items, readConversation, region, tokensIn } from "../support/inspector-view.ts";
import { openDatabase, type OpenDatabase } from "../support/database.ts";
import { endService, type ServiceProcess, startService } from "../support/service-process.ts";
import { needs } from "../support/tools.ts";

const inspector = useInspector();
let database: OpenDatabase;
let service: ServiceProcess;

beforeAll(async () => {
  database = await openDatabase();
  service = await startService({ env: { DATABASE_URL: database.url } });
});

afterAll(async () => {
  await endService(service);
  await database.stop();
});

/** The same addresses again, so that page and runner find it. */
async function restarted(): Promise<void> {
  const { grpcAddress, httpAddress } = service;
  const dataDir = await makeDirectory();
  const env = { DATABASE_URL: database.url, GRPC_ADDRESS: grpcAddress, HTTP_ADDRESS: httpAddress };
  service = await startService({ dataDir, env });
}

/** Says `token0. token1. …` until it is stopped. */
class Runner {
  readonly #writer;
  readonly #ended: Promise<void>;
  #count = 0;
  #isStopped = false;

  constructor(sessionId: string) {
    this.#writer = createSessionWriter({ address: service.grpcAddress, sessionId });
    this.#writer.event({ type: "RUN_STARTED", threadId: sessionId, runId: "live" });
    this.#writer.event({ type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" });
    this.#ended = this.#talk();
  }

  get count(): number {
    return this.#count;
  }

  async #talk(): Promise<void> {
    for (; !this.#isStopped; this.#count += 1) {
      this.#writer.event({
        type: "TEXT_MESSAGE_CONTENT",
        messageId: "m",
        delta: `token${this.#count}. `,
      });
      await delay(10); // The pace of the agent, not a wait of the test.
    }
  }

  /** Ends the run; resolves when the service has all of it. */
  async end(): Promise<number> {
    this.#isStopped = true;
    await this.#ended;
    this.#writer.event({ type: "TEXT_MESSAGE_END", messageId: "m" });
    this.#writer.event({ type: "RUN_FINISHED", threadId: "t", runId: "live" });
    const { complete } = await this.#writer.close({ timeoutMs: 60_000 });
    if (!complete) throw new Error("the runner has not delivered all of it");
    return this.#count;
  }
}

/** The tokens of the one message, as the page shows them. */
async function shownTokens(page: Page): Promise<readonly number[]> {
  return tokensIn(await page.getByRole("article", { name: "Message of Agent" }).innerText());
}

const upTo = (count: number): readonly number[] => Array.from({ length: count }, (_, n) => n);

describe("a live session in chromium", needs("chromium"), () => {
  test("grows on the page while the runner writes, and nothing is missing or twice", async () => {
    await say(service, "live", { payload: "Count, please." });
    await inspector.visit(`http://${service.httpAddress}/sessions/live`, {}, async (page) => {
      await items(page).getByText("Count, please.").waitFor();
      const runner = new Runner("live");
      await items(page).getByText("token0.").waitFor();
      const some = await shownTokens(page);
      await expect
        .poll(async () => (await shownTokens(page)).length)
        .toBeGreaterThan(some.length + 50);
      const count = await runner.end();
      await expect.poll(() => shownTokens(page)).toEqual(upTo(count));
      await page.getByRole("article", { name: "Run live, end" }).waitFor();
    });
  });

  test("comes back by itself after the service was killed, says so, and has all of it once", async () => {
    await inspector.visit(`http://${service.httpAddress}/sessions/killed`, {}, async (page) => {
      const runner = new Runner("killed");
      await items(page).getByText("token20.").waitFor();
      await page
        .getByRole("status")
        .getByText(/^\W*live$/)
        .waitFor();
      await service.kill("SIGKILL");
      await page.getByRole("status").getByText("reconnecting").waitFor();
      const away = runner.count;
      await expect.poll(() => runner.count).toBeGreaterThan(away + 20);
      await restarted();
      await page
        .getByRole("status")
        .getByText(/^\W*live$/)
        .waitFor();
      const back = runner.count;
      await expect.poll(async () => (await shownTokens(page)).length).toBeGreaterThan(back);
      const count = await runner.end();
      await expect.poll(() => shownTokens(page)).toEqual(upTo(count));
      // A page that was not there for any of it shows the same.
      const live = await readConversation(page);
      await page.reload();
      await expect.poll(() => shownTokens(page)).toEqual(upTo(count));
      // The transcript shows the texts before the log has its runs.
      await expect
        .poll(async () => (await readConversation(page)).items.map(({ label }) => label))
        .toEqual(live.items.map(({ label }) => label));
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
      await page
        .getByRole("status")
        .getByText(/^\W*live$/)
        .waitFor();
      const row = region(page, "Events").getByRole("row").filter({ hasText: "RAW" });
      await expect.poll(() => row.count()).toBe(1);
    });
  });
});
