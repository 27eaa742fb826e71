import type { Violation } from "../base/errors.ts";
import { CATALOGUE, lookup, type CatalogueEntry } from "./catalogue.ts";
import { normalise, type Normalised } from "./normalise.ts";
import type { Payload } from "./payload.ts";
import { validate, validateExactly } from "./validate.ts";
import { printedWord } from "./violations.ts";

/** What happens to an event that no version of the protocol accepts. */
export type ValidationMode =
  /** It is refused. */
  | "strict"
  /** It is refused, and so is one that 1.0.0 does not accept. */
  | "exact"
  /** It is stored as it came, and marked. */
  | "lenient";

/** Types outside the catalogue that lenient mode stores: a CUSTOM event is named so when served. */
const FOREIGN_TYPE = /^[A-Z][A-Z0-9_]{0,63}$/;

export interface AcceptedEvent {
  readonly payload: Payload;
  /** As what clients of some version may see the event; undefined: none may see it as itself. */
  readonly entry: CatalogueEntry | undefined;
  /** The name of another vocabulary that a field had. */
  readonly renamed?: string | undefined;
}

export type Conformed =
  | ({ readonly ok: true } & AcceptedEvent)
  | { readonly ok: false; readonly violations: readonly Violation[] };

/** Normalises and validates. What lenient mode lets pass is not edited: nobody knows what it means. */
export function conform(eventType: string, payload: Payload, mode: ValidationMode): Conformed {
  const entry = lookup(eventType);
  const result = entry === undefined ? foreign(eventType, mode) : accept(entry, payload, mode);
  // No version has META, a draft: it is accepted, and no client would know it by that name.
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

/** All of them, but the draft META: `RUN_{STARTED,FINISHED,ERROR}`, so that it fits into an answer. */
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
