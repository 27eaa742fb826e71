/** The driver of the TypeScript client. docs/clients.md has the protocol. */
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { z } from "zod";
import {
  createLedgerClient,
  createSessionWriter,
  fromJsonLines,
  ledger,
  type LedgerClient,
  readSession,
  RpcFailure,
  type SessionWriter,
} from "@session-ledger/runner";

const object = z.record(z.string(), z.unknown());
const numbers = {
  epoch: z.coerce.bigint().optional(),
  after: z.coerce.bigint().default(0n),
  until: z.coerce.bigint().default(0n),
  timeout_ms: z.number().default(0),
  bytes_max: z.number().optional(),
};
const texts = {
  address: z.string().default(""),
  session: z.string().default(""),
  type: z.string().default(""),
  payload: z.string().default(""),
};
const commandSchema = z.object({
  id: z.int(),
  do: z.string(),
  ...numbers,
  ...texts,
  event: z.union([z.string(), object]).default({}),
  stream: z.enum(["events", "messages"]).default("events"),
  expand: z.boolean().default(false),
  follow: z.boolean().default(false),
});
type Command = z.infer<typeof commandSchema>;

/** A service that the network hides is away for longer than any pause of a test. */
const RETRY = { retryForMs: 120_000, deadlineMs: 70_000 };

let own = { address: "", sessionId: "" };
let writer: SessionWriter | undefined;
let refusals: string[] = [];
let reader: AsyncIterator<{
  readonly seq: bigint;
  readonly lastSeq: bigint;
  readonly eventType: string;
  readonly payload: string;
}>;
let reading = new AbortController();
let turnEpoch = 0n;
let client: LedgerClient | undefined;
let run: { readonly runId: string; readonly signal: AbortSignal } | undefined;

function claims(): LedgerClient {
  return (client ??= createLedgerClient({ address: own.address, ownConnection: true }));
}

function opened(): SessionWriter {
  if (writer === undefined) throw new Error("no writer is open");
  return writer;
}

function open(epoch: bigint | undefined, bytesMax: number | undefined): void {
  refusals = [];
  writer = createSessionWriter({
    ...own,
    messages: "manual",
    ...(epoch === undefined ? {} : { epoch }),
    ...(bytesMax === undefined ? {} : { spool: { bytesMax } }),
    onProblem: (problem) => {
      if (problem.kind !== "refused") return;
      refusals.push(...Array.from({ length: problem.count }, () => problem.reason));
    },
  });
}

function standing(): object {
  const { events, state, epoch } = opened().stats;
  const names: Partial<Record<string, string>> = {
    fenced: "fenced",
    refused: "ended",
    closed: "closed",
  };
  return {
    state: names[state] ?? "open",
    epoch: String(epoch ?? 0n),
    committed: events.committed,
    refused: events.refused,
    dropped: events.dropped,
    pending: events.pending,
    reasons: refusals,
  };
}

async function read({ until }: Command): Promise<object> {
  const items: object[] = [];
  for (;;) {
    const { done, value } = await reader.next();
    if (done === true) return { items, ended: true };
    const { seq, lastSeq, eventType: type, payload } = value;
    items.push({ seq: Number(seq), last_seq: Number(lastSeq), type, payload });
    if (lastSeq >= until) return { items, ended: false };
  }
}

async function nextTurn({ timeout_ms: waitMs }: Command): Promise<object> {
  const runId = randomUUID();
  const request = {
    sessionId: own.sessionId,
    producerEpoch: turnEpoch,
    redeliver: true,
    runStarted: JSON.stringify({ runId }),
    wait: { seconds: BigInt(Math.floor(waitMs / 1000)), nanos: (waitMs % 1000) * 1_000_000 },
  };
  const turn = await claims().call(ledger.claimTurn, request, RETRY);
  if (turn.runStarted === undefined) return { turn: null };
  if (writer === undefined) open(turnEpoch, undefined);
  run = { runId, signal: opened().runSignal(runId) };
  return {
    turn: {
      run_id: runId,
      messages: turn.messages.map(({ payload }) => payload),
      lost_run_id: turn.lostRunId,
    },
  };
}

async function cancelled({ timeout_ms: timeoutMs }: Command): Promise<object> {
  const signal = run?.signal;
  if (signal === undefined) throw new Error("no turn is open");
  const over = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
  if (!over.aborted) await once(over, "abort");
  const reason: unknown = signal.reason;
  const heard = signal.aborted && z.object({ reason: z.string() }).safeParse(reason).data;
  return { cancelled: signal.aborted, reason: heard ? heard.reason : "" };
}

async function finish(): Promise<object> {
  const { runId, signal } = run ?? { runId: "", signal: AbortSignal.abort() };
  const outcome = { type: signal.aborted ? "cancelled" : "success" };
  opened().event({ type: "RUN_FINISHED", threadId: own.sessionId, runId, outcome });
  const { state } = await opened().flush({ timeoutMs: RETRY.retryForMs });
  if (state !== "fenced" && state !== "refused") return {};
  throw new RpcFailure("FAILED_PRECONDITION", "the writer has ended", { reason: "STALE_EPOCH" });
}

const DO: Readonly<Record<string, (command: Command) => object | Promise<object> | void>> = {
  hello: ({ address, session }) => {
    own = { address, sessionId: session };
    reading = new AbortController();
    client?.close();
    client = undefined;
    writer = undefined;
    return { features: ["writer", "messages", "reader", "turns"] };
  },
  "writer.open": ({ epoch, bytes_max: bytesMax }) => open(epoch, bytesMax),
  "writer.event": ({ event }) => opened().event(event),
  "writer.message": ({ type, payload }) => opened().message({ type, payload }),
  "writer.flush": async ({ timeout_ms: timeoutMs }) => {
    const { complete } = await opened().flush({ timeoutMs });
    return { complete, ...standing() };
  },
  "writer.close": async ({ timeout_ms: timeoutMs }) => {
    const { complete } = await opened().close({ timeoutMs });
    return { complete, ...standing() };
  },
  "reader.open": ({ stream, after, expand, follow }) => {
    const options = { ...own, after, follow, signal: reading.signal };
    const items =
      stream === "events"
        ? readSession({ ...options, expand })
        : readSession({ ...options, stream: "messages" });
    reader = items[Symbol.asyncIterator]();
  },
  "reader.next": read,
  "reader.close": () => reading.abort(),
  "turns.open": ({ epoch = BigInt(Date.now()) }) => {
    turnEpoch = epoch;
    writer = undefined;
  },
  "turns.next": nextTurn,
  "turns.event": ({ event }) => opened().event(event),
  "turns.cancelled": cancelled,
  "turns.finish": finish,
  "turns.close": async () => {
    await writer?.close({ timeoutMs: RETRY.retryForMs });
  },
};

for await (const { value } of fromJsonLines(process.stdin)) {
  const command = commandSchema.parse(value);
  const { id } = command;
  let answered: object;
  try {
    const act = DO[command.do];
    if (act === undefined) throw new Error(`unknown command ${command.do}`);
    answered = { id, answer: (await act(command)) ?? {} };
  } catch (error) {
    const { code = "UNKNOWN", reason = "" } = error instanceof RpcFailure ? error : {};
    answered = { id, error: { code, reason, message: String(error) } };
  }
  process.stdout.write(`${JSON.stringify(answered)}\n`);
}
process.exit(0);
