/** Bodies: JSON in UTF-8, and nothing else. */
import type { FastifyRequest } from "fastify";
import { invalidArgument, type ServiceError } from "../base/errors.ts";
import { repeatedKey } from "../handlers/repeated-key.ts";
import { placeOfMistake } from "./json-place.ts";
import { HttpRefusal } from "./problem.ts";

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** Its two spellings; JSON in any other encoding is none, by RFC 8259, section 8.1. */
const UTF_8 = /^utf-?8$/i;

/** As fastify calls a parser; no bytes are no body, whatever the header says. */
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

/** Where it breaks off, and never what is there: V8 quotes the body in its messages. */
function notJson(where: string | undefined): ServiceError {
  const description = `the body is not valid JSON${where === undefined ? "" : `: ${where}`}`;
  return invalidArgument([{ field: "", description }]);
}
