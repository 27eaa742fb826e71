import type { JsonObject } from "../../agui/json.ts";

/** A stored row, a merged one as one event, or one of the events that a merged row stands for. */
export interface LoggedEvent {
  readonly seq: bigint;
  readonly eventType: string;
  readonly payload: string;
  readonly conformant: boolean;
}

export interface CanonicalEvent {
  /** An AG-UI event, its type inside. */
  readonly value: JsonObject;
  /** The bytes as they were stored, where the event is just what was stored. */
  readonly text: string | undefined;
  /** False: it lies outside every run, where a client accepts nothing; only transcripts want it. */
  readonly inRun: boolean;
}

/** What a logged event becomes, gathered. */
export class Outgoing {
  readonly events: CanonicalEvent[] = [];
  readonly #inRun: boolean;
  readonly #cause: JsonObject;

  /** The cause is the logged event. */
  constructor(cause: JsonObject, { inRun }: { readonly inRun: boolean }) {
    this.#cause = cause;
    this.#inRun = inRun;
  }

  add(value: JsonObject, text?: string): void {
    this.events.push({ value, text, inRun: this.#inRun });
  }

  /** An event that nobody logged: it happened when the one did that it is needed for. */
  timed(value: JsonObject): JsonObject {
    const { timestamp } = this.#cause;
    return timestamp === undefined ? value : { ...value, timestamp };
  }
}

/** What no client knows by its own name: anything else than the protocol's events goes in CUSTOM. */
export function customOf(name: string, value: JsonObject): JsonObject {
  const { timestamp } = value;
  return { type: "CUSTOM", name, value, ...(typeof timestamp === "number" && { timestamp }) };
}

export function textOf(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

/** The subagent that an event says it is from; a stored row may hold anything there. */
export function tagOf(value: JsonObject): string | undefined {
  return textOf(value["subagentRunId"]);
}

export function without(value: JsonObject, ...fields: readonly string[]): JsonObject {
  if (!fields.some((field) => Object.hasOwn(value, field))) return value;
  return Object.fromEntries(Object.entries(value).filter(([field]) => !fields.includes(field)));
}
