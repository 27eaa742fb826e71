/**
 * Every view: what the comparison and the head show; and, in a wide and a narrow window, light and dark, axe finds nothing
 * serious, nothing is out of reach, and the checks of a visit hold, so no view breaks the Content-Security-Policy,
 * asks another origin or has an error of a script.
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

/** Of the first load, compressed. */
const FIRST_LOAD_BYTES_MAX = 220_000;

/** Those of the smallest and the largest supported window, and one between. */
const WIDTHS = [1440, 820, 380] as const;

const inspector = useInspector();
// Its own ledger: the list shows all sessions, and another file stores those of an attacker.
const { service } = useService({});
let empty: string;
const at = (path: string): string => `http://${service.httpAddress}${path}`;

interface Answer {
  readonly text: string;
  readonly args: string;
  readonly tokens: number;
}

/** A run that looks something up and then answers. */
function runOf(runId: string, { text, args, tokens }: Answer): readonly string[] {
  const ids = { threadId: "t", runId };
  const words = text.split(/(?<= )/);
  return [
    { type: "RUN_STARTED", ...ids },
    { type: "TOOL_CALL_START", toolCallId: `c-${runId}`, toolCallName: "search" },
    { type: "TOOL_CALL_ARGS", toolCallId: `c-${runId}`, delta: args },
    { type: "TOOL_CALL_END", toolCallId: `c-${runId}` },
    {
      type: "TOOL_CALL_RESULT",
      messageId: `r-${runId}`,
      toolCallId: `c-${runId}`,
      content: "found",
    },
    { type: "TEXT_MESSAGE_START", messageId: `m-${runId}`, role: "assistant" },
    ...words.map((delta) => ({ type: "TEXT_MESSAGE_CONTENT", messageId: `m-${runId}`, delta })),
    { type: "TEXT_MESSAGE_END", messageId: `m-${runId}` },
    { type: "RUN_FINISHED", ...ids, usage: [{ model: `model-${runId}`, totalTokens: tokens }] },
  ].map((event) => JSON.stringify(event));
}

beforeAll(async () => {
  await say(service, "question", { payload: "Where is it?" });
  await pushAll(service, "question", [
    ...runOf("one", { text: "It is in the old house.", args: '{"q":"it"}', tokens: 100 }),
    ...runOf("two", { text: "It is in the new house.", args: '{"q":"it?"}', tokens: 250 }),
  ]);
  await pushAll(
    service,
    "other",
    runOf("three", { text: "I do not know.", args: '{"q":"it"}', tokens: 7 }),
  );
});

describe("the views in chromium", needs("chromium"), () => {
  test("two runs are compared, chosen from lists, and the address keeps the choice", async () => {
    await inspector.visit(at("/sessions/question/compare"), {}, async (page) => {
      const cells = (name: string) =>
        page
          .getByRole("row", { name: new RegExp(`^${name}`) })
          .getByRole("cell")
          .allInnerTexts();
      await expect.poll(() => cells("Tokens in all")).toEqual(["100", "250", "+150 (250 %)"]);
      await expect
        .poll(async () => (await cells("Model")).slice(0, 2))
        .toEqual(["model-one", "model-two"]);
      await page.getByRole("heading", { name: "The same question" }).waitFor();
      const marked = (side: "A" | "B") =>
        page.getByRole("region", { name: side, exact: true }).locator("mark").allInnerTexts();
      await expect.poll(() => marked("A")).toEqual(["old"]);
      await expect.poll(() => marked("B")).toEqual(["new"]);
      await page.getByText(/other arguments$/).click();
      await page.getByText('"it?"').waitFor();

      await page.getByRole("button", { name: "Swap" }).click();
      await expect.poll(() => cells("Tokens in all")).toEqual(["250", "100", "−150 (40 %)"]);
      await page.getByRole("combobox", { name: "Session of run B" }).selectOption("other");
      await expect.poll(() => cells("Tokens in all")).toEqual(["250", "7", "−243 (3 %)"]);
      await page.reload();
      await expect.poll(() => cells("Tokens in all")).toEqual(["250", "7", "−243 (3 %)"]);
      expect(new URL(page.url()).searchParams.get("with")).toBe("other");
    });
  });

  test("the head leads to the OpenAPI document", async () => {
    await inspector.visit(at("/"), {}, async (page) => {
      const link = page.getByRole("navigation", { name: "Pages" }).getByRole("link");
      expect(await link.allInnerTexts()).toEqual(["Sessions", "Inbox", "API"]);
      await page.getByRole("link", { name: "API" }).click();
      await page.getByText('"openapi":"3.1').waitFor();
      expect(new URL(page.url()).pathname).toBe("/openapi.json");
    });
  });
});

