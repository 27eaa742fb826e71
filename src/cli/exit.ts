/** The end of a command: its exit code for scripts, and the message of a failure for people. */
import { ServiceError } from "../base/errors.ts";
import { GRPC_PORT_USUAL as GRPC_PORT } from "../config/config.ts";
import { type NoConnection, noConnectionOf, RpcFailure } from "../runner/failure.ts";
import { visible } from "./io.ts";

/** The exit codes for shell scripts; a number never changes its meaning. */
export const EXIT = {
  done: 0,
  incomplete: 1,
  usage: 2,
  unavailable: 3,
  refused: 4,
  failed: 5,
  interrupted: 130,
} as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

export function exitHelp(): string {
  return Object.entries(MEANINGS)
    .map(([code, meaning]) => `  ${code.padStart(3)}  ${meaning}`)
    .join("\n");
}

/** Aborted by the first SIGINT or SIGTERM; the second ends the process at once. */
export function endingSignal(): AbortSignal {
  const ending = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.on(signal, () => {
      if (ending.signal.aborted) process.exit(EXIT.interrupted);
      ending.abort();
    });
  }
  return ending.signal;
}

/** A mistake in the call of the command that the option parser cannot find. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

/** The message of a failure for the user, and its exit code for the script. */
export function explain(error: unknown): { readonly exitCode: ExitCode; readonly message: string } {
  if (error instanceof UsageError) return { exitCode: EXIT.usage, message: error.message };
  if (error instanceof RpcFailure) {
    const exitCode = error.mayPass ? EXIT.unavailable : EXIT.refused;
    return { exitCode, message: explainCall(error) };
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

const MEANINGS: Readonly<Record<ExitCode, string>> = {
  [EXIT.done]:
    "Done. `tail` also ends with this code on Ctrl-C, and `tail` and `export` at the next line after the reader of the output has gone.",
  [EXIT.incomplete]:
    "Partly done: `push` had refused lines, `import` refused sessions, `retention` found sessions that were locked, or `migrate status` found pending migrations.",
  [EXIT.usage]:
    "Nothing was done: an option or a setting in the environment is wrong, the database refuses its URL, or a file (of an option or of a setting) cannot be read or written, or has the wrong content.",
  [EXIT.unavailable]:
    "The service or the database could not be reached within the time of `--retry-for`. The same command can succeed later, and `push` continues where it stopped.",
  [EXIT.refused]:
    "Refused for a reason that does not pass with time: there is no such session, a port or a DATA_DIR is in use, the schema is newer than this version, or instances are connected during `migrate down`.",
  [EXIT.failed]: "A defect. stderr has the details.",
  [EXIT.interrupted]:
    "`push`, `export`, `retention` or `import` was interrupted. The same command continues where it stopped; `export` begins again.",
};

/** The user's remedy for a connection that fails. */
const ADVICE: Readonly<Record<NoConnection, string>> = {
  untrusted: "SESSION_LEDGER_TLS_CA_FILE names the trusted authorities",
  out_of_date: "the certificate must be renewed, or a clock is wrong",
  other_name: "--address must have the name that is in the service's certificate",
  asks: "SESSION_LEDGER_TLS_CERT_FILE and SESSION_LEDGER_TLS_KEY_FILE name the client's certificate",
  refuses: "SESSION_LEDGER_TLS_CERT_FILE must be from an authority that the service trusts",
  no_tls: "without SESSION_LEDGER_TLS and SESSION_LEDGER_TLS_CA_FILE the client does not use TLS",
  nobody: `is the service running, and its gRPC on another port than ${GRPC_PORT}?`,
  no_grpc: `the service has gRPC on port ${GRPC_PORT}, unless GRPC_ADDRESS says otherwise, and HTTP on another`,
  closed: "check the SESSION_LEDGER_TLS settings",
};

/** Stacks for the search of the defect; no fields, because a driver keeps values in them. */
function withCauses(error: unknown, causesMax = 4): string {
  if (!(error instanceof Error)) return String(error);
  const own = error.stack ?? error.message;
  if (error.cause === undefined || causesMax === 0) return own;
  return `${own}\ncaused by: ${withCauses(error.cause, causesMax - 1)}`;
}
