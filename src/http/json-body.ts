/** Bodies: JSON in UTF-8, and nothing else. */
import type { FastifyRequest } from "fastify";
import { invalidArgument, type ServiceError } from "../base/errors.ts";
import { placeOfMistake } from "./json-place.ts";
import { HttpRefusal } from "./problem.ts";

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** As fastify calls a parser; no bytes are no body, whatever the header says. */
export function readJson(
  _request: FastifyRequest,
  bytes: Buffer,
  done: (error: Error | null, body?: unknown) => void,
): void {
  if (bytes.length === 0) return done(null, undefined);
  const text = textOf(bytes);
  if (text === undefined) return done(notJson("it is not UTF-8"));
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    return done(notJson(placeOfMistake(text)));
  }
  done(null, body);
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

/** Where it breaks off, and never what is there: V8 quotes the body in its messages. */
function notJson(where: string | undefined): ServiceError {
  const description = `the body is not valid JSON${where === undefined ? "" : `: ${where}`}`;
  return invalidArgument([{ field: "", description }]);
}
