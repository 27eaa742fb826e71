/** Databases have the landed migrations, so those never change (decision 073). */
import { createHash } from "node:crypto";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { z } from "zod";

const FOLDER = join(import.meta.dirname, "../../src/store/migrations");

/** A new migration adds its files here. */
const FROZEN: Readonly<Record<string, string>> = {
  "0000_ledger.down.sql": "3140fc22f11c45dde19f7025425a57c3c40037fb0ef9a35ddac460a5558ebdfb",
  "0000_ledger.sql": "b129af0e24ac6a62a8a6069faa66c10241fb152f7b23646618f305fc171572d9",
  "0001_lists.down.sql": "054a28d289fc98d3c54689f64ab91830ca1da28a025625175ce4576d3646bc40",
  "0001_lists.sql": "0972827b5d706ebe3507f7de0ecf6acf9c7e1f322a892176c0e6c0a8b23d3da2",
  "0002_feedback.down.sql": "70d92e32907d11fd3b733b8d10ec53f4ebafda91b4730ed158de08cbcbfc2cea",
  "0002_feedback.sql": "e66d9b5ebd9f9108c5bd1ac171276f686ea7f759dba87499078c31a8034f37a4",
  "0003_append.down.sql": "003b188238a116dc870890e3d16a229f43dee57148c3e2e6cd5096d2be11061d",
  "0003_append.sql": "9c524433ed95cb640cd1751f6beda84e4897e5bf8f61fd9888aa4ecc33560f64",
  "0004_one_session.down.sql": "d3d125e1b4e6b7d0a4647e8e08bc3ed338beb62e1f2d9abf74af32de1bd8a38a",
  "0004_one_session.sql": "215b2b089e09d7a7122d16a38974979cd5290f4415fe0fec08e1d5fa43e7153e",
  "0005_chain.down.sql": "30c1299b5362ca3e1fd6c735d85edf385dfd9a1bf0454a4ea4d5e9e5361df4e2",
  "0005_chain.sql": "ee52ced285a236205628c2cafddf63927038cea567aa14d022e116780bc692db",
  "0006_retention.down.sql": "122a606e6f8a405b789994d5370f617cf8e240148e458ed1cb2147125e6c5854",
  "0006_retention.sql": "4c4bbfbdd3eea7f078b21e359a92d4e7b1970fe491e842ce5064d9dfcb71ae4a",
  "0007_sharded.down.sql": "2933360e8e329d82fce67b699739cc5b6b2a32449035c0864ae7f41a8132e804",
  "0007_sharded.sql": "b1f11af83f33851e1748f84cf86791f363e1a59d556e044994149cc97158b79e",
  "0008_states.down.sql": "62ba6c7f50052715a6376f42faf62e016b321db161d3981e0a0037a10153d8e4",
  "0008_states.sql": "e928a4ed7047bd603833a6eccb9fabeaf45e74e6d4fa0d47c3846b43a08c4502",
  "0009_asked.down.sql": "bbaca266ac4af4c872bede5bc4d11e7b22f41d6875e1d204366f0fc8e05d530a",
  "0009_asked.sql": "5063bf01a6b038edcf5b2cea5bc68975afb8acb12a6d969501748277b21de7d2",
  "analytics.sql": "28806d4fffff56ce27622562c2e4604cb4a6a94c063784163baa6ba073b7e155",
  "append-0005.sql": "1c4c08685459c61335f3e909565d1ac7c33b36d28eb60d48685b30a9a77b29c7",
  "append.sql": "9171bf6ef5cbe969967a903dbb45b097c71db1e2320fab86aca59c7d9e3ec5e1",
  "chain.sql": "649c2e3a9a0e1dc11b697763718140033b635c286bd90574d7edec5f72997ea5",
  "erase-0005.sql": "77fd09c17b54c1b7ff2ea42ed85108dd6933444e53204a43a0c76b52c41f8870",
  "fork-0001.sql": "061badc8841f5990b2f69366aa396f3bccb57e3b7bbe86201c28327bcd037c6f",
  "fork-0002.sql": "642160fd07ed412491889b3e17f9100933832a5918fb727bdbbfe7d8785cf659",
  "fork.sql": "6665ce0247663f932441f448fd689a70920685ffb9ffe20fdb56807a634b0ae7",
  "ledger-0001.sql": "87facab8973dd388db9914944ca78cd4246163a8dcfa113f79ac80933d5da9b6",
  "ledger.sql": "b81ab9a663a879fe435fb4e9d6e4f56e98430527a59498fd1e9a8ceb803291b6",
  "retain.sql": "f9c60f8fc1d0c25c8698917330a1193b56f6b8015705ca83b15e29977bbfdcfa",
  "session.sql": "fb25298cb9263754400c5fea047346485ec342e40490206c12f5f909799c47dc",
  "texts.sql": "ee301c788df9547d7ff1c75a36cff95b18a72512615554b119fb9ba4f523d10e",
};

/** The times by which a database knows its migrations. */
const FROZEN_TIMES: Readonly<Record<string, number>> = {
  "0000_ledger": 1795398330244,
  "0001_lists": 1795734038329,
  "0002_feedback": 1795737453912,
  "0003_append": 1795768494399,
  "0004_one_session": 1795773600000,
  "0005_chain": 1795779629640,
  "0006_retention": 1795820336499,
  "0007_sharded": 1795823936499,
  "0008_states": 1795830998879,
  "0009_asked": 1795854995700,
};

const journalSchema = z.object({
  entries: z.array(z.object({ tag: z.string(), when: z.number() })),
});
const { entries } = journalSchema.parse(
  JSON.parse(readFileSync(join(FOLDER, "meta/_journal.json"), "utf8")),
);

test("no file of a landed migration has changed", () => {
  const files = globSync("*.sql", { cwd: FOLDER }).toSorted();
  const digests = files.map((file) => {
    const digest = createHash("sha256").update(readFileSync(join(FOLDER, file)));
    return [file, digest.digest("hex")];
  });
  const times = entries.map(({ tag, when }) => [tag, when]);
  expect(
    { files: Object.fromEntries(digests), times: Object.fromEntries(times) },
    "Databases have this migration, and would not get the change: undo it, and make a new migration (CONTRIBUTING, The schema). The digests of new files belong into this test",
  ).toEqual({ files: FROZEN, times: FROZEN_TIMES });
});

test("each migration is later than the one before, and has a step down", () => {
  const times = entries.map(({ when }) => when);
  expect(times).toEqual([...new Set(times)].toSorted((a, b) => a - b));
  const steps = globSync("*.down.sql", { cwd: FOLDER }).toSorted();
  expect(steps).toEqual(entries.map(({ tag }) => `${tag}.down.sql`));
});
