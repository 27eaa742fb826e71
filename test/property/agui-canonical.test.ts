/**
 * What AG-UI clients are sent of a log they accept, whatever the log is, and where they accept the log
 * itself, it leaves them with the same.
 *
 * Method: the real clients of both generations, whole, with all that translates, expands and checks in
 * them, are fed what is served of drawn and of recorded events: of events in no order at all, of
 * streams in order (next to the streams themselves), of streams joined at any event.
 */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { Canonical } from "@session-ledger/agui/canonical/canonical";
import type { CanonicalEvent, LoggedEvent } from "@session-ledger/agui/canonical/event";
import { placeOpenings } from "../../src/conversation/reopened-constructs.ts";
import { servedTo, type Generation } from "@session-ledger/agui/generation/served";
import { isObject, parseObject, type JsonObject } from "@session-ledger/agui/json";
import { Transcript } from "@session-ledger/agui/transcript/transcript";
import { anyEvents, legalEvents, logged, stored } from "../support/agui-drawn.ts";
import { runClient, type ClientVersion } from "../support/agui-reducers.ts";
import { mergeFragments } from "../support/merging.ts";
import { properties } from "../support/random.ts";
import { ownStreams, recordedStreams } from "../support/streams.ts";
import { useQuietConsole } from "../support/quiet-console.ts";

useQuietConsole();

const CLIENTS: readonly (readonly [ClientVersion, Generation])[] = [
  ["0.0.59", "0.0.59"],
  ["1.0.0", "1.0.0"],
  ["1.0.0", "0.0.59"],
];

/** Each with what is made for it. */
const OWN = CLIENTS.slice(0, 2);

function folded(events: readonly LoggedEvent[]): readonly CanonicalEvent[] {
  const canonical = new Canonical("session");
  return events.flatMap((event) => canonical.next(event));
}

function served(generation: Generation, events: readonly CanonicalEvent[]): JsonObject[] {
  return events
    .filter(({ inRun }) => inRun)
    .flatMap((event) => servedTo(generation, event))
    .map(parseObject);
}

/** The events for a client that joins at this place; undefined: no run is open there. */
function joined(
  generation: Generation,
  events: readonly LoggedEvent[],
  at: number,
): JsonObject[] | undefined {
  const canonical = new Canonical("session");
  const transcript = new Transcript();
  for (const event of events.slice(0, at))
    for (const { value } of canonical.next(event)) transcript.apply(value);
  const { run } = canonical;
  if (run?.status !== "running") return undefined;
  const messages = structuredClone(transcript.messages());
  const { state } = transcript;
  const { before, after } = placeOpenings(canonical.openings(), messages);
  const opening = [
    run.started,
    ...before,
    { type: "MESSAGES_SNAPSHOT", messages },
    ...(state === undefined ? [] : [{ type: "STATE_SNAPSHOT", snapshot: structuredClone(state) }]),
    ...after,
  ].map((value) => ({ value, text: undefined, inRun: true }));
  const copy = canonical.clone();
  const rest = events.slice(at).flatMap((event) => copy.next(event));
  return served(generation, [...opening, ...rest]);
}

async function shown(version: ClientVersion, events: readonly JsonObject[]) {
  const { shown: what, error } = await runClient(version, events);
  if (error !== undefined) throw new Error("the client refuses it", { cause: error });
  const { messages, state } = what;
  return { messages: JSON.parse(messages) as unknown, state: JSON.parse(state) as unknown };
}

/** Why the client ends the stream; none of it when there is nothing to end. */
async function refusals(
  version: ClientVersion,
  streams: readonly (readonly JsonObject[] | undefined)[],
): Promise<readonly unknown[]> {
  const errors: unknown[] = [];
  for (const events of streams) {
    if (events === undefined || events.length === 0) continue;
    const { error } = await runClient(version, events);
    if (error !== undefined) errors.push(error);
  }
  return errors;
}

/**
 * No call by the id of a message: it makes a second message by that id, which clients then tell from
 * the first by chance, and whose subagent is anybody's guess (docs/ag-ui.md, Served).
 */
function withOwnCallId(event: JsonObject): JsonObject {
  const { toolCallId } = event;
  return typeof toolCallId === "string" ? { ...event, toolCallId: `call-${toolCallId}` } : event;
}

/**
 * Ids with the owner of one subagent, and later, in another run or after a snapshot, of another. They
 * are served without an owner, because a client that joined knows the first owner and a client from the
 * beginning has forgotten it (docs/ag-ui.md, Served). The rest of their messages is compared.
 */
