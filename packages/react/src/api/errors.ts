/** Why a call has failed. */
export interface Violation {
  readonly field: string;
  readonly description: string;
}

/** A refusal: problem+json (RFC 9457), or another answer that is no success. */
export class ApiError extends Error {
  readonly status: number;
  /** The reason for programs, such as `SESSION_NOT_FOUND`; empty when the answer had none. */
  readonly reason: string;
  readonly violations: readonly Violation[];

  constructor(
    status: number,
    message: string,
    options: { readonly reason?: string; readonly violations?: readonly Violation[] } = {},
  ) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.reason = options.reason ?? "";
    this.violations = options.violations ?? [];
  }
}

/** The service did not answer at all. */
export class NoAnswer extends Error {
  readonly reason = "NO_ANSWER";

  constructor(cause: unknown) {
    super("The service does not answer.", { cause });
    this.name = "NoAnswer";
  }
}
