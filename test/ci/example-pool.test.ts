/**
 * The manifest of examples/kubernetes-pool without a cluster: its command is run with its environment,
 * as a process that may write no file, and stops in the time that it gives.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test } from "vitest";
import { parse } from "yaml";
import { z } from "zod";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { newSession } from "../support/pushing.ts";
import { say } from "../support/turns.ts";
import { useService } from "../support/use-service.ts";

const { getSession, listSessionMessages } = SessionService.method;
const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const MIB = 2 ** 20;

const names = z.record(z.string(), z.string());
const manifest = z
  .object({
    metadata: z.object({ name: z.string() }),
    spec: z.object({
      selector: z.object({ matchLabels: names }),
      template: z.object({
        metadata: z.object({ labels: names }),
        spec: z.object({
          terminationGracePeriodSeconds: z.int(),
          containers: z.tuple([
            z.object({
              command: z.tuple([z.literal("node"), z.string()]),
              env: z.tuple([
                z.object({ name: z.literal("LEDGER_GRPC"), value: z.string() }),
                z.object({
                  name: z.literal("POD_NAME"),
                  valueFrom: z.object({
                    fieldRef: z.object({ fieldPath: z.literal("metadata.name") }),
                  }),
                }),
              ]),
              resources: z.object({
                limits: z.object({ memory: z.string().regex(/^\d+Mi$/) }),
              }),
              securityContext: z.looseObject({ readOnlyRootFilesystem: z.literal(true) }),
            }),
          ]),
        }),
      }),
    }),
  })
  .parse(parse(readFileSync(`${ROOT}/examples/kubernetes-pool/pool.yaml`, "utf8")));

// A ledger of its own: a pool answers in every session that waits.
const { service, client } = useService({});

test("the pod of the pool answers, writes no file, keeps to its memory, and stops in time", async () => {
  const { spec, metadata } = manifest.spec.template;
  expect(metadata.labels).toMatchObject(manifest.spec.selector.matchLabels);
  const [{ command, resources }] = spec.containers;
  const pod = `${manifest.metadata.name}-0`;
  const args = ["--permission", "--allow-fs-read=*", command[1]];
  const env = { LEDGER_GRPC: service.grpcAddress, POD_NAME: pod };
  const child = spawn(process.execPath, args, { cwd: ROOT, env, stdio: "inherit" });
  onTestFinished(() => void child.kill("SIGKILL"));
  const sessionId = newSession();
  await say(client, sessionId, "What is 6 times 7?");
  const said = async () => {
    const { items } = await client.unary(listSessionMessages, { sessionId });
    return items.filter(({ eventType }) => eventType === "assistant").map((row) => row.payload);
  };
  await expect.poll(said).toEqual(["It is 42."]);
  // The next start of the pod finds its runs by this name.
  const { items } = await client.unary(SessionService.method.listSessionEvents, { sessionId });
  expect(JSON.parse(items[0]?.payload ?? "{}")).toMatchObject({ metadata: { runner: pod } });
  const [, kib = "0"] =
    /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${child.pid}/status`, "utf8")) ?? [];
  expect((Number(kib) * 1_024) / MIB).toBeLessThan(Number.parseInt(resources.limits.memory, 10));
  const stoppedMs = performance.now();
  child.kill("SIGTERM");
  expect(await once(child, "exit")).toEqual([0, null]);
  const seconds = (performance.now() - stoppedMs) / 1_000;
  expect(seconds).toBeLessThan(spec.terminationGracePeriodSeconds);
  expect(await client.unary(getSession, { id: sessionId })).toMatchObject({ phase: "Stopped" });
});
