/** The streams that benchmarks of compression and of push streams work on. */
import { isCompressible } from "@session-ledger/agui/catalogue";
import { splitEvent } from "@session-ledger/agui/split-event";
import { ownStreams, recordedStreams, type Stream, type StreamEvent } from "../support/streams.ts";
import { conversation } from "./joined-session.ts";
import type { BenchOptions } from "./options.ts";

export interface Corpus {
  readonly name: string;
  readonly streams: readonly Stream[];
}

/** The recorded streams of the folder, or of CORPUS; without one, those that the project's tests have. */
export function readCorpus({ corpus }: Pick<BenchOptions, "corpus">): Corpus {
  if (corpus !== undefined) process.env["CORPUS"] = corpus; // What the tests' own reader goes by.
  const recorded = recordedStreams();
  if (recorded !== undefined) return { name: "recorded", streams: recorded };
  return { name: "own", streams: ownStreams() };
}

/** Of an agent's events, how many must be fragments for it to count as one that streams its text. */
const FRAGMENTS_SHARE_MIN = 0.75;
/** Events of the conversation that is made up when no agent of the corpus streams its text. */
const MADE_EVENTS = 2_000;

/**
 * The streams of the agents that send their text token by token and hardly anything else; by agent,
 * because one that does so has short answers too.
 */
export function textStreams({ streams }: Corpus): Corpus {
  const byAgent = Map.groupBy(streams, ({ agent }) => agent);
  const chosen = [...byAgent.values()].filter((own) => {
    const events = own.flatMap((stream) => stream.events);
    const fragments = events.filter(({ eventType }) => isCompressible(eventType));
    return fragments.length >= FRAGMENTS_SHARE_MIN * events.length;
  });
  const texts = chosen.flat().filter(({ events }) => events.length > 0);
  if (texts.length > 0) return { name: "recorded, text only", streams: texts };
  const made = { agent: "made up", scenario: "conversation", events: conversation(MADE_EVENTS) };
  return { name: "made up", streams: [made] };
}

/** What push streams are measured with: of the text streams, the events that the service accepts. */
export function pushCorpus(): Corpus {
  const { name, streams } = textStreams(readCorpus({ corpus: undefined }));
  return {
    name,
    streams: streams.map(({ events, ...stream }) => ({
      ...stream,
      events: events.filter(isAccepted),
    })),
  };
}

function isAccepted({ eventType, payload }: StreamEvent): boolean {
  const times = { createdAtMicros: undefined, completedAtMicros: undefined };
  const push = { eventType, payload, eventCount: 0, hasFragments: false, ...times };
  return splitEvent(push, { mode: "strict", nowMicros: 0n }).ok;
}

/** `count` events: the streams one after the other, as often as it takes, as one long session. */
export function longSession(streams: readonly Stream[], count: number): readonly StreamEvent[] {
  const once = streams.flatMap(({ events }) => events);
  const times = Math.ceil(count / once.length);
  return Array.from({ length: times }, () => once)
    .flat()
    .slice(0, count);
}
