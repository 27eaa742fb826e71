/** The time of a person's message in the conversation of the inspector. */
import { expect, test } from "vitest";
import { Moment } from "../../web/src/model/scrub.ts";
import { History } from "../../web/src/model/history.ts";

const SAID = { seq: 1, id: "m", type: "user", payload: "Hi", sender: undefined };

// Bug: a message that was sent at 15:47 and stored at 16:11 stood at 16:11, above an answer of 15:47.
test.each([
  ["its sender sent it", 1_000, 1_000],
  ["the service took it, if no time of its sender is known", undefined, 5_000],
  ["the service took it, if the sender's clock is ahead", 9_000, 5_000],
])("regression: a message is shown at the time when %s", (_, sentMs, shownMs) => {
  const history = new History("s");
  history.hear({ ...SAID, sentMs, atMs: 5_000, storedMs: 5_000, recordedMs: 5_000 });
  const moment = new Moment(history, { seq: 1, cutSeq: -1, missing: 0 }, { isExact: true });
  expect(moment.items.map(({ kind, atMs }) => [kind, atMs])).toEqual([["message", shownMs]]);
});

// Bug: an agent that repeated a question in a MESSAGES_SNAPSHOT took the name of who had asked.
test("regression: a question that a snapshot repeats without a name keeps its sender", () => {
  const history = new History("s");
  const sender = { id: "u1", displayName: "Ann" };
  history.hear({ ...SAID, sender, sentMs: 1, atMs: 1, storedMs: 1, recordedMs: 1 });
  const messages = [{ id: "m", role: "user", content: "Hi" }];
  const event = { type: "MESSAGES_SNAPSHOT", messages };
  const times = { atMs: 2, endMs: 2, storedMs: 2, recordedMs: 2 };
  const form = { runId: "", count: 1, bytes: 1, fragments: undefined, isConformant: true };
  history.take({
    seq: 1,
    lastSeq: 1,
    ...form,
    ...times,
    type: event.type,
    payload: JSON.stringify(event),
  });
  const moment = new Moment(history, { seq: 1, cutSeq: -1, missing: 0 }, { isExact: true });
  expect(moment.items).toMatchObject([{ kind: "message", name: "Ann", by: "person" }]);
  // The transcript has what the snapshot says, as every client of AG-UI does.
  expect(moment.messages).toEqual(messages);
});
