/**
 * The expected view of a session: the real client, fed with every event. If the client refuses one of
 * the stored events, it is fed
 *
 * - all in order: without steps, and without the second end of a run. Neither changes messages or state,
 *   so the view is complete.
 * - a translation: events of another generation, and events out of order, as docs/ag-ui.md says that
 *   they are served. This second implementation shares no code with src/conversation.
 *
 * A client that refuses even the translation fails the test.
 */
import { type AguiClient, type Conversation, typeOf } from "./agui-clients.ts";
import { type BaseEvent as BaseEvent1, verifyEvents as verifyEvents1 } from "@ag-ui/client";
import { EventSchema } from "@ag-ui/core/schemas";
import { type BaseEvent as BaseEvent0, verifyEvents as verifyEvents0 } from "agui-client-0";
import { EventSchemas } from "agui-core-0";
import { from, lastValueFrom, toArray } from "rxjs";
import { z } from "zod";
import type { Stream } from "./streams.ts";

export interface Oracle {
  readonly conversation: Conversation;
  readonly fed: "everything" | "all in order" | "a translation";
}

export async function oracleOf(client: AguiClient, logged: readonly string[]): Promise<Oracle> {
  const events = withoutReplaced(logged);
  const isReadable = !isThinking(events) && !hasLooseFragment(events);
  const everything = isReadable ? await fed(client, events) : undefined;
  if (everything !== undefined) return { conversation: everything, fed: "everything" };
  const ordered = isReadable ? await fed(client, inOrder(events)) : undefined;
  if (ordered !== undefined) return { conversation: ordered, fed: "all in order" };
  return { conversation: await client.fed(translated(client, events)), fed: "a translation" };
}

/**
 * Real agents name a call of each run `tc-1`, and clients append its arguments to those of the call
 * before. Served are the newest whole ones (docs/ag-ui.md).
 */
function withoutReplaced(events: readonly string[]): readonly string[] {
  const replaced = new Set<number>();
  const calls = new Map<unknown, { text: string; places: number[]; isAgain: boolean }>();
  for (const [at, event] of events.entries()) {
    const { type, toolCallId, toolCallName, delta } = fieldsOf(JSON.parse(event));
    const call = calls.get(toolCallId) ?? { text: "", places: [], isAgain: false };
    if (type === "TOOL_CALL_START" || (type === "TOOL_CALL_CHUNK" && toolCallName !== undefined)) {
      calls.set(toolCallId, call);
      call.isAgain ||= isWhole(call.text);
    }
    const hasArguments = type === "TOOL_CALL_ARGS" || type === "TOOL_CALL_CHUNK";
    if (!hasArguments || typeof delta !== "string" || delta === "") continue;
    if (call.isAgain) {
      for (const place of call.places) replaced.add(place);
      Object.assign(call, { text: "", places: [], isAgain: false });
    }
    call.text += delta;
    call.places.push(at);
  }
  return events.flatMap((event, at) => {
    if (!replaced.has(at)) return [event];
    const fields = fieldsOf(JSON.parse(event));
    return fields["type"] === "TOOL_CALL_ARGS" ? [] : [JSON.stringify({ ...fields, delta: "" })];
  });
}

function isWhole(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null;
  } catch {
    return false;
  }
}

/** Undefined when the client ends the stream. */
async function fed(
  client: AguiClient,
  events: readonly string[],
): Promise<Conversation | undefined> {
  try {
    return await client.fed(events);
  } catch {
    return undefined;
  }
}

/** No client shows the served form: 0.0.59 omits it, and 1.0.0 gives it random ids. */
function isThinking(events: readonly string[]): boolean {
  return events.some((event) => typeOf(event).startsWith("THINKING_"));
}

/** A fragment whose START was lost is ignored by a client, or ends the stream. */
function hasLooseFragment(events: readonly string[]): boolean {
  const started = new Set<unknown>();
  return events
    .map((event) => fieldsOf(JSON.parse(event)))
    .some(({ type, toolCallId }) => {
      if (type === "TOOL_CALL_START") started.add(toolCallId);
      return type === "TOOL_CALL_ARGS" && !started.has(toolCallId);
    });
}

const RUN_ENDS: ReadonlySet<string> = new Set(["RUN_FINISHED", "RUN_ERROR"]);
const STEPS: ReadonlySet<string> = new Set(["STEP_STARTED", "STEP_FINISHED"]);

function inOrder(events: readonly string[]): readonly string[] {
  let isOpen = false;
  return events.filter((event) => {
    const type = typeOf(event);
    const endsTwice = RUN_ENDS.has(type) && !isOpen;
    if (type === "RUN_STARTED") isOpen = true;
    if (RUN_ENDS.has(type)) isOpen = false;
    return !endsTwice && !STEPS.has(type);
  });
}

type Fields = Readonly<Record<string, unknown>>;