function contestedIds(events: readonly JsonObject[]): ReadonlySet<unknown> {
  const owners = new Map<unknown, unknown>();
  const contested = new Set<unknown>();
  const tell = (id: unknown, owner: unknown): void => {
    if (id === undefined) return;
    if (owners.has(id) && owners.get(id) !== owner) contested.add(id);
    owners.set(id, owner);
  };
  for (const { type, subagentRunId: owner, input, messages, ...event } of events) {
    for (const message of [...messagesIn(messages), ...messagesIn(memberOf(input, "messages"))])
      tell(message["id"], message["subagentRunId"]);
    if (!String(type).endsWith("_START")) continue;
    tell(event["messageId"], owner);
    // A call without a tag has its parent's owner; with a tag it sets the parent's owner.
    const { parentMessageId } = event;
    tell(event["toolCallId"], owner ?? owners.get(parentMessageId));
    if (owner !== undefined || !owners.has(parentMessageId)) tell(parentMessageId, owner);
  }
  // A call is in its parent's message, or in a message for itself. An id that is contested makes the
  // other, and all calls of the message, contested too.
  for (let before = -1; before !== contested.size; ) {
    before = contested.size;
    for (const { toolCallId, parentMessageId } of events) {
      if (toolCallId === undefined || parentMessageId === undefined) continue;
      if (contested.has(parentMessageId)) contested.add(toolCallId);
      if (contested.has(toolCallId)) contested.add(parentMessageId);
    }
  }
  return contested;
}

function messagesIn(value: unknown): readonly JsonObject[] {
  return Array.isArray(value) ? value.filter(isObject) : [];
}

function memberOf(value: unknown, name: string): unknown {
  return isObject(value) ? value[name] : undefined;
}

function withoutOwners(
  { messages, ...rest }: Awaited<ReturnType<typeof shown>>,
  contested: ReadonlySet<unknown>,
) {
  const compared = messagesIn(messages).map((message) =>
    contested.has(message["id"]) ? { ...message, subagentRunId: undefined } : message,
  );
  return { ...rest, messages: compared };
}

test("clients accept the events served for a log in any order, from the beginning and from any join", async () => {
  await fc.assert(
    fc.asyncProperty(anyEvents, fc.nat(), async (drawn, where) => {
      const events = logged(drawn.map(withOwnCallId));
      const all = folded(events);
      for (const [version, generation] of CLIENTS) {
        const late = joined(generation, events, where % events.length);
        expect(await refusals(version, [served(generation, all), late])).toEqual([]);
      }
    }),
    properties({ runs: 400 }),
  );
});

test("a client shows the same for an ordered stream and for the events served for it", async () => {
  await fc.assert(
    fc.asyncProperty(legalEvents, async (events) => {
      const all = folded(logged(events));
      const contested = contestedIds(events);
      for (const [version, generation] of CLIENTS) {
        const raw = await shown(version, events);
        const ours = await shown(version, served(generation, all));
        expect(withoutOwners(ours, contested)).toEqual(withoutOwners(raw, contested));
      }
    }),
    properties({ runs: 200 }),
  );
});

test("every served event is in a run, and events other than chunks keep their bytes", () => {
  fc.assert(
    fc.property(legalEvents, (drawn) => {
      const events = logged(drawn);
      const all = folded(events);
      expect(all.filter(({ inRun }) => !inRun)).toEqual([]);
      const contested = contestedIds(drawn);
      const isKept = ({ eventType, payload }: LoggedEvent, at: number): boolean =>
        !eventType.endsWith("_CHUNK") &&
        !payload.includes("ubagent") &&
        !contested.has(drawn[at]?.["toolCallId"]);
      const texts = new Set(all.map(({ text }) => text));
      const changed = events.filter((event, at) => isKept(event, at) && !texts.has(event.payload));
      expect(changed).toEqual([]);
    }),
    properties({ runs: 500 }),
  );
});

test("a client that joins at any event ends with the same as a client that never left", async () => {
  await fc.assert(
    fc.asyncProperty(legalEvents, fc.nat(), async (drawn, where) => {
      const events = logged(drawn);
      const all = folded(events);
      for (const [version, generation] of CLIENTS) {
        const late = joined(generation, events, where % events.length);
        if (late === undefined) continue;
        const always = await shown(version, served(generation, all));
        expect((await shown(version, late)).messages).toEqual(always.messages);
      }
    }),
    properties({ runs: 300 }),
  );
});

