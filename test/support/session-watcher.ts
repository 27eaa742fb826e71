/** A watch of sessions that remembers what it was told. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import { EventTypeSchema, WatchState } from "../../gen/ambient/v1/common_pb.ts";
import {
  SessionService,
  type SessionWatchEvent,
  type WatchSessionsRequestSchema,
} from "../../gen/ambient/v1/sessions_pb.ts";
import type { CallOptions, MessageStream, RpcClient } from "./grpc-client.ts";
import { capped } from "./eventually.ts";

export type Filters = Omit<
  Exclude<MessageInitShape<typeof WatchSessionsRequestSchema>, { $typeName: string }>,
  "stateFrames"
>;

export class SessionWatcher implements AsyncDisposable {
  readonly states: WatchState[] = [];
  readonly #events: MessageStream<SessionWatchEvent>;

  constructor(client: RpcClient, filters: Filters = {}, options: CallOptions = {}) {
    const request = { ...filters, stateFrames: true };
    this.#events = client.serverStream(SessionService.method.watchSessions, request, options);
  }

  /** From here on it misses nothing. */
  static async live(...watch: ConstructorParameters<typeof SessionWatcher>) {
    const watcher = new SessionWatcher(...watch);
    await watcher.state(WatchState.LIVE);
    return watcher;
  }

  async next(): Promise<SessionWatchEvent> {
    const { value, done } = await capped(this.#events.next());
    if (done === true) throw new Error("the watch has ended");
    if (value.watchState !== WatchState.UNSPECIFIED) this.states.push(value.watchState);
    return value;
  }

  /** Throws when a change comes before that state. */
  async state(wanted: WatchState): Promise<void> {
    for (;;) {
      const event = await this.next();
      if (event.watchState === wanted) return;
      if (event.watchState === WatchState.UNSPECIFIED) throw new Error(`not ${wanted}`);
    }
  }

  /** The next change of that session, in words; other sessions and states are passed over. */
  async of(sessionId: string): Promise<readonly unknown[]> {
    for (;;) {
      const event = await this.next();
      if (event.resourceId === sessionId) return words(event);
    }
  }

  /** The ids of the next changes, up to that session. */
  async upTo(sessionId: string): Promise<readonly string[]> {
    const ids: string[] = [];
    while (ids.at(-1) !== sessionId) {
      const { resourceId } = await this.next();
      if (resourceId !== "") ids.push(resourceId);
    }
    return ids;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#events.cancel();
    await this.#events.return?.().catch(() => undefined);
  }
}

/** The change, the number of waiting messages, and the open run. */
export function words({ type, session }: SessionWatchEvent): readonly unknown[] {
  const rest = session === undefined ? [] : [session.waiting, session.openRunId];
  return [EventTypeSchema.value[type]?.localName, ...rest];
}
