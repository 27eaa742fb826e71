/**
 * The input of AG-UI clients, which send all that they have: messages, state, tools. Next to nothing of
 * it is used, and their answers last; so it is received, parsed and let go of here.
 *
 *   received ── in the memory of its caller ──► weighed ──► parsed ──► reduced ──► the route, the answer
 *      └── 413 too large, 429 no room                │
 *                                                    └── 400 more structure than text
 *
 * - Weighed: what parsing costs goes by the values, and not by the bytes. 16 MiB of `{},` take 340 MB
 *   and 2.3 s to parse, the same of text 15 ms (Node 24). At the bound, the worst that was found, half a
 *   million objects of a key each of their own, take 92 MB and 1 s.
 * - Parsed and reduced in one go, so there is one parsed input at a time, whatever comes.
 */
import type { IncomingMessage } from "node:http";
import type { FastifyReply, FastifyRequest } from "fastify";
import { serverBusy } from "../auth/caller-memory.ts";
import { invalidArgument } from "../base/errors.ts";
import { bytesOf, keptOf, type KeptMessage } from "../conversation/kept.ts";
import type { App } from "./plumbing/app.ts";
import { servedRequestOf } from "./plumbing/call-context.ts";
import { parse, receive } from "./plumbing/json-body.ts";

export interface InputLimits {
  readonly bytesMax: number;
  /** `{`, `[` and `,` outside of strings. */
  readonly marksMax: number;
}

export const INPUT_LIMITS: InputLimits = {
  /**
   * Messages and state are at most a snapshot of 8 Mi characters each, with what a client adds; nothing
   * that any client is known to send comes near it.
   */
  bytesMax: 16 * 1024 * 1024,
  // One in 17 bytes of the largest input. A message has four or more, and is longer than 68 bytes.
  marksMax: 1_000_000,
};

/** Of a thread, a run or a version. */
const TEXT_CHARS_MAX = 1_024;

export class AguiInputs {
  readonly #limits: InputLimits;

  constructor(limits = INPUT_LIMITS) {
    this.#limits = limits;
  }

  /** From here on the routes of this plugin, and no others, are given reduced inputs. */
  serve(app: App): void {
    app.removeContentTypeParser("application/json");
    app.addContentTypeParser(
      "application/json",
      (request: FastifyRequest, payload: IncomingMessage) => this.#read(request, payload),
    );
  }

  /** The messages of a reduced input, for as long as the answer lasts. */
  keep(
    messages: readonly unknown[] | null | undefined,
    reply: FastifyReply,
  ): readonly KeptMessage[] {
    const kept = keptOf(messages ?? [], { field: "messages" });
    const { memory } = servedRequestOf(reply.request);
    if (memory?.request(bytesOf(kept)) === false) throw serverBusy();
    return kept;
  }

  async #read(request: FastifyRequest, payload: IncomingMessage): Promise<unknown> {
    try {
      const bytes = await receive(request, payload, this.#limits);
      checkMarks(bytes, this.#limits);
      return reducedBody(parse(request, bytes));
    } finally {
      servedRequestOf(request).memory?.request(0);
    }
  }
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const BRACE = 0x7b;
const BRACKET = 0x5b;

/** By bytes: UTF-8 has these nowhere else. What is no JSON is found when it is parsed. */
function checkMarks(bytes: Buffer, { marksMax }: InputLimits): void {
  let marks = 0;
  let isInString = false;
  for (let at = 0; at < bytes.length; at += 1) {
    const byte = bytes[at];
    if (byte === QUOTE) isInString = !isInString;
    else if (isInString) at += byte === BACKSLASH ? 1 : 0;
    else if (byte === COMMA || byte === BRACE || byte === BRACKET) marks += 1;
  }
  if (marks <= marksMax) return;
  const description = `the body must have at most ${marksMax} values`;
  throw invalidArgument([{ field: "", description }]);
}

type Members = Readonly<Record<string, unknown>>;

function isObject(value: unknown): value is Members {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** An input, or the envelope of one; all of it that is looked at, and what is wrong stays wrong. */
function reducedBody(body: unknown): unknown {
  if (!isObject(body)) return short(body, "the body");
  const { method, body: input } = body;
  return {
    ...reducedInput(body, ""),
    method: short(method, "method"),
    body: isObject(input) ? reducedInput(input, "body.") : short(input, "body"),
  };
}

function reducedInput(input: Members, path: "" | "body."): Members {
  const { threadId, runId, protocolVersion, messages, forwardedProps } = input;
  return {
    threadId: short(threadId, `${path}threadId`),
    runId: short(runId, `${path}runId`),
    protocolVersion: short(protocolVersion, `${path}protocolVersion`),
    messages: Array.isArray(messages)
      ? keptOf(messages, { field: `${path}messages` })
      : short(messages, `${path}messages`),
    forwardedProps: { follow: isObject(forwardedProps) && forwardedProps["follow"] === true },
  };
}

/** Of what should be a short text or is wrong anyhow. */
function short(value: unknown, field: string): unknown {
  if (Array.isArray(value)) return [];
  if (isObject(value)) return {};
  if (typeof value !== "string" || value.length <= TEXT_CHARS_MAX) return value;
  const description = `${field} must have at most ${TEXT_CHARS_MAX} characters`;
  throw invalidArgument([{ field: field === "the body" ? "" : field, description }]);
}
