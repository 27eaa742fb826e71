/**
 * Masks the texts of a session that arrive in rows: messages, tool calls and thoughts. Each row is
 * searched with the last characters of the earlier rows of its text:
 *
 *   tail │ row                 the row is masked, and never held back
 *   …ghp_│Ab3k      │          ends in what may be a secret: masked, and open
 *           …ghp_****│Q9 and   the rest of an open secret is masked
 *
 * A wrong mask, where only the beginning of a row looked like a secret, is a nuisance; a stored
 * secret stays stored.
 *
 * The texts are those that the transcript joins: the text of a message or of a tool call is every
 * piece under its id, from any sender, with any ends and new beginnings between two pieces.
 *
 *   CONTENT, ARGS ──► its kind and id
 *   CHUNK ──────────► the construct that agui/constructs.ts finds, or else a new one; where
 *                     it has no id, it also counts as a piece of the last CHUNK of its kind
 *   TEXT_MESSAGE_ and REASONING_MESSAGE_ of one id ──► each alone, and both as one
 *   THINKING_TEXT_MESSAGE_, which has no id ──► a new one from each START, and after each END
 *
 * The construct that a CHUNK continues depends on the run. When the beginning of the run was not
 * seen, its end ends no CHUNKs. A text that continues too long costs at most a wrong mask at the
 * beginning of a word; a text that ends too early costs a secret.
 */
import { createHash } from "node:crypto";
import type { ConstructKind } from "../catalogue.ts";
import {
  ChunkLanes,
  type Effect,
  EFFECTS,
  type EventAddress,
  type Phase,
  phaseAfter,
} from "../constructs.ts";
import {
  charactersOf,
  kindsOf,
  maskSpelled,
  type OnFound,
  type Range,
  searchNext,
  type SecretSearch,
  TEXT_START,
  type TextEnd,
} from "./search.ts";

/** Texts that are followed at once; the least recently used one is forgotten. */
const TEXTS_MAX = 64;
/** Texts that are remembered for the next stream of the session. */
const TEXTS_LEFT_MAX = 16;

export class StreamingRedactor {
  readonly #search: SecretSearch;
  readonly #onFound: OnFound;
  /** The most recently used one is the last one. */
  readonly #texts = new Map<string, TextEnd>();
  readonly #lanes = new ChunkLanes();
  /** At first as after a failure: when the beginning of a run was not seen, its end ends nothing. */
  #phase: Phase = "failed";
  /** CHUNKs that began a construct without an id. */
  #nameless = 0;
  /** For each kind, the construct of its last CHUNK. */
  readonly #chunked = new Map<ConstructKind | undefined, string>();

  constructor(search: SecretSearch, onFound: OnFound) {
    this.#search = search;
    this.#onFound = onFound;
  }

  /** The row's text, the body of a JSON string, with the secrets masked; undefined: it has none. */
  mask(address: EventAddress, spelled: string): string | undefined {
    const characters = charactersOf(spelled);
    const masks: Range[] = [];
    for (const [index, name] of this.#namesOf(address).entries()) {
      const before = this.#texts.get(name) ?? TEXT_START;
      const { findings, end } = searchNext(this.#search, before, characters);
      this.#texts.delete(name);
      this.#texts.set(name, end);
      masks.push(...findings);
      if (index === 0) for (const kind of kindsOf(findings)) this.#onFound(kind);
    }
    this.#forgetOldest(TEXTS_MAX);
    return masks.length === 0 ? undefined : maskSpelled(spelled, masks);
  }

  /** Passes an event without a text, which may begin or end one. */
  pass(address: EventAddress): void {
    const effect = effectOf(address);
    if (this.#endsRun(effect) || effect.kind === "thinking_message") this.#texts.delete(THOUGHT);
    this.#follow(address, effect);
  }

  /** Forgets most texts: the session may have a next stream, and many sessions are remembered. */
  leave(): void {
    this.#forgetOldest(TEXTS_LEFT_MAX);
    if (this.#lanes.size > TEXTS_LEFT_MAX) this.#lanes.endAll();
  }

  /** The names of all texts that the next piece of the place's text belongs to. */
  #namesOf(address: EventAddress): readonly string[] {
    const effect = effectOf(address);
    const { kind } = effect;
    const before = this.#nameless;
    const id = this.#follow(address, effect);
    const name = kind === "thinking_message" ? THOUGHT : `${kind} ${id}`;
    if (this.#nameless > before) this.#beginContinuation(name, this.#chunked.get(kind));
    if (effect.does === "chunk") this.#chunked.set(kind, name);
    const continuation = continuationOf(name);
    return [
      name,
      ...this.#bothKinds(kind, id),
      ...(this.#texts.has(continuation) ? [continuation] : []),
    ];
  }

  /** Ends the CHUNKs that the event ends; returns the id of the event's construct. */
  #follow(address: EventAddress, effect: Effect): string {
    const { does, kind } = effect;
    const owner = address.owner === undefined ? undefined : short(address.owner);
    const key = address.key === undefined ? undefined : `id ${short(address.key)}`;
    if (kind !== "run" || this.#endsRun(effect)) {
      const { construct } = this.#lanes.follow(effect, { key, owner });
      if (construct !== undefined) return construct.key;
    }
    this.#phase = phaseAfter(this.#phase, effect) ?? this.#phase;
    if (does !== "chunk" || kind === undefined) return key ?? "";
    const newKey = key ?? `nameless ${(this.#nameless += 1)}`;
    this.#lanes.begin(owner, { kind, key: newKey });
    return newKey;
  }

  #endsRun(effect: Effect): boolean {
    return effect.kind === "run" && phaseAfter(this.#phase, effect) !== undefined;
  }

  /** An answer and a reasoning with one id are one message to clients that find messages by id. */
  #bothKinds(kind: ConstructKind | undefined, id: string): readonly string[] {
    if (kind !== "text" && kind !== "reasoning_message") return [];
    const both = `message ${id}`;
    if (!this.#texts.has(both)) {
      const other = this.#texts.get(`${kind === "text" ? "reasoning_message" : "text"} ${id}`);
      if (other === undefined) return [];
      this.#texts.set(both, other);
    }
    return [both];
  }

  /** A nameless CHUNK after CUSTOM is a new message, or for readers of rows a continuation. */
  #beginContinuation(name: string, last = ""): void {
    const end = this.#texts.get(continuationOf(last)) ?? this.#texts.get(last);
    if (end !== undefined) this.#texts.set(continuationOf(name), end);
  }

  #forgetOldest(max: number): void {
    for (const oldest of this.#texts.keys()) {
      if (this.#texts.size <= max) return;
      this.#texts.delete(oldest);
    }
  }
}

/** The text of the open thinking, if any is open. */
const THOUGHT = "thought";

function effectOf({ type }: EventAddress): Effect {
  return EFFECTS.get(type) ?? NO_EFFECT;
}

const NO_EFFECT: Effect = { does: "nothing", kind: undefined, endsChunks: "of_nobody" };

/** The name of a text that, for some readers, continues the text before it. */
function continuationOf(name: string): string {
  return `after ${name}`;
}

/** The longest id that is noted as it is; a UUID has 36 characters. */
const ID_CHARS_MAX = 256;

/** An id may be as long as a payload, and many are kept. */
function short(text: string): string {
  if (text.length <= ID_CHARS_MAX) return text;
  return `${text.length} ${createHash("sha256").update(text).digest("base64")}`;
}
