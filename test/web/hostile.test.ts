/**
 * A session whose every text an attacker wrote, on each view that shows it. The checks of a visit find dialogs,
 * foreign requests and violations of the policy; here are the rest: no script has run, no prototype has changed, no
 * link or element of the attacker is there, and the texts can be read.
 */
import type { Page } from "playwright-core";
import { beforeAll, describe, expect, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { pushAll, rename, say } from "../support/inspector-sessions.ts";
import {
  ATTACKS,
  hostileEvents,
  overlong,
  OVERLONG_CHARACTERS,
  TURNED,
} from "../support/inspector-hostile.ts";
import { items, lettersOf, readConversation, region, useInspector } from "../support/inspector.ts";
import { needs } from "../support/tools.ts";
import { useService } from "../support/use-service.ts";

const inspector = useInspector();
const { service } = useService();
const urlOf = (path: string): string => `http://${service.httpAddress}${path}`;
const SESSION = "hostile";
const PATH = `/sessions/${SESSION}`;

beforeAll(async () => {
  await say(service, SESSION, {
    payload: ATTACKS.join("\n\n"),
    sender: { id: "u", display_name: `${ATTACKS[1]}\u202E`, channel: ATTACKS[0] },
  });
  await pushAll(service, SESSION, hostileEvents());
  await rename(service, SESSION, `${ATTACKS[0]}\u202E name`);
  await pushAll(service, "overlong", overlong());
});

/** What an attack would have left. */
async function traces(page: Page): Promise<unknown> {
  return page.evaluate(`({
    ran: window.ran,
    polluted: {}.polluted,
    frames: window.frames.length,
    elements: [...document.querySelectorAll("main :is(script, iframe, img, object, embed, base, meta, link, style)")]
      .map(({ outerHTML }) => outerHTML),
    forms: [...document.querySelectorAll("form[action]")].map(({ action }) => action),
    handlers: [...document.querySelectorAll("main *")].flatMap((one) =>
      one.getAttributeNames().filter((name) => name.startsWith("on"))),
    links: [...document.querySelectorAll("a[href]")]
      .filter(({ protocol }) => !["http:", "https:", "mailto:"].includes(protocol)).map(({ href }) => href),
  })`);
}

const NO_TRACE = { frames: 0, elements: [], forms: [], handlers: [], links: [] };

/** Opens whatever can be opened, some levels deep. */
async function openAll(page: Page): Promise<void> {
  await page.evaluate(`(async () => {
    const closed = "main [aria-expanded=false], main details:not([open]) > summary";
    for (let clicks = 0; clicks < 300; ) {
      const found = [...document.querySelectorAll(closed)].slice(0, 300 - clicks);
      if (found.length === 0) return;
      for (const one of found) one.click();
      clicks += found.length;
      await new Promise(requestAnimationFrame);
    }
  })()`);
}

describe("hostile payloads in chromium", needs("chromium"), () => {
  test("are text in the conversation, and do not turn the text around them", async () => {
    await inspector.visit(urlOf(PATH), {}, async (page) => {
      await items(page).first().waitFor();
      // The newest rows show before the messages of people.
      await eventually(async () => {
        const read = await readConversation(page);
        expect(read.items).toHaveLength(read.size);
        const text = read.items.map((item) => item.label + item.text).join("\n");
        const shown = lettersOf(text);
        for (const attack of [
          "<script>window.ran=1;alert(1)</script>",
          "<base href=",
          "Picture: picture",
        ])
          expect(shown).toContain(lettersOf(attack));
        // Shown as a sign that can be seen, and not as the control itself.
        expect(text).not.toContain(TURNED);
        expect(text).toContain("fdp.exe");
      });
      expect(await page.title()).not.toMatch(/[\u202A-\u202E\u2066-\u2069]/);
      await openAll(page);
      expect(await traces(page)).toEqual(NO_TRACE);
    });
  });

  test("are text in the events, the state and the timeline", async () => {
    await inspector.visit(urlOf(PATH), {}, async (page) => {
      const events = region(page, "Events");
      await events.getByRole("row").nth(3).waitFor();
      for (let row = 1; row < (await events.getByRole("row").count()); row += 3) {
        await events.getByRole("row").nth(row).click();
        await page.keyboard.press("Enter");
      }
      await openAll(page);
      await page.getByRole("tab", { name: "State" }).click();
      await region(page, "State").getByText("__proto__").first().waitFor();
      await openAll(page);
      await region(page, "Timeline").getByRole("button", { name: "Table" }).click();
      await region(page, "Timeline").getByRole("row").nth(2).waitFor();
      expect(await traces(page)).toEqual(NO_TRACE);
    });
  });

  test("are text on the other views", async () => {
    await inspector.visit(urlOf("/"), {}, async (page) => {
      for (const [path, text] of [
        ["/", SESSION],
        [`${PATH}/compare?b=1`, "The same question"],
      ] as const) {
        if (path !== "/") await page.goto(urlOf(path));
        await page.getByRole("main").getByText(text, { exact: true }).first().waitFor();
        await openAll(page);
        expect({ path, traces: await traces(page) }).toEqual({ path, traces: NO_TRACE });
      }
    });
  });

  test("of an address are text too", async () => {
    const attack = encodeURIComponent(`"><script>window.ran=1</script>`);
    const paths = [`/sessions/${attack}`, `/?query=${attack}`, `${PATH}?at=${attack}`];
    await inspector.visit(urlOf("/"), {}, async (page) => {
      for (const path of [...paths, `${PATH}?at=99999999999999999999`, `${PATH}?at=-1`]) {
        await page.goto(urlOf(path));
        await page.getByRole("main").getByText(/\S/).first().waitFor();
        await expect.poll(() => page.getByText(/^Loading/).count()).toBe(0);
        expect(await traces(page)).toEqual(NO_TRACE);
      }
    });
  });

  test("of five million characters do not stop the page", async () => {
    await inspector.visit(urlOf("/sessions/overlong"), {}, async (page) => {
      const all = items(page).getByRole("button", { name: /^Show all/ });
      await all.waitFor();
      const told = async () => Number((await all.innerText()).replaceAll(/\D/g, ""));
      await expect.poll(told).toBe(OVERLONG_CHARACTERS);
      const lengthOf = (): Promise<number> => page.evaluate("document.body.innerText.length");
      expect(await lengthOf()).toBeLessThan(200_000);
      // It still answers a person.
      await page.keyboard.press("?");
      await page.getByRole("dialog").waitFor();
      expect(await traces(page)).toEqual(NO_TRACE);
    });
  });
});
