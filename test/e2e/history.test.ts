/**
 * Histories of other systems move into a running service and out again: by the command line, by HTTP, and
 * as the AG-UI clients of npm show them.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { type JsonObject, parseObject } from "@session-ledger/agui/json";
import { fromHistory } from "@session-ledger/history/from-history";
import { fromLangChain4j } from "@session-ledger/history/langchain4j";
import { AGUI_CLIENTS } from "../support/agui-clients.ts";
import { comparable, oracleOf } from "../support/agui-oracle.ts";
import { runHere } from "../support/command-line.ts";
import { makeDirectory } from "../support/embedded-fixture.ts";
import { joinedTexts } from "../support/history-rows.ts";
import { API } from "../support/http-clients.ts";
import { newSession } from "../support/pushing.ts";
import { eventRowsOf } from "../support/recorded.ts";
import { startCommand } from "../support/service-process.ts";
import { useService } from "../support/use-service.ts";
import { useQuietConsole } from "../support/quiet-console.ts";

const { service } = useService();
let folder = "";
beforeAll(async () => {
  folder = await makeDirectory();
});
useQuietConsole();

const STORY = "test/vectors/history/conversation.jsonl";

function objectsIn(text: string): readonly JsonObject[] {
  return text.split("\n").filter(Boolean).map(parseObject);
}

function run(args: readonly string[], input?: string | Uint8Array) {
  const env = { SESSION_LEDGER_ADDRESS: service.grpcAddress };
  return runHere(args, { env, ...(input === undefined ? {} : { input }) });
}

function fileOf(name: string, content: string): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

const summarySchema = z.object({
  pushed: z.number(),
  deduplicated: z.number(),
  refused: z.number(),
  refusedByReason: z.record(z.string(), z.number()),
});

async function imported(format: string, sessionId: string, ...more: readonly string[]) {
  const args = ["import", "--format", format, "--session", sessionId, "--json", ...more];
  const { exitCode, stdout, stderr } = await run(args);
  return { exitCode, stderr, ...summarySchema.parse(JSON.parse(stdout)) };
}

async function payloadsOf(sessionId: string): Promise<readonly string[]> {
  const { stdout } = await run(["export", sessionId]);
  return stdout.split("\n").filter(Boolean);
}

async function transcriptOf(sessionId: string): Promise<string> {
  const url = `http://${service.httpAddress}${API}/sessions/${sessionId}/transcript?format=text`;
  return (await fetch(url)).text();
}

function historyUrl(sessionId: string, query = ""): string {
  return `http://${service.httpAddress}${API}/sessions/${sessionId}/history${query}`;
}

describe("a history of memory-service", () => {
  const sessionId = newSession();
  const entries = objectsIn(readFileSync(STORY, "utf8"));

  test("comes in, and the same file again stores nothing", async () => {
    const first = await imported("history", sessionId, STORY);
    expect(first).toMatchObject({ exitCode: 0, deduplicated: 0, refused: 0 });
    const again = await imported("history", sessionId, STORY);
    expect(again).toMatchObject({ exitCode: 0, pushed: 0, deduplicated: first.pushed });
    const events = [...fromHistory(entries, { sessionId, runId: "unused" })];
    expect(first.pushed).toBe(events.length);
    expect((await payloadsOf(sessionId)).map(parseObject)).toEqual(events);
  });

  test("a longer file continues it", async () => {
    const longer = newSession();
    const [first = "", ...others] = readFileSync(STORY, "utf8").split(/(?<=\n)(?=.)/);
    const half = fileOf("half.jsonl", first + others.slice(0, 3).join(""));
    const { pushed } = await imported("history", longer, half);
    const { deduplicated } = await imported("history", longer, STORY);
    expect(deduplicated).toBe(pushed);
    expect(await payloadsOf(longer)).toHaveLength((await payloadsOf(sessionId)).length);
  });

  test.each(AGUI_CLIENTS)("is read by $name", async (client) => {
    const open = client.open(service.httpAddress, sessionId);
    await open.connect();
    const events = await payloadsOf(sessionId);
    const shown = comparable(open.conversation(), events);
    const { conversation } = await oracleOf(client, events);
    expect(shown).toEqual(comparable(conversation, events));
    const texts = z.array(z.looseObject({ role: z.string(), content: z.unknown().optional() }));
    const messages = texts.parse(open.conversation().messages);
    const said = messages.filter(({ role }) => role === "user").map(({ content }) => content);
    expect(said).toEqual([
      "Give me a random number between 1 and 100.",
      "What is on this picture, and is it warm there?",
      "Tell me a long story.",
      "Thanks.",
    ]);
    expect(messages).toContainEqual(expect.objectContaining({ content: "It has 72 °F." }));
  });

  test("goes out equal, but for the documented differences", async () => {
    const { stdout } = await run(["export", sessionId, "--format", "history/lc4j"]);
    expect(objectsIn(stdout)).toEqual(entries.map(asExported));
  });

  test("comes in again from its own export, and goes out as it was", async () => {
    const exported = await run(["export", sessionId, "--format", "history/lc4j"]);
    const copy = newSession();
    const { refused } = await imported("history", copy, fileOf("out.jsonl", exported.stdout));
    const again = await run(["export", copy, "--format", "history/lc4j"]);
    expect([refused, again.stdout]).toEqual([0, exported.stdout]);
  });

  test.each(["history", "history/lc4j", "text"])("is the same over HTTP, as %s", async (format) => {
    const { stdout } = await run(["export", sessionId, "--format", format]);
    const answer = await fetch(historyUrl(sessionId, `?format=${format}`));
    expect([answer.status, answer.headers.get("content-type")]).toEqual([
      200,
      "application/x-ndjson",
    ]);
    expect(await answer.text()).toBe(stdout);
    expect(stdout).not.toBe("");
  });
});

test("the digits of arguments and outputs stay on the way out, and on the way in again", async () => {
  const value = '{"id":1000000000000000001,"price":1.10}';
  const said = (type: string, more: object): string => JSON.stringify({ type, ...more });
  const events = [
    said("RUN_STARTED", { threadId: "t", runId: "r" }),
    said("TOOL_CALL_START", { toolCallId: "c", toolCallName: "buy" }),
    said("TOOL_CALL_ARGS", { toolCallId: "c", delta: value }),
    said("TOOL_CALL_END", { toolCallId: "c" }),
    `{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":"ok","metadata":{"k":${value}}}`,
    said("RUN_FINISHED", { threadId: "t", runId: "r" }),
  ];
  const [first, copy] = [newSession(), newSession()];
  await run(["push", "-s", first], `${events.join("\n")}\n`);
  const exported = await run(["export", first, "--format", "history/lc4j"]);
  expect(exported.stdout).toContain(`"input":${value}`);
  const { refused } = await imported("history", copy, fileOf("digits-out.jsonl", exported.stdout));
  const again = await run(["export", copy, "--format", "history/lc4j"]);
  expect(refused).toBe(0);
  expect(again.stdout).toContain(`"input":${value}`);
});

/** docs/history.md: what an export writes in another way. */
function asExported(entry: JsonObject): JsonObject {
  const [block] = z.array(z.record(z.string(), z.unknown())).parse(entry["content"]);
  if (!Array.isArray(block?.["events"])) return entry;
  const events = z.array(z.record(z.string(), z.unknown())).parse(block["events"]);
  const made = events.flatMap((event, at): readonly JsonObject[] => {
    const { eventType, id, toolName, arguments: args, chunk, text, metadata } = event;
    const next = events[at + 1];
    switch (eventType) {
      case "PartialThinking":
        return [{ eventType, chunk: text }];
      case "PartialResponse":
        if (events[at - 1]?.["eventType"] === eventType) return [];
        return [
          {
            eventType,
            chunk: next?.["eventType"] === eventType ? joinedTexts([event, next], "chunk") : chunk,
          },
        ];
      case "BeforeToolExecution":
        return [
          {
            eventType,
            id,
            toolName,
            input: typeof args === "string" && args !== "" ? parseObject(args) : {},
          },
        ];
      case "IntermediateResponse":
        return []; // It stands where the next round begins.
      case "ToolExecuted":
        return next?.["eventType"] === "PartialResponse"
          ? [event, { eventType: "IntermediateResponse" }]
          : [event];
      case "ChatCompleted":
        return [{ eventType, metadata }];
      default:
        return [event];
    }
  });
  return { ...entry, content: [{ ...block, events: made }] };
}

