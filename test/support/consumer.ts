/**
 * A program of a user of the packages: writes a session, reads it, copies it. Tests check it and run it
 * in a folder with an installed package; here tsconfig.json resolves the names. The second argument
 * makes the names of its sessions unique, and a third one is a token: with it the program speaks TLS.
 */
import { Compressor, expand } from "@session-ledger/runner/compressor";
import {
  createSessionWriter,
  fromJsonLines,
  readSession,
  RpcFailure,
  toJsonLines,
} from "@session-ledger/runner";

const [, , address = "127.0.0.1:9000", name = "consumer", token] = process.argv;
const way = { address, ...(token === undefined ? {} : { tls: true, token }) };
const [written, copied] = [`${name}-written`, `${name}-copied`];

/** The type and the text of an event. */
function shown(event: Readonly<Record<string, unknown>>): string {
  const { type, delta } = event;
  return typeof delta === "string" ? `${String(type)} ${delta}` : String(type);
}

async function eventsOf(sessionId: string): Promise<readonly string[]> {
  const events: string[] = [];
  for await (const { event } of readSession({ ...way, sessionId, expand: true }))
    events.push(shown(event));
  return events;
}

function merge(): { readonly rows: number; readonly events: readonly string[] } {
  const compressor = new Compressor();
  const eventType = "TEXT_MESSAGE_CONTENT";
  const rows = ["Hel", "lo"].flatMap((delta) => {
    const payload = JSON.stringify({ type: eventType, messageId: "m", delta });
    return compressor.push({ eventType, payload, createdAtMicros: 0n }, 0);
  });
  const last = compressor.flush();
  const all = last === undefined ? rows : [...rows, last];
  return {
    rows: all.length,
    events: all.flatMap((row) => [...expand({ seq: 1n, ...row })].map(({ payload }) => payload)),
  };
}

async function* deltas(): AsyncGenerator<string> {
  yield "Hel";
  yield "lo";
}

const writer = createSessionWriter({ ...way, sessionId: written });
await writer.text(deltas());
const { complete, stats } = await writer.close();

const messages: string[] = [];
for await (const { eventType, payload } of readSession({
  ...way,
  sessionId: written,
  stream: "messages",
}))
  messages.push(`${eventType} ${payload}`);

const tokens: string[] = [];
for await (const row of readSession({ ...way, sessionId: written })) {
  for (const { payload } of expand(row)) tokens.push(shown(JSON.parse(payload)));
}

const copy = createSessionWriter({ ...way, sessionId: copied, messages: "manual" });
const lines = toJsonLines(readSession({ ...way, sessionId: written, expand: true }));
for await (const { text } of fromJsonLines(lines)) copy.event(text);
await copy.close();

let failure = "";
try {
  for await (const _ of readSession({ ...way, sessionId: `${name}-never-written` })) break;
} catch (error) {
  if (error instanceof RpcFailure) failure = `${error.code} ${error.reason}`;
}

process.stdout.write(
  JSON.stringify({
    merged: merge(),
    closed: {
      complete,
      dropped: stats.events.dropped + stats.messages.dropped,
      refused: stats.events.refused + stats.messages.refused,
    },
    events: await eventsOf(written),
    tokens,
    messages,
    copied: await eventsOf(copied),
    failure,
  }),
);
