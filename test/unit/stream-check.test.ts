/**
 * The checker of push streams reports no problem for a consistent session, and each way in which a
 * session can be wrong.
 */
import { describe, expect, test } from "vitest";
import {
  lastSeqOf,
  type Pass,
  passProblemsOf,
  type StoredRow,
  type StoredSession,
  streamProblemsOf,
  type WriterRecord,
} from "../support/stream-check.ts";

const EVENTS = ["a", "b", "c", "d", "e", "f"];

function payloadOf(name: string): string {
  return JSON.stringify({ type: "CUSTOM", name, value: 1 });
}

/** A stored session with rows of `counts` events each, and with all events expanded. */
function holding(names: readonly string[], counts = names.map(() => 1)): StoredSession {
  const events = names.map(
    (name, at): StoredRow => ({
      seq: BigInt(at) + 1n,
      eventCount: 1,
      eventType: "CUSTOM",
      payload: payloadOf(name),
    }),
  );
  let next = 0;
  const rows = counts.flatMap((eventCount) => {
    const first = events[next];
    next += eventCount;
    return first === undefined ? [] : [{ ...first, eventCount }];
  });
  return { rows, events, counter: BigInt(names.length) };
}

/**
 * A writer that sent all events and got an acknowledgement for every second; an empty name is
 * refused.
 */
function writing(names: readonly string[], changes: Partial<WriterRecord> = {}): WriterRecord {
  const { firstClientSeq = 1n } = changes;
  const numbers = names.map((_, at) => firstClientSeq + BigInt(at));
  return {
    name: "w",
    epoch: 1n,
    firstClientSeq,
    sent: names.map((name) =>
      name === "" ? undefined : { eventType: "CUSTOM", value: { value: 1, type: "CUSTOM", name } },
    ),
    openings: [{ lastClientSeq: firstClientSeq - 1n, refused: 0n }],
    acknowledged: [
      { clientSeq: firstClientSeq - 1n, seq: undefined },
      ...numbers
        .filter((_, at) => at % 2 === 1)
        .map((clientSeq) => ({ clientSeq, seq: clientSeq })),
    ],
    refused: numbers.filter((_, at) => names[at] === ""),
    isWhole: true,
    ...changes,
  };
}

test("other pushes into the session are allowed, and take numbers", () => {
  const session = holding(["a", "theirs", "b"]);
  const writer = writing(["a", "b"], { acknowledged: [] });
  const isOthers = ({ payload }: StoredRow): boolean => payload.includes("theirs");
  expect(streamProblemsOf([writer], session, isOthers)).toEqual([]);
  expect(streamProblemsOf([writer], session)).toEqual(["seq 2: nobody sent it"]);
});

test("a consistent session has no problem, in rows of any size", () => {
  for (const counts of [[1, 1, 1, 1, 1, 1], [6], [1, 4, 1]]) {
    expect(streamProblemsOf([writing(EVENTS)], holding(EVENTS, counts))).toEqual([]);
  }
});

test("an event that was sent twice may be stored twice", () => {
  const twice = ["a", "b", "a", "b"];
  expect(streamProblemsOf([writing(twice)], holding(twice))).toEqual([]);
});

test("an event that must be refused has a number and no row", () => {
  const writer = writing(["a", "", "b", "c"], {
    openings: [
      { lastClientSeq: 0n, refused: 0n },
      { lastClientSeq: 1n, refused: 0n },
      { lastClientSeq: 3n, refused: 1n },
    ],
    acknowledged: [
      { clientSeq: 2n, seq: 1n },
      { clientSeq: 3n, seq: undefined },
      { clientSeq: 4n, seq: 3n },
    ],
  });
  expect(streamProblemsOf([writer], holding(["a", "b", "c"]))).toEqual([]);
});

test("a stopped writer may have stored any number of events beyond the acknowledged ones", () => {
  for (const there of [2, 3, 6]) {
    const writer = writing(EVENTS, { isWhole: false, acknowledged: [{ clientSeq: 2n, seq: 2n }] });
    expect(streamProblemsOf([writer], holding(EVENTS.slice(0, there)))).toEqual([]);
  }
});