describe("import", () => {
  const stream = [
    { eventType: "PartialResponse", chunk: "Hello " },
    { eventType: "PartialResponse", chunk: "you" },
    { eventType: "ChatCompleted" },
  ].map((event) => JSON.stringify(event));

  test("refuses a line by number, and keeps its neighbours", async () => {
    const sessionId = newSession();
    const [first, second, end] = stream;
    const file = fileOf("lc4j.jsonl", `${first}\r\n\n{"eventType\n7\n${second}\n${end}`);
    const { exitCode, stderr, refusedByReason } = await imported("lc4j", sessionId, file);
    expect([exitCode, refusedByReason]).toEqual([1, { NOT_JSON: 2 }]);
    expect(stderr).toContain("line 3 refused");
    expect(stderr).toContain("line 4 refused");
    expect(await transcriptOf(sessionId)).toContain("Hello you");
  });

  test("refuses a wrong entry, and names the field", async () => {
    const sessionId = newSession();
    const bad = { channel: "context", content: [{ role: "AI", text: "secret" }] };
    const good = { content: [{ role: "AI", text: "an answer" }] };
    const file = fileOf("bad.jsonl", `${JSON.stringify(bad)}\n${JSON.stringify(good)}\n`);
    const { stderr, refusedByReason } = await imported("history", sessionId, file);
    expect(refusedByReason).toEqual({ NOT_AN_ENTRY: 1 });
    expect(stderr).toContain("line 1 refused: channel: expected history");
    expect(await transcriptOf(sessionId)).toContain("an answer");
  });

  test("two files with the same beginning are two runs", async () => {
    const sessionId = newSession();
    const one = fileOf("one.jsonl", stream.join("\n"));
    const other = fileOf("other.jsonl", `${stream.slice(0, 2).join("\n")}\n`);
    await imported("lc4j", sessionId, one);
    await imported("lc4j", sessionId, other);
    const texts = (await run(["export", sessionId, "--format", "text"])).stdout;
    expect(objectsIn(texts)).toEqual([
      { role: "AI", text: "Hello you" },
      { role: "AI", text: "Hello you" },
    ]);
  });

  test("stores each event once when it is killed and begun again", async () => {
    const sessionId = newSession();
    const events = Array.from({ length: 300 }, (_, n) => ({
      eventType: n % 2 === 0 ? "PartialResponse" : "PartialThinking",
      chunk: `${n} `,
    }));
    const whole = [...events, { eventType: "ChatCompleted" }];
    const text = whole.map((event) => JSON.stringify(event)).join("\n");
    const args = ["import", "--format", "lc4j", "-s", sessionId, "--run-id", "run"];
    const env = { SESSION_LEDGER_ADDRESS: service.grpcAddress };
    const first = startCommand([...args, fileOf("many.jsonl", text)], env);
    await expect.poll(() => payloadsOf(sessionId)).not.toEqual([]);
    first.kill("SIGKILL");
    await first.result;
    const { exitCode } = await run([...args, join(folder, "many.jsonl")]);
    const stored = (await payloadsOf(sessionId)).map(parseObject);
    expect([exitCode, stored]).toEqual([
      0,
      [...fromLangChain4j(whole, { sessionId, runId: "run" })],
    ]);
  });

  test("takes responses of Spring AI, and events", async () => {
    const inputs = {
      spring: [
        { chatResponse: { results: [{ output: { text: "from Spring" }, metadata: {} }] } },
        { chatResponse: { results: [{ output: {}, metadata: { finishReason: "STOP" } }] } },
      ],
      jsonl: [
        { type: "RUN_STARTED", threadId: "t", runId: "r" },
        { type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" },
        { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "from AG-UI" },
        { type: "TEXT_MESSAGE_END", messageId: "m" },
        { type: "RUN_FINISHED", threadId: "t", runId: "r" },
      ],
    };
    const sessionId = newSession();
    for (const [format, values] of Object.entries(inputs)) {
      const lines = values.map((value) => JSON.stringify(value)).join("\n");
      const file = fileOf(`${format}.jsonl`, lines);
      const { pushed, refused } = await imported(format, sessionId, file);
      const again = await imported(format, sessionId, file);
      expect([refused, again]).toMatchObject([0, { pushed: 0, deduplicated: pushed }]);
    }
    const { stdout } = await run(["export", sessionId, "--format", "text"]);
    expect(objectsIn(stdout)).toEqual(
      ["from Spring", "from AG-UI"].map((text) => ({ role: "AI", text })),
    );
  });

  describe("merges the pieces of a text into rows", () => {
    const tokens = Array.from({ length: 200 }, (_, n) => `token ${n} `);
    const inputs = {
      lc4j: tokens.map((chunk) => ({ eventType: "PartialResponse", chunk })),
      spring: tokens.map((text) => ({
        chatResponse: { results: [{ output: { text }, metadata: {} }] },
      })),
      history: [
        {
          content: [
            {
              role: "AI",
              events: tokens.map((chunk) => ({ eventType: "PartialResponse", chunk })),
            },
          ],
        },
      ],
      jsonl: tokenLines(tokens),
    };

    // Bug: an import stored every token as a row of its own.
    test.each(Object.entries(inputs))("of %s", async (format, values) => {
      const sessionId = newSession();
      const text = values.map((value) => JSON.stringify(value)).join("\n");
      const file = fileOf(`tokens-${format}.jsonl`, text);
      const { pushed, refused } = await imported(format, sessionId, file);
      const rows = await eventRowsOf(service.grpcAddress, sessionId);
      expect(rows.filter(({ eventType }) => eventType === "TEXT_MESSAGE_CONTENT")).toMatchObject([
        { eventCount: 200 },
      ]);
      const events = await payloadsOf(sessionId);
      expect([events.length, refused]).toEqual([pushed, 0]);
      expect(rows.reduce((sum, { eventCount }) => sum + eventCount, 0)).toBe(pushed);
      const deltas = events.map(parseObject).flatMap(({ delta }) => delta ?? []);
      expect(deltas).toEqual(tokens);
      const again = await imported(format, sessionId, file);
      expect(again).toMatchObject({ pushed: 0, deduplicated: pushed, refused: 0 });
      expect(await payloadsOf(sessionId)).toEqual(events);
    });

    test("also those that were stored one by one before, and a file that has grown inside of a text", async () => {
      const all = tokenLines(tokens).map((event) => JSON.stringify(event));
      for (const before of ["push", "import"]) {
        const sessionId = newSession();
        const half = fileOf("grown.jsonl", `${all.slice(0, 102).join("\n")}\n`);
        if (before === "import") await imported("jsonl", sessionId, half);
        else await run(["push", sessionId, "--file", half]);
        expect(await payloadsOf(sessionId)).toEqual(all.slice(0, 102));
        const grown = fileOf("grown.jsonl", `${all.join("\n")}\n`);
        const rest = { pushed: all.length - 102, deduplicated: 102, refused: 0 };
        expect(await imported("jsonl", sessionId, grown)).toMatchObject(rest);
        expect(await payloadsOf(sessionId)).toEqual(all);
      }
    });

    test("but for pieces that the service refuses, each by its line", async () => {
      const sessionId = newSession();
      const bad = [1, 2, 3].map((n) => ({ ...tokenLines([`${n}`])[2], messageId: 5 }));
      const values = [
        ...tokenLines(tokens).slice(0, 102),
        ...bad,
        ...tokenLines(tokens).slice(102),
      ];
      const text = values.map((value) => JSON.stringify(value)).join("\n");
      const file = fileOf("bad.jsonl", text);
      const { stderr, pushed, refused } = await imported("jsonl", sessionId, file);
      expect([pushed, refused]).toEqual([values.length - 3, 3]);
      for (const line of [103, 104, 105]) expect(stderr).toContain(`line ${line} refused`);
    });
  });

  test("needs the run's id for an input without content before it is read", async () => {
    const { exitCode, stderr } = await run(["import", "--format", "lc4j", "-s", "s", "-"]);
    expect([exitCode, stderr]).toEqual([2, expect.stringContaining("--run-id: expected")]);
  });
});

function tokenLines(tokens: readonly string[]): readonly JsonObject[] {
  return [
    { type: "RUN_STARTED", threadId: "t", runId: "r" },
    { type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" },
    ...tokens.map((delta) => ({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta })),
    { type: "TEXT_MESSAGE_END", messageId: "m" },
    { type: "RUN_FINISHED", threadId: "t", runId: "r" },
  ];
}

describe("push --format text", () => {
  test("makes one message of an answer, cut anywhere", async () => {
    const sessionId = newSession();
    const text = `${"é😀".repeat(40_000)}\nend\n`;
    const file = fileOf("answer.txt", text);
    const args = ["push", sessionId, "--format", "text"];
    const first = await run([...args, "--file", file]);
    const again = await run([...args, "--file", file]);
    expect([first.exitCode, again.stderr]).toEqual([0, expect.stringMatching(/: 0 pushed/)]);
    const rows = await eventRowsOf(service.grpcAddress, sessionId);
    const events = rows.map(({ payload }) => parseObject(payload));
    expect(joinedTexts(events, "delta")).toBe(text);
    expect(new Set(events.flatMap(({ messageId }) => messageId ?? [])).size).toBe(1);
    expect([events[0], events.at(-1)]).toMatchObject([
      { type: "RUN_STARTED" },
      { type: "RUN_FINISHED" },
    ]);
  });

  test("ends the run with an error when the text is not UTF-8", async () => {
    const sessionId = newSession();
    const input = Buffer.concat([Buffer.from("whole"), Buffer.from([0xff])]);
    await run(["push", sessionId, "--format", "text"], input);
    const last = (await payloadsOf(sessionId)).at(-1) ?? "{}";
    expect(parseObject(last)).toMatchObject({
      type: "RUN_ERROR",
      message: "the text is not UTF-8",
    });
  });
});

describe("GET /sessions/{id}/history", () => {
  test("refuses a format that it does not have, and names it", async () => {
    const answer = await fetch(historyUrl("s1", "?format=xml"));
    expect(answer.status).toBe(400);
    expect(await answer.text()).toContain("must be one of history, history/lc4j, text");
  });

  test("answers that the session does not exist", async () => {
    const answer = await fetch(historyUrl(newSession()));
    expect(answer.status).toBe(404);
  });
});
