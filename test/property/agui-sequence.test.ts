/**
 * An event in order is never counted, wherever the stream is met, and whatever of it goes elsewhere;
 * one out of order always is.
 *
 * Method: choices are drawn, and a producer that knows what it has open makes a stream of them, which
 * is therefore in order. It is followed whole, from any row on, and with rows missing as when other
 * replicas store them, in so little memory that sessions and ids are forgotten all the time. Then
 * events are drawn without any order, and judged by a model of ten lines, which keeps names in a set.
 */
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { CATALOGUE, lookup, type CatalogueEntry } from "../../src/agui/catalogue.ts";
import { placeOf, type EventPlace } from "../../src/agui/constructs.ts";
import { Sequence, Sequences } from "../../src/agui/sequence.ts";
import { properties } from "../support/random.ts";

type SequenceRule = ReturnType<Sequence["observe"]>;

interface Ids {
  readonly id?: string | undefined;
  readonly owner?: string | undefined;
}

function place(type: string, { id, owner }: Ids = {}): EventPlace {
  const entry = lookup(type);
  if (entry === undefined) throw new Error(`${type} is not in the catalogue`);
  const fields = { ...(owner !== undefined && { subagentRunId: owner }), toolCallName: "f" };
  return placeOf(entry, entry.idField === undefined ? fields : { ...fields, ...idIn(entry, id) });
}

function idIn({ idField }: CatalogueEntry, id: string | undefined): object {
  return idField === undefined || id === undefined ? {} : { [idField]: id };
}

/** START, fragment and END of what may be open side by side. */
const KINDS = [
  ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"],
  ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"],
  ["REASONING_START", undefined, "REASONING_END"],
  ["REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END"],
  ["STEP_STARTED", undefined, "STEP_FINISHED"],
] as const;
const CHUNKS = ["TEXT_MESSAGE_CHUNK", "TOOL_CALL_CHUNK", "REASONING_MESSAGE_CHUNK"] as const;
const WHOLE = ["CUSTOM", "RAW", "STATE_DELTA", "MESSAGES_SNAPSHOT", "TOOL_CALL_RESULT"] as const;

const choice = fc.record({
  does: fc.constantFrom("start", "start", "goOn", "end", "chunks", "whole", "subagent", "endRun"),
  kind: fc.nat({ max: 59 }),
  which: fc.nat({ max: 9 }),
  id: fc.constantFrom("", "a", "b", "ab"),
  owner: fc.constantFrom(undefined, "", "s"),
});
type Choice = typeof choice extends fc.Arbitrary<infer T> ? T : never;

interface Open extends Ids {
  readonly types: (typeof KINDS)[number];
}

class Producer {
  readonly places: EventPlace[] = [];
  #open: Open[] = [];
  #isInRun = false;
  /** Gives what chunks are of, and subagents, ids of their own. */
  #fresh = 0;

  take(next: Choice): void {
    if (!this.#isInRun) this.#emit("RUN_STARTED");
    this.#isInRun = true;
    const { owner, kind } = next;
    switch (next.does) {
      case "start":
        return this.#start(next);
      case "goOn":
      case "end":
        return this.#goOn(next);
      case "chunks":
        return this.#chunks(CHUNKS[kind % CHUNKS.length] ?? "TEXT_MESSAGE_CHUNK", next);
      case "whole":
        return this.#emit(WHOLE[kind % WHOLE.length] ?? "RAW", { owner });
      case "subagent": {
        const id = `s${(this.#fresh += 1)}`;
        this.#emit("SUBAGENT_STARTED", { id });
        return this.#emit(kind % 2 === 0 ? "SUBAGENT_FINISHED" : "SUBAGENT_ERROR", { id });
      }
      case "endRun":
        return this.#endRun({ isError: kind % 3 === 0 });
    }
  }

  #emit(type: string, ids: Ids = {}): void {
    this.places.push(place(type, ids));
  }

  #start({ kind, id, owner }: Choice): void {
    const types = KINDS[kind % KINDS.length] ?? KINDS[0];
    const isStep = types[0] === "STEP_STARTED";
    const isSame = (open: Open): boolean =>
      open.types === types && open.id === id && (!isStep || open.owner === owner);
    if (this.#open.some(isSame)) return;
    this.#open.push({ types, id, owner });
    this.#emit(types[0], { id, owner });
  }

  #goOn({ does, which }: Choice): void {
    const open = this.#open[which % Math.max(1, this.#open.length)];
    if (open === undefined) return;
    const [, fragment, end] = open.types;
    if (does === "goOn" && fragment !== undefined) this.#emit(fragment, open);
    if (does === "goOn") return;
    this.#open = this.#open.filter((other) => other !== open);
    this.#emit(end, open);
  }

  #chunks(type: string, { which, owner }: Choice): void {
    this.#emit(type, { id: `c${(this.#fresh += 1)}`, owner });
    for (let more = 0; more < which % 4; more += 1) {
      if (which % 2 === 1) this.#emit("ACTIVITY_DELTA", { id: "a", owner });
      this.#emit(type, { owner });
    }
  }

  #endRun({ isError }: { readonly isError: boolean }): void {
    if (!isError) for (const open of this.#open) this.#emit(open.types[2], open);
    this.#emit(isError ? "RUN_ERROR" : "RUN_FINISHED");
    this.#open = [];
    this.#isInRun = false;
  }
}

