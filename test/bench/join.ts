/**
 * A client opens a long session that has ended: how long until the first byte of the answer, and until
 * the clients of npm are done with it; and how long they take for every raw event instead. The session
 * is stored twice, an event a row and merged.
 *
 *   warm        somebody has asked for it before
 *   cold        nobody has; the service has served others. Each time it is another copy
 *   restarted   the first request that a service is asked at all
 */
import { HttpAgent } from "@ag-ui/client";
import { HttpAgent as HttpAgent0 } from "agui-client-0";
import type { Bench, Findings } from "./bench.ts";
import { latencyOf, median, rounded } from "./figures.ts";
import { conversation, storeSession } from "./joined-session.ts";
import { type Ledger, startLedger, startReplica } from "./servers.ts";

const RAW_EVENTS = 30_000;
const RAW_EVENTS_QUICK = 1_000;
const WARM_ASKS = 50;
const WARM_ASKS_QUICK = 5;

const CLIENTS = { "1.0.0": HttpAgent, "0.0.59": HttpAgent0 } as const;
type Client = keyof typeof CLIENTS;

interface Answer {
  readonly firstByteMs: number;
  readonly lastByteMs: number;
  readonly bytes: number;
}

export async function benchJoin(bench: Bench): Promise<Findings> {
  const { quick, calls } = bench.options;
  const ledger = await startLedger(bench);
  const events = conversation(calls ?? (quick ? RAW_EVENTS_QUICK : RAW_EVENTS));
  const stored = {
    raw: await benchStored(bench, ledger, { events, isMerged: false }),
    merged: await benchStored(bench, ledger, { events, isMerged: true }),
  };
  const payloadBytes = events.reduce((sum, { payload }) => sum + payload.length, 0);
  return { load: { rawEvents: events.length, payloadBytes }, stored };
}

async function benchStored(
  bench: Bench,
  ledger: Ledger,
  form: Pick<Parameters<typeof storeSession>[2], "events" | "isMerged">,
): Promise<Findings> {
  const { quick, rounds } = bench.options;
  const name = form.isMerged ? "merged" : "raw";
  const cold: Answer[] = [];
  const restarted: Answer[] = [];
  let rows = 0;
  for (let round = 0; round <= rounds; round += 1) {
    const sessionId = `bench-${name}-${round}`;
    bench.progress(`storing ${sessionId}`);
    rows = await storeSession(bench, ledger, { sessionId, ...form });
    await ledger.sql`vacuum analyze session_events`;
    const answer = await askAsClient(bench, urlOf(ledger.httpAddress, sessionId));
    if (round > 0) cold.push(answer); // The first also warms up the service's own code.
    const replica = await startReplica(bench, ledger);
    if (round > 0) restarted.push(await askAsClient(bench, urlOf(replica.httpAddress, sessionId)));
    await replica.stop();
  }
  const url = urlOf(ledger.httpAddress, `bench-${name}-0`);
  const warm: Answer[] = [];
  for (let count = 0; count < (quick ? WARM_ASKS_QUICK : WARM_ASKS); count += 1) {
    warm.push(await askAsClient(bench, url));
  }
  bench.progress(`${name}: clients`);
  const clients: Record<string, Findings> = {};
  for (const client of ["1.0.0", "0.0.59"] as const) {
    clients[client] = await benchClient(bench, client, url);
  }
  return {
    rows,
    answerBytes: warm[0]?.bytes,
    warm: summaryOf(warm),
    cold: summaryOf(cold),
    restarted: summaryOf(restarted),
    clients,
  };
}

/** The same messages on every way. */
async function benchClient(bench: Bench, client: Client, url: string): Promise<Findings> {
  const doneMs: number[] = [];
  let joined = await shown(client, url); // The client's own code is warm as on a page that is open.
  for (let round = 0; round < 3 * bench.options.rounds; round += 1) {
    bench.signal.throwIfAborted();
    joined = await shown(client, url);
    doneMs.push(joined.doneMs);
  }
  const replayed = await shown(client, `${url}?replay=events`);
  if (replayed.text !== joined.text) throw new Error(`${client} shows something else by a replay`);
  return {
    joinDoneMs: { median: rounded(median(doneMs)), max: rounded(Math.max(...doneMs)) },
    replayDoneMs: rounded(replayed.doneMs),
    messages: joined.messages,
  };
}

async function shown(client: Client, url: string) {
  const agent = new CLIENTS[client]({ url });
  const beganMs = performance.now();
  await agent.runAgent();
  const doneMs = performance.now() - beganMs;
  const { messages, state } = agent;
  return { doneMs, messages: messages.length, text: JSON.stringify({ messages, state }) };
}

export async function askAsClient(bench: Bench, url: string): Promise<Answer> {
  const beganMs = performance.now();
  const response = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", accept: "text/event-stream" },
    body: '{"protocolVersion":"1.0"}',
    signal: bench.signal,
  });
  if (!response.ok || response.body === null) throw new Error(`the answer is ${response.status}`);
  let firstByteMs: number | undefined;
  let bytes = 0;
  for await (const chunk of response.body) {
    firstByteMs ??= performance.now() - beganMs;
    bytes += chunk.length;
  }
  return { firstByteMs: firstByteMs ?? Number.NaN, lastByteMs: performance.now() - beganMs, bytes };
}

function summaryOf(answers: readonly Answer[]): Findings {
  return {
    asks: answers.length,
    firstByte: latencyOf(answers.map(({ firstByteMs }) => firstByteMs)),
    lastByte: latencyOf(answers.map(({ lastByteMs }) => lastByteMs)),
  };
}

function urlOf(httpAddress: string, sessionId: string): string {
  return `http://${httpAddress}/agui/sessions/${sessionId}`;
}
