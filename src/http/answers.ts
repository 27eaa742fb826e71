/** The answers of routes, and their description in the OpenAPI document. */
import type { FastifyReply } from "fastify";
import { z } from "zod";
import { PROBLEM_TYPE } from "./plumbing/problem.ts";

export const JSON_TYPE = "application/json";

/**
 * Sends text that is JSON already, as bytes: to text fastify would add a charset, which JSON does
 * not have.
 */
export function sendJson(
  reply: FastifyReply,
  text: string,
  { status = 200 }: { readonly status?: number } = {},
): FastifyReply {
  return reply.code(status).type(JSON_TYPE).send(Buffer.from(text));
}

const problemSchema = z
  .strictObject({
    type: z.literal("about:blank"),
    title: z.string(),
    status: z.int(),
    detail: z.string().optional(),
    reason: z.string().meta({ description: "Why, for programs; as gRPC's ErrorInfo has it." }),
    violations: z
      .array(
        z.strictObject({
          field: z.string().meta({ description: "Empty: the request as a whole." }),
          description: z.string(),
        }),
      )
      .optional(),
  })
  .meta({ id: "Problem", description: "RFC 9457." });

const problem = (description: string) => ({
  description,
  content: { [PROBLEM_TYPE]: { schema: problemSchema } },
});

/** The refusals of callers without a valid token, or without the right role. */
export const DENIALS = {
  401: problem("No token, or one that is not accepted or has expired."),
  403: problem("The token's roles do not allow it."),
} as const;

/** The refusals of every route. */
export const PROBLEMS = {
  ...DENIALS,
  "4xx": problem("The request is at fault; `violations` names what."),
  "5xx": problem("The service is at fault, or stops; with Retry-After, try again."),
} as const;

/** An answer that is one kind of content. */
export function answer(description: string, schema: z.ZodType, type = JSON_TYPE) {
  return { description, content: { [type]: { schema } } };
}
