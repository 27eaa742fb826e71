/** The log of a session over HTTP. */
import { API, addressOf, get } from "../api/client.ts";
import type { Connection } from "../api/connection.ts";
import { openStream } from "../api/stream.ts";
import type { EventItem, Following, LogSource, MessageItem } from "../model/source.ts";

export function httpSource(connection: Connection, sessionId: string): LogSource {
  const base = `${API}/sessions/${encodeURIComponent(sessionId)}`;
  const history = `${base}/events/history`;
  return {
    rowsBefore: (before, limit, signal) => {
      const query = {
        before_seq: before,
        descending: true,
        limit,
        fragments: true,
        recorded: true,
      };
      return get(connection, history, { query, signal });
    },
    rowsAfter: (after, limit, signal) =>
      get(connection, history, {
        query: { after_seq: after, limit, fragments: true, recorded: true },
        signal,
      }),
    messagesAfter: (after, limit, signal) =>
      get(connection, `${base}/messages`, {
        query: { after_seq: after, limit, recorded: true },
        signal,
      }),
    followRows: (following) => {
      const query = { expand: false, fragments: true };
      return follow<EventItem>(connection, `${base}/events`, query, following);
    },
    followMessages: (following) =>
      follow<MessageItem>(connection, `${base}/messages`, {}, following),
  };
}

/** Ends only with an error. A lost connection is made again by the stream. */
async function follow<T>(
  connection: Connection,
  path: string,
  query: Readonly<Record<string, boolean>>,
  { afterSeq, signal, take, state }: Following<T>,
): Promise<never> {
  const { promise, reject } = Promise.withResolvers<never>();
  const stop = openStream({
    connection,
    address: addressOf(path, { ...query, after_seq: afterSeq, state_frames: true }),
    onEvent: ({ type, data }) => {
      const value = JSON.parse(data);
      if (type === "message") take(value);
      else if (type === "watch_state" && value.state === "LIVE") state("live");
    },
    onState: (now, problem) => {
      if (now === "reconnecting" || now === "paused") state("reconnecting");
      else if (now === "ended") reject(problem ?? new Error("the stream ended"));
    },
  });
  signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  return promise.finally(stop);
}