function translated(client: AguiClient, events: readonly string[]): readonly string[] {
  const started = new Set<unknown>();
  let thoughts = 0;
  return inOrder(events)
    .map((event) => fieldsOf(JSON.parse(event)))
    .flatMap((event): readonly Fields[] => {
      const { type, messageId, toolCallId } = event;
      switch (type) {
        case "META": // They come as CUSTOM, of which no client keeps anything.
        case "CUSTOM":
          return [];
        case "RUN_STARTED":
          started.clear();
          return [event];
        case "TEXT_MESSAGE_START":
          if (started.has(messageId)) return [];
          started.add(messageId);
          return [event];
        case "TOOL_CALL_ARGS":
          if (started.has(toolCallId)) return [event];
          started.add(toolCallId);
          return [{ type: "TOOL_CALL_START", toolCallId, toolCallName: "unknown" }, event];
        case "TOOL_CALL_START":
          started.add(toolCallId);
          return [event];
        case "TOOL_CALL_RESULT":
          return [client.generation === "1.0.0" ? event : withText(event)];
        case "THINKING_START":
        case "THINKING_END":
          return [reasoning(event, "THINKING_", "thinking")];
        case "THINKING_TEXT_MESSAGE_START":
          thoughts += 1;
          return [
            { ...reasoning(event, "THINKING_TEXT_", `thought-${thoughts}`), role: "reasoning" },
          ];
        case "THINKING_TEXT_MESSAGE_CONTENT":
        case "THINKING_TEXT_MESSAGE_END":
          return [reasoning(event, "THINKING_TEXT_", `thought-${thoughts}`)];
        default:
          return [event];
      }
    })
    .map((event) => JSON.stringify(event));
}

function reasoning(event: Fields, prefix: string, messageId: string): Fields {
  return { ...event, type: String(event["type"]).replace(prefix, "REASONING_"), messageId };
}

/** 0.0.59 knows no parts in a tool result. */
function withText(event: Fields): Fields {
  const { content } = event;
  if (!Array.isArray(content)) return event;
  const parts = content.map(fieldsOf);
  return { ...event, content: parts.map(({ text }) => text).join("\n") };
}

/**
 * THINKING becomes REASONING, with ids that the ledger chooses. The comparison matches the ids by their
 * order.
 */
export function comparable(conversation: Conversation, events: readonly string[]): Conversation {
  if (!isThinking(events)) return conversation;
  let thoughts = 0;
  const messages = conversation.messages.map(fieldsOf).map((message) => {
    if (message["role"] !== "reasoning") return message;
    thoughts += 1;
    return { ...message, id: `thought-${thoughts}` };
  });
  return { ...conversation, messages };
}

function fieldsOf(value: unknown): Fields {
  if (typeof value !== "object" || value === null) throw new TypeError("not a JSON object");
  return { ...value };
}

// Whether events are legal for AG-UI: the schemas and the order of both generations.

const eventSchema0 = z.custom<BaseEvent0>((event) => EventSchemas.safeParse(event).success);
const eventSchema1 = z.custom<BaseEvent1>((event) => EventSchema.safeParse(event).success);

/** Rejects with the first violation. */
export async function checkLegal(events: readonly object[]): Promise<void> {
  const before = events.map((event) => eventSchema0.parse(event));
  await lastValueFrom(from(before).pipe(verifyEvents0(false), toArray()));
  const now = events.map((event) => eventSchema1.parse(event));
  await lastValueFrom(from(now).pipe(verifyEvents1(false), toArray()));
}

// The sessions on which the AG-UI clients are tested.

/** A session before it is stored. */
export interface Events {
  /** Agent and scenario, for the message of a failure. */
  readonly name: string;
  readonly events: readonly string[];
}

export function single({ agent, scenario, events }: Stream): Events {
  return { name: `${agent}, ${scenario}`, events: events.map(({ payload }) => payload) };
}

/** The streams of each agent as the runs of one session. */
export function together(streams: readonly Stream[]): readonly Events[] {
  return [...Map.groupBy(streams, ({ agent }) => agent)].map(([agent, own]) => ({
    name: `${agent}, ${own.length} runs`,
    events: own.flatMap(({ events }) => events.map(({ payload }) => payload)),
  }));
}

/** The first `count` of each agent. */
export function shortest(streams: readonly Stream[], count: number): readonly Stream[] {
  const sorted = streams.toSorted((one, other) => one.events.length - other.events.length);
  return [...Map.groupBy(sorted, ({ agent }) => agent).values()].flatMap((own) =>
    own.slice(0, count),
  );
}

/** Selects again and again the session with the most new features, without long ones and open runs. */
export function varied<S extends Events>(
  sessions: readonly S[],
  { count, eventsMax }: { readonly count: number; readonly eventsMax: number },
): readonly S[] {
  const left = sessions.filter(
    ({ events }) => events.length <= eventsMax && isRunEnd(typeOf(events.at(-1) ?? "{}")),
  );
  const chosen: S[] = [];
  const known = new Set<string>();
  const news = (session: S): number =>
    [...featuresOf(session)].filter((feature) => !known.has(feature)).length;
  while (chosen.length < count && left.length > 0) {
    const best = left.reduce((one, other) => (news(other) > news(one) ? other : one));
    left.splice(left.indexOf(best), 1);
    chosen.push(best);
    for (const feature of featuresOf(best)) known.add(feature);
  }
  return chosen;
}

/** The agent, the event types, and the pairs of adjacent types. */
function featuresOf({ name, events }: Events): ReadonlySet<string> {
  const types = events.map(typeOf);
  const pairs = types.map((type, at) => `${types[at - 1]} ${type}`);
  return new Set([...types, ...pairs, name.split(",")[0] ?? ""]);
}

/** The number of events for a client that joins after `at` events: up to the end of the run. */
export function countToRunEnd(events: readonly string[], at: number): number {
  const types = events.map(typeOf);
  const started = types.slice(0, Math.max(at, 1)).lastIndexOf("RUN_STARTED");
  return types.findIndex((type, place) => place > started && isRunEnd(type)) + 1;
}

function isRunEnd(type: string): boolean {
  return type === "RUN_FINISHED" || type === "RUN_ERROR";
}