/**
 * Fragments of one construct that follow one another, as one. One that repeats the metadata of the event
 * before it, and says nothing, is none: two chunks without a text are one row.
 */
function joinedFragments(events: readonly CanonicalEvent[]): readonly JsonObject[] {
  const result: JsonObject[] = [];
  for (const { value } of events) {
    const last = result.at(-1);
    const { delta, timestamp: _, ...rest } = value;
    const { delta: before, timestamp: __, ...lastRest } = last ?? {};
    if (delta === "" && repeats(lastRest, rest)) continue;
    const isText = typeof delta === "string" && typeof before === "string";
    if (isText && JSON.stringify(rest) === JSON.stringify(lastRest))
      result[result.length - 1] = { ...last, delta: before + delta };
    else result.push(value);
  }
  return result;
}

function repeats(before: JsonObject, event: JsonObject): boolean {
  return Object.entries(event).every(
    ([name, value]) => name === "type" || JSON.stringify(before[name]) === JSON.stringify(value),
  );
}

function mergedRows(events: readonly LoggedEvent[]): readonly LoggedEvent[] {
  let seq = 1n;
  return mergeFragments(events).map(({ eventType, payload, eventCount }) => {
    const row = { seq, eventType, payload, conformant: eventType !== "META" };
    seq += BigInt(eventCount);
    return row;
  });
}

test("merged rows fold to the same as their events", () => {
  fc.assert(
    fc.property(fc.oneof(anyEvents, legalEvents), (drawn) => {
      const events = logged(drawn).map((event) => ({
        ...event,
        conformant: event.eventType !== "META",
      }));
      expect(joinedFragments(folded(mergedRows(events)))).toEqual(joinedFragments(folded(events)));
    }),
    properties({ runs: 500 }),
  );
});

test("a clone continues as the original does, and neither changes the other", () => {
  fc.assert(
    fc.property(anyEvents, fc.nat(), (drawn, where) => {
      const events = logged(drawn);
      const at = where % events.length;
      const expected = folded(events);
      const original = new Canonical("session");
      const before = events.slice(0, at).flatMap((event) => original.next(event));
      const clone = original.clone();
      const other = clone.clone(); // It goes another way.
      for (const event of logged(drawn.toReversed())) other.next(event);
      const rest = events.slice(at);
      const ofClone = rest.flatMap((event) => clone.next(event));
      expect([...before, ...ofClone]).toEqual(expected);
      expect([...before, ...rest.flatMap((event) => original.next(event))]).toEqual(expected);
      expect(clone.openings()).toEqual(original.openings());
    }),
    properties({ runs: 500 }),
  );
});

const streams = [...ownStreams(), ...(recordedStreams() ?? [])];

describe("recorded streams, and those written by hand", () => {
  test("leave a client with the same as the stream itself", async () => {
    let compared = 0;
    for (const { events, scenario } of streams) {
      const log = stored(events);
      if (log.length === 0 || log.some(({ eventType }) => eventType.startsWith("THINKING")))
        continue;
      const all = folded(log);
      for (const [version, generation] of OWN) {
        const canonical = await shown(version, served(generation, all));
        const raw = await runClient(
          version,
          log.map(({ payload }) => parseObject(payload)),
        );
        if (raw.error !== undefined) continue;
        compared += 1;
        const { messages, state } = raw.shown;
        expect({ scenario, ...canonical }).toEqual({
          scenario,
          messages: JSON.parse(messages) as unknown,
          state: JSON.parse(state) as unknown,
        });
      }
    }
    expect(compared).toBeGreaterThan(streams.length); // Of two looks at each.
  });

  test("can be joined at any event", async () => {
    const JOINS = 8; // A stream; all positions of all of them would take minutes.
    for (const [index, { events, scenario }] of streams.entries()) {
      const log = stored(events);
      const [version, generation] = CLIENTS[index % CLIENTS.length] ?? ["1.0.0", "1.0.0"];
      const all = folded(log);
      if (all.every(({ inRun }) => !inRun)) continue;
      const always = await shown(version, served(generation, all));
      const step = Math.max(1, Math.floor(log.length / JOINS));
      for (let at = index % step; at < log.length; at += step) {
        const late = joined(generation, log, at);
        if (late === undefined) continue;
        const { messages } = await shown(version, late);
        expect({ scenario, at, messages }).toEqual({ scenario, at, messages: always.messages });
      }
    }
  });
});
