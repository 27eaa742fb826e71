/**
 * What people say comes once, in the order of the commits, to everybody: whatever runs do meanwhile,
 * whatever they repeat and under which id, wherever a fold stops and goes on, and whenever a client
 * comes.
 *
 * Method: fast-check draws commits to both streams of a session, and moments at which a client comes or
 * a transcript is read. At the end a run closes what is open. Then each row that no run has repeated must
 * be in the transcript exactly once, all in the order of their commits; the transcript that was read in
 * pieces must be the one that is read at once; and every client must show it. A client gets the two
 * streams by two watches: what is committed before it has been given the row before may come to it in
 * another order, which is why half of the runs wait after each commit. In the other half no run gives a
 * row another id: a runner has read a row before it repeats it, and here it did not.
 */
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { Semaphore } from "../../src/base/semaphore.ts";
import { type JsonObject, parseObject } from "@session-ledger/agui/json";
import { ANONYMOUS } from "../../src/auth/principal.ts";
import { AGUI_LIMITS } from "../../src/conversation/attach.ts";
import { createAguiJoin } from "../../src/conversation/join.ts";
import { Transcript } from "@session-ledger/agui/transcript/transcript";
import { TRANSCRIPT_LIMITS, Transcripts } from "../../src/conversation/transcripts.ts";
import { foldReader } from "../support/folding.ts";
import { properties } from "../support/random.ts";
import { ManualTimers, settled } from "../support/slow-table.ts";
import { watching } from "../support/watching.ts";

/** The time of the rows. */
const NOW_MICROS = 1_700_000_000_000_000n;
const RUNS = properties({ runs: 400 });

type Step =
  | { kind: "say"; text: number }
  | { kind: "start"; repeats: readonly Repeat[] }
  | { kind: "open" | "go_on" | "close"; message: number }
  | { kind: "list"; repeats: readonly Repeat[]; keeps: boolean }
  | { kind: "finish" | "fail" | "read" | "come" };

/** A message that a run repeats: an earlier row, by its own id or under another one. */
interface Repeat {
  readonly row: number;
  readonly isRenamed: boolean;
}

const repeats = fc.array(fc.record({ row: fc.nat({ max: 8 }), isRenamed: fc.boolean() }), {
  maxLength: 3,
});
const message = fc.nat({ max: 3 });
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({ kind: fc.constant("say" as const), text: fc.nat({ max: 2 }) }),
  },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("start" as const), repeats }) },
  {
    weight: 5,
    arbitrary: fc.record({ kind: fc.constantFrom("open" as const, "go_on", "close"), message }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant("list" as const), repeats, keeps: fc.boolean() }),
  },
  {
    weight: 4,
    arbitrary: fc.record({ kind: fc.constantFrom("finish" as const, "fail", "read", "come") }),
  },
);

interface End {
  /** Of a transcript that was read in pieces, and of one that is read at once. */
  readonly messages: readonly JsonObject[];
  readonly atOnce: readonly JsonObject[];
  readonly shown: readonly (readonly JsonObject[])[];
  readonly unrepeated: readonly string[];
}

class Session {
  readonly #parts = watching();
  readonly #transcripts = this.#newTranscripts();
  readonly #clients: Client[] = [];
  /** The ids of rows, and those that a run has repeated. */
  readonly #rows: { readonly id: string; readonly text: string }[] = [];
  readonly #repeated = new Set<string>();
  readonly #abort = new AbortController();
  #runs = 0;
  #names = 0;
  #isOpen = false;
  readonly #isPaced: boolean;

  constructor({ isPaced }: { readonly isPaced: boolean }) {
    this.#isPaced = isPaced;
  }

  async take(one: Step): Promise<void> {
    switch (one.kind) {
      case "say":
        return this.#say(`text ${one.text}`);
      case "start":
        if (this.#isOpen) return;
        return this.#start(this.#messagesOf(one.repeats));
      case "open":
        return this.#inRun({ type: "TEXT_MESSAGE_START", ...this.#of(one), role: "assistant" });
      case "go_on":
        return this.#inRun({ type: "TEXT_MESSAGE_CONTENT", ...this.#of(one), delta: "x" });
      case "close":
        return this.#inRun({ type: "TEXT_MESSAGE_END", ...this.#of(one) });
      case "list": {
        if (!this.#isOpen) return;
        const listed = this.#messagesOf(one.repeats);
        const answer = { id: `m${this.#runs}-0`, role: "assistant", content: "listed" };
        const messages = one.keeps ? [...listed, answer] : listed;
        return this.#inRun({ type: "MESSAGES_SNAPSHOT", messages });
      }
      case "finish":
        return this.#end({ type: "RUN_FINISHED", threadId: "t", runId: `r${this.#runs}` });
      case "fail":
        return this.#end({ type: "RUN_ERROR", message: "broke" });
      case "read":
        await this.#read(this.#transcripts);
        return;
      case "come":
        this.#clients.push(new Client(this.#join(), this.#abort.signal));
        await quiet();
    }
  }

  /** What readers have at the end. */
  async end(): Promise<End> {
    await this.take({ kind: "finish" });
    this.#start([]);
    await this.take({ kind: "finish" });
    await quiet();
    const messages = await this.#read(this.#transcripts);
    const atOnce = await this.#read(this.#newTranscripts());
    const shown = this.#clients.map((client) => client.messages);
    this.#abort.abort();
    const unrepeated = this.#rows.map(({ id }) => id).filter((id) => !this.#repeated.has(id));
    return { messages, atOnce, shown, unrepeated };
  }

  #say(payload: string): void {
    const { table, live } = this.#parts;
    const row = table.message("s", { payload });
    this.#rows.push({ id: row.id, text: payload });
    live.onCommit([row]);
  }

  #start(messages: readonly JsonObject[]): void {
    this.#runs += 1;
    this.#isOpen = true;
    const run = { threadId: "t", runId: `r${this.#runs}` };
    this.#happen({ type: "RUN_STARTED", ...run, input: { ...run, messages } });
  }

