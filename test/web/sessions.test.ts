/** The list of sessions in a real browser: it is live, finds, scrolls, and is used by keyboard alone. */
import type { Locator, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { makeSession, pushAll, rename, say } from "../support/inspector-sessions.ts";
import { useInspector } from "../support/inspector.ts";
import {
  endService,
  type ServiceProcess,
  startAgain,
  startService,
} from "../support/service-process.ts";
import { needs } from "../support/tools.ts";

const inspector = useInspector();
let service: ServiceProcess;
let url: string;

beforeAll(async () => {
  service = await startService();
  url = `http://${service.httpAddress}/`;
});
afterAll(() => endService(service));

/** Of the body, in the order of the page. */
const rowsOf = (page: Page): Locator => page.locator('[role="rowgroup"] [role="row"]');
const rowOf = (page: Page, name: string): Locator => rowsOf(page).filter({ hasText: name });
const textsOf = (page: Page): Promise<string[]> => rowsOf(page).allInnerTexts();
const live = (page: Page): Promise<void> =>
  page.getByText("live", { exact: false }).first().waitFor();

describe("in chromium", needs("chromium"), () => {
  test("an empty ledger tells how to fill it, and then sessions come, change, move and go without a reload", async () => {
    await inspector.visit(url, {}, async (page, { requests }) => {
      await page.getByText("npm run -s ledger -- demo").waitFor();
      await live(page);
      await say(service, "older", { payload: "hello" });
      await rowOf(page, "older").waitFor();
      await page.getByText("1 session ·").waitFor();
      await expect.poll(() => rowOf(page, "older").innerText()).toContain("waits for a runner");
      await say(service, "newer", { payload: "hello" });
      await expect.poll(async () => (await textsOf(page))[0]).toContain("newer");
      await pushAll(service, "older", [
        { type: "RUN_STARTED", threadId: "older", runId: "r1" },
        { type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" },
      ]);
      await expect.poll(async () => (await textsOf(page))[0]).toMatch(/running\s+older/);
      await expect.poll(() => rowOf(page, "older").innerText()).toMatch(/Person: hello[^]+1 run/);
      await rename(service, "older", "A better name");
      await expect.poll(() => rowOf(page, "older").innerText()).toContain("A better name");
      await pushAll(service, "older", [
        { type: "TEXT_MESSAGE_END", messageId: "m" },
        { type: "RUN_ERROR", message: "out of luck" },
      ]);
      await expect.poll(() => rowOf(page, "older").innerText()).toMatch(/failed[^]+out of luck/);
      await page.getByRole("link", { name: "out of luck" }).click();
      await expect.poll(() => page.url()).toMatch(/\/sessions\/older\?at=4$/);
      await page.goBack();
      await rowOf(page, "older").waitFor();
      await live(page);
      await fetch(`${url}api/ambient/v1/sessions/older`, { method: "DELETE" });
      await expect.poll(() => rowOf(page, "older").count()).toBe(0);
      expect(requests.filter((request) => request.isNavigationRequest())).toHaveLength(1);
    });
  });

  test("a session is found by its name and its id, and the address has the search", async () => {
    const id = await makeSession(service, { name: "Blue Whale", projectId: "sea" });
    await makeSession(service, { name: "Red Fox", projectId: "land" });
    await inspector.visit(url, {}, async (page) => {
      await rowOf(page, "Red Fox").waitFor();
      await page.keyboard.press("/");
      await page.keyboard.type("bLUE w");
      await expect.poll(() => rowsOf(page).count()).toBe(1);
      // A part of the words is enough to find it, and the rest is still on its way to the address.
      await expect.poll(() => new URL(page.url()).searchParams.get("q")).toBe("bLUE w");
      await page.getByLabel("Search names, ids and texts").fill(id.slice(9).toUpperCase());
      await expect.poll(() => textsOf(page)).toEqual([expect.stringContaining("Blue Whale")]);
      await page.keyboard.press("Escape");
      await rowOf(page, "Red Fox").waitFor();
      await page.getByLabel("Project").fill("land");
      await expect.poll(() => textsOf(page)).toEqual([expect.stringContaining("Red Fox")]);
      // A session that the filter leaves out does not come by the stream either.
      await live(page);
      await makeSession(service, { name: "Grey Seal", projectId: "sea" });
      await makeSession(service, { name: "Grey Wolf", projectId: "land" });
      await rowOf(page, "Grey Wolf").waitFor();
      expect(await rowOf(page, "Grey Seal").count()).toBe(0);
      await page.goto(`${url}?state=failed&agent=nobody&label=a%3Db&within=1h`);
      await page.getByText("No session has all of this.").waitFor();
      await page.getByRole("button", { name: "Show all sessions" }).click();
      await rowOf(page, "Red Fox").waitFor();
      await expect.poll(() => new URL(page.url()).search).toBe("");
    });
  });

  test("the search finds texts of all sessions, and the keyboard alone opens the place", async () => {
    const project = { projectId: "texts" };
    const id = await makeSession(service, { name: "Spoken", ...project });
    await say(service, id, { payload: "Where does the ibex live?" });
    await pushAll(service, id, [
      { type: "RUN_STARTED", threadId: id, runId: "r1" },
      { type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" },
      { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "An ibex lives on <b>cliffs</b>." },
      { type: "TEXT_MESSAGE_END", messageId: "m" },
      { type: "RUN_FINISHED", threadId: id, runId: "r1" },
    ]);
    await inspector.visit(url, {}, async (page) => {
      const found = page.getByRole("region", { name: "Found texts" });
      await rowOf(page, "Spoken").waitFor();
      await page.keyboard.press("/");
      await page.keyboard.type("ibex");
      await expect.poll(() => new URL(page.url()).searchParams.get("q")).toBe("ibex");
      // The index is some seconds behind.
      await expect.poll(() => found.getByRole("link").count()).toBe(2);
      expect(await found.locator("mark").allInnerTexts()).toEqual(["ibex", "ibex"]);
      await found.getByText("<b>cliffs</b>").waitFor();
      await page.keyboard.press("Enter");
      await page.keyboard.press("ArrowDown");
      await page.keyboard.press("Enter");
      await expect.poll(() => page.url()).toContain(`/sessions/${id}?message=1`);
      await page
        .locator(".conversation-item:focus")
        .getByText("Where does the ibex live?")
        .waitFor();
      await page.goBack();
      await found.getByText("cliffs").click();
      await expect.poll(() => page.url()).toMatch(/\?at=2$/);
    });
  });

  test("a session is renamed, labelled, held and deleted from the list, as far as the token may", async () => {
    const id = await makeSession(service, { name: "Old name", labels: '{"size":7}' });
    await inspector.visit(`${url}?q=${id}`, {}, async (page) => {
      await page.getByRole("button", { name: "Actions of Old name" }).click();
      const dialog = page.getByRole("dialog");
      await dialog.getByLabel("Name").fill("New name");
      await dialog.getByLabel("Labels, one key=value a line").fill("team=sea\n\nplace = far");
      await dialog.getByRole("button", { name: "Save" }).click();
      await expect.poll(async () => (await textsOf(page))[0]).toMatch(/New name[^]+team=sea/);
      const record = async (): Promise<unknown> =>
        (await fetch(`${url}api/ambient/v1/sessions/${id}`)).json();
      expect(await record()).toMatchObject({ labels: '{"size":7,"team":"sea","place":"far"}' });
      const open = () => page.getByRole("button", { name: "Actions of New name" }).click();
      await open();
      await dialog.getByLabel(/Reason of a hold/).fill("a court asks");
      await dialog.getByRole("button", { name: "Hold", exact: true }).click();
      await expect.poll(record).toMatchObject({ hold: "a court asks" });
      await open();
      await dialog.getByRole("button", { name: "Delete the session" }).click();
      await dialog.getByRole("button", { name: "Delete the session: yes" }).click();
      await dialog.getByRole("alert").getByText(/held/).waitFor();
      await dialog.getByRole("button", { name: "End the hold" }).click();
      await expect.poll(record).not.toHaveProperty("hold");
      await open();
      await dialog.getByRole("button", { name: "Delete the session" }).click();
      await dialog.getByRole("button", { name: "Delete the session: yes" }).click();
      await expect.poll(() => rowsOf(page).count()).toBe(0);
    });
  });

  test("the keyboard alone moves, opens, and shows the keys", async () => {
    for (const name of ["key-1", "key-2", "key-3"]) await say(service, name, { payload: "hello" });
    await inspector.visit(`${url}?q=key-`, {}, async (page) => {
      await expect.poll(() => rowsOf(page).count()).toBe(3);
      const focused = (): Promise<string> => page.locator(":focus").innerText();
      for (const key of ["j", "j", "j", "k"]) await page.keyboard.press(key);
      await expect.poll(focused).toBe("key-2");
      // The selected session keeps the focus while it moves.
      await say(service, "key-2", { payload: "again" });
      await expect.poll(async () => (await textsOf(page))[0]).toContain("key-2");
      await expect.poll(focused).toBe("key-2");
      await page.keyboard.press("?");
      const help = page.getByRole("dialog", { name: "Keys" });
      await help.getByText("Next session").waitFor();
      await page.keyboard.press("j"); // The list behind the dialog does not move.
      await page.keyboard.press("Escape");
      await help.waitFor({ state: "detached" });
      await expect.poll(focused).toBe("key-2");
      await page.keyboard.press("Enter");
      await page.waitForURL(`${url}sessions/key-2`);
      await page.goBack();
      await expect.poll(() => rowsOf(page).count()).toBe(3);
    });
  });

  test("of hundreds of sessions only the seen rows are in the page, and the last one is reached", async () => {
    const names = Array.from({ length: 250 }, (_, n) => `many-${String(n).padStart(3, "0")}`);
    for (let at = 0; at < names.length; at += 100) {
      const some = names.slice(at, at + 100);
      await Promise.all(some.map((name) => say(service, name, { payload: "hello" })));
    }
    await inspector.visit(`${url}?q=many-`, {}, async (page) => {
      await page.getByText("250 sessions").waitFor();
      expect(await rowsOf(page).count()).toBeLessThan(100);
      await expect
        .poll(async () => {
          await page.getByRole("region", { name: "List of sessions" }).evaluate((list) => {
            list.scrollTop = list.scrollHeight;
          });
          return rowsOf(page).last().getAttribute("aria-rowindex");
        })
        .toBe("251");
      expect(await rowsOf(page).count()).toBeLessThan(100);
    });
  });

  test("a hidden tab closes its stream, and is current when it is shown again", async () => {
    await inspector.visit(`${url}?q=hidden-`, {}, async (page) => {
      await live(page);
      await page.clock.install();
      const turn = (isHidden: boolean): Promise<unknown> =>
        page.evaluate(`Object.defineProperty(document, "hidden", { configurable: true, value: ${isHidden} });
          document.dispatchEvent(new Event("visibilitychange"))`);
      await turn(true);
      await page.clock.runFor(20_000);
      expect(await page.getByText("paused").count()).toBe(0); // A short look at another tab.
      await page.clock.runFor(11_000);
      await page.getByText("paused").waitFor();
      await say(service, "hidden-1", { payload: "hello" });
      await turn(false);
      await page.clock.resume();
      await rowOf(page, "hidden-1").waitFor();
      await expect.poll(() => page.getByText("paused").count()).toBe(0);
    });
  });

  test("a page outlives the service, reports the loss, and shows the changes of that time", async () => {
    await say(service, "before", { payload: "hello" });
    await inspector.visit(`${url}?q=e`, {}, async (page) => {
      await rowOf(page, "before").waitFor();
      await live(page);
      await service.kill("SIGKILL");
      const notice = page.getByText("The connection to the service is lost.");
      await notice.waitFor();
      service = await startAgain(service);
      await say(service, "after", { payload: "hello" });
      await rowOf(page, "after").waitFor();
      await expect.poll(() => notice.count()).toBe(0);
    });
  });
});
