/**
 * Secrets that must not leave the process: they become `*` in every event, before a trace or the
 * ledger sees it. Text that arrives in pieces is read as one, so a piece may wait for the next ones:
 *
 *   piece ─► may it end in the beginning of a secret? ─ no ──► released
 *                └─ yes ─► waits, with all later events, until the next piece decides, an event ends
 *                          the text, or HELD_MS are over; then the undecided part is masked
 *
 * Every other event is searched whole: each string in it, at any depth.
 */
import { type CatalogueEntry, lookup } from "../../agui/catalogue.ts";
import { type EventPlace, placeOf } from "../../agui/constructs.ts";
import { isObject } from "../../agui/json.ts";
import { printJson } from "../../agui/print.ts";
import { systemTimers, within } from "../../base/timers.ts";
import { type Secret, wholeSecret } from "../../redaction/patterns.ts";
import {
  createRedactor,
  type Redactor,
  redactionOptions,
  redactionProblems,
} from "../../redaction/redactor.ts";
import type { AgentEvent } from "../bridge.ts";
import type { Middleware } from "./middleware.ts";

export interface RedactionOptions {
  /** Where `variables` are looked up, mostly the process's own environment. */
  readonly environment?: Readonly<Record<string, string | undefined>>;
  /** Names of variables whose values are secrets. A variable that is not set is left out. */
  readonly variables?: readonly string[];
  /** `kind=prefix[characters]{least}`, separated by white space, as the service's own setting. */
  readonly patterns?: string;
  /** Called with the kind of each secret that was found; the kind of a variable is its name. */
  readonly onFound?: (kind: string) => void;
}

export interface Redaction {
  readonly middleware: Middleware;
  /** Masks an event of the runner itself, whose texts are whole. */
  readonly mask: (event: AgentEvent) => AgentEvent;
}

/** A shorter value is in many words. */
const VALUE_CHARS_MIN = 8;
/** Of all values: a search needs some 300 bytes for each. */
const VALUES_CHARS_MAX = 16_384;
/** The longest wait of an event. */
const HELD_MS = 250;

/** Throws a TypeError or a RangeError that names the option or the variable, never a value. */
export function redaction(options: RedactionOptions = {}): Redaction {
  const { patterns, onFound = () => undefined } = options;
  const settings = {
    redaction: "on",
    redactionPatterns: patterns,
    redactionKeys: undefined,
  } as const;
  const [problem] = redactionProblems(settings, () => new Set());
  if (problem !== undefined) throw new TypeError(problem.replace("REDACTION_PATTERNS", "patterns"));
  const known = redactionOptions(settings)?.secrets ?? [];
  const secrets = [...known, ...valuesOf(options)];
  const redactor = createRedactor({ secrets, keys: [] }, onFound);
  return {
    middleware: (events) => redacted(redactor, events),
    mask: (event) => masked(redactor, event),
  };
}

function valuesOf({ environment = {}, variables = [] }: RedactionOptions): readonly Secret[] {
  const secrets = variables.flatMap((name) => {
    const value = environment[name]?.trim() ?? "";
    if (value === "") return [];
    if (value.length < VALUE_CHARS_MIN) {
      throw new RangeError(`${name} has fewer than ${VALUE_CHARS_MIN} characters: no secret`);
    }
    return [...spellingsOf(value)].map((spelled) => wholeSecret(name, spelled));
  });
  const chars = secrets.reduce((sum, { prefixes: [value = ""] }) => sum + value.length, 0);
  if (chars > VALUES_CHARS_MAX) {
    throw new RangeError(`variables: the values have more than ${VALUES_CHARS_MAX} characters`);
  }
  return secrets;
}

/** As it is, in JSON inside of a string, and in a URL. */
function spellingsOf(value: string): ReadonlySet<string> {
  const inUrl = value.isWellFormed() ? encodeURIComponent(value) : value;
  return new Set([value, JSON.stringify(value).slice(1, -1), inUrl]);
}

async function* redacted(
  redactor: Redactor,
  events: AsyncIterable<AgentEvent>,
): AsyncGenerator<AgentEvent, void, undefined> {
  const ready: AgentEvent[] = [];
  const line = redactor.line<AgentEvent>(
    (event, delta) => ready.push(delta === undefined ? event : withDelta(event, delta)),
    { maxAgeMs: HELD_MS },
  );
  const places = new Places();
  const source = events[Symbol.asyncIterator]();
  let isDone = false;
  try {
    for (let next = source.next(); ; ) {
      const wait = line.dueAtMs === undefined ? undefined : line.dueAtMs - performance.now();
      const step =
        wait === undefined
          ? await next
          : await within<IteratorResult<AgentEvent> | "late">(next, inTime(wait));
      if (step === "late") line.letGo();
      else if (step.done === true) {
        isDone = true;
        break;
      } else {
        take(step.value);
        next = source.next();
      }
      while (ready.length > 0) yield* ready.splice(0);
    }
    line.letGo();
    yield* ready;
  } finally {
    if (!isDone) await source.return?.();
  }

  function take(event: AgentEvent): void {
    const nowMs = performance.now();
    const entry = lookup(event.type);
    const place = entry && places.of(entry, event);
    const { delta, ...rest } = event;
    if (place === undefined || entry?.role !== "fragment" || typeof delta !== "string") {
      line.take(masked(redactor, event), [place], nowMs);
      return;
    }
    const spelled = JSON.stringify(delta).slice(1, -1);
    const besides = masked(redactor, rest);
    line.takeText({ ...besides, delta }, { place, spelled }, nowMs);
  }
}

function inTime(waitMs: number) {
  return { limitMs: Math.max(0, waitMs), late: () => "late" as const, timers: systemTimers };
}

/** The same object without a secret, printed as the writer and the reader get it. */
function masked(redactor: Redactor, event: AgentEvent): AgentEvent {
  let printed: string;
  try {
    printed = printJson(event).text ?? "";
  } catch {
    return event; // It is never stored or sent.
  }
  const text = redactor.payload(printed);
  return text === printed ? event : { type: event.type, ...objectIn(text) };
}

function objectIn(text: string): object {
  const value: unknown = JSON.parse(text);
  return isObject(value) ? value : {};
}

/** The raw event of a provider has the same text in its own form, and cannot be masked in pieces. */
function withDelta(event: AgentEvent, spelled: string): AgentEvent {
  const delta: unknown = JSON.parse(`"${spelled}"`);
  return { ...event, delta, ...("rawEvent" in event && { rawEvent: undefined }) };
}

/** Gives the pieces of one text in a row the same place, which the search finds faster. */
class Places {
  #last: EventPlace | undefined;

  of(entry: CatalogueEntry, event: AgentEvent): EventPlace {
    const place = placeOf(entry, event);
    const last = this.#last;
    const isSame =
      last?.type === place.type &&
      last.key === place.key &&
      last.owner === place.owner &&
      last.canStart === place.canStart;
    if (!isSame) this.#last = place;
    return isSame ? last : place;
  }
}
