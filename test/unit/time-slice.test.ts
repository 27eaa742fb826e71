/** Regression: one reader of a row of a million events blocked all other work for seconds. */
import { createServer } from "node:http";
import { setImmediate as turn } from "node:timers/promises";
import { expect, test } from "vitest";
import type { ExportHandlers } from "../../src/handlers/export.ts";
import { TimeSlice } from "../../src/contract/time-slice.ts";
import { createApp } from "../../src/http/plumbing/app.ts";
import { exportRoutes } from "../../src/http/export-routes.ts";
import { UnsentFrames } from "../../src/http/sse.ts";
import { OpenRequests } from "../../src/http/plumbing/open-requests.ts";
import { RequestRecords } from "../../src/http/plumbing/request-records.ts";
import { HTTP_OPTIONS, httpParts, OPEN } from "../support/http-fixture.ts";

test("a slice lets other work run after its time, and then begins again", async () => {
  const slice = new TimeSlice({ sliceMs: 50 });
  expect(slice.turn()).toBeUndefined();
  const over = new TimeSlice({ sliceMs: 0 });
  let others = 0;
  void turn().then(() => (others += 1));
  await over.turn();
  expect(others).toBe(1);
});

test("an export lets other work run while its reader keeps up", async () => {
  const event = { seq: 1n, eventType: "CUSTOM", payload: "{}", createdAtMicros: 0n };
  let others = 0;
  let events = 0;
  const eventsMax = 2_000_000;
  const count = (): void => void setImmediate(() => ((others += 1), others < 3 && count()));
  function* row() {
    while (events < eventsMax) {
      if (others === 3) return;
      events += 1;
      yield event;
    }
  }
  const notAsked = (): never => {
    throw new Error("nobody should ask for this");
  };
  const exports: ExportHandlers = {
    async *exportEvents() {
      yield row();
    },
    exportMessages: notAsked,
    exportHistory: notAsked,
  };
  const parts = httpParts({ exports });
  const app = createApp(
    {
      openRequests: new OpenRequests(),
      records: new RequestRecords(parts, HTTP_OPTIONS),
      admission: OPEN,
      isOnLoopback: false,
      serverFactory: (handle) => createServer(handle),
    },
    HTTP_OPTIONS,
  );
  exportRoutes(app, { ...parts, heartbeatMs: 60_000, unsent: new UnsentFrames() });
  await app.ready();
  count();
  const answer = await app.inject({ url: "/sessions/s/export" });
  expect(answer.statusCode).toBe(200);
  expect(others).toBe(3);
  expect(events).toBeLessThan(eventsMax);
  await app.close();
});
