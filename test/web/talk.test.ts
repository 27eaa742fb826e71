/** A person talks to an agent through the page, and the runner of the test answers. */
import type { Request, Route } from "playwright-core";
import { beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { called, pushAll, run, say, spoken } from "../support/inspector-sessions.ts";
import { items, region, useInspector } from "../support/inspector.ts";
import { needs } from "../support/tools.ts";
import { claim, finish } from "../support/turns.ts";
import { useService } from "../support/use-service.ts";

/** A picture of one pixel. */
const PIXEL =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

const TABS_MAX = 20;

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
  test("sends a message, shows it until a run takes it, rates the answer, and cancels the next run", async () => {
    await inspector.visit(urlOf("asked"), {}, async (page) => {
      const talk = region(page, "Talk");
      await items(page).getByText("First").waitFor();
      const box = page.getByRole("textbox", { name: "Message" });
      // Bug: some megabytes in the text field stopped the page for more than a minute.
      await box.fill("typed");
      await box.fill("x".repeat(200_001));
      await talk.getByRole("alert").getByText("at most 200,000").waitFor();
      expect(await box.inputValue()).toBe("typed");
      await box.fill("Second\nline");
      await talk.getByRole("alert").waitFor({ state: "detached" });

      await page.getByLabel("as", { exact: true }).fill("Ann");
      await page.getByRole("button", { name: "Send" }).click();
      const question = page.getByRole("article", { name: "Message of Ann" });
      await question.getByText("Second").waitFor();
      await question.getByText("waiting").waitFor();
      await talk.getByText("2 messages wait").waitFor();
      await claim(client, { sessionId: "asked", runId: "r1" });
      await question.getByText("waiting").waitFor({ state: "detached" });
      await talk.getByText("a run is open").waitFor();
      await pushAll(service, "asked", spoken("a1", "An answer"));
      await items(page).getByText("An answer").waitFor();
      await finish(client, "asked", "r1");
      await page.getByRole("article", { name: "Run r1, end" }).waitFor();
      expect((await messagesOf("asked")).at(-1)?.payload).toContain("Second\nline");

      const answer = page.getByRole("article", { name: "Message of Agent" });
      await answer.getByRole("button", { name: "Bad" }).click();
      await answer.getByRole("textbox", { name: "Comment" }).fill("Not so good");
      // The thumb itself is on its way before.
      await answer.getByRole("button", { name: "Add", disabled: false }).waitFor();
      await page.keyboard.press("Enter");
      await answer.getByText("Not so good").waitFor();
      await page.reload();
      await expect.poll(() => answer.getByText("Not so good").count()).toBe(1);

      await pushAll(service, "asked", run("r2", []).slice(0, 1));
      const cancel = page.getByRole("button", { name: "Cancel the run" });
      await cancel.click();
      await page.getByRole("textbox", { name: "Reason" }).fill("Too long");
      await cancel.click();
      await talk.getByText("the run is asked to end").waitFor();
      await expect.poll(() => cancel.count()).toBe(0);
      const stored = async () =>
        (await messagesOf("asked")).filter(({ payload }) => payload.includes("Too long"));
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
      // An earlier moment has the question too, and it is not the one to answer.
      await page.goto(`${urlOf("question")}?at=${asking.length}`);
      await region(page, "Talk").getByText("this is an earlier moment").waitFor();
      expect(await question.count()).toBe(0);
      await page.getByRole("button", { name: "Live" }).click();
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

  test("answers a question of a graph", async () => {
    const question = { type: "CUSTOM", name: "on_interrupt", value: "Which colour?" };
    const asking = run("graph-asks", []);
    await pushAll(service, "graph", [...asking.slice(0, -1), question, ...asking.slice(-1)]);
    await inspector.visit(urlOf("graph"), {}, async (page) => {
      const asked = region(page, "Questions of the agent");
      await asked.getByText("Which colour?").waitFor();
      await asked.getByRole("textbox", { name: "Answer" }).fill("red");
      await asked.getByRole("button", { name: "Answer", exact: true }).click();
      await asked.waitFor({ state: "detached" });
      await region(page, "Talk").getByText("the answer waits for a run").waitFor();
      const sent = async (): Promise<unknown> =>
        JSON.parse((await messagesOf("graph"))[0]?.payload ?? "null");
      await expect.poll(sent).toMatchObject({ forwardedProps: { command: { resume: "red" } } });
      await pushAll(service, "graph", run("graph-next", []));
      await region(page, "Talk")
        .getByText("the answer waits for a run")
        .waitFor({ state: "detached" });
    });
  });

  test("shows that nobody answered an approval when somebody typed past it", async () => {
    const ids = { threadId: "t", runId: "asking" };
    const interrupts = [{ id: "c-1", reason: "tool_call", toolCallId: "c-1" }];
    const asking = [
      ...run("asking", called({ id: "c-1", name: "delete", args: ["{}"] })).slice(0, -1),
      { type: "RUN_FINISHED", ...ids, outcome: { type: "interrupt", interrupts } },
    ];
    await pushAll(service, "typed-past", asking);
    await inspector.visit(urlOf("typed-past"), {}, async (page) => {
      await items(page).getByText("waits for an answer").waitFor();
      await items(page).getByText("no result yet").waitFor();
      await pushAll(service, "typed-past", run("past", []));
      await expect.poll(() => items(page).getByText("not answered").count()).toBe(2);
      expect(await items(page).getByText("waits for an answer").count()).toBe(0);
    });
  });

  test("files are attached by the button, by paste and by drop, shown, and stored with the message", async () => {
    await say(service, "files", { payload: "Before" });
    await inspector.visit(urlOf("files"), {}, async (page) => {
      await items(page).getByText("Before").waitFor();
      const picture = Buffer.from(PIXEL, "base64");
      await page.getByLabel("Files to attach").setInputFiles([
        { name: "dot.png", mimeType: "image/png", buffer: picture },
        { name: "notes.pdf", mimeType: "application/pdf", buffer: Buffer.from("%PDF-1.7") },
      ]);
      const attached = page.getByRole("list", { name: "Attached files" });
      await attached.getByText("notes.pdf").waitFor();
      expect(await attached.locator("img").count()).toBe(1);
      await attached.getByRole("button", { name: "Remove notes.pdf" }).click();
      await expect.poll(() => attached.getByText("notes.pdf").count()).toBe(0);
      await page.evaluate(`{
        const data = new DataTransfer();
        data.items.add(new File(["<script>"], "evil.svg", { type: "image/svg+xml" }));
        const pasted = new ClipboardEvent("paste", { clipboardData: data, bubbles: true });
        document.querySelector("textarea[aria-label=Message]").dispatchEvent(pasted);
      }`);
      await attached.getByText("evil.svg").waitFor();
      await page.evaluate(`{
        const dataTransfer = new DataTransfer();
        dataTransfer.items.add(new File(["a,b"], "table.csv", { type: "text/csv" }));
        const form = document.querySelector("textarea[aria-label=Message]").form;
        for (const type of ["dragenter", "dragover", "drop"])
          form.dispatchEvent(new DragEvent(type, { dataTransfer, bubbles: true, cancelable: true }));
      }`);
      await attached.getByText("table.csv").waitFor();
      await page.getByRole("textbox", { name: "Message" }).fill("What is this?");
      await page.getByRole("button", { name: "Send", exact: true }).click();
      await expect.poll(() => attached.count()).toBe(0);
      await items(page).getByRole("img", { name: "dot.png" }).waitFor();
      await items(page).getByRole("link", { name: "evil.svg" }).waitFor();
      expect(await items(page).locator("img").count()).toBe(1);
      const sent: unknown = JSON.parse((await messagesOf("files")).at(-1)?.payload ?? "null");
      const content = [
        { type: "text", text: "What is this?" },
        { type: "image", source: { type: "data", value: PIXEL, mimeType: "image/png" } },
        { type: "image", metadata: { filename: "evil.svg" } },
        { type: "document", metadata: { filename: "table.csv" } },
      ];
      expect(sent).toMatchObject({ messages: [{ content }] });
      // More than a message holds is refused by name, and what was attached stays.
      const large = Buffer.alloc(3_100_000);
      await page
        .getByLabel("Files to attach")
        .setInputFiles([{ name: "large", mimeType: "", buffer: large }]);
      await page
        .getByRole("alert")
        .getByText(/at most 2.9 MiB together/)
        .waitFor();
    });
  });

  test("files are attached and removed by the keyboard alone", async () => {
    await say(service, "keyed-files", { payload: "Before" });
    await inspector.visit(urlOf("keyed-files"), {}, async (page) => {
      const files = [["two.txt"], ["one.txt", "three.txt"]];
      page.on("filechooser", (chooser) => {
        const chosen = files.shift()?.map((name) => ({
          name,
          mimeType: "text/plain",
          buffer: Buffer.from(name),
        }));
        void chooser.setFiles(chosen ?? []);
      });
      await items(page).getByText("Before").waitFor();
      const focused = () => page.evaluate<string>("document.activeElement?.ariaLabel ?? ''");
      const tabTo = async (name: string, key = "Tab"): Promise<void> => {
        for (let tabs = 0; tabs < TABS_MAX && (await focused()) !== name; tabs += 1)
          await page.keyboard.press(key);
        expect(await focused()).toBe(name);
      };
      const attached = page.getByRole("list", { name: "Attached files" });
      await page.getByRole("textbox", { name: "Message" }).focus();
      await tabTo("Attach files");
      await page.keyboard.press("Enter");
      await attached.getByText("two.txt").waitFor();
      await tabTo("Remove two.txt", "Shift+Tab");
      await page.keyboard.press("Enter");
      // The focus stays where the person is.
      await expect.poll(focused).toBe("Message");
      await tabTo("Attach files");
      await page.keyboard.press("Enter");
      await attached.getByText("three.txt").waitFor();
      await tabTo("Remove three.txt", "Shift+Tab");
      await page.keyboard.press("Enter");
      await expect.poll(focused).toBe("Remove one.txt");
      await tabTo("Message");
      await page.keyboard.type("Read it");
      await page.keyboard.press("Enter");
      await items(page).getByText("Read it").waitFor();
      const sent = (await messagesOf("keyed-files")).at(-1)?.payload;
      expect(sent).toContain(btoa("one.txt"));
      expect(sent).not.toContain(btoa("three.txt"));
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