test("writers may follow each other, in another epoch or in the same one", () => {
  const first = writing(["a", "b", "lost"], { isWhole: false });
  const second = writing(["c"], {
    epoch: 2n,
    isWhole: false,
    acknowledged: [{ clientSeq: 1n, seq: 3n }],
  });
  const third = writing(["d", "e"], {
    epoch: 2n,
    firstClientSeq: 2n,
    acknowledged: [
      { clientSeq: 1n, seq: undefined },
      { clientSeq: 3n, seq: 5n },
    ],
  });
  const session = holding(["a", "b", "c", "d", "e"]);
  const told = { ...first, acknowledged: first.acknowledged.slice(0, 2) };
  expect(streamProblemsOf([told, second, third], session)).toEqual([]);
});

describe("the checker reports", () => {
  const problems = (
    names: readonly string[],
    changes: Partial<WriterRecord> = {},
    counts?: number[],
  ): readonly string[] =>
    streamProblemsOf([writing(EVENTS, { acknowledged: [], ...changes })], holding(names, counts));

  test("a lost event", () => {
    expect(problems(["a", "b", "d", "e", "f"])).toEqual(["w: 3 is lost"]);
    expect(problems(["a", "b", "d"], { isWhole: false })).toEqual(["w: 3 is lost"]);
  });

  test("a lost last event", () => {
    expect(problems(["a", "b", "c", "d", "e"])).toEqual(["w: 6 is lost"]);
  });

  test("a doubled event", () => {
    expect(problems(["a", "b", "b", "c", "d", "e", "f"])).toEqual([
      "w: seq 3 is there a second time",
    ]);
    expect(problems([...EVENTS, "b"])).toEqual(["w: seq 7 is there a second time"]);
  });

  test("swapped events", () => {
    expect(problems(["a", "c", "b", "d", "e", "f"])).toEqual([
      "w: 3 is before what was sent before it",
    ]);
  });

  test("an event that was not sent, or with another content", () => {
    expect(problems([...EVENTS, "x"])).toEqual(["seq 7: nobody sent it"]);
    expect(problems(["a", "b", "x", "d", "e", "f"])).toEqual([
      "seq 3: nobody sent it",
      "w: 3 is lost",
    ]);
  });

  test("an acknowledged event that is missing", () => {
    const changes = { isWhole: false, acknowledged: [{ clientSeq: 3n, seq: 3n }] };
    expect(problems(["a", "b"], changes)).toEqual([
      "w: 3 is lost",
      "w: 3 acknowledged, and not there",
    ]);
    const reopened = { isWhole: false, acknowledged: [{ clientSeq: 3n, seq: undefined }] };
    expect(problems(["a", "b"], reopened)).toEqual([
      "w: 3 is lost",
      "w: 3 acknowledged, and not there",
    ]);
  });

  test("an acknowledgement with a wrong seq", () => {
    expect(problems(EVENTS, { acknowledged: [{ clientSeq: 3n, seq: 4n }] })).toEqual([
      "w: 3 acknowledged with seq 4, and is at 3",
    ]);
    expect(problems(EVENTS, { acknowledged: [{ clientSeq: 3n, seq: 0n }] })).toEqual([
      "w: 3 acknowledged with seq 0, and is at 3",
    ]);
  });

  test("an acknowledgement of an event that was not sent, or one that goes back", () => {
    const acknowledged = [
      { clientSeq: 4n, seq: 4n },
      { clientSeq: 4n, seq: 4n },
      { clientSeq: 4n, seq: undefined },
      { clientSeq: 4n, seq: 0n },
      { clientSeq: 3n, seq: undefined },
      { clientSeq: 7n, seq: undefined },
    ];
    expect(problems(EVENTS, { acknowledged })).toEqual([
      "w: 3 acknowledged after 4",
      "w: 7 acknowledged, and never sent",
    ]);
  });

  test("a refused event that must be accepted, and the reverse", () => {
    expect(problems(EVENTS, { refused: [2n] })).toEqual(["w: 2 refused, and has to be accepted"]);
    const refused = writing(["a", ""], { acknowledged: [] });
    expect(streamProblemsOf([refused], holding(["a", "b"]))).toEqual(["seq 2: nobody sent it"]);
  });

  test("a refused event without a refusal", () => {
    const writer = writing(["a", "", "b"], {
      refused: [],
      acknowledged: [{ clientSeq: 3n, seq: 2n }],
    });
    expect(streamProblemsOf([writer], holding(["a", "b"]))).toEqual([
      "w: 2 refused without a word",
    ]);
  });

  test("an opening with a wrong count of refusals", () => {
    const openings = [
      { lastClientSeq: 0n, refused: 0n },
      { lastClientSeq: 4n, refused: 1n },
    ];
    expect(problems(EVENTS, { openings })).toEqual(["w: opened at 4 with 1 refused, and not 0"]);
  });

  test("rows that do not connect, and a wrong counter", () => {
    const session = holding(EVENTS, [2, 2, 2]);
    const [first, , third] = session.rows;
    if (first === undefined || third === undefined) throw new Error("there are three rows");
    const writer = writing(EVENTS);
    expect(streamProblemsOf([writer], { ...session, rows: [first, third] })).toEqual([
      "row 5 where 3 comes next",
    ]);
    expect(streamProblemsOf([writer], { ...session, counter: 7n })).toEqual([
      "counter at 7, rows up to 6",
      "6 events expanded, counter at 7",
    ]);
  });

  test("an event of a writer after the first event of its successor", () => {
    const names = ["a", "x", "b"];
    const first = writing(["a", "b"], { isWhole: false, acknowledged: [] });
    const second = writing(["x"], { name: "v", acknowledged: [] });
    expect(streamProblemsOf([first, second], holding(names))).toEqual([
      "w: seq 3 is behind 2, the first of v",
    ]);
  });
});