  #end(event: JsonObject): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#happen(event);
  }

  #inRun(event: JsonObject): void {
    if (this.#isOpen) this.#happen(event);
  }

  #happen(event: JsonObject): void {
    const { table, live } = this.#parts;
    const eventType = String(event["type"]);
    live.onCommit([table.event("s", { eventType, payload: JSON.stringify(event) })]);
  }

  #of({ message: at }: { readonly message: number }): { readonly messageId: string } {
    return { messageId: `m${this.#runs}-${at}` };
  }

  /** A run knows only rows that exist, and gives a text its own id only where no message has it. */
  #messagesOf(wanted: readonly Repeat[]): readonly JsonObject[] {
    return wanted.flatMap(({ row: at, isRenamed }) => {
      const own = this.#rows[at];
      if (own === undefined) return [];
      if (!isRenamed || !this.#isPaced) {
        this.#repeated.add(own.id);
        return [{ id: own.id, role: "user", content: own.text }];
      }
      // The oldest unrepeated row with the text takes the name, whichever row was meant.
      const taken = this.#rows.find(({ id, text }) => !this.#repeated.has(id) && text === own.text);
      if (taken === undefined) return [];
      this.#repeated.add(taken.id);
      this.#names += 1;
      return [{ id: `own${this.#names}`, role: "user", content: own.text }];
    });
  }

  #newTranscripts(): Transcripts {
    const { table, metrics } = this.#parts;
    const limits = { ...TRANSCRIPT_LIMITS, bytesMax: 100_000_000, pageRowsMax: 3, sliceRowsMax: 2 };
    return new Transcripts(
      { reader: foldReader(table), metrics, pastTurns: new Semaphore({ atOnce: 1 }) },
      limits,
    );
  }

  async #read(transcripts: Transcripts): Promise<readonly JsonObject[]> {
    if (this.#parts.table.rows.length === 0) return [];
    return (await transcripts.read("s", { upToSeq: undefined })).messages;
  }

  #join(): ReturnType<typeof createAguiJoin> {
    const { live, metrics } = this.#parts;
    const clock = { nowMicros: () => NOW_MICROS, monotonicMs: () => 0 };
    const parts = { live, metrics, transcripts: this.#transcripts, clock };
    const times = { runStaleAfterMs: 600_000, runWaitMs: 600_000 };
    return createAguiJoin(
      { ...parts, timers: new ManualTimers(), capabilitiesOf: async () => undefined },
      { ...AGUI_LIMITS, ...times, sessionPolicy: "auto" },
    );
  }
}

class Client {
  readonly #shown = new Transcript();

  constructor(join: ReturnType<typeof createAguiJoin>, signal: AbortSignal) {
    const request = { sessionId: "s", protocolVersion: "1.0", messages: [] };
    const ways = { follow: true, canWait: true, replay: "snapshot", answers: undefined } as const;
    const context = { principal: ANONYMOUS, hasEnded: false, signal };
    void this.#take(join({ ...request, ...ways }, context));
  }

  get messages(): readonly JsonObject[] {
    return structuredClone(this.#shown.messages());
  }

  async #take(frames: ReturnType<ReturnType<typeof createAguiJoin>>): Promise<void> {
    for await (const frame of frames) {
      if ("data" in frame) this.#shown.apply(parseObject(String(frame.data)));
    }
  }
}

async function quiet(): Promise<void> {
  for (let turn = 0; turn < 10; turn += 1) await settled();
}

/** Without the metadata, which a message loses that a run repeats. */
function sorted(messages: readonly JsonObject[]): readonly JsonObject[] {
  const plain = messages.map(({ id, role, content }) => ({ id, role, content }));
  return plain.toSorted((one, other) => (String(one["id"]) < String(other["id"]) ? -1 : 1));
}

test("every message of a person comes once and in order to every reader", async () => {
  const steps = fc.array(step, { minLength: 3, maxLength: 40 });
  await fc.assert(
    fc.asyncProperty(steps, fc.boolean(), async (taken, isPaced) => {
      const session = new Session({ isPaced });
      for (const one of taken) {
        await session.take(one);
        if (isPaced) await quiet();
      }
      const { messages, atOnce, shown, unrepeated } = await session.end();
      const ids = messages.map(({ id }) => String(id));
      expect(ids.filter((id) => unrepeated.includes(id))).toEqual(unrepeated);
      expect(new Set(ids).size).toBe(ids.length);
      expect(ids.filter((id) => id.startsWith("own"))).toEqual([]);
      expect(atOnce).toEqual(messages);
      for (const own of shown) {
        expect(isPaced ? own : sorted(own)).toEqual(isPaced ? messages : sorted(messages));
      }
    }),
    RUNS,
  );
});
