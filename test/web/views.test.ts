/**
 * Every view: what the comparison and the head show; and, in a wide and a narrow window, light and dark, axe finds nothing
 * serious, nothing is out of reach, and the checks of a visit hold, so no view breaks the Content-Security-Policy,
 * asks another origin or has an error of a script.
 */
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
  CHINESE,
} from "../support/inspector-sessions.ts";
import { faultsOfLooks, isShown } from "../support/inspector-looks.ts";
import { useInspector } from "../support/inspector.ts";
import { needs } from "../support/tools.ts";
import { useService } from "../support/use-service.ts";

/** Of the first load, compressed. */
const FIRST_LOAD_BYTES_MAX = 220_000;

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
  { kind: "the sessions and found texts", paths: () => ["/", "/?q=time", "/?q=nothing-has-this"] },
  { kind: "the inbox", paths: () => ["/inbox"] },
  {
    kind: "a session",
    paths: () => [
      "/sessions/agent-0",
      "/sessions/agent-2?at=12",
      "/sessions/failing",
      "/sessions/chinese",
    ],
  },
  { kind: "a session without events", paths: () => [`/sessions/${empty}`, "/sessions/none"] },
  { kind: "the comparison", paths: () => ["/sessions/question/compare"] },
];

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
    await say(service, "chinese", { payload: CHINESE.question });
    await pushAll(service, "chinese", conversationIn(CHINESE));
  });

  test.each(VIEWS)(
    "of $kind has nothing that axe finds serious, wide or narrow, light or dark, nor out of reach at a zoom of 200 %",
    async ({ paths }) => {
      const [first = "/"] = paths();
      await inspector.visit(at(first), {}, async (page) => {
        for (const path of paths()) {
          if (path !== first) await page.goto(at(path));
          expect(await faultsOfLooks(page)).toEqual([]);
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
