/**
 * Random operations on sessions of two projects, with the index at work between them and beside them.
 * After each step a question may find only texts of rows that exist, in sessions that the caller may
 * read; and at the end, when the index is at rest, all of them.
 */
import { sql } from "drizzle-orm";
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { eraseSession } from "../../src/maintenance/erase.ts";
import { retentionPass } from "../../src/maintenance/retention.ts";
import { createRedactor, redactionOptions } from "@session-ledger/agui/redaction/redactor";
import { forgetTexts } from "../../src/search/index-store.ts";
import { deleteSession } from "../../src/store/deletion.ts";
import { useLedger } from "../support/ledger.ts";
import { properties } from "../support/random.ts";
import {
  event,
  madeSession,
  pageOf,
  push,
  run,
  said,
  spoken,
  textIndex,
} from "../support/texts.ts";

const ledger = await useLedger();
const { database } = ledger;

const SECRET = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
const redaction = redactionOptions({
  redaction: "on",
  redactionPatterns: undefined,
  redactionKeys: undefined,
});
if (redaction === undefined) throw new Error("redaction is on");
const redactor = createRedactor(redaction, () => undefined);

const session = fc.nat({ max: 3 });
const operation = fc.oneof(
  { weight: 4, arbitrary: fc.record({ do: fc.constant("say" as const), session }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant("run" as const), session }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("open" as const), session }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("secret" as const), session }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("index" as const), session }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("restart" as const), session }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("reindex" as const), session }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("age" as const), session }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("retain" as const), session }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("delete" as const), session }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("erase" as const), session }) },
);

function called(name: string) {
  const of = { toolCallId: name };
  return [
    event({ type: "TOOL_CALL_START", ...of, toolCallName: name }),
    event({ type: "TOOL_CALL_END", ...of }),
    event({ type: "TOOL_CALL_RESULT", ...of, messageId: `${name} result`, content: "1" }),
  ];
}

let worlds = 0;

/** One run of the property: sessions of its own, and what was said in them. */
class World {
  readonly #name = `w${(worlds += 1)}`;
  #words = 0;
  #index = textIndex(database);

  id(at: number): string {
    return `${this.#name}-${at}`;
  }

  projectOf(at: number): string {
    return `${this.#name}-${at % 2 === 0 ? "a" : "b"}`;
  }

  async begin(): Promise<void> {
    for (const at of [0, 1, 2, 3]) await madeSession(database, this.id(at), this.projectOf(at));
  }

