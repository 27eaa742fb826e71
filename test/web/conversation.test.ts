/** The conversation of a session, compared with its transcript. */
import { beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { eventually } from "../support/eventually.ts";
import {
  ARABIC,
  CHINESE,
  failing,
  FAILURE,
  fiveAgents,
  makeSession,
  pushAll,
  run,
  say,
  spoken,
  toolCalls,
} from "../support/inspector-sessions.ts";
import { items, lettersOf, readConversation, region, useInspector } from "../support/inspector.ts";
import { needs } from "../support/tools.ts";
import { useService } from "../support/use-service.ts";

const TOOL_CALLS = 2_000;
const MARKDOWN =
  "# Title\n\n- one\n- two\n\n[a page](https://example.com/page) and `code`\n\n|a|b|\n|-|-|\n|1|2|\n";

const inspector = useInspector();
const { service } = useService();
const agents = fiveAgents().map((stream) => {
  const { agent, scenario } = stream;
  return { ...stream, sessionId: `talk-${agent}-${scenario}`, question: `A question for ${agent}` };
});
let empty: string;

beforeAll(async () => {
  empty = await makeSession(service, { name: "Nothing was said" });
  for (const { sessionId, question, events } of agents) {
    await say(service, sessionId, { payload: question, sender: { display_name: "Ann" } });
    await pushAll(
      service,
      sessionId,
      events.map(({ payload }) => payload),
    );
  }
  await pushAll(service, "talk-tools", toolCalls(TOOL_CALLS));
  for (const [name, { question, answer }] of Object.entries({ ARABIC, CHINESE })) {
    await say(service, "talk-texts", { payload: question });
    await pushAll(service, "talk-texts", run(name, spoken(name, ...answer.split(/(?<= )/))));
  }
  await pushAll(service, "talk-texts", [...run("r", spoken("m", MARKDOWN)), ...failing()]);
});

const transcriptSchema = z.looseObject({
  messages: z.array(z.looseObject({ role: z.string(), content: z.unknown().optional() })),
});

async function transcriptOf(sessionId: string) {
  const url = `http://${service.httpAddress}/api/ambient/v1/sessions/${sessionId}/transcript`;
  return transcriptSchema.parse(await (await fetch(url)).json()).messages;
}

const urlOf = (sessionId: string): string => `http://${service.httpAddress}/sessions/${sessionId}`;

describe("the conversation in chromium", needs("chromium"), () => {
  test("shows each message of five agents, and reports that nothing was said", async () => {
    await inspector.visit(urlOf(empty), {}, async (page) => {
      await region(page, "Conversation").getByText("Nothing was said yet").waitFor();
      const heading = page.getByRole("heading", { name: "Nothing was said" });
      await expect.poll(() => heading.count()).toBe(1);
      for (const { sessionId, question } of agents) {
        const messages = await transcriptOf(sessionId);
        expect(messages.length).toBeGreaterThan(1);
        await page.goto(urlOf(sessionId));
        await items(page).getByText(question).first().waitFor();
        const chat = messages.filter(({ role }) => role === "user" || role === "assistant");
        const texts = chat.flatMap(({ content }) => (typeof content === "string" ? [content] : []));
        // The newest rows show before the messages of people.
        await eventually(async () => {
          const read = await readConversation(page);
          expect(read.items).toHaveLength(read.size);
          const shown = lettersOf(read.items.map(({ text }) => text).join("\n"));
          expect(texts.filter((text) => !shown.includes(lettersOf(text)))).toEqual([]);
          expect(read.items.some(({ label }) => label === "Message of Ann")).toBe(true);
        });
      }
    });
  });

  test("has a card for each of 2,000 calls, which opens to arguments and result", async () => {
    await inspector.visit(urlOf("talk-tools"), {}, async (page) => {
      const last = items(page).getByRole("button", { name: "search" }).last();
      await last.waitFor();
      // The newest ones show first.
      const size = () => items(page).last().getAttribute("aria-setsize");
      await expect.poll(size).toBe(String(TOOL_CALLS + 2));
      // At the end of a long conversation only a screen of it is drawn.
      expect(await items(page).count()).toBeLessThan(200);
      const card = page.getByRole("article", { name: /^Tool call/ }).last();
      await card.getByRole("button", { expanded: false }).first().click();
      await card
        .getByRole("region", { name: "Arguments" })
        .getByText(`src/file-${TOOL_CALLS - 1}.ts`)
        .waitFor();
      await card.getByRole("region", { name: "Result" }).getByText("lines").first().waitFor();
    });
  });

  test("reads Arabic from the right and Chinese from the left, and has Markdown and errors", async () => {
    const directionOf = (text: string) => `(() => {
      const walker = document.createTreeWalker(document.querySelector("[role=feed]"), NodeFilter.SHOW_TEXT);
      while (walker.nextNode())
        if (walker.currentNode.data.includes(${JSON.stringify(text)}))
          return getComputedStyle(walker.currentNode.parentElement).direction;
      return "not found";
    })()`;
    await inspector.visit(urlOf("talk-texts"), {}, async (page) => {
      await items(page).getByText("الرباط").waitFor();
      for (const text of ["عاصمة المغرب هي", ARABIC.question])
        await expect.poll(() => page.evaluate(directionOf(text))).toBe("rtl");
      await items(page).getByText("两万一千").waitFor();
      await expect.poll(() => page.evaluate(directionOf("长城全长约"))).toBe("ltr");

      const titled = { has: page.getByRole("heading", { name: "Title" }) };
      const message = page.getByRole("article", { name: "Message of Agent" }).filter(titled);
      const textsOf = (role: "listitem" | "cell") => message.getByRole(role).allInnerTexts();
      await expect.poll(() => textsOf("listitem")).toEqual(["one", "two"]);
      await expect.poll(() => textsOf("cell")).toEqual(["1", "2"]);
      // A link that leaves no trace.
      const link = message.getByRole("link", { name: "a page" });
      expect(await link.getAttribute("href")).toBe("https://example.com/page");
      expect(await link.getAttribute("rel")).toBe("noopener noreferrer");

      await items(page).getByText(FAILURE).waitFor();
      await expect.poll(() => items(page).getByText("I shall look.").count()).toBe(1);
      await page.getByRole("article", { name: "Tool call look_up, failed" }).waitFor();
      await page.getByRole("article", { name: "Run failed, error" }).getByText("TIMEOUT").waitFor();
    });
  });
});
