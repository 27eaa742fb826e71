/** What a person sends: the forms that docs/http.md and docs/ag-ui.md give it. */
import { type JsonObject, parseJson } from "@session-ledger/agui/json";
import { GRAPH_INTERRUPT_ID } from "@session-ledger/agui/run-end";

/**
 * The payload of a message. A payload that is a JSON object has another meaning
 * (docs/ag-ui.md, Messages of people), but a person who types an object means its text.
 */
export function payloadOf(text: string, files: readonly AttachedFile[] = []): string {
  if (files.length > 0) return JSON.stringify(inputOf(text, files));
  return /^\s*\{/.test(text) ? JSON.stringify({ text }) : text;
}

/** A file that a person adds to a message. */
export interface AttachedFile {
  readonly name: string;
  readonly mimeType: string;
  /** In base64. */
  readonly data: string;
}

/** The kinds of media of AG-UI; anything else is a document. */
const MEDIA = /^(image|audio|video)\//;

/** A RunAgentInput with one message, whose parts are the text and the files. */
function inputOf(text: string, files: readonly AttachedFile[]): JsonObject {
  const content = [
    ...(text.trim() === "" ? [] : [{ type: "text", text }]),
    ...files.map(({ name, mimeType, data }) => ({
      type: MEDIA.exec(mimeType)?.[1] ?? "document",
      source: { type: "data", value: data, mimeType },
      metadata: { filename: name },
    })),
  ];
  return { messages: [{ role: "user", content }] };
}

/** A message that begins a branch: the same message is answered again, or another one takes its place. */
export type Branching =
  | { readonly regenerates: string; readonly content: unknown }
  | { readonly edits: string; readonly content: string };

/** The marks of docs/http.md, "Regenerate and edit". */
export function branchPayload({ content, ...metadata }: Branching): string {
  const id = "regenerates" in metadata ? { id: metadata.regenerates } : {};
  return JSON.stringify({ messages: [{ ...id, role: "user", content, metadata }] });
}

/** Of all files of a message together: a payload has at most 4,170,000 bytes, and base64 takes a third more. */
export const FILES_BYTES_MAX = 3_000_000;

export type Answer =
  | { readonly status: "resolved"; readonly payload: unknown }
  | { readonly status: "cancelled" };

/**
 * The input of a run that answers interrupts. The service stores each answer once. A graph gets what is JSON of
 * more than a number as its value, and anything else as text.
 */
export function answering(
  threadId: string,
  answers: readonly (readonly [interruptId: string, answer: Answer])[],
): JsonObject {
  const graph = answers.find(([interruptId]) => interruptId === GRAPH_INTERRUPT_ID)?.[1];
  const resume = answers
    .filter(([, answer]) => answer !== graph)
    .map(([interruptId, answer]) => ({ interruptId, ...answer }));
  const forwardedProps =
    graph?.status === "resolved" ? { command: { resume: graphValue(graph.payload) } } : {};
  const nothing = { state: {}, messages: [], tools: [], context: [] };
  return { threadId, runId: "", ...nothing, forwardedProps, resume };
}

function graphValue(payload: unknown): unknown {
  const value = typeof payload === "string" ? parseJson(payload) : payload;
  return typeof value === "object" || typeof value === "boolean" ? value : payload;
}

/**
 * The keys of a person's messages. A text keeps its key until it is stored, so a second click and a
 * retry after a lost answer store it once. Another text has another key: the first one may be stored.
 */
export class SendKeys {
  readonly #newKey: () => string;
  #last: { readonly content: string; readonly key: string } | undefined;

  constructor(newKey: () => string = randomKey) {
    this.#newKey = newKey;
  }

  keyOf(content: string): string {
    if (this.#last?.content !== content) this.#last = { content, key: this.#newKey() };
    return this.#last.key;
  }

  /** The message is stored: the same text is a new message from now on. */
  stored(): void {
    this.#last = undefined;
  }
}

/** `crypto.randomUUID` is missing on a page without https that is not of this machine. */
function randomKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `web-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
