/** The watch of sessions: checks the form, then passes on what live/session-watch.ts delivers. */
import { refuse } from "../contract/checks.ts";
import { create } from "@bufbuild/protobuf";
import { EventType, type WatchState } from "@session-ledger/proto/ambient/v1/common_pb";
import {
  type SessionService,
  type SessionWatchEvent,
  SessionWatchEventSchema,
} from "@session-ledger/proto/ambient/v1/sessions_pb";
import { acquireFor, serverBusy } from "../auth/caller-memory.ts";
import { flatMap } from "../base/pull.ts";
import type { Handlers } from "../contract/context.ts";
import type { Feeds } from "../live/feeds.ts";
import type { SessionChanged } from "../live/session-watch.ts";
import { belongingChecks, toSession } from "./sessions.ts";
import { WATCH_STATE } from "./watch.ts";

const TYPES = {
  created: EventType.CREATED,
  updated: EventType.UPDATED,
  deleted: EventType.DELETED,
} as const satisfies Record<SessionChanged["change"], EventType>;

export function createSessionWatchHandlers(
  feeds: Pick<Feeds, "watchSessions">,
): Pick<Handlers<typeof SessionService>, "watchSessions"> {
  return {
    watchSessions(request, context) {
      refuse(belongingChecks(request));
      const { principal: scope, memory, signal } = context;
      const acquire = acquireFor(context);
      const deliveries = feeds.watchSessions({ scope, filter: request, signal, acquire });
      return flatMap(deliveries, function* (delivery) {
        if (delivery.kind === "state") {
          if (request.stateFrames) yield stateFrame(WATCH_STATE[delivery.state]);
          return;
        }
        const { changes } = delivery;
        if (memory?.rows(changeBytesOf(changes)) === false) throw serverBusy();
        for (const one of changes) yield toEvent(one);
        memory?.rows(0);
      });
    },
  };
}

function toEvent({ record, change }: SessionChanged): SessionWatchEvent {
  const session = change === "deleted" ? {} : { session: toSession(record) };
  const type = TYPES[change];
  return create(SessionWatchEventSchema, { type, resourceId: record.id, ...session });
}

function stateFrame(watchState: WatchState): SessionWatchEvent {
  return create(SessionWatchEventSchema, { watchState });
}

/** Its numbers, its times and its short texts. */
const SESSION_BYTES = 2_048;

function changeBytesOf(changes: readonly SessionChanged[]): number {
  return changes.reduce((bytes, { record }) => {
    const { name, prompt, labels, annotations, capabilities } = record;
    const texts = [name, prompt, labels, annotations, capabilities].map(
      (text) => text?.length ?? 0,
    );
    return texts.reduce((sum, chars) => sum + 2 * chars, bytes + SESSION_BYTES);
  }, 0);
}