interface View {
  readonly kind: string;
  readonly paths: () => readonly string[];
}

/** Views of one kind, with other data or in another state. */
const VIEWS: readonly View[] = [
  { kind: "the sessions and found texts", paths: () => ["/", "/?q=time"] },
  { kind: "the inbox", paths: () => ["/inbox"] },
  {
    kind: "a session",
    paths: () => ["/sessions/agent-0", "/sessions/agent-2?at=12", "/sessions/failing"],
  },
  { kind: "a session without events", paths: () => [`/sessions/${empty}`, "/sessions/none"] },
  { kind: "the comparison", paths: () => ["/sessions/question/compare"] },
];

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

async function isShown(page: Page): Promise<void> {
  await page.getByRole("main").waitFor();
  await expect.poll(() => page.getByText(/^Loading/).count()).toBe(0);
}

describe("every view in chromium", needs("chromium"), () => {
  beforeAll(async () => {
    empty = await makeSession(service, { name: "Nothing yet" });
    for (const [n, { events }] of fiveAgents().slice(0, 3).entries()) {
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
    const run = { threadId: "asking", runId: "asks" };
    const interrupts = [{ id: "i", reason: "tool_approval", message: "May I?", toolCallId: "c" }];
    await pushAll(service, "asking", [
      { type: "RUN_STARTED", ...run },
      { type: "TOOL_CALL_START", toolCallId: "c", toolCallName: "delete" },
      { type: "TOOL_CALL_ARGS", toolCallId: "c", delta: '{"table":"users"}' },
      { type: "TOOL_CALL_END", toolCallId: "c" },
      { type: "RUN_FINISHED", ...run, outcome: { type: "interrupt", interrupts } },
    ]);
    await pushAll(service, "failing", [...conversationIn(ARABIC), ...failing()]);
  });

  test.each(VIEWS)(
    "of $kind has nothing that axe finds serious, wide or narrow, light or dark, nor out of reach at a zoom of 200 %",
    async ({ paths }) => {
      const [first = "/"] = paths();
      await inspector.visit(at(first), {}, async (page) => {
        for (const path of paths()) {
          if (path !== first) await page.goto(at(path));
          await isShown(page);
          for (const width of WIDTHS) {
            await page.setViewportSize({ width, height: 800 });
            for (const colorScheme of ["light", "dark"] as const) {
              await page.emulateMedia({ colorScheme });
              const found = await seriousFindings(page);
              const look = { path, width, colorScheme };
              expect({ ...look, found }).toEqual({ ...look, found: [] });
            }
          }
          await zoomed(page, async () => {
            expect(await page.evaluate("[innerWidth, devicePixelRatio]")).toEqual([720, 2]);
            // A list that is read again moves under the look.
            const found = async () => ({ path, found: await page.evaluate(OUT_OF_REACH) });
            await expect.poll(found).toEqual({ path, found: [] });
          });
        }
      });
    },
  );

  test("the first load of the sessions and of a session is small", async () => {
    for (const path of ["/", "/sessions/agent-0"]) {
      const { bytes } = await firstLoadOf(inspector.browser(), at(path), isShown);
      expect(bytes).toBeGreaterThan(10_000); // An empty page is not a page.
      expect(bytes).toBeLessThan(FIRST_LOAD_BYTES_MAX);
    }
  });
});
