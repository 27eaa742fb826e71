/** The log of a session over real HTTP, for the model of the inspector outside a browser. */
import { SseParser, type StreamEvent } from "@session-ledger/react/internal/api/sse-parser";
import type { Following, LogSource } from "@session-ledger/react/internal/model/source";
import { API } from "./http-clients.ts";
import { pace } from "./eventually.ts";

const RETRY_MS = 50;

class Refused extends Error {
  readonly status: number;
  readonly reason: string;

  constructor({ status, reason, detail }: Readonly<Record<string, unknown>>) {
    super(String(detail));
    this.status = Number(status);
    this.reason = String(reason);
  }
}

/** `asked` gets the path of each request. */
export function logSource(
  address: () => string,
  sessionId: string,
  asked: (path: string) => void = () => undefined,
): LogSource {
  const call = async (path: string, init: RequestInit): Promise<Response> => {
    asked(path);
    const response = await fetch(`http://${address()}${API}/sessions/${sessionId}${path}`, init);
    if (!response.ok) throw new Refused(Object(await response.json()));
    return response;
  };
  const get = async <T>(path: string, signal: AbortSignal): Promise<T> => {
    const value: T = JSON.parse(await (await call(path, { signal })).text());
    return value;
  };
  const follow = async <T>(path: string, following: Following<T>): Promise<never> => {
    const { signal, take, state } = following;
    let last = String(following.afterSeq);
    for (;;) {
      let problem: Refused | undefined;
      const event = ({ type, data }: StreamEvent): void => {
        if (type === "error") problem = new Refused(JSON.parse(data));
        else if (type === "watch_state" && JSON.parse(data).state === "LIVE") state("live");
        else if (type === "message") take(JSON.parse(data));
      };
      const none = (): void => undefined;
      const id = (one: string): void => void (last = one);
      const parser = new SseParser({ event, id, comment: none, retry: none });
      try {
        const headers = { accept: "text/event-stream", "last-event-id": last };
        const { body } = await call(path, { signal, headers });
        for await (const text of body?.pipeThrough(new TextDecoderStream()) ?? [])
          parser.push(text);
      } catch (error) {
        signal.throwIfAborted();
        if (error instanceof Refused && error.status < 500) throw error;
      }
      if (problem !== undefined && problem.status < 500) throw problem;
      state("reconnecting");
      await pace(RETRY_MS, signal);
    }
  };
  const history = "/events/history?fragments=true&recorded=true";
  return {
    rowsBefore: (before, limit, signal) =>
      get(`${history}&descending=true&before_seq=${before}&limit=${limit}`, signal),
    rowsAfter: (after, limit, signal) =>
      get(`${history}&after_seq=${after}&limit=${limit}`, signal),
    messagesAfter: (after, limit, signal) =>
      get(`/messages?after_seq=${after}&limit=${limit}&recorded=true`, signal),
    followRows: (following) =>
      follow("/events?expand=false&fragments=true&state_frames=true", following),
    followMessages: (following) => follow("/messages?state_frames=true", following),
  };
}
