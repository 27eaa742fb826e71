/** What search finds, from rows in real tables to the pages of a question. */
import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, test } from "vitest";
import type { FoundText } from "../../src/search/text-fold.ts";
import { storeFound } from "../../src/search/index-store.ts";
import { type SearchCursor, rareStatement, walkStatement } from "../../src/search/find.ts";
import { useLedger } from "../support/ledger.ts";
import {
  event,
  linesFor,
  NO_FILTER,
  pageOf,
  push,
  run,
  said,
  spoken,
  textIndex,
} from "../support/texts.ts";

const ledger = await useLedger();
const { database } = ledger;

const index = () => textIndex(database).pass();

describe("search finds", () => {
  test("user messages, texts of agents, reasoning, results, names of tools and errors", async () => {
    const of = { sessionId: "all" };
    await push(database, { ...of, stream: "messages" }, [said("user", "Where is the zebra?")]);
    await push(
      database,
      of,
      run(
        "r1",
        ...spoken("m1", "The zebras are in the meadow."),
        ...spoken("m2", "Perhaps a zebra hides.", "reasoning"),
        event({ type: "TOOL_CALL_START", toolCallId: "c1", toolCallName: "find_zebra" }),
        event({ type: "TOOL_CALL_ARGS", toolCallId: "c1", delta: "{}" }),
        event({ type: "TOOL_CALL_END", toolCallId: "c1" }),
        event({ type: "TOOL_CALL_RESULT", messageId: "m3", toolCallId: "c1", content: "1 zebra" }),
      ),
    );
    const ids = { threadId: "t", runId: "r2" };
    await push(database, of, [
      event({ type: "RUN_STARTED", ...ids }),
      event({ type: "RUN_ERROR", message: "the zebra ran away", code: "GONE" }),
    ]);
    await index();
    expect(await linesFor(database, "zebra")).toEqual([
      "all events 16 error: the [zebra] ran away (GONE)",
      "all events 13 tool: 1 [zebra]",
      "all events 10 tool: find_[zebra]",
      "all events 6 reasoning: Perhaps a [zebra] hides.",
      "all events 2 assistant: The [zebras] are in the meadow.",
      "all messages 1 user: Where is the [zebra]?",
    ]);
    expect(await linesFor(database, "find_zebra")).toEqual(["all events 10 tool: [find]_[zebra]"]);
    expect(await linesFor(database, "zebra", { role: "reasoning" })).toHaveLength(1);
    expect(await linesFor(database, "zebra", { eventType: "RUN_ERROR" })).toHaveLength(1);
    const { found } = await pageOf(database, "meadow");
    expect(found).toMatchObject([{ runId: "r1", eventType: "TEXT_MESSAGE_START", seq: 2n }]);
  });

  test("phrases, alternatives and refusals, and no question without a word", async () => {
    await push(database, { sessionId: "q", stream: "messages" }, [
      said("user", "red apple pie"),
      said("user", "apple red wine"),
    ]);
    await index();
    expect(await linesFor(database, '"red apple"')).toHaveLength(1);
    expect(await linesFor(database, "apple -wine")).toHaveLength(1);
    expect(await linesFor(database, "pie or wine")).toHaveLength(2);
    for (const none of ["the", "-wine", "the -wine", '""'])
      await expect(pageOf(database, none)).rejects.toThrow("no word");
  });

  test("Chinese, Japanese and Korean by their characters, also between other words", async () => {
    await push(database, { sessionId: "cjk", stream: "messages" }, [
      said("user", "我想知道明天的天气怎么样 in Berlin"),
      said("user", "東京タワーの高さは？"),
      said("user", "한국어로 대답해 주세요"),
    ]);
    await index();
    expect(await linesFor(database, "天气")).toEqual([
      "cjk messages 1 user: 我想知道明天的[天气]怎么样 in Berlin",
    ]);
    expect(await linesFor(database, "天气 berlin")).toHaveLength(1);
    expect(await linesFor(database, "天气 paris")).toEqual([]);
    expect(await linesFor(database, "berlin -天气")).toEqual([]);
    expect(await linesFor(database, "タワー")).toHaveLength(1);
    expect(await linesFor(database, "高")).toHaveLength(1);
    expect(await linesFor(database, "한국어")).toHaveLength(1);
    expect(await linesFor(database, "中国")).toEqual([]);
  });

  test("words with any capitals and accents of letters", async () => {
    await push(database, { sessionId: "letters", stream: "messages" }, [
      said("user", "ÄPFEL und Cafe\u0301, ＡＢＣ"),
    ]);
    await index();
    for (const query of ["äpfel", "Äpfel", "CAFÉ", "abc"])
      expect(await linesFor(database, query, { sessionId: "letters" })).toHaveLength(1);
  });

  test("a text once, at its first place, however often the session repeats it", async () => {
    const of = { sessionId: "again" };
    await push(database, { ...of, stream: "messages" }, [said("user", "quokka one")]);
    const messages = [
      { id: "x", role: "user", content: "quokka one" },
      { id: "m1", role: "assistant", content: "quokka two" },
      { id: "m9", role: "assistant", content: "quokka three" },
    ];
    await push(database, of, run("r1", ...spoken("m1", "quokka two")));
    await push(database, { ...of, stream: "messages" }, [said("assistant", "quokka two")]);
    await index();
    await push(database, of, run("r2", event({ type: "MESSAGES_SNAPSHOT", messages })));
    await index();
    expect(await linesFor(database, "quokka")).toEqual([
      "again events 8 assistant: [quokka] three",
      "again events 2 assistant: [quokka] two",
      "again messages 1 user: [quokka] one",
    ]);
  });

  test("long texts in parts, and texts with any character", async () => {
    const long = `${"lorem ipsum ".repeat(2_000)}platypus ${"dolor ".repeat(2_000)}`;
    const odd = "nul\u0000 \u0001pother \u0002mark\u0003 half \ud800 ostrich";
    await push(
      database,
      { sessionId: "odd" },
      run("r1", ...spoken("m1", long), ...spoken("m2", odd)),
    );
    await index();
    expect(await linesFor(database, "platypus")).toHaveLength(1);
    expect(await linesFor(database, "ostrich")).toEqual([
      "odd events 6 assistant: nul   pother  mark  half � [ostrich]",
    ]);
  });

  test("a message after its end, and the rest of an open one when the session is silent", async () => {
    let nowMs = 0;
    const unit = textIndex(database, { clock: { monotonicMs: () => nowMs } });
    const [start, first, second, end] = spoken("m1", "axolotl swims");
    if (!start || !first || !second || !end) throw new Error("unreachable");
    const of = { sessionId: "open" };
    await push(database, of, [
      event({ type: "RUN_STARTED", threadId: "t", runId: "r" }),
      start,
      first,
    ]);
    await unit.pass();
    expect(await linesFor(database, "axolotl")).toEqual([]);
    await push(database, of, [second, end]);
    await unit.pass();
    expect(await linesFor(database, "axolotl")).toHaveLength(1);
    await push(database, of, spoken("m2", "wombat digs").slice(0, 3));
    await unit.pass();
    expect(await linesFor(database, "wombat")).toEqual([]);
    nowMs += 60_000;
    await unit.pass();
    expect(await linesFor(database, "wombat")).toHaveLength(1);
    await unit.stop();
  });

  test("the same texts when another instance begins in the middle of a run", async () => {
    const of = { sessionId: "taken-over" };
    const rows = run("r", ...spoken("m1", "narwhal one"), ...spoken("m2", "narwhal two"));
    await push(database, of, rows.slice(0, 7));
    await textIndex(database).pass();
    await push(database, of, rows.slice(7));
    await textIndex(database).pass();
    expect(await linesFor(database, "narwhal")).toEqual([
      "taken-over events 6 assistant: [narwhal] two",
      "taken-over events 2 assistant: [narwhal] one",
    ]);
  });
});

