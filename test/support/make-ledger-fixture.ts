/**
 * Fills a ledger by the calls of clients, and writes its rows and the answers of its service to
 * test/fixtures: `node test/support/make-ledger-fixture.ts`. The files of 0000 were made once by its
 * build. Ids and times are others in each run.
 */
import { mkdir, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { fillSession } from "../../src/demo/fill.ts";
import { demoSessions } from "../../src/demo/sessions.ts";
import { runningUrl } from "../../src/postgres/cluster.ts";
import { createLedgerClient } from "@session-ledger/runner";
import { bundle } from "../../tools/bundle.ts";
import { cleanUp } from "./embedded-fixture.ts";
import { pace } from "./eventually.ts";
import { fillEveryKind } from "./every-session.ts";
import { RpcClient } from "./grpc-client.ts";
import {
  ADMIN_TOKEN,
  everyAnswer,
  FIXTURE,
  fixtureSql,
  rowsOf,
  startOnLedger,
} from "./ledger-fixture.ts";

const { method } = SessionService;
const LOOK_MS = 100;

await bundle(fileURLToPath(new URL("../../dist", import.meta.url)));
const service = await startOnLedger({ embedded: true });
const url = await runningUrl(service.dataDir);
const client = new RpcClient(service.grpcAddress);

await fillEveryKind(client, url);
await client.unary(method.eraseSession, { id: "large" });
await client.unary(method.holdSession, { id: "known", reason: "case 7" });
const made = await client.unary(method.createSession, {
  name: "Made by a call",
  projectId: "alpha",
  prompt: "Answer briefly.",
  llmModel: "a-model",
  labels: '{"team":"infra"}',
});
const id = made.metadata?.id ?? "";
await client.unary(method.updateSessionStatus, { id, capabilities: '{"streaming":true}' });
await client.unary(method.pushSessionMessage, {
  sessionId: id,
  eventType: "user",
  payload: "hello from alpha",
});
const settings = { address: service.grpcAddress };
const ledger = { client: createLedgerClient(settings), retry: {}, settings };
for (const session of demoSessions()) await fillSession(session, ledger);
ledger.client.close();

const guarded = await startOnLedger({ databaseUrl: url }, { hasTokens: true });
const admin = new RpcClient(guarded.grpcAddress);
const metadata = { authorization: `Bearer ${ADMIN_TOKEN}` };
await admin.unary(method.issueSessionToken, { sessionId: "known", role: "runner" }, { metadata });
admin.close();
await guarded.stop();

const sql = fixtureSql(url);
// The service ends the cancelled run, and indexes all rows.
for (let isDone = false; !isDone; await pace(LOOK_MS)) {
  const [open] = await sql`
    select count(*)::int as sessions from sessions s left join indexed_sessions i on i.session_id = s.id
    where s.deleted_at is null and s.row_count > 0 and (s.cancel_seq is not null
      or (s.message_seq, s.event_seq) is distinct from (i.message_seq, i.event_seq))`;
  isDone = open?.["sessions"] === 0;
}
const answers = JSON.stringify(await everyAnswer(service, url));
const rows = await rowsOf(sql);
await sql.end();
client.close();
await service.stop();
await cleanUp();

await mkdir(new URL(".", FIXTURE.rows), { recursive: true });
await writeFile(FIXTURE.rows, gzipSync(rows, { level: 9 }));
// Most answers repeat rows of others: its window has all of them.
const params = {
  [constants.BROTLI_PARAM_LGWIN]: constants.BROTLI_MAX_WINDOW_BITS,
  [constants.BROTLI_PARAM_SIZE_HINT]: answers.length,
};
await writeFile(FIXTURE.answers, brotliCompressSync(answers, { params }));
