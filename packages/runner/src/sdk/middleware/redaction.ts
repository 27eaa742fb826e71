/**
 * Secrets that must not leave the process: they become `*` in every event, before a trace or the
 * ledger sees it. Text that arrives in pieces is searched as one, so a piece may wait for the next ones:
 *
 *   piece ─► may it end in the beginning of a secret? ─ no ──► released
 *                └─ yes ─► waits, with all later events, until the next pieces decide, an event begins
 *                          or ends a text or a run, or HELD_MS are over; then the undecided part is
 *                          masked
 *
 * Every other event is searched whole: each string in it, at any depth.
 */
import { type CatalogueEntry, type ConstructKind, lookup } from "@session-ledger/agui/catalogue";
import { EFFECTS } from "@session-ledger/agui/constructs";
import { isObject } from "@session-ledger/agui/json";
import { printJson } from "@session-ledger/agui/print";
import { BoundedMap } from "@session-ledger/base/bounded-map";
import { systemTimers, within } from "@session-ledger/base/timers";
import { knownValues, type Secret } from "@session-ledger/agui/redaction/patterns";
import {
  createRedactor,
  type Redactor,
  redactionOptions,
  redactionProblems,
} from "@session-ledger/agui/redaction/redactor";
import {
  kindsOf,
  maskPlain,
  type OnFound,
  searchNext,
  TEXT_START,
  type TextEnd,
} from "@session-ledger/agui/redaction/search";
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
const BUFFER_MS = 250;
/** Events that wait at once. */
const BUFFER_EVENTS_MAX = 1_024;
/** Texts that are followed at once; the one that began first is forgotten. */
const TEXTS_MAX = 256;

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
  const configured = redactionOptions(settings)?.secrets ?? [];
  const secrets = [...configured, ...valuesOf(options)];
  const redactor = createRedactor({ secrets, keys: [] }, onFound);
  return {
    middleware: (events) => redacted(new EventBuffer(redactor, onFound), events),
    mask: (event) => masked(redactor, event),
  };
}

function valuesOf({ environment = {}, variables = [] }: RedactionOptions): readonly Secret[] {
  let chars = 0;
  const secrets = variables.flatMap((name) => {
    const value = environment[name]?.trim() ?? "";
    if (value === "") return [];
    if (value.length < VALUE_CHARS_MIN) {
      throw new RangeError(`${name} has fewer than ${VALUE_CHARS_MIN} characters: no secret`);
    }
    return [...spellingsOf(value)].flatMap((spelled) => {
      chars += spelled.length;
      return knownValues(name, spelled);
    });
  });
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
  buffer: EventBuffer,
  events: AsyncIterable<AgentEvent>,
): AsyncGenerator<AgentEvent, void, undefined> {
  const source = events[Symbol.asyncIterator]();
  let isDone = false;
  try {
    for (let next = source.next(); ; ) {
      const wait = buffer.dueAtMs === undefined ? undefined : buffer.dueAtMs - performance.now();
      const step =
        wait === undefined
          ? await next
          : await within<IteratorResult<AgentEvent> | "late">(next, inTime(wait));
      if (step === "late") yield* buffer.flush();
      else if (step.done === true) {
        isDone = true;
        break;
      } else {
        yield* buffer.take(step.value);
        next = source.next();
      }
    }
    yield* buffer.flush();
  } finally {
    if (!isDone) await source.return?.();
  }
}

interface BufferedEvent {
  readonly event: AgentEvent;
  /** The name of the text of which its `delta` is a piece. */
  readonly text?: string;
  readonly delta?: string;
}

interface BufferedText {
  /** The waiting pieces, joined. */
  readonly joined: string;
  readonly next: ReturnType<typeof searchNext>;
}

/** The events of one run, some of which wait. */
class EventBuffer {
  readonly #redactor: Redactor;
  readonly #onFound: OnFound;
  /** The end of each text before the waiting pieces. */
  readonly #ends = new BoundedMap<string, TextEnd>(TEXTS_MAX);
  /** For each kind, the id of its last piece: a CHUNK may have none. */
  readonly #lastIds = new Map<ConstructKind | undefined, string>();
  #events: BufferedEvent[] = [];
  readonly #texts = new Map<string, BufferedText>();
  #sinceMs = 0;

  constructor(redactor: Redactor, onFound: OnFound) {
    this.#redactor = redactor;
    this.#onFound = onFound;
  }

  /** The time when the first waiting event has waited long enough. */
  get dueAtMs(): number | undefined {
    return this.#events.length === 0 ? undefined : this.#sinceMs + BUFFER_MS;
  }

  /** Returns the events that wait no longer. */
  take(event: AgentEvent): readonly AgentEvent[] {
    if (this.#events.length === 0) this.#sinceMs = performance.now();
    const entry = lookup(event.type);
    const { delta, ...rest } = event;
    if (entry?.role === "fragment" && typeof delta === "string") {
      this.#add(this.#nameOf(entry, event), delta, masked(this.#redactor, rest));
    } else {
      this.#events.push({ event: masked(this.#redactor, event) });
      if (entry !== undefined && BORDERS.has(EFFECTS.get(entry.type)?.does)) return this.flush();
    }
    const isUndecided = [...this.#texts.values()].some(({ next }) => next.isPending);
    return isUndecided && this.#events.length < BUFFER_EVENTS_MAX ? [] : this.flush();
  }

  /** Returns all events; undecided text is masked. */
  flush(): readonly AgentEvent[] {
    const maskedTexts = new Map<string, string>();
    for (const [name, { joined, next }] of this.#texts) {
      for (const kind of kindsOf(next.findings)) this.#onFound(kind);
      maskedTexts.set(name, maskPlain(joined, next.findings));
      this.#ends.set(name, next.end);
    }
    const events = this.#events.map(({ event, text, delta }) => {
      if (text === undefined || delta === undefined) return event;
      const rest = maskedTexts.get(text) ?? "";
      maskedTexts.set(text, rest.slice(delta.length));
      return withDelta(event, { before: delta, after: rest.slice(0, delta.length) });
    });
    this.#events = [];
    this.#texts.clear();
    return events;
  }

  #add(text: string, delta: string, event: AgentEvent): void {
    const joined = (this.#texts.get(text)?.joined ?? "") + delta;
    const next = searchNext(this.#redactor.search, this.#ends.get(text) ?? TEXT_START, joined);
    this.#texts.set(text, { joined, next });
    this.#events.push({ event, text, delta });
  }

  #nameOf({ kind, idField }: CatalogueEntry, event: AgentEvent): string {
    const given = idField === undefined ? undefined : event[idField];
    const id = typeof given === "string" ? given : (this.#lastIds.get(kind) ?? "");
    this.#lastIds.set(kind, id);
    return `${kind} ${id}`;
  }
}

/** These effects begin or end a text or a run. */
const BORDERS: ReadonlySet<string | undefined> = new Set([
  "start",
  "end",
  "open_run",
  "finish_run",
  "fail_run",
]);

function inTime(waitMs: number) {
  return { limitMs: Math.max(0, waitMs), onTimeout: () => "late" as const, timers: systemTimers };
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
function withDelta(
  event: AgentEvent,
  { before, after }: { readonly before: string; readonly after: string },
): AgentEvent {
  if (before === after) return { ...event, delta: before };
  return { ...event, delta: after, ...("rawEvent" in event && { rawEvent: undefined }) };
}
