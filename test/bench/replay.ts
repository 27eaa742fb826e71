/**
 * All rows of a session, by one watch from 0 and by pages, on a raw connection that decodes nothing: the
 * service and its PostgreSQL are measured, and not a client in JavaScript.
 */
import { create, type DescMessage, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import type { Bench } from "./bench.ts";
import { rounded } from "./figures.ts";
import type { FilledSession } from "./filled-session.ts";
import { framed, messageCutter } from "./grpc-messages.ts";
import { Http2Connection } from "./http2-connection.ts";
import { PAGE_ROWS } from "./pages.ts";
import type { Ledger } from "./servers.ts";
import { cpuMsOf } from "./usage.ts";

const { watchSessionEvents, listSessionEvents } = SessionService.method;

export interface Replay {
  /** Of the messages, without their frames. */
  readonly bytes: number;
  readonly rowsPerSecond: number;
  /** From the request to the first message: of a watch, a row; of pages, a whole page. */
  readonly firstMs: number;
  readonly cpuMicrosPerRow: { readonly service: number; readonly postgres: number };
}

export const REPLAYS = { watch: replayByWatch, pages: replayByPages } as const;

type Session = Pick<FilledSession, "sessionId" | "rows">;

function replayByWatch(bench: Bench, ledger: Ledger, session: Session): Promise<Replay> {
  return replay(bench, ledger, session, async (call) => {
    const { sessionId, rows } = session;
    const messages = await call(watchSessionEvents, { sessionId, snapshotOnly: true });
    if (messages !== rows) throw new Error(`the watch gave ${messages} of ${rows} rows`);
  });
}

function replayByPages(bench: Bench, ledger: Ledger, session: Session): Promise<Replay> {
  return replay(bench, ledger, session, async (call) => {
    const { sessionId, rows } = session;
    for (let from = 0; from < rows; from += PAGE_ROWS) {
      bench.signal.throwIfAborted();
      await call(listSessionEvents, { sessionId, pageSize: PAGE_ROWS, afterSeq: BigInt(from) });
    }
  });
}

type Method = typeof watchSessionEvents | typeof listSessionEvents;
/** Resolves with the number of messages of the answer. */
type Call = <M extends Method>(method: M, request: MessageInitShape<M["input"]>) => Promise<number>;

async function replay(
  bench: Bench,
  ledger: Ledger,
  { rows }: Session,
  read: (call: Call) => Promise<void>,
): Promise<Replay> {
  const connection = await Http2Connection.connect(ledger.address);
  const cpuBefore = await cpuOf(ledger);
  let bytes = 0;
  let firstMs = Number.NaN;
  const beganMs = performance.now();
  try {
    await read((method, request) => {
      const { promise, resolve, reject } = Promise.withResolvers<number>();
      let messages = 0;
      const id = connection.open(`/${method.parent.typeName}/${method.name}`, {
        onData: messageCutter((message) => {
          if (bytes === 0) firstMs = performance.now() - beganMs;
          bytes += message.length;
          messages += 1;
        }),
        onEnd: (error) => (error === undefined ? resolve(messages) : reject(error)),
      });
      const input: DescMessage = method.input;
      connection.send(id, framed(toBinary(input, create(input, request))));
      connection.end(id);
      connection.turn();
      return promise;
    });
  } finally {
    connection.close();
  }
  const seconds = (performance.now() - beganMs) / 1_000;
  const cpu = await cpuOf(ledger);
  bench.signal.throwIfAborted();
  return {
    bytes,
    rowsPerSecond: rounded(rows / seconds),
    firstMs: rounded(firstMs),
    cpuMicrosPerRow: {
      service: rounded(((cpu.service - cpuBefore.service) * 1_000) / rows),
      postgres: rounded(((cpu.postgres - cpuBefore.postgres) * 1_000) / rows),
    },
  };
}

/** In milliseconds; the backends of PostgreSQL live as long as the service. */
async function cpuOf({ pid, witness }: Ledger) {
  return {
    service: await cpuMsOf(pid, { children: false }),
    postgres: await cpuMsOf(witness.postmasterPid, { children: true }),
  };
}
