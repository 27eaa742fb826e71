/** A person talks to an agent through the page, and the runner of the test answers. */
import type { Request, Route } from "playwright-core";
import { beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { called, pushAll, run, say, spoken } from "../support/inspector-sessions.ts";
import { items, region, useInspector } from "../support/inspector.ts";
import { needs } from "../support/tools.ts";
import { claim, finish } from "../support/turns.ts";
import { useService } from "../support/use-service.ts";

const inspector = useInspector();
const { service, client } = useService();
const urlOf = (sessionId: string): string => `http://${service.httpAddress}/sessions/${sessionId}`;
const messagesSchema = z.array(z.looseObject({ event_type: z.string(), payload: z.string() }));

async function messagesOf(sessionId: string) {
  const url = `http://${service.httpAddress}/api/ambient/v1/sessions/${sessionId}/messages`;
  return messagesSchema.parse(await (await fetch(url)).json());
}

beforeAll(() => say(service, "asked", { payload: "First" }));

describe("talk in chromium", needs("chromium"), () => {
  test("sends a message under a name, shows it waiting, and then the run that takes it", async () => {
    await inspector.visit(urlOf("asked"), {}, async (page) => {
      await items(page).getByText("First").waitFor();
      await page.getByLabel("as", { exact: true }).fill("Ann");
      await page.getByRole("textbox", { name: "Message" }).fill("Second\nline");
      await page.getByRole("button", { name: "Send" }).click();
      const message = page.getByRole("article", { name: "Message of Ann" });
      await message.getByText("Second").waitFor();
      await message.getByText("waiting").waitFor();
      await region(page, "Talk").getByText("2 messages wait").waitFor();
      await claim(client, { sessionId: "asked", runId: "r1" });
      await message.getByText("waiting").waitFor({ state: "detached" });
      await region(page, "Talk").getByText("a run is open").waitFor();
      await pushAll(service, "asked", spoken("a1", "An answer"));
      await items(page).getByText("An answer").waitFor();
      await finish(client, "asked", "r1");
      await page.getByRole("article", { name: "Run r1, end" }).waitFor();
      expect((await messagesOf("asked")).at(-1)?.payload).toContain("Second\nline");
    });
  });

  test("asks to end the open run, with a reason, and asks once", async () => {
    await pushAll(service, "cancelled", run("long", spoken("c1", "I begin")).slice(0, -1));
    await inspector.visit(urlOf("cancelled"), {}, async (page) => {
      await page.getByRole("button", { name: "Cancel the run" }).click();
      await page.getByRole("textbox", { name: "Reason" }).fill("Too long");
      await page.getByRole("button", { name: "Cancel the run" }).click();
      await region(page, "Talk").getByText("the run is asked to end").waitFor();
      await expect.poll(() => page.getByRole("button", { name: "Cancel the run" }).count()).toBe(0);
      const stored = async () =>
        (await messagesOf("cancelled")).filter(({ payload }) => payload.includes("Too long"));
      await expect.poll(stored).toHaveLength(1);
    });
  });

  test("answers a question of the agent", async () => {
    const interrupts = [
      { id: "i1", reason: "tool_call", message: "May I delete the file?", toolCallId: "q-call" },
    ];
    const asking = run("asking", called({ id: "q-call", name: "delete", args: ["{}"] }));
    const end = {
      type: "RUN_FINISHED",
      threadId: "t",
      runId: "asking",
      outcome: { type: "interrupt", interrupts },
    };
    await pushAll(service, "question", [...asking.slice(0, -1), end]);
    await inspector.visit(urlOf("question"), {}, async (page) => {
      const question = region(page, "Questions of the agent");
      await question.getByText("May I delete the file?").waitFor();
      await question.getByRole("button", { name: "Deny" }).click();
      await question.waitFor({ state: "detached" });
      await region(page, "Talk").getByText("the answer waits for a run").waitFor();
      const sent = async (): Promise<unknown> =>
        JSON.parse((await messagesOf("question"))[0]?.payload ?? "null");
      await expect.poll(sent).toMatchObject({
        resume: [{ interruptId: "i1", status: "resolved", payload: { approved: false } }],
      });
    });
  });

  test("gives a thumb with a comment, which the page then shows", async () => {
    await pushAll(service, "rated", run("r", spoken("rated-1", "A good answer")));
    await inspector.visit(urlOf("rated"), {}, async (page) => {
      const message = page.getByRole("article", { name: "Message of Agent" });
      await message.getByRole("button", { name: "Bad" }).click();
      await message.getByRole("textbox", { name: "Comment" }).fill("Not so good");
      // The thumb itself is on its way before.
      await message.getByRole("button", { name: "Add", disabled: false }).waitFor();
      await page.keyboard.press("Enter");
      await message.getByText("Not so good").waitFor();
      await page.reload();
      await expect.poll(() => message.getByText("Not so good").count()).toBe(1);
    });
  });

  test("keeps the text of a refused message, and sends it again once", async () => {
    await say(service, "refused", { payload: "Before" });
    await inspector.visit(urlOf("refused"), {}, async (page) => {
      await items(page).getByText("Before").waitFor();
      const box = page.getByRole("textbox", { name: "Message" });
      await page.context().setOffline(true);
      await box.fill("Through a bad line");
      await box.press("Enter");
      await region(page, "Talk").getByRole("alert").waitFor();
      expect(await box.inputValue()).toBe("Through a bad line");
      await page.context().setOffline(false);
      // This time the message is stored, and the answer is lost.
      const loseAnswer = async (route: Route): Promise<void> => {
        await route.fetch();
        await route.abort();
      };
      await page.route("**/messages", loseAnswer, { times: 1 });
      // The streams of the page fail too while it is offline.
      const isPush = (request: Request): boolean => request.method() === "POST";
      const failed = page.waitForEvent("requestfailed", isPush);
      await page.getByRole("button", { name: "Send again" }).click();
      await failed;
      await region(page, "Talk").getByRole("alert").waitFor();
      await page.getByRole("button", { name: "Send again" }).click();
      await expect.poll(() => box.inputValue()).toBe("");
      await items(page).getByText("Through a bad line").waitFor();
      const stored = async () =>
        (await messagesOf("refused")).filter(({ payload }) => payload.includes("bad line"));
      await expect.poll(stored).toHaveLength(1);
    });
  });

  // Bug: some megabytes in the text field stopped the page for more than a minute.
  test("refuses a text that is too long, and keeps what was typed", async () => {
    await say(service, "long-text", { payload: "Before" });
    await inspector.visit(urlOf("long-text"), {}, async (page) => {
      await items(page).getByText("Before").waitFor();
      const box = page.getByRole("textbox", { name: "Message" });
      await box.fill("typed");
      await box.fill("x".repeat(200_001));
      await region(page, "Talk").getByRole("alert").getByText("at most 200,000").waitFor();
      expect(await box.inputValue()).toBe("typed");
      await box.fill("shorter");
      await region(page, "Talk").getByRole("alert").waitFor({ state: "detached" });
    });
  });

  // Bug: each piece of a long message parsed all of its Markdown again, so frames took a second.
  test("shows a long text that grows as it is, and its Markdown at its end", async () => {
    const [start, content, end] = spoken("m1", `**bold** ${"word ".repeat(5_000)}`);
    if (start === undefined || content === undefined || end === undefined) throw new Error("none");
    await pushAll(service, "grows", [...run("r1", []).slice(0, 1), start, content]);
    await inspector.visit(urlOf("grows"), {}, async (page) => {
      await items(page)
        .getByRole("button", { name: /^Show all/ })
        .click();
      await items(page).getByText("**bold**").waitFor();
      await pushAll(service, "grows", [end]);
      await items(page).locator("strong", { hasText: "bold" }).waitFor();
      await expect.poll(() => items(page).getByText("**bold**").count()).toBe(0);
    });
  });
});
