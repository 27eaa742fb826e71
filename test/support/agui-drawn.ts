/**
 * Random AG-UI events for property tests. `anyEvents` have no order: each event is accepted by some
 * version, the few ids collide often, and any event may belong to a subagent. `legalEvents` are made by a
 * producer that follows the rules of both generations of clients.
 */
import * as fc from "fast-check";
import { CATALOGUE } from "@session-ledger/agui/catalogue";
import type { LoggedEvent } from "@session-ledger/agui/canonical/event";
import { splitEvent } from "@session-ledger/agui/split-event";
import type { StreamEvent } from "./streams.ts";

export type Fields = Readonly<Record<string, unknown>>;

export function logged(events: readonly Fields[]): readonly LoggedEvent[] {
  return events.map((event, index) => ({
    seq: BigInt(index + 1),
    eventType: String(event["type"]),
    payload: JSON.stringify(event),
    conformant: event["type"] !== "META" && event["foreign"] !== true,
  }));
}

/** As ingest stores them, without the refused ones. */
export function stored(events: readonly StreamEvent[]): readonly LoggedEvent[] {
  const times = { createdAtMicros: undefined, completedAtMicros: undefined };
  return events
    .flatMap((event) => {
      const push = { ...event, eventCount: 0, ...times, hasFragments: false };
      const result = splitEvent(push, { mode: "strict", nowMicros: 0n });
      return result.ok ? result.rows : [];
    })
    .map(({ eventType, payload, conformant }, index) => ({
      seq: BigInt(index + 1),
      eventType,
      payload,
      conformant,
    }));
}

const someId = fc.constantFrom("", "a", "b");
const owners = fc.constantFrom(undefined, undefined, undefined, "", "s", "t");

const draw = fc.record({
  type: fc.constantFrom(...CATALOGUE.map(({ type }) => type)),
  id: someId,
  other: someId,
  owner: owners,
  n: fc.nat({ max: 999 }),
  extra: fc.constantFrom({}, {}, { metadata: { k: 1 } }, { timestamp: 5 }, { rawEvent: { x: 1 } }),
});
type Draw = typeof draw extends fc.Arbitrary<infer T> ? T : never;

const ROLES = ["user", "assistant", "tool", "reasoning", "activity"] as const;

function message({ id, other, owner, n }: Draw): Fields {
  const role = ROLES[n % ROLES.length] ?? "user";
  const of = owner === undefined ? {} : { subagentRunId: owner };
  const call = { id: other, type: "function", function: { name: "g", arguments: "" } };
  switch (role) {
    case "activity":
      return { id, role, activityType: "P", content: { a: 1 }, ...of };
    case "tool":
      return { id, role, content: "r", toolCallId: other, ...of };
    case "assistant":
      return { id, role, content: "c", toolCalls: n % 2 === 0 ? [call] : [], ...of };
    case "reasoning":
    case "user":
      return { id, role, content: "m", ...of };
  }
}

