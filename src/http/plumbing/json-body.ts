/** Request bodies: JSON in UTF-8, and nothing else. */
import type { IncomingMessage } from "node:http";
import type { FastifyRequest } from "fastify";
import { serverBusy } from "../../auth/caller-memory.ts";
import { invalidArgument, ServiceError } from "../../base/errors.ts";
import { repeatedKey } from "../../contract/repeated-key.ts";
import { servedRequestOf } from "./call-context.ts";
import { placeOfMistake } from "./json-place.ts";
import { HttpRefusal } from "./problem.ts";

/** The first buffer of a body. */
const BODY_BYTES_MIN = 1_024;

/** The memory of a parsed body per byte: the bytes, their text, and the parsed value. */
const PARSED_PER_BYTE = 3;

/** Reads a body, counted in the memory of its caller, and parses it. */
export async function readBody(
  request: FastifyRequest,
  payload: IncomingMessage,
  limits: { readonly bytesMax: number },
): Promise<unknown> {
  const bytes = await receive(request, payload, limits);
  return parse(request, bytes);
}

export function parse(request: Pick<FastifyRequest, "headers">, bytes: Buffer): unknown {
  let body: unknown;
  readJson(request, bytes, (error, value) => {
    if (error !== null) throw error;
    body = value;
  });
  return body;
}

/**
 * Copies the pieces together as they arrive: each piece is an object otherwise, and a transfer in
 * chunks of one byte would turn one byte into a hundred. Node reads and drops the rest of a body
 * that is refused in the middle.
 */
export function receive(
  request: FastifyRequest,
  payload: IncomingMessage,
  { bytesMax }: { readonly bytesMax: number },
): Promise<Buffer> {
  if (Number(request.headers["content-length"]) > bytesMax) return Promise.reject(tooLarge());
  const served = servedRequestOf(request);
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  let bytes = Buffer.allocUnsafeSlow(0);
  let length = 0;
  const take = (piece: Buffer): void => {
    if (length + piece.length > bytesMax) return leave(tooLarge());
    if (length + piece.length > bytes.length) {
      const roomBytes = roomFor(length + piece.length);
      if (served.memory?.request(roomBytes) === false) return leave(serverBusy());
      const larger = Buffer.allocUnsafeSlow(roomBytes);
      bytes.copy(larger, 0, 0, length);
      bytes = larger;
    }
    length += piece.copy(bytes, length);
  };
  const end = (): void => {
    served.onCut = undefined;
    served.memory?.request(length * PARSED_PER_BYTE);
    resolve(bytes.subarray(0, length));
  };
  const leave = (error: Error): void => {
    served.onCut = undefined;
    payload.off("data", take).off("end", end).resume();
    bytes = Buffer.allocUnsafeSlow(0);
    served.memory?.request(0);
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

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** The two spellings of UTF-8; RFC 8259, section 8.1, allows no other encoding. */
const UTF_8 = /^utf-?8$/i;

/** In the form of a fastify parser; an empty body counts as absent, with any header. */
export function readJson(
  { headers }: Pick<FastifyRequest, "headers">,
  bytes: Buffer,
  done: (error: Error | null, body?: unknown) => void,
): void {
  if (bytes.length === 0) return done(null, undefined);
  const charset = charsetOf(headers["content-type"]);
  if (charset !== undefined && !UTF_8.test(charset)) return done(wrongCharset());
  const text = textOf(bytes);
  if (text === undefined) return done(notJson("it is not UTF-8"));
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    return done(notJson(placeOfMistake(text)));
  }
  const repeated = isObject(body) ? repeatedKey(text, body) : undefined;
  if (repeated !== undefined) return done(givenTwice(repeated));
  done(null, body);
}

function charsetOf(contentType: string | undefined): string | undefined {
  return /;\s*charset\s*=\s*"?([^";\s]*)/i.exec(contentType ?? "")?.[1];
}

function isObject(body: unknown): body is object {
  return typeof body === "object" && body !== null && !Array.isArray(body);
}

function textOf(bytes: Buffer): string | undefined {
  try {
    return utf8.decode(bytes);
  } catch {
    return undefined;
  }
}

export function checkContentCoding(coding: string | undefined): ServiceError | undefined {
  if (coding === undefined || coding.trim().toLowerCase() === "identity") return undefined;
  return new HttpRefusal(415, "Content-Encoding must be identity", {
    headers: { "accept-encoding": "identity" },
    violations: [{ field: "Content-Encoding", description: "Content-Encoding must be identity" }],
  });
}

function wrongCharset(): ServiceError {
  const description = "Content-Type must have no charset, or utf-8";
  return new HttpRefusal(415, description, {
    headers: { accept: "application/json" },
    violations: [{ field: "Content-Type", description }],
  });
}

function givenTwice(key: string): ServiceError {
  const description = key === "" ? "the body must have each key once" : `${key} must be given once`;
  return invalidArgument([{ field: key, description }]);
}

/** Names the place of the mistake, and never the text there: V8 quotes the body in its messages. */
function notJson(where: string | undefined): ServiceError {
  const description = `the body is not valid JSON${where === undefined ? "" : `: ${where}`}`;
  return invalidArgument([{ field: "", description }]);
}
