/**
 * Hostile callers on connections of gRPC. During each attack an honest caller is answered in time and
 * memory stays within the limit; most attackers lose their connections. The limits of single requests
 * are in rpc-requests.test.ts.
 */
import { expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import type { AttackName } from "../support/hostile-worker.ts";
import { push } from "../support/pushing.ts";
import { attacked } from "../support/under-attack.ts";
import { useService } from "../support/use-service.ts";

/** An attack ends when its connections are closed: only one that fails lasts this long. */
const CLOSED_WITHIN_MS = 60_000;

const { service, client } = useService({});

const CLOSED: readonly AttackName[] = [
  "connections that say nothing",
  "half a preface",
  "continuations without end",
  "headers that are too large",
  "pings",
  "pings whose answers are not read",
  "settings",
  "settings whose answers are not read",
  "unknown frames",
  "streams that are taken back",
  "streams that make the server take them back",
  "ten thousand streams at once",
  "empty data",
  "data in pieces of one byte",
  "garbage",
  "headers that do not end",
];

test.each(CLOSED)("%s: the connections are closed", async (attack) => {
  const order = { address: service.grpcAddress, attack, lastsMs: CLOSED_WITHIN_MS };
  const report = await attacked(service, client, order);
  expect(report.closed).toBe(report.connections);
  expect(report.pushes).toBeGreaterThan(0);
});

test("messages that unpack to a thousand times their size are refused one by one", async () => {
  const attack = "messages that unpack to a thousand times their size";
  const order = { address: service.grpcAddress, attack, lastsMs: 3_000 } as const;
  const report = await attacked(service, client, order);
  expect(report.pushes).toBeGreaterThan(0);
});

test("the service works after all attacks, and none was logged as a defect", async () => {
  const sessionId = "after";
  const watch = client.serverStream(SessionService.method.watchSessionEvents, { sessionId });
  await watch.attached;
  await push(client, "events", { sessionId });
  expect(await watch.next()).toMatchObject({ value: { sessionId } });
  watch.cancel();
  const answer = await fetch(`http://${service.opsAddress}/metrics`);
  const metrics = await answer.text();
  expect(metrics).toMatch(/connections_closed_total\{server="grpc",why="preface"\} 400/);
  await expect
    .poll(async () => {
      const now = await fetch(`http://${service.opsAddress}/metrics`);
      return /^session_ledger_received_bytes (\d+)/m.exec(await now.text())?.[1];
    })
    .toBe("0");
  expect(service.log.filter((line) => /"level":"(error|fatal)"/.test(line))).toEqual([]);
});
