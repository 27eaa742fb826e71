import {
  checkAddress,
  checkFile,
  checkOptions,
  type Checks,
  checkSessionId,
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

const SPOOL_BYTES_MAX = 64 * 1024 * 1024;
/** A record of the default size of an event, and room for another. */
const SPOOL_BYTES_MIN = 4_096;
const AGE_MS = 250;
const AGE_MS_MAX = 5_000;
const TEXT_BYTES = 10_240;
const TEXT_BYTES_MAX = 65_536;
const TIMEOUT_MS = 10_000;
const PROGRESS_TIMEOUT_MS = 15_000;
/** setTimeout accepts no longer times. */
export const TIMEOUT_MS_MAX = 2 ** 31 - 1;
const EPOCH_MAX = 2n ** 63n - 1n;

/** The options with their defaults, as the parts of a writer use them. */
export type CheckedOptions = ReturnType<typeof checkedOptions>;

/** Throws for an invalid option: a programmer must learn of it before the agent runs. */
export function checkedOptions(options: SessionWriterOptions) {
  checkOptions("options", options, CHECKS);
  credentialsOf(options.tls); // Invalid PEM is reported now, and not with the first event.
  const { compression = {}, spool = {}, ...given } = options;
  const { maxAgeMs = AGE_MS, textBytesMax = TEXT_BYTES } = compression === false ? {} : compression;
  const { progressTimeoutMs = PROGRESS_TIMEOUT_MS } = options;
  return {
    ...given,
    messages: given.messages ?? "derive",
    lifecycleMessages: given.lifecycleMessages ?? true,
    bytesMax: spool.bytesMax ?? SPOOL_BYTES_MAX,
    file: spool.file,
    merges: compression !== false,
    maxAgeMs,
    textBytesMax,
    transport: given.transport ?? "auto",
    openTimeoutMs: given.openTimeoutMs ?? TIMEOUT_MS,
    callTimeoutMs: given.callTimeoutMs ?? TIMEOUT_MS,
    // A row that is still open is not acknowledged, and that does not count as silence.
    progressTimeoutMs: maxAgeMs + progressTimeoutMs,
    idleTimeoutMs: given.idleTimeoutMs ?? TIMEOUT_MS,
  };
}

const timeout = integer(1, TIMEOUT_MS_MAX);
const compressionObject = objectOf({
  maxAgeMs: integer(1, AGE_MS_MAX),
  textBytesMax: integer(1, TEXT_BYTES_MAX),
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
    if (typeof value === "bigint" && (value < 1n || value > EPOCH_MAX))
      throw new RangeError(`${name} must be 1 to ${EPOCH_MAX}`);
  },
  spool: objectOf({
    bytesMax: integer(SPOOL_BYTES_MIN, Number.MAX_SAFE_INTEGER),
    file: checkFile,
  }),
  compression: (name, value) => {
    if (value !== false) compressionObject(name, value);
  },
  transport: oneOf("auto", "stream", "unary"),
  onProblem: ofType("function"),
  openTimeoutMs: timeout,
  callTimeoutMs: timeout,
  progressTimeoutMs: timeout,
  idleTimeoutMs: timeout,
  clock: unchecked,
  wait: ofType("function"),
  random: ofType("function"),
};
