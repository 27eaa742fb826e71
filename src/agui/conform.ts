import type { Violation } from "../base/errors.ts";
import { CATALOGUE, lookup, type CatalogueEntry } from "./catalogue.ts";
import { normalise, type Normalised } from "./normalise.ts";
import type { Payload } from "./payload.ts";
import { validate, validateExactly } from "./validate.ts";
import { printedWord } from "./violations.ts";

/** The treatment of an event that no version of the protocol accepts. */
export type ValidationMode =
  /** The event is refused. */
  | "strict"
  /** The event is refused, and so is an event that 1.0.0 does not accept. */
  | "exact"
  /** The event is stored unchanged, and marked. */
  | "lenient";

/**
 * Types outside the catalogue that lenient mode stores: a CUSTOM event gets this name when it is
 * served.
 */
const FOREIGN_TYPE = /^[A-Z][A-Z0-9_]{0,63}$/;

export interface AcceptedEvent {
  readonly payload: Payload;
  /**
   * The event type under which clients of some version know the event; undefined: no client knows
   * it.
   */
  readonly entry: CatalogueEntry | undefined;
  /** The name from another vocabulary that a field had. */
  readonly renamed?: string | undefined;
}

export type Conformed =
  | ({ readonly ok: true } & AcceptedEvent)
  | { readonly ok: false; readonly violations: readonly Violation[] };

/**
 * Normalises and validates. An event that only lenient mode accepts is not edited: its meaning is
 * unknown.
 */
export function conform(eventType: string, payload: Payload, mode: ValidationMode): Conformed {
  const entry = lookup(eventType);
  const result = entry === undefined ? foreign(eventType, mode) : accept(entry, payload, mode);
  // META is a draft and in no version: it is accepted, and no client knows it by that name.
  if (result.ok) {
    const { payload: accepted, renamed } = result;
    return { ok: true, payload: accepted, entry: entry?.firstVersion && entry, renamed };
  }
  if (mode === "lenient" && (entry !== undefined || FOREIGN_TYPE.test(eventType)))
    return { ok: true, payload, entry: undefined };
  return result;
}

function accept(entry: CatalogueEntry, payload: Payload, mode: ValidationMode): Normalised {
  const given = payload.value["type"];
  if (given !== undefined && given !== entry.type)
    return refused("payload.type", `payload.type must be ${entry.type}, as event_type is`);
  const normalised = normalise(entry.type, payload);
  if (!normalised.ok) return normalised;
  const judge = mode === "exact" ? validateExactly : validate;
  const violations = judge(entry.type, normalised.payload.value);
  return violations.length > 0 ? { ok: false, violations } : normalised;
}

function foreign(eventType: string, mode: ValidationMode): Normalised {
  const allowed = mode !== "lenient" ? "an AG-UI event type" : `like ${FOREIGN_TYPE.source}`;
  const said = `event_type must be ${allowed}, but is ${printedWord(eventType)}`;
  const meant = lookup(protocolSpelling(eventType))?.type;
  return refused(
    "event_type",
    `${said}; ${meant === undefined ? TYPES : `did you mean ${meant}?`}`,
  );
}

/** `textMessageStart`, `text-message-start` and `text_message_start` are all TEXT_MESSAGE_START. */
function protocolSpelling(eventType: string): string {
  return eventType
    .slice(0, 64)
    .replace(/([a-z0-9])([A-Z])/g, "$1_$2")
    .replace(/[ .-]/g, "_")
    .toUpperCase();
}

/**
 * All types except the draft META, shortened as `RUN_{STARTED,FINISHED,ERROR}` to fit into an
 * answer.
 */
const TYPES = `the types are ${[
  ...Map.groupBy(
    CATALOGUE.filter(({ firstVersion }) => firstVersion !== undefined).map(({ type }) => type),
    (type) => type.slice(0, type.lastIndexOf("_") + 1),
  ),
]
  .flatMap(([start, types]) => {
    const ends = types.map((type) => type.slice(start.length));
    return start === "" || ends.length === 1 ? types : [`${start}{${ends.join(",")}}`];
  })
  .join(", ")}`;

function refused(field: string, description: string): Normalised {
  return { ok: false, violations: [{ field, description }] };
}
