/**
 * Streams of real agents, given CORPUS, and the project's own without, pushed as they are in frames of
 * random sizes with breaks at random places: what comes back token by token is what was sent.
 */
import { expect, test } from "vitest";
import { eventsOf, PushStreamClient } from "../support/push-stream.ts";
import { newSession } from "../support/pushing.ts";
import { Random, seedOfRun } from "../support/random.ts";
import { expectedOf, noVersionAccepts } from "../support/recorded.ts";
import { ownStreams, recordedStreams, type Stream } from "../support/streams.ts";
import { useService } from "../support/use-service.ts";

/** Sessions; each has one stream. */
const AT_ONCE = 8;

const { client } = useService();

const recorded = recordedStreams();

/** Our own streams hold none that is refused; what some versions only accept is known of recorded ones. */
function isRefused(event: Event): boolean {
  return recorded !== undefined && noVersionAccepts(event);
}

test("recorded streams return event by event for any division into frames", async () => {
  const seed = seedOfRun();
  const random = new Random(seed);
  const streams = recorded ?? ownStreams();
  expect(streams.length).toBeGreaterThan(5);
  const left = streams.map((stream) => ({ stream, random: random.fork() }));
  let events = 0;
  let rows = 0;
  const work = async (): Promise<void> => {
    for (let next = left.pop(); next !== undefined; next = left.pop()) {
      const found = await throughLedger(next.stream, next.random, `SEED=${seed}`);
      events += found.events;
      rows += found.rows;
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  expect(rows).toBeLessThan(events);
  process.stdout.write(`${streams.length} streams, ${events} events, ${rows} rows, SEED=${seed}\n`);
});

async function throughLedger(stream: Stream, random: Random, seed: string) {
  const sessionId = newSession();
  const refused = await pushed(stream, sessionId, random);
  const accepted = stream.events.filter((event) => !isRefused(event));
  const name = `${stream.agent} ${stream.scenario}, ${seed}`;
  expect({ name, refused }).toEqual({ name, refused: stream.events.length - accepted.length });
  const raw = await eventsOf(client, sessionId, { expand: true });
  const came = raw.map(({ payload }, at) => comparable(payload, accepted[at]));
  expect({ name, came }).toEqual({ name, came: accepted.map((event) => wanted(event)) });
  return { events: raw.length, rows: (await eventsOf(client, sessionId)).length };
}

type Event = Stream["events"][number];

/** The very text where the service has nothing to mend, else what it says. */
function wanted(event: Event): unknown {
  const { text, value } = expectedOf(event);
  return text ?? value;
}

function comparable(payload: string, event: Event | undefined): unknown {
  if (event === undefined || expectedOf(event).text !== undefined) return payload;
  return JSON.parse(payload);
}

/** Answers how many events were refused. */
async function pushed({ events }: Stream, sessionId: string, random: Random): Promise<number> {
  for (;;) {
    const open = { sessionId, producerEpoch: 1n };
    const { stream, opened } = await PushStreamClient.open(client, open);
    let sent = Number(opened.lastClientSeq);
    const breakAt = random.oneIn(2) ? events.length : sent + random.below(events.length);
    while (sent < Math.min(breakAt, events.length)) {
      const size = 1 + random.below(random.oneIn(4) ? 200 : 5);
      stream.batch(sent + 1, events.slice(sent, sent + size));
      sent += size;
    }
    if (sent < events.length) {
      if (sent > Number(opened.lastClientSeq) && random.oneIn(2)) await stream.next();
      stream.cancel();
      continue;
    }
    stream.end();
    const frames = await stream.rest();
    const refused = frames.filter((frame) => frame.case === "refused").length;
    return refused + Number(opened.refused);
  }
}