const inOrder = fc.array(choice, { minLength: 1, maxLength: 60 }).map((choices) => {
  const producer = new Producer();
  for (const one of choices) producer.take(one);
  return producer.places;
});

function rulesOf(
  sequence: Sequence,
  places: readonly EventPlace[],
): readonly NonNullable<SequenceRule>[] {
  return places.flatMap((one) => sequence.observe(one) ?? []);
}

test("an ordered stream breaks no rule, from its first row and from any other", () => {
  fc.assert(
    fc.property(inOrder, fc.nat(), (places, from) => {
      expect(rulesOf(new Sequence("before"), places)).toEqual([]);
      expect(rulesOf(new Sequence("unknown"), places.slice(from % places.length))).toEqual([]);
    }),
    properties({ runs: 1_000 }),
  );
});

test("an ordered stream breaks no rule among other streams and forgotten sessions", () => {
  const row = fc.record({ session: fc.nat(), isElsewhere: fc.nat({ max: 9 }).map((n) => n === 0) });
  fc.assert(
    fc.property(
      fc.array(inOrder, { minLength: 2, maxLength: 5 }),
      fc.array(row, { minLength: 100, maxLength: 400 }),
      fc.record({ sessionsMax: fc.nat({ max: 6 }), openIdsMax: fc.nat({ max: 20 }) }),
      (streams, rows, limits) => {
        const sequences = new Sequences(limits);
        const stored = streams.map(() => 0);
        const rules = rows.flatMap(({ session, isElsewhere }) => {
          const index = session % streams.length;
          const at = stored[index] ?? 0;
          const next = streams[index]?.[at];
          stored[index] = at + 1;
          if (next === undefined || isElsewhere) return [];
          return (
            sequences.observe(`${index}`, { seq: BigInt(at + 1), eventCount: 1, place: next }) ?? []
          );
        });
        expect(rules).toEqual([]);
      },
    ),
    properties({ runs: 300 }),
  );
});

/** Without chunks, and subagents' ids that come again: the unit tests have their rules. */
const SIMPLE = CATALOGUE.filter(
  ({ type, kind, category }) =>
    !type.endsWith("_CHUNK") && kind !== "subagent" && category !== "thinking" && type !== "META",
);

const simple = fc.record({
  entry: fc.constantFrom(...SIMPLE),
  id: fc.constantFrom("", "a"),
  owner: fc.constantFrom(undefined, undefined, "s"),
});

/** What the rules say, in the plainest way. */
class Model {
  #ended: "before" | "finished" | "failed" | undefined = "before";
  readonly #open = new Set<string>();

  observe({ type, kind, role }: CatalogueEntry, { id, owner }: Ids): SequenceRule {
    if (kind === "run") return this.#run(type);
    if (this.#ended !== undefined)
      return this.#ended === "before" ? "outside_run" : "after_run_end";
    const name = JSON.stringify([kind, id, kind === "step" ? (owner ?? null) : ""]);
    if (role === "start") return this.#open.has(name) ? "start_twice" : this.#add(name);
    if (role === "fragment") return this.#open.has(name) ? undefined : "fragment_without_start";
    if (role === "end") return this.#open.delete(name) ? undefined : "end_without_start";
    return undefined;
  }

  #run(type: string): SequenceRule {
    const was = this.#ended;
    const left = this.#open.size;
    if (type === "RUN_STARTED") {
      this.#ended = undefined;
      this.#open.clear();
      return was === undefined ? "run_already_open" : undefined;
    }
    if (type === "RUN_ERROR") {
      this.#ended = "failed";
      return was === "failed" ? "after_run_end" : undefined;
    }
    if (was !== undefined) return was === "before" ? "outside_run" : "after_run_end";
    this.#ended = "finished";
    return left > 0 ? "run_finished_with_open_construct" : undefined;
  }

  #add(name: string): undefined {
    this.#open.add(name);
  }
}

test("an event is out of order exactly when the model says so", () => {
  fc.assert(
    fc.property(fc.array(simple, { maxLength: 60 }), (events) => {
      const model = new Model();
      const sequence = new Sequence("before");
      for (const { entry, id, owner } of events) {
        const found = sequence.observe(place(entry.type, { id, owner }));
        expect({ type: entry.type, id, found }).toEqual({
          type: entry.type,
          id,
          found: model.observe(entry, { id, owner }),
        });
      }
    }),
    properties({ runs: 1_000 }),
  );
});