function eventOf(drawn: Draw): Fields {
  const { type, id, other, owner, n, extra } = drawn;
  const of = owner === undefined || n % 3 === 0 ? {} : { subagentRunId: owner };
  const base = { type, ...extra, ...of };
  const messages = [drawn, { ...drawn, id: other, n: n + 1 }].slice(n % 3).map(message);
  const input = { threadId: "th", runId: "r", messages, tools: [], context: [] };
  switch (type) {
    case "RUN_STARTED":
      return { type, ...extra, threadId: "th", runId: `r${n}`, ...(n % 4 === 0 && { input }) };
    case "RUN_FINISHED":
      return { type, ...extra, threadId: "th", runId: "r", ...outcomeOf(n) };
    case "RUN_ERROR":
      return { type, ...extra, message: "no" };
    case "STEP_STARTED":
    case "STEP_FINISHED":
      return { ...base, stepName: id };
    case "TEXT_MESSAGE_START":
      return { ...base, messageId: id, ...(n % 2 === 0 && { role: "assistant", name: "N" }) };
    case "TEXT_MESSAGE_CONTENT":
    case "REASONING_MESSAGE_CONTENT":
      return { ...base, messageId: id, delta: `${n}` };
    case "TEXT_MESSAGE_CHUNK":
    case "REASONING_MESSAGE_CHUNK":
      return {
        ...base,
        ...(n % 2 === 0 && { messageId: id }),
        ...(n % 5 > 0 && { delta: `${n}` }),
      };
    case "TOOL_CALL_START":
      return {
        ...base,
        toolCallId: id,
        toolCallName: "f",
        ...(n % 2 === 0 && { parentMessageId: other }),
      };
    case "TOOL_CALL_ARGS":
      return { ...base, toolCallId: id, delta: "{" };
    case "TOOL_CALL_CHUNK":
      return {
        ...base,
        ...(n % 2 === 0 && { toolCallId: id, toolCallName: "f" }),
        ...(n % 7 === 0 && { parentMessageId: other }),
        ...(n % 5 > 0 && { delta: "}" }),
      };
    case "TOOL_CALL_END":
      return { ...base, toolCallId: id };
    case "TOOL_CALL_RESULT":
      return { ...base, messageId: other, toolCallId: id, content: "r" };
    case "THINKING_TEXT_MESSAGE_CONTENT":
      return { type, ...extra, delta: "hm" };
    case "REASONING_MESSAGE_START":
      return { ...base, messageId: id, role: "reasoning" };
    case "REASONING_ENCRYPTED_VALUE":
      return {
        ...base,
        subtype: n % 2 === 0 ? "message" : "tool-call",
        entityId: id,
        encryptedValue: "e",
      };
    case "STATE_SNAPSHOT":
      return { ...base, snapshot: { n } };
    case "STATE_DELTA":
      return { ...base, delta: [{ op: "add", path: "/d", value: n }] };
    case "MESSAGES_SNAPSHOT":
      return { type, ...extra, messages };
    case "ACTIVITY_SNAPSHOT":
      return { ...base, messageId: id, activityType: "P", content: { n }, replace: n % 2 === 0 };
    case "ACTIVITY_DELTA":
      return {
        ...base,
        messageId: id,
        activityType: "P",
        patch: [{ op: "add", path: "/d", value: n }],
      };
    case "SUBAGENT_STARTED":
      return {
        type,
        ...extra,
        subagentRunId: id,
        name: "sub",
        ...(n % 2 === 0 && { parentSubagentRunId: other }),
      };
    case "SUBAGENT_FINISHED":
      return { type, ...extra, subagentRunId: id };
    case "SUBAGENT_ERROR":
      return { type, ...extra, subagentRunId: id, message: "no" };
    case "RAW":
      return { ...base, event: {} };
    case "CUSTOM":
      return { ...base, name: "c", value: null, ...(n % 3 === 0 && { foreign: true }) };
    case "META":
      return { type, ...extra, metaType: "m" };
    case "TEXT_MESSAGE_END":
    case "REASONING_MESSAGE_END":
    case "REASONING_START":
    case "REASONING_END":
      return { ...base, messageId: id };
    case "THINKING_START":
    case "THINKING_END":
    case "THINKING_TEXT_MESSAGE_START":
    case "THINKING_TEXT_MESSAGE_END":
      return { type, ...extra };
  }
}

function outcomeOf(n: number): Fields {
  if (n % 3 === 0) return {};
  if (n % 3 === 1) return { outcome: { type: "success" } };
  return { outcome: { type: "interrupt", interrupts: [{ id: "i", reason: "ask" }] } };
}

const inAnyOrder = fc.array(draw.map(eventOf), { minLength: 1, maxLength: 60 });

/** Half of the lists begin with a run: otherwise hardly any event would be in one. */
export const anyEvents: fc.Arbitrary<readonly Fields[]> = fc
  .tuple(fc.boolean(), inAnyOrder)
  .map(([begins, events]) =>
    begins ? [{ type: "RUN_STARTED", threadId: "th", runId: "r0" }, ...events] : events,
  );

const choice = fc.record({
  does: fc.constantFrom(
    "start",
    "start",
    "goOn",
    "goOn",
    "goOn",
    "end",
    "chunks",
    "whole",
    "whole",
    "snapshot",
    "subagent",
    "endRun",
  ),
  kind: fc.nat({ max: 59 }),
  which: fc.nat({ max: 9 }),
  id: fc.constantFrom("", "a", "b", "c"),
  owner: fc.constantFrom(undefined, undefined, "s", "t"),
  isTagged: fc.boolean(),
  metadata: fc.constantFrom(undefined, undefined, undefined, 1, 2),
});
type Choice = typeof choice extends fc.Arbitrary<infer T> ? T : never;

const OPENED = [
  ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "messageId"],
  ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "toolCallId"],
  ["REASONING_START", undefined, "REASONING_END", "messageId"],
  ["REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END", "messageId"],
  ["STEP_STARTED", undefined, "STEP_FINISHED", "stepName"],
] as const;

interface Open {
  readonly types: (typeof OPENED)[number];
  readonly id: string;
  readonly owner: string | undefined;
}

/** A producer that knows its open blocks and the owner of each id in its run. */
class Producer {
  readonly events: Fields[] = [];
  #open: Open[] = [];
  #isInRun = false;
  readonly #owners = new Map<string, string | undefined>();
  #subagents: string[] = [];
  #fresh = 0;