test("the checker reports an epoch whose numbers do not begin at 1", () => {
  const first = writing(["a", "b"]);
  const second = writing(["c", "d"], {
    epoch: 2n,
    firstClientSeq: 3n,
    acknowledged: [{ clientSeq: 4n, seq: 4n }],
  });
  const session = holding(["a", "b", "c", "d"]);
  expect(streamProblemsOf([first, second], session)).toEqual(["w: its epoch began with number 3"]);
});

describe("a pass over the events", () => {
  const session = holding(EVENTS, [1, 4, 1]);
  const passing = (changes: Partial<Pass>): readonly string[] => {
    const { expand = false, after = 0n } = changes;
    const kept = expand ? session.events : session.rows;
    const seen = kept.filter((row) => row.seq > after);
    return passProblemsOf(
      { name: "p", expand, after, seen, upTo: lastSeqOf(seen.at(-1) ?? row(1n, 0)), ...changes },
      session,
    );
  };
  const row = (seq: bigint, eventCount: number): StoredRow => {
    const [first] = session.rows;
    if (first === undefined) throw new Error("there are rows");
    return { ...first, seq, eventCount };
  };

  test("has everything after any raw event", () => {
    for (const after of [0n, 1n, 2n, 3n, 5n, 6n]) {
      expect(passing({ expand: true, after })).toEqual([]);
    }
    for (const after of [0n, 1n, 5n, 6n]) expect(passing({ after })).toEqual([]);
  });

  test("has the row of a cursor inside it again, but not from the number of that row", () => {
    const [, second, third] = session.rows;
    if (second === undefined || third === undefined) throw new Error("there are three rows");
    for (const after of [3n, 4n]) {
      expect(passing({ after, seen: [second, third], upTo: 6n })).toEqual([]);
      expect(passing({ after, seen: [third], upTo: 6n })).toEqual([
        `p after ${after}: seq 6, where 2 comes next`,
      ]);
    }
    expect(passing({ after: 2n, seen: [third], upTo: 6n })).toEqual([]);
    expect(passing({ after: 2n, seen: [second, third], upTo: 6n })).not.toEqual([]);
  });

  test("is reported when it misses or repeats an event, or ends early", () => {
    const events = session.events;
    const pass = { expand: true, upTo: 6n };
    expect(passing({ ...pass, seen: events.toSpliced(2, 1) })).toContain(
      "p after 0: seq 4, where 3 comes next",
    );
    expect(passing({ ...pass, seen: events.toSpliced(2, 0, ...events.slice(1, 2)) })).toContain(
      "p after 0: seq 2, where 3 comes next",
    );
    expect(passing({ ...pass, seen: events.slice(0, 4) })).toEqual([
      "p after 0: ended at 4, before 6",
    ]);
    const changed = events.map((event) => ({ ...event, payload: "{}" }));
    expect(passing({ ...pass, seen: changed })).not.toEqual([]);
  });
});
