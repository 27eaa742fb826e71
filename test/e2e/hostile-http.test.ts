/** Hostile callers over HTTP/1.1; hostile-grpc.test.ts has those over gRPC. */
import { expect, test } from "vitest";
import type { AttackName } from "../support/hostile-worker.ts";
import { attacked } from "../support/under-attack.ts";
import { useService } from "../support/use-service.ts";

const { service, client } = useService({});

const CLOSED: readonly AttackName[] = [
  "http: requests that come a byte at a time",
  "http: headers without end",
  "http: garbage",
  "http: requests that do not wait for answers",
];
/** An attack ends when its connections are closed: only one that fails lasts this long. */
const CLOSED_WITHIN_MS = 60_000;

test.each(CLOSED)("%s: the connections are closed", async (attack) => {
  const order = { address: service.httpAddress, attack, lastsMs: CLOSED_WITHIN_MS };
  const report = await attacked(service, client, order);
  expect(report.closed).toBe(report.connections);
  expect(report.pushes).toBeGreaterThan(0);
});

/** The rest of a refused body is read and dropped, for a minute at most. */
const BORNE: readonly AttackName[] = [
  "http: packed bodies",
  "http: a body in chunks without end",
  "http: chunks that are nearly all extension",
  "http: lines without end",
];

test.each(BORNE)("%s: other callers are not affected", async (attack) => {
  const order = { address: service.httpAddress, attack, lastsMs: 3_000 };
  const report = await attacked(service, client, order);
  expect(report.pushes).toBeGreaterThan(0);
});

test("the service works after all attacks, and none was logged as a defect", async () => {
  const answer = await fetch(`http://${service.httpAddress}/api/ambient/v1/sessions`);
  expect(answer.status).toBe(200);
  expect(service.log.filter((line) => /"level":"(error|fatal)"/.test(line))).toEqual([]);
});
