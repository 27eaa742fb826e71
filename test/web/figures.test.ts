/** The views of figures in a real Chromium: what is stored, the state of the service, two runs, the API. */
import { beforeAll, describe, expect, test } from "vitest";
import { makeSession, pushAll, say } from "../support/inspector-sessions.ts";
import { useInspector } from "../support/inspector.ts";
import { needs } from "../support/tools.ts";
import { useService } from "../support/use-service.ts";

const inspector = useInspector();
const { service } = useService({});
const at = (path: string): string => `http://${service.httpAddress}${path}`;

interface Told {
  readonly text: string;
  readonly args: string;
  readonly tokens: number;
}

/** A run that looks something up and then answers. */
function runOf(runId: string, { text, args, tokens }: Told): readonly string[] {
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

describe("in chromium", needs("chromium"), () => {
  test("the storage shows the sums of the API, and leads to those of a session", async () => {
    await inspector.visit(at("/storage"), {}, async (page) => {
      const row = page.getByRole("row", { name: /^TEXT_MESSAGE_CONTENT/ });
      await expect.poll(() => row.count()).toBe(1);
      const cells = async () =>
        (await row.getByRole("cell").allInnerTexts()).slice(0, 2).map(Number);
      // Of three answers; those of one run are merged.
      await expect.poll(cells).toEqual([3, 16]);
      await page.getByRole("button", { name: "Rows" }).click();
      const header = page.getByRole("columnheader", { name: "Rows" }).first();
      await expect.poll(() => header.getAttribute("aria-sort")).toBe("descending");
      await page.getByRole("link", { name: "Storage of other by type" }).click();
      await page.getByRole("heading", { name: "Storage of other" }).waitFor();
      expect(new URL(page.url()).search).toBe("?session=other");
      await expect.poll(() => row.getByRole("cell").first().innerText()).toBe("1");
    });
  });

  test("the service shows what is pushed while the page is open, and a refusal", async () => {
    await inspector.visit(at("/service"), {}, async (page) => {
      await page.getByText(/ready$/).waitFor();
      const pushed = page.getByRole("figure", { name: "Pushed rows a second" });
      // The first rate needs two answers.
      await expect.poll(() => pushed.innerText()).toMatch(/events\s+0/);
      const stored = page.getByText("Rows stored").locator("xpath=following-sibling::dd");
      const before = Number((await stored.innerText()).replaceAll(",", ""));
      await makeSession(service, { name: "Pushed meanwhile" });
      await pushAll(service, "meanwhile", runOf("four", { text: "Now.", args: "{}", tokens: 1 }));
      await fetch(at("/api/ambient/v1/sessions/none"));
      const after = async () => Number((await stored.innerText()).replaceAll(",", ""));
      await expect.poll(after).toBeGreaterThan(before);
      await expect.poll(() => pushed.innerText()).toMatch(/0 to [1-9.]/);
      await page.getByRole("cell", { name: "SESSION_NOT_FOUND" }).waitFor();
    });
  });

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

  test("the API has its routes, found by words and by keys", async () => {
    await inspector.visit(at("/docs"), {}, async (page) => {
      await page.getByRole("heading", { name: "HTTP API" }).waitFor();
      const routes = page.getByRole("navigation", { name: "Routes" }).getByRole("link");
      expect(await routes.count()).toBeGreaterThan(20);
      await page.keyboard.press("/");
      await page.keyboard.type("push events");
      await expect.poll(() => routes.count()).toBeLessThan(10);
      await page.getByRole("link", { name: "POST Push events" }).click();
      await page.getByRole("heading", { name: "Push events" }).waitFor();
      await expect.poll(() => page.getByText("client-seq", { exact: true }).count()).toBe(1);
      expect(new URL(page.url()).searchParams.get("op")).toBe("pushEvents");
    });
  });
});
