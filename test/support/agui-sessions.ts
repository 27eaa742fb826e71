/** Which sessions the AG-UI clients are tried on. */
import { typeOf } from "./agui-clients.ts";
import type { Stream } from "./streams.ts";

/** A session to be. */
export interface Events {
  /** Agent and scenario, for whoever reads a failure. */
  readonly name: string;
  readonly events: readonly string[];
}

export function single({ agent, scenario, events }: Stream): Events {
  return { name: `${agent}, ${scenario}`, events: events.map(({ payload }) => payload) };
}

/** What each agent did, as the runs of one session. */
export function together(streams: readonly Stream[]): readonly Events[] {
  return [...Map.groupBy(streams, ({ agent }) => agent)].map(([agent, own]) => ({
    name: `${agent}, ${own.length} runs`,
    events: own.flatMap(({ events }) => events.map(({ payload }) => payload)),
  }));
}

/** So many of each agent. */
export function shortest(streams: readonly Stream[], count: number): readonly Stream[] {
  const sorted = streams.toSorted((one, other) => one.events.length - other.events.length);
  return [...Map.groupBy(sorted, ({ agent }) => agent).values()].flatMap((own) =>
    own.slice(0, count),
  );
}

/** One after the other the session in which the most is new; none that is long, or has an open run. */
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

/** Whose it is, which types of events it has, and which of them follow one another. */
function featuresOf({ name, events }: Events): ReadonlySet<string> {
  const types = events.map(typeOf);
  const pairs = types.map((type, at) => `${types[at - 1]} ${type}`);
  return new Set([...types, ...pairs, name.split(",")[0] ?? ""]);
}

/** How many events a client is told of that comes when there are `at`: up to the end of the run. */
export function countToRunEnd(events: readonly string[], at: number): number {
  const types = events.map(typeOf);
  const started = types.slice(0, Math.max(at, 1)).lastIndexOf("RUN_STARTED");
  return types.findIndex((type, place) => place > started && isRunEnd(type)) + 1;
}

function isRunEnd(type: string): boolean {
  return type === "RUN_FINISHED" || type === "RUN_ERROR";
}