describe("search never finds", () => {
  // The eraser's statement has a snapshot from before its lock.
  test("a text that is stored while its row is erased", async () => {
    await push(database, { sessionId: "race", stream: "messages" }, [said("user", "dodo")]);
    const texts: FoundText[] = [
      {
        stream: "messages",
        seq: 1n,
        eventType: "user",
        createdMicros: 1,
        runId: "",
        role: "user",
        text: "dodo",
      },
    ];
    const nothing = { messages: 0n, events: 0n, hasSpeech: false, isKnown: false };
    const store = () =>
      storeFound(database, {
        sessionId: "race",
        from: nothing,
        upTo: nothing,
        language: "simple",
        texts,
        runs: [],
        calls: [],
      });
    expect(await store()).toBe(1);
    await database.run(sql`delete from session_messages where session_id = 'race'`);
    await database.run(sql`delete from session_texts where session_id = 'race'`);
    expect(await store()).toBe(0);
    const moved = { ...nothing, messages: 1n, isKnown: true };
    expect(
      await storeFound(database, {
        sessionId: "race",
        from: moved,
        upTo: moved,
        language: "simple",
        texts,
        runs: [],
        calls: [],
      }),
    ).toBeUndefined();
  });
});

describe("pages", () => {
  const TEXTS = 5_000;

  beforeAll(async () => {
    await database.run(sql`
      insert into sessions (id, project_id, created_at, updated_at)
      select 'p' || n, case when n = 7 then 'small' else 'large' end, now(), now()
      from generate_series(0, 2999) n`);
    await database.run(sql`
      insert into session_texts (session_id, digest, part, stream, seq, event_type, created_at, role, text, words)
      select 'p' || n % 50, md5(n::text)::uuid, 0, 'messages', n, 'user',
        timestamptz '2026-01-01' + interval '1 second' * (n / 3), 'user', t,
        to_tsvector('english', t)
          || array_to_tsvector(array[E'\x01sp' || n % 50, E'\x01p' || case when n % 50 = 7 then 'small' else 'large' end])
      from generate_series(0, ${TEXTS - 1}::int) n,
        lateral (select 'common number' || n || case when n % 100 = 0 then ' rare' else '' end) f(t)`);
    await database.run(sql`analyze session_texts, sessions`);
  });

  async function all(query: string, more: object = {}): Promise<readonly string[]> {
    const found: string[] = [];
    let cursor: SearchCursor | undefined;
    do {
      const page = await pageOf(database, query, { textsMax: 7, ...more, cursor });
      found.push(...page.found.map(({ key }) => key.digest));
      cursor = page.next;
    } while (cursor !== undefined);
    return found;
  }

  test.each([
    ["rare", {}, TEXTS / 100],
    ["rare", { isBestFirst: true }, TEXTS / 100],
    ["common", { textsMax: 100 }, TEXTS],
    ["common", { scope: { projectId: "small" } }, TEXTS / 50],
    ["common", { textsMax: 100, scope: { projectId: "large" } }, (TEXTS / 50) * 49],
    ["common", { sessionId: "p3" }, TEXTS / 50],
  ])("have each text once: %s %j", async (query, more, count) => {
    const found = await all(query, more);
    expect(new Set(found).size).toBe(count);
    expect(found).toHaveLength(count);
  });

  test("go on behind any number of matches of deleted sessions", async () => {
    await database.run(
      sql`update sessions set deleted_at = now() where id like 'p%' and id <> 'p7'`,
    );
    try {
      expect(await all("common", { textsMax: 100 })).toHaveLength(TEXTS / 50);
    } finally {
      await database.run(sql`update sessions set deleted_at = null where id like 'p%'`);
    }
  });

  test("are newest first, within the asked times", async () => {
    const at = (seconds: number) => BigInt(Date.UTC(2026, 0, 1) + seconds * 1_000) * 1_000n;
    const { found } = await pageOf(database, "common", {
      afterMicros: at(100),
      beforeMicros: at(103),
      textsMax: 100,
    });
    const times = found.map(({ key }) => key.micros);
    expect(times).toEqual([102, 102, 102, 101, 101, 101, 100, 100, 100].map(at));
  });

  test("of few matches use the index of words, and of many walk the index of times", async () => {
    const planOf = async (statement: ReturnType<typeof rareStatement>) => {
      const lines = await database.run(sql`explain ${statement}`, { prepare: false });
      return lines.map((line) => String(line["QUERY PLAN"])).join("\n");
    };
    const rare = await planOf(rareStatement({ ...NO_FILTER, query: "rare number300" }));
    expect(rare).toContain("on session_texts_words");
    const walk = await planOf(walkStatement({ ...NO_FILTER, query: "common" }));
    expect(walk).toContain("Backward using session_texts_created");
    for (const plan of [rare, walk]) {
      expect(plan).toMatch(/(?:using|on) sessions_pkey/);
      expect(plan).not.toContain("Seq Scan");
    }
  });
});
