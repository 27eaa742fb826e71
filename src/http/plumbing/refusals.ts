/** Turns errors of the framework into errors that the caller may read. */
import type { z } from "zod";
import { invalidArgument, ServiceError } from "../../base/errors.ts";
import { HttpRefusal } from "./problem.ts";

const BY_CODE: Readonly<Record<string, () => HttpRefusal>> = {
  FST_ERR_CTP_BODY_TOO_LARGE: () =>
    new HttpRefusal(413, "the request is too large", {
      code: "overloaded",
      reason: "REQUEST_TOO_LARGE",
    }),
  FST_ERR_CTP_INVALID_MEDIA_TYPE: () => {
    const description = "Content-Type must be application/json";
    return new HttpRefusal(415, description, {
      headers: { accept: "application/json" },
      violations: [{ field: "Content-Type", description }],
    });
  },
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: () =>
    new HttpRefusal(400, "the body is not as long as Content-Length says"),
  FST_ERR_BAD_URL: () => new HttpRefusal(400, "the path is not URL-encoded UTF-8"),
  FST_ERR_MAX_PARAM_LENGTH: () => new HttpRefusal(414, "the path is too long"),
  // The connection closed while the body was read.
  ECONNRESET: () =>
    new HttpRefusal(400, "the caller left", { code: "cancelled", reason: "CANCELLED" }),
};

export function refusalOf(cause: unknown): ServiceError {
  const known = BY_CODE[codeOf(cause) ?? ""];
  return known === undefined ? ServiceError.from(cause) : known();
}

/** Zod's issues by the names of the parameters; each unknown parameter is named separately. */
export function refusalOfIssues(issues: readonly z.core.$ZodIssue[]): ServiceError {
  const violations = issues.flatMap((issue) => {
    const field = issue.path.join(".");
    if (issue.code !== "unrecognized_keys") {
      return [{ field, description: descriptionOf(field, issue.message) }];
    }
    return issue.keys.map((key) => {
      const path = field === "" ? key : `${field}.${key}`;
      return { field: path, description: `${path} is not known here` };
    });
  });
  return invalidArgument(violations);
}

/** Our own messages continue after the name; Zod's are whole sentences. */
function descriptionOf(field: string, message: string): string {
  const name = field === "" ? "the body" : field;
  return /^(?:must|is) /.test(message) ? `${name} ${message}` : `${name}: ${message}`;
}

function codeOf(cause: unknown): string | undefined {
  if (typeof cause !== "object" || cause === null || !("code" in cause)) return undefined;
  return typeof cause.code === "string" ? cause.code : undefined;
}
