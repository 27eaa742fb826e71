import type { Clock } from "../../base/clock.ts";
import {
  checkAddress,
  checkFile,
  checkObject,
  checkOneOf,
  checkSessionId,
  checkTls,
  checkToken,
  checkType,
} from "../checks.ts";
import type { RetryOptions } from "../retry.ts";
import { credentialsOf, type Tls } from "../credentials.ts";
import type { TokenSource } from "../credentials.ts";
import type { SessionWriterOptions, WriterProblem } from "./types.ts";

/** The options with their defaults, as the parts of a writer use them. */
export interface CheckedOptions {
  readonly address: string;
  readonly sessionId: string;
  readonly token: TokenSource | undefined;
  readonly tls: Tls | undefined;
  readonly messages: "derive" | "manual";
  readonly lifecycleMessages: boolean;
  readonly epoch: bigint | undefined;
  readonly epochGiven: boolean;
  readonly bytesMax: number;
  readonly file: string | undefined;
  readonly merges: boolean;
  readonly maxAgeMs: number;
  readonly textBytesMax: number;
  readonly transport: "auto" | "stream" | "unary";
  readonly onProblem: ((problem: WriterProblem) => void) | undefined;
  readonly openTimeoutMs: number;
  readonly callTimeoutMs: number;
  readonly progressTimeoutMs: number;
  readonly idleTimeoutMs: number;
  readonly clock: Clock | undefined;
  readonly wait: RetryOptions["wait"];
  readonly random: RetryOptions["random"];
}

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

/** Throws for an invalid option: a programmer must learn of it before the agent runs. */
export function checkedOptions(options: SessionWriterOptions): CheckedOptions {
  checkKinds(options);
  const { address, sessionId, epoch, compression = {}, spool = {} } = options;
  if (epoch !== undefined && (epoch < 1n || epoch > EPOCH_MAX)) {
    throw new RangeError(`epoch must be 1 to ${EPOCH_MAX}`);
  }
  const merging = compression === false ? {} : compression;
  const maxAgeMs = within("compression.maxAgeMs", merging.maxAgeMs ?? AGE_MS, {
    min: 1,
    max: AGE_MS_MAX,
  });
  const timeout = (name: string, value: number): number =>
    within(name, value, { min: 1, max: TIMEOUT_MS_MAX });
  return {
    address,
    sessionId,
    token: options.token,
    tls: options.tls,
    messages: options.messages ?? "derive",
    lifecycleMessages: options.lifecycleMessages ?? true,
    epoch,
    epochGiven: epoch !== undefined,
    bytesMax: within("spool.bytesMax", spool.bytesMax ?? SPOOL_BYTES_MAX, {
      min: SPOOL_BYTES_MIN,
      max: Number.MAX_SAFE_INTEGER,
    }),
    file: spool.file,
    merges: compression !== false,
    maxAgeMs,
    textBytesMax: within("compression.textBytesMax", merging.textBytesMax ?? TEXT_BYTES, {
      min: 1,
      max: TEXT_BYTES_MAX,
    }),
    transport: options.transport ?? "auto",
    onProblem: options.onProblem,
    openTimeoutMs: timeout("openTimeoutMs", options.openTimeoutMs ?? TIMEOUT_MS),
    callTimeoutMs: timeout("callTimeoutMs", options.callTimeoutMs ?? TIMEOUT_MS),
    // A row that is still open is not acknowledged, and that does not count as silence.
    progressTimeoutMs:
      maxAgeMs + timeout("progressTimeoutMs", options.progressTimeoutMs ?? PROGRESS_TIMEOUT_MS),
    idleTimeoutMs: timeout("idleTimeoutMs", options.idleTimeoutMs ?? TIMEOUT_MS),
    clock: options.clock,
    wait: options.wait,
    random: options.random,
  };
}

const KNOWN: Readonly<Record<keyof SessionWriterOptions, true>> = {
  address: true,
  sessionId: true,
  token: true,
  tls: true,
  messages: true,
  lifecycleMessages: true,
  epoch: true,
  spool: true,
  compression: true,
  transport: true,
  onProblem: true,
  openTimeoutMs: true,
  callTimeoutMs: true,
  progressTimeoutMs: true,
  idleTimeoutMs: true,
  clock: true,
  wait: true,
  random: true,
};

/** Checks the types, which a program without types may get wrong. */
function checkKinds(options: SessionWriterOptions): void {
  checkObject("options", options, Object.keys(KNOWN));
  const { compression, spool } = options;
  checkAddress(options.address);
  checkSessionId(options.sessionId);
  checkToken(options.token);
  checkTls(options.tls);
  credentialsOf(options.tls); // Invalid PEM is reported now, and not with the first event.
  checkOneOf("messages", options.messages, ["derive", "manual"]);
  checkType("lifecycleMessages", options.lifecycleMessages, "boolean");
  checkType("epoch", options.epoch, "bigint");
  checkOneOf("transport", options.transport, ["auto", "stream", "unary"]);
  checkType("onProblem", options.onProblem, "function");
  checkType("wait", options.wait, "function");
  checkType("random", options.random, "function");
  if (spool !== undefined) {
    checkObject("spool", spool, ["bytesMax", "file"]);
    checkFile("spool.file", spool.file);
  }
  if (compression !== undefined && compression !== false) {
    if (typeof compression !== "object")
      throw new TypeError("compression must be false or an object");
    checkObject("compression", compression, ["maxAgeMs", "textBytesMax"]);
  }
}

function within(
  name: string,
  value: number,
  { min, max }: { readonly min: number; readonly max: number },
): number {
  if (Number.isInteger(value) && value >= min && value <= max) return value;
  throw new RangeError(`${name} must be an integer from ${min} to ${max}`);
}
