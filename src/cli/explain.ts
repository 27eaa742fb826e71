import { ServiceError } from "../base/errors.ts";
import { GRPC_PORT_USUAL as GRPC_PORT } from "../config/config.ts";
import { RpcFailure } from "../runner/failure.ts";
import { type NoConnection, noConnectionOf } from "../runner/no-connection.ts";
import { EXIT, type ExitCode } from "./exit.ts";
import { visible } from "./visible.ts";

export interface Explained {
  readonly exitCode: ExitCode;
  readonly message: string;
}

/** A mistake in the call of the command that the option parser cannot find. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

/** The message of a failure for the user, and its exit code for the script. */
export function explain(error: unknown): Explained {
  if (error instanceof UsageError) return { exitCode: EXIT.usage, message: error.message };
  if (error instanceof RpcFailure) {
    const isPassing = error.mayPass;
    return {
      exitCode: isPassing ? EXIT.unavailable : EXIT.refused,
      message: explainCall(error),
    };
  }
  if (error instanceof ServiceError) {
    // This process receives no requests, so the fault is in a setting, or in a file of a setting;
    // the message names it.
    if (error.code === "invalid_argument") {
      return { exitCode: EXIT.usage, message: error.message };
    }
    const exitCode = error.code === "unavailable" ? EXIT.unavailable : EXIT.refused;
    return { exitCode, message: `${error.reason}: ${error.message}` };
  }
  return { exitCode: EXIT.failed, message: `unexpected failure: ${withCauses(error)}` };
}

const CAUSES_MAX = 4;

/** Stacks for the search of the defect; no fields, because a driver keeps values in them. */
function withCauses(error: unknown, causesMax = CAUSES_MAX): string {
  if (!(error instanceof Error)) return String(error);
  const own = error.stack ?? error.message;
  if (error.cause === undefined || causesMax === 0) return own;
  return `${own}\ncaused by: ${withCauses(error.cause, causesMax - 1)}`;
}

/** The user's remedy for a connection that fails. */
const ADVICE: Readonly<Record<NoConnection, string>> = {
  untrusted: "SESSION_LEDGER_TLS_CA_FILE names whom to trust",
  out_of_date: "it has to be renewed, or a clock is wrong",
  other_name: "--address has to name the service as its certificate does",
  asks: "SESSION_LEDGER_TLS_CERT_FILE and SESSION_LEDGER_TLS_KEY_FILE name one",
  refuses: "SESSION_LEDGER_TLS_CERT_FILE has to be of an authority that the service trusts",
  no_tls: "without SESSION_LEDGER_TLS and SESSION_LEDGER_TLS_CA_FILE there is none here either",
  nobody: `is the service running, and its gRPC on another port than ${GRPC_PORT}?`,
  no_grpc: `the service has gRPC on port ${GRPC_PORT}, unless GRPC_ADDRESS says otherwise, and HTTP on another`,
  closed: "the SESSION_LEDGER_TLS settings say what is expected of it",
};

/** One line: the reason, the service's message, and the fields it names. */
export function explainCall(failure: RpcFailure): string {
  const { code, reason, message, violations } = failure;
  // A description may begin with its field, and the message repeats the first description.
  const fields = violations.map(({ field, description }) =>
    description.startsWith(field) ? description : `${field}: ${description}`,
  );
  const said = violations[0]?.description === message ? fields : [message, ...fields];
  const kind = noConnectionOf(failure);
  if (kind !== undefined) said.push(ADVICE[kind]);
  return visible(`${reason ?? code}: ${said.join("; ")}`);
}
