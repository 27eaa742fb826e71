import { ServiceError } from "../base/errors.ts";

/**
 * The embedded server cannot start, and the person who started the service can fix it: the message
 * says how.
 */
export function refusal(message: string, cause?: unknown): ServiceError {
  return new ServiceError("failed_precondition", "DATABASE_UNAVAILABLE", message, { cause });
}

export function hasCode(error: unknown, ...codes: readonly string[]): boolean {
  return error instanceof Error && "code" in error && codes.includes(String(error.code));
}
