import { ID_BYTES_MAX, isSessionId } from "@session-ledger/base/ids";
import { COMPRESSOR_LIMITS } from "@session-ledger/compressor/compressor";
import {
  checkAddress,
  checkOptions,
  type Checks,
  checkTls,
  checkToken,
  integer,
  objectOf,
  ofType,
  oneOf,
  unchecked,
} from "../checks.ts";
import { credentialsOf } from "../credentials.ts";
import type { SessionWriterOptions } from "./types.ts";

const TIMEOUT_MS = 10_000;
/** setTimeout accepts no longer times. */
const TIMEOUT_MS_MAX = 2 ** 31 - 1;

/** The options with their defaults, as the parts of a writer use them. */
export type CheckedOptions = ReturnType<typeof checkedOptions>;

/** Throws for an invalid option: a programmer must learn of it before the agent runs. */
export function checkedOptions(options: SessionWriterOptions) {
  checkOptions("options", options, CHECKS);
  credentialsOf(options.tls); // Invalid PEM is reported now, and not with the first event.
  const { compression = {}, spool = {}, ...given } = options;
  const { maxAgeMs = COMPRESSOR_LIMITS.maxAgeMs, textBytesMax = COMPRESSOR_LIMITS.textBytesMax } =
    compression === false ? {} : compression;
  const { progressTimeoutMs = 15_000 } = options;
  return {
    ...given,
    messages: given.messages ?? "derive",
    lifecycleMessages: given.lifecycleMessages ?? true,
    bytesMax: spool.bytesMax ?? 64 * 1024 * 1024,
    file: spool.file,
    merges: compression !== false,
    maxAgeMs,
    textBytesMax,
    openTimeoutMs: given.openTimeoutMs ?? TIMEOUT_MS,
    callTimeoutMs: given.callTimeoutMs ?? TIMEOUT_MS,
    // A row that is still open is not acknowledged, and that does not count as silence.
    progressTimeoutMs: maxAgeMs + progressTimeoutMs,
    idleTimeoutMs: given.idleTimeoutMs ?? TIMEOUT_MS,
  };
}

/** For an invalid or absent number: the default. Never throws. */
export function flushTimeoutMs(timeoutMs: unknown): number {
  if (typeof timeoutMs !== "number" || Number.isNaN(timeoutMs)) return TIMEOUT_MS;
  return Math.min(Math.max(timeoutMs, 0), TIMEOUT_MS_MAX);
}

const timeout = integer(1, TIMEOUT_MS_MAX);
const compressionObject = objectOf({
  maxAgeMs: integer(1, 5_000),
  textBytesMax: integer(1, 65_536),
});

const CHECKS: Checks<SessionWriterOptions> = {
  address: checkAddress,
  sessionId: checkSessionId,
  token: checkToken,
  tls: checkTls,
  messages: oneOf("derive", "manual"),
  lifecycleMessages: ofType("boolean"),
  epoch: (name, value) => {
    ofType("bigint")(name, value);
    if (typeof value === "bigint" && (value < 1n || BigInt.asIntN(64, value) !== value))
      throw new RangeError(`${name} must be 1 to 2^63 - 1`);
  },
  spool: objectOf({
    bytesMax: integer(4_096, Number.MAX_SAFE_INTEGER),
    file: checkFile,
  }),
  compression: (name, value) => {
    if (value !== false) compressionObject(name, value);
  },
  onProblem: ofType("function"),
  openTimeoutMs: timeout,
  callTimeoutMs: timeout,
  progressTimeoutMs: timeout,
  idleTimeoutMs: timeout,
  clock: unchecked,
  wait: ofType("function"),
  random: ofType("function"),
};

function checkSessionId(name: string, value: unknown): void {
  if (typeof value === "string" && isSessionId(value)) return;
  throw new TypeError(`${name} must be 1 to ${ID_BYTES_MAX} bytes of [A-Za-z0-9._:-], not . or ..`);
}

function checkFile(name: string, value: unknown): void {
  if (value === undefined || (typeof value === "string" && value !== "")) return;
  throw new TypeError(`${name} must be the path of a file`);
}
