/**
 * A runner that is killed in the middle of a run, started again and given the run from its beginning
 * has each message of it in the table once, in order.
 *
 * Method: the runner is a process (support/replaying-runner.ts). It is killed when it has said that a
 * part of the events is settled and was given some more, so that messages of some of them are stored,
 * of others under way, and of others not yet made; at each place of the stream in turn.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { MessageDeriver, readSession } from "@session-ledger/runner";
import { ownStreams, type Stream } from "../support/streams.ts";
import { useService } from "../support/use-service.ts";

const RUNNER = fileURLToPath(new URL("../support/replaying-runner.ts", import.meta.url));

const { service } = useService();

function startRunner(sessionId: string, { settled }: { settled: number }) {
  const args = [RUNNER, service.grpcAddress, sessionId, String(settled)];
  const child = spawn(process.execPath, args, { stdio: ["pipe", "pipe", "inherit"] });
  child.stdin.on("error", () => undefined); // It was killed.
  return { child, said: createInterface({ input: child.stdout })[Symbol.asyncIterator]() };
}

/** Gives it everything up to `settled`, waits until that is settled, gives it `more` and kills it. */
async function runAndKill(
  { events }: Stream,
  { sessionId, settled, more }: { sessionId: string; settled: number; more: number },
): Promise<void> {
  const { child, said } = startRunner(sessionId, { settled });
  const lines = events.map(({ payload }) => `${payload}\n`);
  child.stdin.write(lines.slice(0, settled).join(""));
  expect((await said.next()).value).toBe("settled");
  child.stdin.write(lines.slice(settled, settled + more).join(""));
  child.kill("SIGKILL");
  await once(child, "exit");
}

async function runToEnd({ events }: Stream, sessionId: string): Promise<string> {
  const { child, said } = startRunner(sessionId, { settled: 0 });
  child.stdin.end(events.map(({ payload }) => `${payload}\n`).join(""));
  let last = "";
  for await (const line of { [Symbol.asyncIterator]: () => said }) last = line;
  return last;
}

async function messagesOf(sessionId: string): Promise<readonly string[]> {
  const messages: string[] = [];
  const { grpcAddress: address } = service;
  for await (const { eventType, payload } of readSession({
    address,
    sessionId,
    stream: "messages",
  }))
    messages.push(`${eventType} ${payload}`);
  return messages;
}

function derived({ events }: Stream): readonly string[] {
  const deriver = new MessageDeriver();
  return events
    .flatMap(({ payload }) => deriver.next(payload))
    .map(({ eventType, payload }) => `${eventType} ${payload}`);
}

const scenarios = ["text-and-tools", "chunks", "python-runner"];

test.each(ownStreams().filter(({ scenario }) => scenarios.includes(scenario)))(
  "$scenario: each message is stored once, wherever its runner was killed",
  async (stream) => {
    const sessionId = `killed-${stream.scenario}`;
    const places = [3, Math.floor(stream.events.length / 2), stream.events.length - 2];
    let stored = 0;
    for (const settled of places) {
      await runAndKill(stream, { sessionId, settled, more: 2 });
      const messages = await messagesOf(sessionId);
      expect(messages).toEqual(derived(stream).slice(0, messages.length));
      expect(messages.length).toBeGreaterThanOrEqual(stored);
      stored = messages.length;
    }
    expect(stored).toBeGreaterThan(1);
    expect(await runToEnd(stream, sessionId)).toBe('{"complete":true,"refused":0}');
    expect(await messagesOf(sessionId)).toEqual(derived(stream));
  },
);
