/** Request bodies: JSON in UTF-8, and nothing else. */
import type { IncomingMessage } from "node:http";
import type { FastifyRequest } from "fastify";
import { serverBusy } from "../../base/budget.ts";
import { invalidArgument, ServiceError } from "@session-ledger/base/errors";
import { utf8Of } from "@session-ledger/base/utf8";
import { checkBodyDepth, refuse, repeatedKey } from "../../contract/checks.ts";
import { callContextOf } from "./call-context.ts";
import { notJsonType } from "./problem.ts";

/** The first buffer of a body. */
const BODY_BYTES_MIN = 1_024;

/** The memory of a parsed body per byte: the bytes, their text, and the parsed value. */
const PARSED_PER_BYTE = 3;

export function parseValue(text: string): unknown {
  refuse([checkBodyDepth(text)]);
  return JSON.parse(text);
}

/**
 * Reads a body, counted in the memory of its caller. Copies the pieces together as they arrive: in chunks of one byte, objects of pieces would take a
 * hundred times the body. Node reads and drops the rest of a refused body.
 */
export function receive(
  request: FastifyRequest,
  payload: IncomingMessage,
  { bytesMax }: { readonly bytesMax: number },
): Promise<Buffer> {
  const declaredBytes = Number(request.headers["content-length"] ?? 0);
  if (declaredBytes > bytesMax) return Promise.reject(tooLarge());
  const served = callContextOf(request);
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  if (served.memory?.resize("request", declaredBytes) === false) {
    return Promise.reject(serverBusy());
  }
  let bytes = Buffer.allocUnsafeSlow(0);
  let length = 0;
  const take = (piece: Buffer): void => {
    if (length + piece.length > bytesMax) return leave(tooLarge());
    if (length + piece.length > bytes.length) {
      const roomBytes = Math.max(declaredBytes, roomFor(length + piece.length));
      if (served.memory?.resize("request", roomBytes) === false) return leave(serverBusy());
      const larger = Buffer.allocUnsafeSlow(roomBytes);
      bytes.copy(larger, 0, 0, length);
      bytes = larger;
    }
    length += piece.copy(bytes, length);
  };
  const end = (): void => {
    // The body has arrived, so its value is counted and cannot be refused.
    served.memory?.takeOver("request", length * PARSED_PER_BYTE);
    served.onCut = undefined;
    resolve(bytes.subarray(0, length));
  };
  const leave = (error: Error): void => {
    served.onCut = undefined;
    payload.off("data", take).off("end", end).resume();
    bytes = Buffer.allocUnsafeSlow(0);
    served.memory?.resize("request", 0);
    reject(error);
  };
  served.onCut = leave;
  payload.on("data", take).once("end", end).once("error", leave);
  return promise;
}

/** Doubled, so that on average a byte is copied at most twice. */
function roomFor(bytes: number): number {
  let roomBytes = BODY_BYTES_MIN;
  while (roomBytes < bytes) roomBytes *= 2;
  return roomBytes;
}

function tooLarge(): ServiceError {
  return new ServiceError("overloaded", "REQUEST_TOO_LARGE", "the request is too large");
}

/** The two spellings of UTF-8; RFC 8259, section 8.1, allows no other encoding. */
const UTF_8 = /^utf-?8$/i;

/** An empty body counts as absent, with any header. */
export function parse(
  request: Pick<FastifyRequest, "headers">,
  bytes: Buffer,
  parseText: (text: string) => unknown = JSON.parse,
): unknown {
  if (bytes.length === 0) return undefined;
  const text = readText(request, bytes);
  let body: unknown;
  try {
    body = parseText(text);
  } catch (error) {
    if (error instanceof ServiceError) throw error;
    throw notJson(placeOfMistake(text));
  }
  if (typeof body !== "object" || body === null || Array.isArray(body)) return body;
  const repeated = repeatedKey(text, body);
  if (repeated === undefined) return body;
  const description =
    repeated === "" ? "the body must have each key once" : `${repeated} must be given once`;
  throw invalidArgument([{ field: repeated, description }]);
}

/** The text of a body that is JSON, or should be. */
export function readText({ headers }: Pick<FastifyRequest, "headers">, bytes: Buffer): string {
  checkCharset(headers["content-type"]);
  const text = utf8Of(bytes, { isStart: true });
  if (text === undefined) throw notJson("it is not UTF-8");
  return text;
}

export function checkCharset(contentType: string | undefined): void {
  const charset = /;\s*charset\s*=\s*"?([^";\s]*)/i.exec(contentType ?? "")?.[1];
  if (charset !== undefined && !UTF_8.test(charset)) {
    throw notJsonType("Content-Type must have no charset, or utf-8");
  }
}

/** Names the position of the mistake, and never its text: V8 quotes the body in its messages. */
function notJson(where: string | undefined): ServiceError {
  const description = `the body is not valid JSON${where === undefined ? "" : `: ${where}`}`;
  return invalidArgument([{ field: "", description }]);
}

/**
 * Finds where a text stops being JSON. For an unexpected token V8 quotes the text and no position,
 * so a binary search finds it: a prefix that ends before the mistake fails only at its end.
 */

/** The longest text that is searched: 17 parses of this size take some milliseconds. */
const LOOKED_FOR_CHARS_MAX = 64 * 1024;

/** For a text that JSON.parse refuses; undefined where the search would cost too much. */
function placeOfMistake(text: string): string | undefined {
  const reported = positionIn(messageOf(text));
  if (reported === undefined && text.length > LOOKED_FOR_CHARS_MAX) return undefined;
  const position = reported ?? lookFor(text);
  if (position >= text.length) return "it ends too early";
  const lines = text.slice(0, position).split("\n");
  const column = (lines.at(-1)?.length ?? 0) + 1;
  return `at character ${position + 1} (line ${lines.length}, column ${column})`;
}

function lookFor(text: string): number {
  let low = 0;
  let high = text.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (endsTooEarly(text.slice(0, middle + 1))) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** A complete prefix counts too: more might follow. */
function endsTooEarly(text: string): boolean {
  const message = messageOf(text);
  if (message === undefined || message === "Unexpected end of JSON input") return true;
  return (positionIn(message) ?? 0) >= text.length;
}

function messageOf(text: string): string | undefined {
  try {
    JSON.parse(text);
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : "";
  }
}

function positionIn(message: string | undefined): number | undefined {
  const position = / in JSON at position (\d+)| after JSON at position (\d+)/.exec(message ?? "");
  return position === null ? undefined : Number(position[1] ?? position[2]);
}
