/** The parts of the session page, by role and name, and what they show. */
import type { Locator, Page } from "playwright-core";
import { z } from "zod";

export function region(page: Page, name: string): Locator {
  return page.getByRole("region", { name, exact: true });
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
