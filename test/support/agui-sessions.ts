/** The sessions on which the AG-UI clients are tested. */
import { typeOf } from "./agui-clients.ts";
import type { Stream } from "./streams.ts";

/** A session before it is stored. */
export interface Events {
  /** Agent and scenario, for the message of a failure. */
  readonly name: string;
  readonly events: readonly string[];
}

export function single({ agent, scenario, events }: Stream): Events {
  return { name: `${agent}, ${scenario}`, events: events.map(({ payload }) => payload) };
}

/** The streams of each agent as the runs of one session. */
export function together(streams: readonly Stream[]): readonly Events[] {
  return [...Map.groupBy(streams, ({ agent }) => agent)].map(([agent, own]) => ({
    name: `${agent}, ${own.length} runs`,
    events: own.flatMap(({ events }) => events.map(({ payload }) => payload)),
  }));
}

/** The first `count` of each agent. */
export function shortest(streams: readonly Stream[], count: number): readonly Stream[] {
  const sorted = streams.toSorted((one, other) => one.events.length - other.events.length);
  return [...Map.groupBy(sorted, ({ agent }) => agent).values()].flatMap((own) =>
    own.slice(0, count),
  );
}

/** Selects again and again the session with the most new features, without long ones and open runs. */
export function varied<S extends Events>(
  sessions: readonly S[],
  { count, eventsMax }: { readonly count: number; readonly eventsMax: number },
): readonly S[] {
  const left = sessions.filter(
    ({ events }) => events.length <= eventsMax && isRunEnd(typeOf(events.at(-1) ?? "{}")),
  );
  const chosen: S[] = [];
  const known = new Set<string>();
  const news = (session: S): number =>
    [...featuresOf(session)].filter((feature) => !known.has(feature)).length;
  while (chosen.length < count && left.length > 0) {
    const best = left.reduce((one, other) => (news(other) > news(one) ? other : one));
    left.splice(left.indexOf(best), 1);
    chosen.push(best);
    for (const feature of featuresOf(best)) known.add(feature);
  }
  return chosen;
}

/** The agent, the event types, and the pairs of adjacent types. */
function featuresOf({ name, events }: Events): ReadonlySet<string> {
  const types = events.map(typeOf);
  const pairs = types.map((type, at) => `${types[at - 1]} ${type}`);
  return new Set([...types, ...pairs, name.split(",")[0] ?? ""]);
}

/** The number of events for a client that joins after `at` events: up to the end of the run. */
export function countToRunEnd(events: readonly string[], at: number): number {
  const types = events.map(typeOf);
  const started = types.slice(0, Math.max(at, 1)).lastIndexOf("RUN_STARTED");
  return types.findIndex((type, place) => place > started && isRunEnd(type)) + 1;
}

function isRunEnd(type: string): boolean {
  return type === "RUN_FINISHED" || type === "RUN_ERROR";
}
