/**
 * The input of AG-UI clients, which send all their messages, state and tools. The service uses
 * little of it, and the answers last long, so the input is received, parsed and freed here.
 *
 *   received ── in the memory of its caller ──► weighed ──► parsed ──► reduced ──► the route, the answer
 *      └── 413 too large, 429 no room                │
 *                                                    └── 400 more structure than text, or too deep
 *
 * - Weighed: the cost of parsing depends on the number of values, and not on the bytes. 16 MiB of
 * `{},` take 340 MB and 2.3 s to parse; 16 MiB of text take 15 ms (Node 24). At the bound, the
 * worst input found, half a million objects with one distinct key each, takes 92 MB and 1 s.
 * - Parsed and reduced in one synchronous step, so at most one parsed input exists at a time.
 */
import type { IncomingMessage } from "node:http";
import type { FastifyReply, FastifyRequest } from "fastify";
import { serverBusy } from "../base/budget.ts";
import { invalidArgument, type ServiceError } from "@session-ledger/base/errors";
import { BODY_DEPTH_MAX } from "../contract/checks.ts";
import { bytesOf, clientMessagesIn } from "../conversation/client-messages.ts";
import { charsOf, type RunInputParts, runInputIn } from "../conversation/run-input.ts";
import type { App } from "./plumbing/app.ts";
import { callContextOf } from "./plumbing/call-context.ts";
import { parse, receive } from "./plumbing/json-body.ts";
import { parseExact } from "@session-ledger/agui/exact-json";
import { isObject, type JsonObject } from "@session-ledger/agui/json";
import { outline } from "@session-ledger/agui/spans";

export type InputLimits = typeof INPUT_LIMITS;

export const INPUT_LIMITS = {
  /**
   * Messages and state are at most a snapshot of 8 Mi characters each, and additions of the client.
   */
  bytesMax: 16 * 1024 * 1024,
  /**
   * The count of `{`, `[` and `,` outside of strings: one mark in 17 bytes of the largest input; a
   * message has four or more, in more than 68 bytes.
   */
  marksMax: 1_000_000,
  /** Levels of objects and lists. */
  depthMax: BODY_DEPTH_MAX,
};

/** The limit of a thread id, a run id or a version. */
const TEXT_CHARS_MAX = 1_024;

export class AguiInputs {
  readonly #limits: InputLimits;
  /** What may be new in the inputs that no route has taken yet. */
  readonly #inputs = new WeakMap<FastifyRequest, RunInputParts>();

  constructor(limits = INPUT_LIMITS) {
    this.#limits = limits;
  }

  /** After this call the routes of this plugin, and no others, get reduced inputs. */
  serve(app: App): void {
    app.removeContentTypeParser("application/json");
    app.addContentTypeParser(
      "application/json",
      (request: FastifyRequest, payload: IncomingMessage) => this.#read(request, payload),
    );
  }

  /** Holds the messages of a reduced input for as long as the answer lasts. */
  keep(messages: readonly unknown[] | null | undefined, { request }: FastifyReply) {
    const clientMessages = clientMessagesIn(messages ?? [], { field: "messages" });
    const runInput = this.#inputs.get(request);
    this.#inputs.delete(request);
    const bytes = bytesOf(clientMessages) + (runInput === undefined ? 0 : 2 * charsOf(runInput));
    if (callContextOf(request).memory?.resize("request", bytes) === false) throw serverBusy();
    return { messages: clientMessages, runInput };
  }

  async #read(request: FastifyRequest, payload: IncomingMessage): Promise<unknown> {
    try {
      const bytes = await receive(request, payload, this.#limits);
      const body = parse(request, bytes, (text) => {
        checkMarks(text, this.#limits);
        return parseExact(text); // Numbers keep their spelling: parts of the input are stored.
      });
      const runInput = runInputInBody(body);
      if (runInput !== undefined) this.#inputs.set(request, runInput);
      return reducedBody(body);
    } finally {
      callContextOf(request).memory?.resize("request", 0);
    }
  }
}

/** The parser finds invalid JSON. */
function checkMarks(text: string, { marksMax, depthMax }: InputLimits): void {
  const { marks, depth } = outline(text);
  if (marks > marksMax) throw tooMuch(`have at most ${marksMax} values`);
  if (depth > depthMax) throw tooMuch(`be at most ${depthMax} levels deep`);
}

function tooMuch(bound: string): ServiceError {
  return invalidArgument([{ field: "", description: `the body must ${bound}` }]);
}

/** From an input, or from the one in an envelope. */
function runInputInBody(body: unknown): RunInputParts | undefined {
  if (!isObject(body)) return undefined;
  const { body: input } = body;
  return isObject(input) ? runInputIn(input, "body.") : runInputIn(body, "");
}

/** An input, or the envelope of one: only the used fields. A wrong value stays wrong. */
function reducedBody(body: unknown): unknown {
  if (!isObject(body)) return short(body, "the body");
  const { method, params, body: input } = body;
  return {
    ...reducedInput(body, ""),
    method: short(method, "method"),
    params: isObject(params)
      ? { threadId: short(params["threadId"], "params.threadId") }
      : short(params, "params"),
    body: isObject(input) ? reducedInput(input, "body.") : short(input, "body"),
  };
}

function reducedInput(input: JsonObject, path: "" | "body."): JsonObject {
  const { threadId, runId, protocolVersion, messages, resume, forwardedProps } = input;
  return {
    threadId: short(threadId, `${path}threadId`),
    runId: short(runId, `${path}runId`),
    protocolVersion: short(protocolVersion, `${path}protocolVersion`),
    messages: Array.isArray(messages)
      ? clientMessagesIn(messages, { field: `${path}messages` })
      : short(messages, `${path}messages`),
    resume: Array.isArray(resume) ? [] : short(resume, `${path}resume`),
    forwardedProps: { follow: isObject(forwardedProps) && forwardedProps["follow"] === true },
  };
}

/** For a value that should be a short text or is wrong in any case. */
function short(value: unknown, field: string): unknown {
  if (Array.isArray(value)) return [];
  if (isObject(value)) return {};
  if (typeof value !== "string" || value.length <= TEXT_CHARS_MAX) return value;
  const description = `${field} must have at most ${TEXT_CHARS_MAX} characters`;
  throw invalidArgument([{ field: field === "the body" ? "" : field, description }]);
}
