import type { JsonObject } from "../../agui/json.ts";

/** A stored row (a merged one as one event), or one of the events that a merged row stands for. */
export interface LoggedEvent {
  readonly seq: bigint;
  readonly eventType: string;
  readonly payload: string;
  readonly conformant: boolean;
}

export interface CanonicalEvent {
  /** An AG-UI event with its type. */
  readonly value: JsonObject;
  /** The stored bytes, if the event is exactly the stored one. */
  readonly text: string | undefined;
  /**
   * False: the event lies outside every run, where a client accepts nothing; only transcripts use
   * it.
   */
  readonly inRun: boolean;
}

/** Collects the events that one logged event becomes. */
export class Outgoing {
  readonly events: CanonicalEvent[] = [];
  readonly #inRun: boolean;
  readonly #cause: JsonObject;

  /** `cause` is the logged event. */
  constructor(cause: JsonObject, { inRun }: { readonly inRun: boolean }) {
    this.#cause = cause;
    this.#inRun = inRun;
  }

  add(value: JsonObject, text?: string): void {
    this.events.push({ value, text, inRun: this.#inRun });
  }

  /** An event that was not logged: it gets the time of the event that needs it. */
  timed(value: JsonObject): JsonObject {
    const { timestamp } = this.#cause;
    return timestamp === undefined ? value : { ...value, timestamp };
  }
}

/** Clients know only the events of the protocol by name; any other event goes out as CUSTOM. */
export function customOf(name: string, value: JsonObject): JsonObject {
  const { timestamp } = value;
  return { type: "CUSTOM", name, value, ...(typeof timestamp === "number" && { timestamp }) };
}

export function textOf(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

/** The subagent that an event names; the field of a stored row may hold any value. */
export function tagOf(value: JsonObject): string | undefined {
  return textOf(value["subagentRunId"]);
}

export function without(value: JsonObject, ...fields: readonly string[]): JsonObject {
  if (!fields.some((field) => Object.hasOwn(value, field))) return value;
  return Object.fromEntries(Object.entries(value).filter(([field]) => !fields.includes(field)));
}
