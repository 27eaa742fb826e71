/** The session page without a pointer: everything that a person does with the keys alone. */
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { Page } from "playwright-core";
import { beforeAll, describe, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { called, pushAll, run, say, spoken } from "../support/inspector-sessions.ts";
import { isRead, items, useInspector } from "../support/inspector.ts";
import { needs } from "../support/tools.ts";
import { useService } from "../support/use-service.ts";

const inspector = useInspector();
const { service, client } = useService();
const PATH = "/sessions/keyboard";
const TABS_MAX = 80;
/** The key, and the first event of the run that it leads to, from the end. */
const RUNS = [
  ["[", 17],
  ["[", 1],
  ["]", 17],
  ["[", 1],
] as const;
/** One a second: a test that is late by half a minute still finds them playing. */
const SLOW_WORDS = 60;

beforeAll(async () => {
  await say(service, "keyboard", { payload: "Where is it?" });
  await pushAll(
    service,
    "keyboard",
    run("first", [
      ...spoken("k1", "I ", "shall ", "look."),
      ...called({
        id: "k-call",
        name: "look_up",
        args: ['{"where":"drawer"}'],
        result: '{"found":"key"}',
      }),
      ...spoken("k2", "In ", "the ", "drawer."),
    ]),
  );
  await pushAll(service, "keyboard", run("second", spoken("k3", "Anything else?")));
  const words = Array.from({ length: SLOW_WORDS }, (_, n) => `word${n} `);
  for (const [n, event] of run("slow", spoken("slow", ...words)).entries()) {
    const createdAt = timestampFromMs(Date.UTC(2026, 0, 1) + n * 1_000);
    const payload = JSON.stringify(event);
    await client.unary(SessionService.method.pushSessionEvent, {
      sessionId: "slow",
      eventType: event.type,
      payload,
      createdAt,
    });
  }
});

interface Focused {
  readonly role: string;
  readonly name: string;
  readonly isVisible: boolean;
}

/** The element with the focus, and whether a person sees that it has it. */
function focused(page: Page): Promise<Focused> {
  return page.evaluate<Focused>(`(() => {
    const element = document.activeElement;
    const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(element);
    return {
      role: element.getAttribute("role") ?? element.tagName.toLowerCase(),
      name: element.getAttribute("aria-label") ?? element.innerText ?? "",
      isVisible: (outlineStyle !== "none" && outlineWidth !== "0px") || boxShadow !== "none",
    };
  })()`);
}

/** Tab, until the focus is on such an element. */
async function tabTo(page: Page, wanted: RegExp): Promise<void> {
  const passed: string[] = [];
  for (let tabs = 0; tabs < TABS_MAX; tabs += 1) {
    await page.keyboard.press("Tab");
    const { name, role, isVisible } = await focused(page);
    if (role !== "body" && !isVisible) throw new Error(`nobody sees the focus on ${role} ${name}`);
    if (wanted.test(name)) return;
    passed.push(`${role} ${name.slice(0, 40)}`);
  }
  throw new Error(`no Tab led to ${String(wanted)}:\n${passed.join("\n")}`);
}

const urlOf = (path: string): string => `http://${service.httpAddress}${path}`;

const WHOLE = { message: "Message of Person", run: "Run second, end" };

describe("the keyboard alone, in chromium,", needs("chromium"), () => {
  test("goes through the whole page, lists its keys, opens a tool card, and sends a message", async () => {
    await inspector.visit(urlOf(PATH), {}, async (page) => {
      await isRead(page, WHOLE);
      await page.keyboard.press("Tab");
      await expect.poll(async () => (await focused(page)).name).toBe("Skip to the content");
      await page.keyboard.press("Enter");
      await expect.poll(async () => (await focused(page)).role).toBe("main");
      // A whole round through the page comes back to its beginning: no part keeps the focus.
      await tabTo(page, /Live$/);
      await tabTo(page, /^Skip to the content$/);

      await tabTo(page, /^look_up$/);
      const result = items(page).getByRole("region", { name: "Result" });
      await page.keyboard.press("Enter");
      await result.getByText("key").first().waitFor();
      await page.keyboard.press("Enter");
      await expect.poll(() => result.count()).toBe(0);

      await tabTo(page, /^Play$/);
      await page.keyboard.press("?");
      const help = page.getByRole("dialog");
      await help.getByText("Play or pause").waitFor();
      await help.getByText("Go to an event by number").waitFor();
      await page.keyboard.press("Escape");
      await help.waitFor({ state: "detached" });
      await expect.poll(async () => (await focused(page)).name).toBe("Play");

      await tabTo(page, /^Message$/);
      await page.keyboard.type("By the keys alone");
      await page.keyboard.press("Enter");
      await items(page).getByText("By the keys alone").waitFor();
      const box = page.getByRole("textbox", { name: "Message" });
      await expect.poll(() => box.inputValue()).toBe("");
    });
  });

  test("goes to an event by its number, from run to run, and plays the session to its end", async () => {
    await inspector.visit(urlOf(PATH), {}, async (page) => {
      await isRead(page, WHOLE);
      await page.keyboard.press("g");
      await page.keyboard.type("4");
      await page.keyboard.press("Enter");
      await expect.poll(() => new URL(page.url()).search).toBe("?at=4");
      await expect.poll(() => items(page).getByText("In the drawer.").count()).toBe(0);
      // Two tokens of three have been said at this event.
      await items(page).getByText("I shall", { exact: true }).waitFor();
      const slider = page.getByRole("slider", { name: "Event shown" });
      const now = async () => Number(await slider.getAttribute("aria-valuenow"));
      await expect.poll(now).toBe(4);
      await tabTo(page, /^Event shown$/);
      await page.keyboard.press("ArrowRight");
      await items(page).getByText("I shall look.").waitFor();
      await page.keyboard.press("End");
      await items(page).getByText("Anything else?").waitFor();
      await expect.poll(() => new URL(page.url()).search).toBe("");
      for (const [key, seq] of RUNS) {
        await page.keyboard.press(key);
        await expect.poll(now).toBe(seq);
      }
      await page.getByRole("article", { name: "Run first, start" }).waitFor();
      await page.keyboard.press(" ");
      // The recorded events are milliseconds apart, so it arrives at the end by itself.
      await items(page).getByText("Anything else?").waitFor();
      await expect.poll(() => page.getByRole("button", { name: "Play" }).count()).toBe(1);
    });
  });

  test("pauses a replay, and continues from that event", async () => {
    await inspector.visit(urlOf("/sessions/slow?at=1"), {}, async (page) => {
      const slider = page.getByRole("slider", { name: "Event shown" });
      const now = async () => Number(await slider.getAttribute("aria-valuenow"));
      await page.getByRole("article", { name: "Run slow, start" }).waitFor();
      await page.keyboard.press(" ");
      await expect.poll(now).toBeGreaterThan(2);
      await page.keyboard.press(" ");
      await page.getByRole("button", { name: "Play" }).waitFor();
      const paused = await now();
      expect(paused).toBeLessThan(SLOW_WORDS);
      // The address follows the replay a little later, and then it stays.
      await expect.poll(() => new URL(page.url()).search).toBe(`?at=${paused}`);
      expect(await now()).toBe(paused);
      await page.keyboard.press(" ");
      await expect.poll(now).toBeGreaterThan(paused);
    });
  });
});