  take(next: Choice): void {
    if (!this.#isInRun) this.#beginRun(next);
    switch (next.does) {
      case "start":
        return this.#start(next);
      case "goOn":
      case "end":
        return this.#goOn(next);
      case "chunks":
        return this.#chunks(next);
      case "whole":
        return this.#whole(next);
      case "snapshot":
        return this.#emit({ type: "MESSAGES_SNAPSHOT", messages: this.#messages(next) });
      case "subagent":
        return this.#subagent(next);
      case "endRun":
        return this.#endRun(next);
    }
  }

  #emit(event: Fields): void {
    this.events.push(event);
  }

  #beginRun(next: Choice): void {
    this.#isInRun = true;
    this.#forgetOwners();
    const messages = this.#messages(next);
    const input = { threadId: "th", runId: "r", messages, tools: [], context: [] };
    const type = "RUN_STARTED";
    const isEchoed = next.kind % 3 === 0;
    if (!isEchoed) this.#forgetOwners();
    this.#emit({
      type,
      threadId: "th",
      runId: `r${(this.#fresh += 1)}`,
      ...(isEchoed && { input }),
    });
  }

  /** The owner of the id: the first one in the run. */
  #ownerOf(
    kind: string,
    { id, owner }: { readonly id: string; readonly owner: string | undefined },
  ): string | undefined {
    const key = `${kind} ${id}`;
    if (!this.#owners.has(key)) this.#owners.set(key, owner);
    return this.#owners.get(key);
  }

  /** A message that a snapshot removed is not made again with another owner: docs/ag-ui.md says why. */
  #forgetOwners(): void {
    if (this.events.every(({ type }) => type !== "MESSAGES_SNAPSHOT")) this.#owners.clear();
  }

  #messages({ kind, id, owner }: Choice): readonly Fields[] {
    const other = `${id}x`;
    const of = (role: string, one: string): object => {
      const own = this.#ownerOf(role, { id: one, owner });
      return own === undefined ? {} : { subagentRunId: own };
    };
    const all = [
      { id, role: "assistant", content: "snap", ...of("message", id) },
      { id: other, role: "user", content: "hello", ...of("message", other) },
      { id: `r${id}`, role: "reasoning", content: "thought", ...of("reasoning", `r${id}`) },
      {
        id: `v${id}`,
        role: "activity",
        activityType: "P",
        content: {},
        ...of("activity", `v${id}`),
      },
    ];
    return all.filter((_, index) => ((kind >> index) & 1) === 1);
  }

  #start({ kind, id: drawn, owner, isTagged, metadata }: Choice): void {
    const types = OPENED[kind % OPENED.length] ?? OPENED[0];
    const bucket = KIND_OF[types[0]];
    const id = bucket === "reasoning" ? `r${drawn}` : bucket === "tool" ? `t${drawn}` : drawn;
    const isStep = bucket === undefined;
    const isSame = (open: Open): boolean =>
      open.types === types && open.id === id && (!isStep || open.owner === owner);
    if (this.#open.some(isSame)) return;
    const own = isStep ? owner : this.#ownerOf(bucket, { id, owner: isTagged ? owner : undefined });
    this.#open.push({ types, id, owner: own });
    const parentId = kind % 3 === 0 && bucket === "tool" ? drawn : undefined;
    const parentFits =
      parentId !== undefined && this.#ownerOf("message", { id: parentId, owner: own }) === own;
    this.#emit({
      type: types[0],
      [types[3]]: id,
      ...(own !== undefined && { subagentRunId: own }),
      ...(bucket === "tool" && { toolCallName: "f" }),
      ...(types[0] === "REASONING_MESSAGE_START" && { role: "reasoning" }),
      ...(parentFits && { parentMessageId: parentId }),
      ...(metadata !== undefined && { metadata: { [`m${metadata}`]: `start ${kind}` } }),
    });
  }

  #goOn({ does, which, isTagged, metadata, kind }: Choice): void {
    const open = this.#open[which % Math.max(1, this.#open.length)];
    if (open === undefined) return;
    const [, fragment, end, idField] = open.types;
    const isStep = idField === "stepName";
    const of = {
      [idField]: open.id,
      ...(open.owner !== undefined && (isTagged || isStep) && { subagentRunId: open.owner }),
      ...(metadata !== undefined && { metadata: { [`m${metadata}`]: `later ${kind}` } }),
    };
    if (does === "goOn" && fragment !== undefined)
      this.#emit({ type: fragment, ...of, delta: `${which} ` });
    if (does === "goOn") return;
    this.#open = this.#open.filter((other) => other !== open);
    this.#emit({ type: end, ...of });
  }

  #chunks({ kind, which, owner, metadata }: Choice): void {
    const id = `c${(this.#fresh += 1)}`;
    const of = owner === undefined ? {} : { subagentRunId: owner };
    const all = [
      ["TEXT_MESSAGE_CHUNK", { messageId: id, role: "assistant" }],
      ["TOOL_CALL_CHUNK", { toolCallId: id, toolCallName: "f" }],
      ["REASONING_MESSAGE_CHUNK", { messageId: id }],
    ] as const;
    const [type, first] = all[kind % all.length] ?? all[0];
    this.#emit({ type, ...first, ...of, ...(which % 3 > 0 && { delta: "a" }), timestamp: 1 });
    for (let more = 0; more < which % 4; more += 1) {
      if (which % 2 === 1) this.#emit({ type: "RAW", event: {} });
      const later = metadata === undefined ? {} : { metadata: { chunk: metadata } };
      this.#emit({ type, ...of, ...(more % 3 < 2 && { delta: "b" }), ...later });
    }
  }

  #whole({ kind, id, owner, which, isTagged }: Choice): void {
    const tag = (own: string | undefined): object =>
      own !== undefined && isTagged ? { subagentRunId: own } : {};
    const activity = `v${id}`;
    const all: readonly (() => Fields)[] = [
      () => ({ type: "STATE_SNAPSHOT", snapshot: { id, list: [] } }),
      () => ({ type: "STATE_DELTA", delta: [{ op: "add", path: "/n", value: which }] }),
      () => ({ type: "STATE_DELTA", delta: [{ op: "remove", path: "/none" }] }),
      () => ({ type: "CUSTOM", name: "c", value: null }),
      () => {
        const messageId = `q${(this.#fresh += 1)}`;
        return { type: "TOOL_CALL_RESULT", messageId, toolCallId: `t${id}`, content: "r" };
      },
      () => {
        this.#owners.set(`activity ${activity}`, isTagged ? owner : undefined);
        const content = { which };
        return {
          type: "ACTIVITY_SNAPSHOT",
          messageId: activity,
          activityType: "P",
          content,
          ...tag(owner),
        };
      },
      () => {
        const own = this.#ownerOf("activity", { id: activity, owner: undefined });
        const patch = [{ op: "add", path: "/d", value: which }];
        return {
          type: "ACTIVITY_DELTA",
          messageId: activity,
          activityType: "P",
          patch,
          ...tag(own),
        };
      },
      () => ({
        type: "REASONING_ENCRYPTED_VALUE",
        subtype: which % 2 === 0 ? "message" : "tool-call",
        entityId: which % 2 === 0 ? `r${id}` : `t${id}`,
        encryptedValue: `e${which}`,
      }),
    ];
    const make = all[kind % all.length];
    if (make !== undefined) this.#emit(make());
  }

  #subagent({ kind, isTagged }: Choice): void {
    const ended = this.#subagents.at(-1);
    if (kind % 2 === 0 && ended !== undefined) {
      this.#subagents.pop();
      this.#emit({ type: "SUBAGENT_FINISHED", subagentRunId: ended });
      return;
    }
    const id = `u${(this.#fresh += 1)}`;
    const parent = isTagged ? ended : undefined;
    const parentSubagentRunId = parent === undefined ? {} : { parentSubagentRunId: parent };
    this.#subagents.push(id);
    this.#emit({ type: "SUBAGENT_STARTED", subagentRunId: id, name: "n", ...parentSubagentRunId });
  }

  #endRun({ kind }: Choice): void {
    const isError = kind % 3 === 0;
    if (!isError) {
      for (const { types, id, owner } of this.#open) {
        const of = owner === undefined ? {} : { subagentRunId: owner };
        this.#emit({ type: types[2], [types[3]]: id, ...of });
      }
      for (const id of this.#subagents)
        this.#emit({ type: "SUBAGENT_FINISHED", subagentRunId: id });
    }
    const ids = { threadId: "th", runId: "r" };
    if (isError) this.#emit({ type: "RUN_ERROR", message: "no" });
    else this.#emit({ type: "RUN_FINISHED", ...ids, ...outcomeOf(kind) });
    this.#open = [];
    this.#subagents = [];
    this.#isInRun = false;
  }
}

const KIND_OF: Readonly<Record<string, "message" | "tool" | "reasoning" | undefined>> = {
  TEXT_MESSAGE_START: "message",
  TOOL_CALL_START: "tool",
  REASONING_START: "reasoning",
  REASONING_MESSAGE_START: "reasoning",
};

export const legalEvents: fc.Arbitrary<readonly Fields[]> = fc
  .array(choice, { minLength: 1, maxLength: 50 })
  .map((choices) => {
    const producer = new Producer();
    for (const one of choices) producer.take(one);
    return producer.events;
  });