  async do(step: { readonly do: string; readonly session: number }): Promise<void> {
    const sessionId = this.id(step.session);
    const tell = (rows: Parameters<typeof push>[2], stream: "events" | "messages" = "events") =>
      // A deleted session takes no push.
      push(database, { sessionId, stream }, rows).catch(() => undefined);
    switch (step.do) {
      case "say":
        return tell([said("user", this.#text())], "messages");
      case "run":
        return tell(
          run(this.#text(), ...called(this.#text()), ...spoken(this.#text(), this.#text())),
        );
      case "open":
        return tell(run(this.#text(), ...spoken(this.#text(), this.#text())).slice(0, 4));
      case "secret": {
        const payload = redactor.text(`${this.#text()} ${SECRET}`);
        await tell(run(payload, ...called(payload)));
        return tell([said("user", payload)], "messages");
      }
      case "index":
        return void (await this.#index.pass());
      case "restart":
        await this.#index.stop();
        this.#index = textIndex(database);
        return;
      case "reindex":
        return forgetTexts(database, sessionId);
      case "age":
        for (const table of [sql`session_messages`, sql`session_events`])
          await database.run(
            sql`update ${table} set recorded_at = recorded_at - interval '40 days' where session_id = ${sessionId}`,
          );
        return;
      case "retain": {
        const options = { sessionId, dryRun: false, signal: new AbortController().signal };
        const pass = retentionPass({ database }, { ...options, afterMs: 30 * 86_400_000 });
        await Promise.all([pass, this.#index.pass()]);
        return;
      }
      case "delete":
        return void (await deleteSession(database, sessionId));
      case "erase": {
        const call = { marked: () => undefined, counted: () => undefined };
        const signal = new AbortController().signal;
        await Promise.all([
          eraseSession(database, sessionId, { ...call, signal }),
          this.#index.pass(),
        ]);
      }
    }
  }

  /** Every text has this word, and one that no other text has. */
  #text(): string {
    this.#words += 1;
    return `${this.#name} word${this.#words}`;
  }

  /** The faults: texts that a caller must not find, or does not find. */
  async faults({ isComplete = false } = {}): Promise<readonly string[]> {
    const faults: string[] = [];
    for (const projectId of [undefined, this.projectOf(0), this.projectOf(1)]) {
      const { found } = await pageOf(database, this.#name, {
        scope: { projectId, sessionId: undefined },
        textsMax: 1_000,
      });
      const got = found.map(({ key, stream, seq }) => `${key.sessionId} ${stream} ${seq}`);
      const there = await this.#there(projectId);
      const wrong = got.filter((place) => !there.includes(place));
      const missing = isComplete ? there.filter((place) => !got.includes(place)) : [];
      faults.push(...wrong.map((place) => `found ${place}`));
      faults.push(...missing.map((place) => `missed ${place}`));
    }
    const kept = await database.run(sql`
      select session_id, stream, seq from session_texts t
      where text like ${`%${SECRET}%`} or not exists (
        select from session_messages where session_id = t.session_id and seq = t.seq and t.stream = 'messages'
        union all
        select from session_events where session_id = t.session_id and seq = t.seq and t.stream = 'events')`);
    const figures = await database.run(sql`
      select session_id, seq from session_runs r
      where r::text like ${`%${SECRET}%`} or not exists (
        select from session_events where session_id = r.session_id and seq = r.seq)
      union all
      select session_id, seq from session_tool_calls c
      where c::text like ${`%${SECRET}%`} or not exists (
        select from session_events where session_id = c.session_id and seq = c.seq)`);
    faults.push(...figures.map((row) => `kept ${JSON.stringify(row)}`));
    for (const [view, type] of [
      ["runs", "RUN_STARTED"],
      ["tool_calls", "TOOL_CALL_START"],
    ] as const) {
      const column = sql.raw(view === "runs" ? "run_seq" : "seq");
      const wrong = await database.run(sql`
        with there as (
          select e.session_id, e.seq from session_events e join sessions s on s.id = e.session_id
          where s.deleted_at is null and s.project_id like ${`${this.#name}-%`} and e.event_type = ${type}
        ), shown as (
          select session_id, ${column} as seq from analytics.${sql.raw(view)}
          where project_id like ${`${this.#name}-%`}
        )
        select 'shown' as fault, * from (select * from shown except select * from there) wrong
        union all
        select 'missed', * from (select * from there except select * from shown) missed
        where ${isComplete}`);
      faults.push(...wrong.map((row) => `${view} ${JSON.stringify(row)}`));
    }
    return [...faults, ...kept.map((row) => `kept ${JSON.stringify(row)}`)];
  }

  /** The rows in which texts begin that a caller of the project may read. */
  async #there(projectId: string | undefined): Promise<readonly string[]> {
    const rows = await database.run(sql`
      select s.id || ' messages ' || m.seq as place from session_messages m
      join sessions s on s.id = m.session_id
      where s.deleted_at is null and s.project_id like ${`${this.#name}-%`}
        and (${projectId ?? null}::text is null or s.project_id = ${projectId ?? null}::text)
      union all
      select s.id || ' events ' || e.seq from session_events e join sessions s on s.id = e.session_id
      where s.deleted_at is null and s.project_id like ${`${this.#name}-%`}
        and (${projectId ?? null}::text is null or s.project_id = ${projectId ?? null}::text)
        and e.event_type in ('TEXT_MESSAGE_START', 'TOOL_CALL_START')`);
    return rows.map((row) => String(row["place"]));
  }

  async faultsAtTheEnd(): Promise<readonly string[]> {
    await this.#index.stop();
    let nowMs = 0;
    const clock = { monotonicMs: () => nowMs };
    const last = textIndex(database, { clock });
    await last.pass();
    nowMs += 60_000;
    await last.pass(); // Closes the texts of open runs.
    await last.stop();
    return this.faults({ isComplete: true });
  }
}

test("no text is found that was erased, retained away, redacted or is foreign, and all others are", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(operation, { minLength: 5, maxLength: 40 }), async (steps) => {
      const world = new World();
      await world.begin();
      for (const step of steps) {
        await world.do(step);
        expect(await world.faults()).toEqual([]);
      }
      expect(await world.faultsAtTheEnd()).toEqual([]);
    }),
    properties({ runs: 60 }),
  );
});
